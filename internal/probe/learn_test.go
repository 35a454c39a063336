package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/ecmp"
)

func TestLearnFindsPortsForEveryPathToldNothing(t *testing.T) {
	for _, spines := range []int{1, 2, 3, 4, 8, 16, 64} {
		t.Run(fmt.Sprint(spines), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(leafSpine(spines, murmur(7)))
				p := prober(t, f, 500)
				m, err := p.Learn(t.Context(), to, Options{})
				if err != nil {
					t.Fatal(err)
				}
				right(t, f, m, spines, 16)
				t.Logf("%d paths: %d probes, %s, missed with %.1g", spines, m.Probes, m.Took.Round(time.Millisecond), m.Miss)
				if !m.Complete || m.Miss > 1e-6 || m.How != Probed || m.Hops != 3 || m.Unanswered != 0 || m.Mixed {
					t.Errorf("%+v", m)
				}
				if m.Probes != f.sent {
					t.Errorf("%d probes are counted, %d were sent", m.Probes, f.sent)
				}
			})
		})
	}
}

func TestAPathIsNamedByTheInterfacesBetweenSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(2, murmur(7)))
		m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Paths {
			up, down := fmt.Sprintf("10.1.0.%d", i), fmt.Sprintf("10.2.0.%d", i)
			if !slices.Equal(p.Via, []string{"10.0.1.1", up, down}) {
				t.Errorf("path %d is %v", i, p.Via)
			}
			if !slices.Equal(p.Links, []ecmp.LinkID{ecmp.NameLink(up), ecmp.NameLink(down)}) {
				t.Errorf("path %d has the links %v", i, p.Links)
			}
		}
	})
}

// 15 % of probes and of answers are lost, some answers come twice, and all out of order.
func TestLearnOnALossyNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(9)))
		f.loss, f.twice, f.delay = 0.15, 0.2, 20*time.Millisecond
		p := prober(t, f, 500)
		m, err := p.Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		right(t, f, m, 4, 16)
		if !m.Complete || p.Stats().Stray == 0 {
			t.Errorf("%+v %+v", m, p.Stats())
		}
		t.Logf("%d probes, %s", m.Probes, m.Took)
	})
}

// Linux as it comes answers a source 6 times at once and once a second after that.
func TestLearnFromRoutersThatAnswerOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(9)))
		f.limit = 1
		m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		right(t, f, m, 4, 16)
		t.Logf("%d probes, %s, complete %v, %d unanswered", m.Probes, m.Took, m.Complete, m.Unanswered)
		if !m.Complete || m.Took > 5*time.Minute {
			t.Errorf("%+v", m)
		}
	})
}

func TestSilentRoutersAreStarsAndOthersTellPathsApart(t *testing.T) {
	inner := leafSpine(4, murmur(3))
	for name, quiet := range map[string]func(way []netip.Addr){
		"all spines":         func(way []netip.Addr) { way[1] = netip.Addr{} },
		"one spine":          func(way []netip.Addr) { way[1] = unless(way[1], ip(10, 1, 0, 2)) },
		"the own leaf":       func(way []netip.Addr) { way[0] = netip.Addr{} },
		"the target's leaf":  func(way []netip.Addr) { way[2] = netip.Addr{} },
		"a spine and a leaf": func(way []netip.Addr) { way[0], way[1] = netip.Addr{}, unless(way[1], ip(10, 1, 0, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(func(tu ecmp.Tuple) []netip.Addr {
					way := inner(tu)
					quiet(way)
					return way
				})
				// Where all spines are silent it takes somebody who knows how leaves answer.
				m, err := prober(t, f, 500).Learn(t.Context(), to, Options{Inbound: name == "all spines"})
				if err != nil {
					t.Fatal(err)
				}
				f.route = inner
				right(t, f, m, 4, 16)
				if !m.Complete {
					t.Errorf("%+v", m)
				}
				t.Logf("%d probes, %s: %v", m.Probes, m.Took, m.Paths[0].Via)
			})
		})
	}
}

func unless(a, b netip.Addr) netip.Addr {
	if a == b {
		return netip.Addr{}
	}
	return a
}

func TestWhereNothingTellsPathsApartLearnIsBlind(t *testing.T) {
	inner := leafSpine(4, murmur(3))
	for name, quiet := range map[string]func(way []netip.Addr) []netip.Addr{
		"only the own leaf answers": func(way []netip.Addr) []netip.Addr { way[1], way[2] = netip.Addr{}, netip.Addr{}; return way },
		"nobody answers":            func(way []netip.Addr) []netip.Addr { return make([]netip.Addr, 3) },
		"spines are silent and the leaf may mean its way back": func(way []netip.Addr) []netip.Addr { way[1] = netip.Addr{}; return way },
		"spines are silent and the leaf has one address": func(way []netip.Addr) []netip.Addr {
			way[1], way[2] = netip.Addr{}, ip(10, 9, 9, 9)
			return way
		},
	} {
		for _, mute := range []bool{false, true} {
			t.Run(fmt.Sprint(name, mute), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFabric(func(tu ecmp.Tuple) []netip.Addr { return quiet(inner(tu)) })
					f.mute = mute
					_, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
					if !errors.Is(err, ErrBlind) {
						t.Fatal(err)
					}
					t.Log(err, f.sent)
					if f.reached > 0 || f.sent > 1000 {
						t.Errorf("%d probes, of which %d came to the target", f.sent, f.reached)
					}
				})
			})
		}
	}
}

func TestSprayingIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := newFabric(leafSpine(4, func(ecmp.Tuple, int) int { n++; return n * 7 % 5 % 4 }))
		_, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if !errors.Is(err, ErrSprays) {
			t.Fatal(err)
		}
		t.Log(err, f.sent)
		if f.sent > 500 {
			t.Errorf("%d probes", f.sent)
		}
	})
}

// The target's leaf answers with the address of its way back, which a hash of its own chooses.
func TestAnswersThatTellOfTheWayBackAreNoPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpineLinux(4, murmur(3), murmur(4)))
		p := prober(t, f, 500)
		m, err := p.Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		right(t, f, m, 4, 16)
		if !m.Mixed || !m.Complete || len(m.Paths[0].Links) != 1 {
			t.Errorf("%+v", m)
		}
		t.Logf("%d probes", m.Probes)
		// Who knows better may say so.
		if m, err = p.Learn(t.Context(), to, Options{Inbound: true}); err != nil || len(m.Paths) != 16 {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// Two links between a leaf and each spine, up and down.
func TestParallelLinksAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, down := murmur(3), murmur(4)
		f := newFabric(func(tu ecmp.Tuple) []netip.Addr {
			u := up(tu, 4) // spine u/2, link u%2
			return []netip.Addr{ip(10, 0, 1, 1), ip(10, 1, u/2, u%2), ip(10, 2, u/2, down(tu, 2))}
		})
		m, err := prober(t, f, 500).Learn(t.Context(), to, Options{Inbound: true})
		if err != nil || len(m.Paths) != 8 || !m.Complete {
			t.Fatalf("%+v, %v", m, err)
		}
	})
}

func TestThreeTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaf, agg := murmur(3), murmur(4)
		f := newFabric(func(tu ecmp.Tuple) []netip.Addr {
			a, c := leaf(tu, 4), agg(tu, 4)
			return []netip.Addr{ip(10, 0, 1, 1), ip(10, 1, a, 1), ip(10, 2, a, c), ip(10, 3, a, c), ip(10, 4, a, 1)}
		})
		m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if err != nil || len(m.Paths) != 16 || !m.Complete || m.Hops != 5 || len(m.Paths[0].Links) != 4 || f.reached > 0 {
			t.Fatalf("%+v, %v", m, err)
		}
		t.Logf("%d probes", m.Probes)
	})
}

// The seed changes while it is being learned: the map is of the network as it is afterwards, or there is none.
func TestChangesWhileLearning(t *testing.T) {
	for _, after := range []time.Duration{10, 100, 200, 300, 500, 700, 900, 1100, 1200, 1300} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(leafSpine(4, murmur(1)))
				p := prober(t, f, 500)
				timer := time.AfterFunc(after*time.Millisecond, func() { f.set(func() { f.route = leafSpine(4, murmur(2)) }) })
				defer timer.Stop()
				m, err := p.Learn(t.Context(), to, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if timer.Stop() {
					t.Skipf("learned within %s", m.Took)
				}
				right(t, f, m, 4, 16)
			})
		})
	}
}

func TestPathsThatNeverStayAreUnstable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(nil)
		// A new seed every 300 ms: within one batch all is well.
		f.route = func(tu ecmp.Tuple) []netip.Addr {
			return leafSpine(4, murmur(uint32(time.Since(f.start)/(300*time.Millisecond))))(tu)
		}
		_, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if !errors.Is(err, ErrUnstable) && !errors.Is(err, ErrSprays) {
			t.Fatal(err)
		}
	})
}

func TestDistance(t *testing.T) {
	way := func(n int) func(ecmp.Tuple) []netip.Addr {
		return func(ecmp.Tuple) []netip.Addr {
			var w []netip.Addr
			for i := range n {
				w = append(w, ip(10, 1, i, 1))
			}
			return w
		}
	}
	for _, c := range []struct {
		name  string
		route func(ecmp.Tuple) []netip.Addr
		mute  bool
		hops  int
		err   error
	}{
		{"no router", way(0), false, 0, nil},
		{"one leaf", way(1), false, 1, nil},
		{"the most", way(MaxHops), false, MaxHops, nil},
		{"more", way(MaxHops + 1), false, 0, ErrBlind},
		{"no router, and the target is mute", way(0), true, 0, ErrBlind},
		{"the target is mute", way(3), true, 0, ErrBlind}, // 3 routers, or silent ones behind: nobody knows
		{"some ways are longer", func(tu ecmp.Tuple) []netip.Addr { return way(2 + int(tu.SrcPort)%2)(tu) }, false, 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(c.route)
				f.mute = c.mute
				m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
				if !errors.Is(err, c.err) {
					t.Fatal(err)
				}
				if f.reached > 0 {
					t.Errorf("%d probes came to the target", f.reached)
				}
				if err == nil && (m.Hops != c.hops || len(m.Paths) != 1 || m.Ports.Len() != 16 || !m.Complete) {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// A router that says that there is no way is believed; a firewall that refuses datagrams is not.
func TestWhatRoutersRefuse(t *testing.T) {
	for _, c := range []struct {
		code byte
		err  error
	}{{1, ErrUnreachable}, {13, nil}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric(leafSpine(4, murmur(5)))
			f.refuses = c.code
			m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
			if !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if err == nil {
				right(t, f, m, 4, 16)
			}
		})
	}
}

func TestAMuteTargetIsNoHindrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(5)))
		f.mute = true
		m, err := prober(t, f, 500).Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		right(t, f, m, 4, 16)
	})
}

func TestOptionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(5)))
		p := prober(t, f, 500)
		o := Options{Ports: ecmp.Range{First: 20000, Last: 20999}, PerPath: 8, Skip: func(p uint16) bool { return p%3 == 0 }, Rate: 100}
		m, err := p.Learn(t.Context(), to, o)
		if err != nil {
			t.Fatal(err)
		}
		right(t, f, m, 4, 8)
		for port := range f.ports {
			if port < 20000 || port > 20999 || port%3 == 0 {
				t.Errorf("port %d was probed", port)
			}
		}
		if rate := float64(m.Probes-paceBurst) / m.Took.Seconds(); rate > 101 {
			t.Errorf("%.0f probes a second", rate)
		}
	})
}

func TestARangeOrProbesUsedUpGiveAnIncompleteMap(t *testing.T) {
	for name, o := range map[string]Options{
		"range":  {Ports: ecmp.Range{First: 1000, Last: 1029}},
		"probes": {MaxProbes: 150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(leafSpine(4, murmur(5)))
				m, err := prober(t, f, 500).Learn(t.Context(), to, o)
				if err != nil {
					t.Fatal(err)
				}
				right(t, f, m, 4, 1)
				if m.Complete || m.Miss < 1e-6 {
					t.Errorf("%+v", m)
				}
				if o.MaxProbes > 0 && m.Probes > o.MaxProbes+3*finalSample {
					t.Errorf("%d probes", m.Probes)
				}
			})
		})
	}
}

func TestWhatCannotBeLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(5)))
		p := prober(t, f, 500)
		for _, c := range []struct {
			t Target
			o Options
		}{
			{t: Target{Src: here, Dst: netip.MustParseAddr("fd00::1"), DstPort: 1, Proto: ecmp.TCP}},
			{t: Target{Src: here, Dst: here, DstPort: 1, Proto: ecmp.TCP}},
			{t: Target{Src: here, Dst: there, DstPort: 1, Proto: 1}},
			{t: Target{Src: here, Dst: there, Proto: ecmp.TCP}},
			{to, Options{Ports: ecmp.Range{First: 5, Last: 4}}},
			{to, Options{PerPath: MaxPerPath + 1}},
			{to, Options{Rate: MaxRate + 1}},
			{to, Options{MaxProbes: MaxProbes + 1}},
			{to, Options{Retries: MaxRetries + 1}},
			{to, Options{Timeout: time.Hour}},
			{to, Options{Miss: 1}},
			{to, Options{Models: make([]*ecmp.Route, 1)}},
			{to, Options{Skip: func(uint16) bool { return true }}},
		} {
			if m, err := p.Learn(t.Context(), c.t, c.o); err == nil {
				t.Errorf("%v %+v: learned %v", c.t, c.o, m)
			}
		}
		if len(f.ports) > 0 {
			t.Errorf("%d ports were probed", len(f.ports))
		}
		f.refuse = errors.New("operation not permitted")
		if _, err := p.Learn(t.Context(), to, Options{}); !errors.Is(err, f.refuse) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		f.refuse = nil
		if _, err := p.Learn(ctx, to, Options{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
