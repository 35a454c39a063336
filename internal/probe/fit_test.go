package probe

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"shoal/internal/ecmp"
)

// clos is a configured leaf-spine fabric, and a network in memory that behaves so. Every router answers with the
// interface that a packet came in at.
func clos(t *testing.T, spines int, leaf ecmp.Model, bond int) (*ecmp.Route, func(tu ecmp.Tuple) []netip.Addr) {
	t.Helper()
	c := ecmp.Config{
		Hosts:    []ecmp.Host{{Name: "a", Addr: here, Leaf: "l1"}, {Name: "b", Addr: there, Leaf: "l2"}},
		Switches: []ecmp.Switch{{Name: "l1", Model: leaf}, {Name: "l2", Model: leaf}},
	}
	for s := range spines {
		name := fmt.Sprintf("s%d", s)
		c.Switches = append(c.Switches, ecmp.Switch{Name: name, Model: ecmp.Model{Kind: ecmp.Murmur3, Seed: uint32(100 + s)}})
		c.Links = append(c.Links, ecmp.LinkConfig{From: "l1", To: name}, ecmp.LinkConfig{From: name, To: "l2", Bond: bond})
	}
	f, err := ecmp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Route("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	addrs := map[ecmp.LinkID]netip.Addr{}
	for _, p := range r.Paths() {
		for _, l := range p.Links {
			addrs[l] = ip(10, 7, len(addrs)>>8, len(addrs)&255)
		}
	}
	return r, func(tu ecmp.Tuple) []netip.Addr {
		way := []netip.Addr{ip(10, 0, 1, 1)}
		for _, l := range r.Paths()[r.PathOf(tu)].Links {
			way = append(way, addrs[l])
		}
		return way
	}
}

func murmurModel(seed uint32) ecmp.Model { return ecmp.Model{Kind: ecmp.Murmur3, Seed: seed} }

func TestAConfiguredModelIsTrustedWhenAnswersConfirmIt(t *testing.T) {
	for _, c := range []struct{ spines, bond int }{{1, 0}, {2, 0}, {4, 0}, {4, 2}, {64, 0}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				route, way := clos(t, c.spines, murmurModel(7), c.bond)
				f := newFabric(way)
				wrong, _ := clos(t, c.spines, murmurModel(8), c.bond)
				unknown, _ := clos(t, c.spines, ecmp.Model{}, 0)
				m, err := prober(t, f, 500).Learn(t.Context(), to, Options{Models: []*ecmp.Route{unknown, wrong, route}})
				if err != nil {
					t.Fatal(err)
				}
				if c.spines == 1 { // every model explains one path
					route = unknown
				} else if m.Refuted != 1 {
					t.Errorf("%d were refuted", m.Refuted)
				}
				if m.How != Modelled || m.Model != route || !m.Complete || m.Miss > 1e-6 || m.Paths[0].Via[0] != "l1" || len(m.Paths) != len(route.Paths()) {
					t.Errorf("%+v", m)
				}
				for i := range m.Paths {
					for _, port := range m.Ports.Ports(i) {
						if route.PathOf(to.Tuple(port)) != i {
							t.Errorf("port %d is not of path %d", port, i)
						}
					}
				}
				t.Logf("%d paths: %d probes, %s", len(m.Paths), m.Probes, m.Took)
				if f.reached > 0 {
					t.Errorf("%d probes came to the target", f.reached)
				}
			})
		})
	}
}

func TestAConfiguredModelThatIsWrongIsNotUsed(t *testing.T) {
	for name, with := range map[string]func(t *testing.T) *ecmp.Route{
		"another seed":         func(t *testing.T) *ecmp.Route { r, _ := clos(t, 4, murmurModel(8), 0); return r },
		"fewer spines":         func(t *testing.T) *ecmp.Route { r, _ := clos(t, 2, murmurModel(7), 0); return r },
		"more spines":          func(t *testing.T) *ecmp.Route { r, _ := clos(t, 8, murmurModel(7), 0); return r },
		"one spine":            func(t *testing.T) *ecmp.Route { r, _ := clos(t, 1, murmurModel(7), 0); return r },
		"bonds that are none":  func(t *testing.T) *ecmp.Route { r, _ := clos(t, 4, murmurModel(7), 2); return r },
		"spines in other rows": func(t *testing.T) *ecmp.Route { r, _ := clos(t, 4, ecmp.Model{Kind: ecmp.CRC32}, 0); return r },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, way := clos(t, 4, murmurModel(7), 0)
				f := newFabric(way)
				m, err := prober(t, f, 500).Learn(t.Context(), to, Options{Models: []*ecmp.Route{with(t)}})
				if err != nil {
					t.Fatal(err)
				}
				right(t, f, m, 4, 16)
				if m.How != Probed || m.Model != nil || !m.Complete {
					t.Errorf("%+v", m)
				}
				t.Logf("%d probes, %d refuted", m.Probes, m.Refuted)
			})
		})
	}
}

// Where answers cannot confirm a model there is no map: a model is not believed for want of evidence.
func TestAModelThatCannotBeCheckedIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, way := clos(t, 4, murmurModel(7), 0)
		f := newFabric(func(tu ecmp.Tuple) []netip.Addr { w := way(tu); return []netip.Addr{w[0], {}, {}} })
		if m, err := prober(t, f, 500).Learn(t.Context(), to, Options{Models: []*ecmp.Route{route}}); err == nil {
			t.Fatalf("%+v", m)
		}
	})
}

// CRC hashes are linear: a few answers give the ports of all paths.
func TestALinearHashIsFitted(t *testing.T) {
	for _, kind := range []ecmp.Kind{ecmp.CRC16CCITT, ecmp.CRC16Bisync, ecmp.CRC32, ecmp.XOR16} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, way := clos(t, 16, ecmp.Model{Kind: kind, Seed: 1}, 0)
				f := newFabric(way)
				m, err := prober(t, f, 500).Learn(t.Context(), to, Options{PerPath: 64})
				if err != nil {
					t.Fatal(err)
				}
				right(t, f, m, 16, 64)
				t.Logf("%s, %d probes, %s", m.How, m.Probes, m.Took)
				if m.How != Fitted || m.Probes > 500 || !m.Complete {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}
