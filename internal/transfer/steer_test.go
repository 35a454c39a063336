package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// freePorts gives source ports that nobody uses at this moment, outside those that the kernel gives to others.
func freePorts(tb testing.TB, n int) []uint16 {
	tb.Helper()
	var out []uint16
	for tries := 0; len(out) < n; tries++ {
		port := uint16(10_000 + rand.IntN(20_000))
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if tries > 1000 {
			tb.Fatal(err)
		}
		if err == nil {
			l.Close()
			if !slices.Contains(out, port) {
				out = append(out, port)
			}
		}
	}
	return out
}

// turn is a Steer whose way changes after so many questions.
type turn struct {
	ways  []Route
	after []int // the i-th way holds for so many questions in all
	asked int
	moved []int64
}

func (s *turn) Route() Route {
	s.asked++
	for i, n := range s.after {
		if s.asked <= n {
			return s.ways[i]
		}
	}
	return s.ways[len(s.after)]
}

func (s *turn) Moved(n int64) { s.moved = append(s.moved, n) }

// from lists the ports that connections to the agent leave from.
func (a agent) from() []uint16 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []uint16
	for c := range a.inbound {
		out = append(out, netip.MustParseAddrPort(c.nc.RemoteAddr().String()).Port())
	}
	slices.Sort(out)
	return out
}

func TestALegLeavesFromOneOfItsPorts(t *testing.T) {
	to, from := pair(t, testConfig())
	ports := freePorts(t, 2)
	for range 2 { // the second time over the warm connection
		ticket, _ := to.Ticket("p", 1<<20, Discard())
		r, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1<<20), 1<<20, fixed{Legs: []Leg{{ID: 7, Ports: ports}}}, nil)
		if err != nil || len(r.Paths) != 1 || r.Paths[0] != (PathBytes{7, 1 << 20}) || r.Unpinned != 0 {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if got := to.from(); len(got) != 1 || got[0] != ports[0] {
		t.Fatalf("from %v, not %v", got, ports)
	}
}

func TestAMoveTakesTheWarmConnectionOfTheOtherPath(t *testing.T) {
	to, from := pair(t, testConfig())
	ports := freePorts(t, 2)
	a, b := Leg{ID: 1, Ports: ports[:1]}, Leg{ID: 2, Ports: ports[1:]}
	if err := from.Warm(t.Context(), "d", to.addr, []Leg{a, b}); err != nil {
		t.Fatal(err)
	}
	if err := from.Warm(t.Context(), "d", to.addr, []Leg{b, a}); err != nil {
		t.Fatal(err)
	}
	if s := from.Stats(); s.ConnsOut != 2 || s.ConnsIdle != 2 {
		t.Fatalf("%+v", s)
	}
	src := Pattern(3, 2<<20)
	got := make([]byte, src.Size())
	ticket, _ := to.Ticket("p", src.Size(), MemorySink(got))
	s := &turn{ways: []Route{{[]Leg{a}}, {[]Leg{b}}, {[]Leg{a}}}, after: []int{30, 80}}
	r, err := from.Send(t.Context(), "d", to.addr, ticket, src, src.Size(), s, nil)
	if err != nil || !bytes.Equal(got, content(t, src)) {
		t.Fatal(err)
	}
	if r.Moves != 2 || len(r.Paths) != 2 || r.Paths[0].Bytes+r.Paths[1].Bytes != src.Size() || r.Paths[1].Bytes == 0 || r.Resumes != 0 {
		t.Fatalf("%+v", r)
	}
	if s := from.Stats(); s.ConnsOut != 2 || s.ConnsIdle != 2 || s.Moves != 2 {
		t.Fatalf("%+v", s)
	}
	if n := len(s.moved); n < 2 || s.moved[n-1] != src.Size() || !slices.IsSorted(s.moved) {
		t.Fatalf("moved %v", s.moved)
	}
}

func TestStripesCarryOneTransferTogether(t *testing.T) {
	to, from := pair(t, testConfig())
	ports := freePorts(t, 4)
	var way fixed
	for i, p := range ports {
		way.Legs = append(way.Legs, Leg{ID: i, Ports: []uint16{p}})
	}
	src := Pattern(3, 8<<20)
	got := make([]byte, src.Size())
	ticket, _ := to.Ticket("p", src.Size(), MemorySink(got))
	r, err := from.Send(t.Context(), "d", to.addr, ticket, src, src.Size(), way, nil)
	if err != nil || !bytes.Equal(got, content(t, src)) || len(r.Paths) != 4 {
		t.Fatalf("%+v %v", r, err)
	}
	slices.Sort(ports)
	if got := to.from(); !slices.Equal(got, ports) {
		t.Fatalf("from %v, not %v", got, ports)
	}
}

// A leg stops at its share while the other one has room, and both go on when none has.
func TestSharesAreKeptWhileTheyCanBe(t *testing.T) {
	to, from := pair(t, testConfig())
	const size = 4 << 20
	for _, c := range []struct{ a, b, most int64 }{{1 << 20, 0, 1 << 20}, {1 << 20, 3 << 20, 1 << 20}, {1 << 20, 1 << 20, size}} {
		ticket, _ := to.Ticket("p", size, Discard())
		way := fixed{Legs: []Leg{{ID: 1, Share: c.a}, {ID: 2, Share: c.b}}}
		r, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(size), size, way, nil)
		if err != nil || r.Bytes != size {
			t.Fatal(err)
		}
		for _, p := range r.Paths {
			if p.ID == 1 && p.Bytes > c.most {
				t.Fatalf("%+v: %+v", c, r.Paths)
			}
		}
	}
}

func TestALegThatIsTakenAwayEndsAndOneThatComesBegins(t *testing.T) {
	to, from := pair(t, testConfig())
	src := Pattern(5, 4<<20)
	got := make([]byte, src.Size())
	ticket, _ := to.Ticket("p", src.Size(), MemorySink(got))
	one, two := Leg{ID: 1}, Leg{ID: 2}
	s := &turn{ways: []Route{{[]Leg{one}}, {[]Leg{one, two}}, {[]Leg{two}}, {[]Leg{two, one}}}, after: []int{60, 120, 180}}
	r, err := from.Send(t.Context(), "d", to.addr, ticket, src, src.Size(), s, nil)
	if err != nil || !bytes.Equal(got, content(t, src)) || len(r.Paths) != 2 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestAFreshLegTakesANewConnectionEachTime(t *testing.T) {
	to, from := pair(t, testConfig())
	for range 3 {
		ticket, _ := to.Ticket("p", 1, Discard())
		if _, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1), 1, fixed{Legs: []Leg{{Fresh: true}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := to.from(); len(got) != 3 {
		t.Fatalf("from %v", got)
	}
}

// A port that somebody listens on, and one whose connection to this receiver exists, are left out.
func TestPortsThatAreTakenArePassedOver(t *testing.T) {
	to, from := pair(t, testConfig())
	other := start(t, "q", testConfig())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listened := netip.MustParseAddrPort(l.Addr().String()).Port()
	ports := freePorts(t, 2)
	if err := other.Warm(t.Context(), "d", to.addr, []Leg{{Ports: ports[:1]}}); err != nil {
		t.Fatal(err)
	}
	leg := Leg{Ports: []uint16{listened, ports[0], ports[1]}}
	if err := from.Warm(t.Context(), "d", to.addr, []Leg{leg}); err != nil {
		t.Fatal(err)
	}
	if got := to.from(); !slices.Contains(got, ports[1]) || from.Stats().PortsTaken != 2 {
		t.Fatalf("from %v, wanted %d; %+v", got, ports[1], from.Stats())
	}
	// None is left: any path carries any flow.
	ticket, _ := to.Ticket("p", 1, Discard())
	r, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1), 1, fixed{Legs: []Leg{{ID: 4, Ports: leg.Ports[:2]}}}, nil)
	if err != nil || r.Unpinned != 1 || from.Stats().Unpinned != 1 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestOnePortLeadsToSeveralPeers(t *testing.T) {
	to, from := pair(t, testConfig())
	to2 := start(t, "e", testConfig())
	leg := []Leg{{Ports: freePorts(t, 1)}}
	if err := errors.Join(from.Warm(t.Context(), "d", to.addr, leg), from.Warm(t.Context(), "e", to2.addr, leg)); err != nil {
		t.Fatal(err)
	}
	if a, b := to.from(), to2.from(); !slices.Equal(a, b) || from.Stats().PortsTaken != 0 {
		t.Fatalf("%v %v", a, b)
	}
}

func TestConnectionsLeaveFromTheConfiguredAddress(t *testing.T) {
	cfg := testConfig()
	to := start(t, "d", cfg)
	cfg.Source = netip.MustParseAddr("127.0.0.9")
	from := start(t, "p", cfg)
	if err := from.Warm(t.Context(), "d", to.addr, []Leg{{Ports: freePorts(t, 1)}, {}}); err != nil {
		t.Fatal(err)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	for c := range to.inbound {
		if a := netip.MustParseAddrPort(c.nc.RemoteAddr().String()).Addr(); a != cfg.Source {
			t.Error(a)
		}
	}
}

func TestTransfersOnOnePathAtOnceHaveConnectionsOfTheirOwn(t *testing.T) {
	to, from := pair(t, testConfig())
	leg := Leg{ID: 1, Ports: freePorts(t, 8)}
	var work sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		work.Go(func() {
			src := Pattern(uint64(i), 1<<20)
			got := make([]byte, src.Size())
			ticket, err := to.Ticket("p", src.Size(), MemorySink(got))
			if err == nil {
				_, err = from.Send(t.Context(), "d", to.addr, ticket, src, src.Size(), fixed{Legs: []Leg{leg}}, nil)
			}
			if err == nil && !bytes.Equal(got, content(t, src)) {
				err = fmt.Errorf("transfer %d arrived as another", i)
			}
			errs <- err
		})
	}
	work.Wait()
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if s := from.Stats(); s.Unpinned != 0 || s.ConnsIdle > 8 {
		t.Errorf("%+v", s)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	cfg := testConfig()
	cfg.Idle = 30 * time.Millisecond
	to, from := pair(t, cfg)
	if err := from.Warm(t.Context(), "d", to.addr, []Leg{{}}); err != nil {
		t.Fatal(err)
	}
	from.pool.mu.Lock()
	var c *conn
	for _, g := range from.pool.groups {
		for c = range g.conns {
		}
	}
	from.pool.mu.Unlock()
	if c != nil { // else it is closed already
		<-c.gone
	}
	if s := from.Stats(); s.ConnsOut != 0 || s.ConnsIdle != 0 {
		t.Fatalf("%+v", s)
	}
}

// A Steer that has no way any more does not stop what is under way: it goes by any port.
func TestAnEmptyRouteGoesByAnyPort(t *testing.T) {
	to, from := pair(t, testConfig())
	ticket, _ := to.Ticket("p", 1<<20, Discard())
	s := &turn{ways: []Route{{[]Leg{{ID: 3, Ports: freePorts(t, 1)}}}, {}}, after: []int{5}}
	r, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1<<20), 1<<20, s, nil)
	if err != nil || r.Moves != 1 || r.Bytes != 1<<20 {
		t.Fatalf("%+v %v", r, err)
	}
}
