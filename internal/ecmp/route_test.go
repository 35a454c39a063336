package ecmp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyFabric is a fabric with two leaves that have hosts a and b, and tiers of switches between them, with any hashes,
// selections, bonds, one-way links, and cables that lead nowhere.
func anyFabric(t *rapid.T) Config {
	var c Config
	var tiers [][]string
	depth := rapid.IntRange(1, 3).Draw(t, "tiers")
	for d := range depth + 2 {
		n := 1
		if d > 0 && d <= depth {
			n = rapid.IntRange(1, 4).Draw(t, "switches")
		}
		var tier []string
		for i := range n {
			name := fmt.Sprintf("s%d.%d", d, i)
			tier = append(tier, name)
			c.Switches = append(c.Switches, Switch{Name: name, Model: anyModel(t)})
		}
		tiers = append(tiers, tier)
	}
	for d := range depth + 1 {
		for _, from := range tiers[d] {
			for _, to := range tiers[d+1] {
				if rapid.IntRange(0, 9).Draw(t, "cut") == 0 && len(tiers[d])*len(tiers[d+1]) > 1 {
					continue
				}
				l := LinkConfig{From: from, To: to}
				if rapid.Bool().Draw(t, "turned") {
					l.From, l.To = to, from
				} else {
					l.OneWay = rapid.Bool().Draw(t, "one way")
				}
				if l.Bond = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "bond"); l.Bond > 1 && rapid.Bool().Draw(t, "own hash") {
					m := anyModel(t)
					l.BondModel = &m
				}
				c.Links = append(c.Links, l)
			}
		}
	}
	for i, leaf := range []string{"s0.0", fmt.Sprintf("s%d.0", depth+1)} {
		c.Hosts = append(c.Hosts, Host{Name: string(rune('a' + i)), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Leaf: leaf})
	}
	// A selection must fit the number of next hops on the way to b and on the way back.
	toB, toA := slowDistances(c, c.Hosts[1].Leaf), slowDistances(c, c.Hosts[0].Leaf)
	for i := range c.Switches {
		s := &c.Switches[i]
		there, back := nextHops(c, s.Name, toB), nextHops(c, s.Name, toA)
		if there > 1 && (back <= 1 || back == there) {
			s.Selection = anySelection(t, s.Model, there)
		} else if rapid.Bool().Draw(t, "range") {
			s.Selection.Kind = HashRange
		}
	}
	return c
}

func nextHops(c Config, from string, distance map[string]int) int {
	n := 0
	for _, l := range slowLinksFrom(c, from) {
		if distance[from] != far && distance[l.To] == distance[from]-1 {
			n++
		}
	}
	return n
}

func TestEveryPortIsOnThePathThatTheNaiveWalkTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyFabric(t)
		f, err := New(c)
		if err != nil {
			t.Fatalf("%v in %+v", err, c)
		}
		if slowDistances(c, c.Hosts[1].Leaf)[c.Hosts[0].Leaf] == far {
			if _, err := f.Route("a", "b"); err == nil {
				t.Fatal("a route where there is no way")
			}
			return
		}
		r, err := f.Route("a", "b")
		if err != nil {
			t.Fatal(err)
		}
		tu := flow(f, "a", "b")
		first := rapid.Uint16().Draw(t, "first")
		ports := Range{first, uint16(min(65535, int(first)+rapid.IntRange(0, 15).Draw(t, "ports")))}
		m := r.Map(tu, ports)
		if m.Len() != ports.Len() || m.Paths() != len(r.Paths()) {
			t.Fatalf("%d ports on %d paths, want %d on %d", m.Len(), m.Paths(), ports.Len(), len(r.Paths()))
		}
		for port := int(ports.First); port <= int(ports.Last); port++ {
			tu.SrcPort = uint16(port)
			path := r.PathOf(tu)
			if got, want := names(f, r.Paths()[path]), slowPath(c, "a", "b", tu); !slices.Equal(got, want) {
				t.Fatalf("port %d goes over %v, want %v", port, got, want)
			}
			if got, ok := m.PathOf(tu.SrcPort); !ok || got != path {
				t.Fatalf("port %d is on path %d in the map, want %d", port, got, path)
			}
		}
		checkMap(t, m)
	})
}

// checkMap sees that a map's buckets and its paths say the same.
func checkMap(t interface{ Fatalf(string, ...any) }, m *PortMap) {
	n := 0
	for k := range m.Paths() {
		ports := m.Ports(k)
		n += len(ports)
		for i, p := range ports {
			if i > 0 && ports[i-1] >= p {
				t.Fatalf("the ports of path %d are %v", k, ports)
			}
			if got, ok := m.PathOf(p); !ok || got != k {
				t.Fatalf("port %d of path %d is on %d, %v", p, k, got, ok)
			}
		}
	}
	if n != m.Len() {
		t.Fatalf("%d ports on the paths, and %d in all", n, m.Len())
	}
}

// All of Map's ways, for all kinds of hashes, over ranges that are whole, aligned and not.
func TestMapIsPathOfForEveryPort(t *testing.T) {
	ranges := []Range{{0, 65535}, RoCE, {0x4000, 0x40FF}, {0x4001, 0x4100}, {1024, 65535}, {7, 7}, {65535, 65535}, {9, 8}}
	sizes := []int{1, 2, 3, 4, 16, 17}
	if raced {
		sizes = []int{4, 17}
	}
	for k := Murmur3; k < kinds; k++ {
		for _, s := range []Selection{{}, {Kind: HashRange}} {
			for _, spines := range sizes {
				m := Model{Kind: k, Seed: 4711}
				if k.Linear() {
					m.Offset = 3
				}
				r, tu := figureRoute(t, m, s, spines)
				want := make([]int, 1<<16)
				for p := range want {
					tu.SrcPort = uint16(p)
					want[p] = r.PathOf(tu)
				}
				for _, ports := range ranges {
					got := r.Map(tu, ports)
					if got.Len() != ports.Len() {
						t.Fatalf("%v %v %d spines: %d ports, want %d", k, s.Kind, spines, got.Len(), ports.Len())
					}
					for p := int(ports.First); p <= int(ports.Last); p++ {
						if path, ok := got.PathOf(uint16(p)); !ok || path != want[p] {
							t.Fatalf("%v %v %d spines: port %d is on path %d, want %d", k, s.Kind, spines, p, path, want[p])
						}
					}
					checkMap(t, got)
					for _, p := range []int{int(ports.First) - 1, int(ports.Last) + 1} {
						if _, ok := got.PathOf(uint16(p)); ok && ports.Len() > 0 && ports.Len() < 1<<16 {
							t.Fatalf("port %d is beside %v, and in the map", uint16(p), ports)
						}
					}
				}
			}
		}
	}
}

// A linear hash of which the paths see only few bits leaves some of them without ports: the map by linearity says so too.
func TestPathsThatNoPortLeadsTo(t *testing.T) {
	for _, m := range []Model{{Kind: CRC32, Fields: SrcIP | DstIP}, {Kind: Murmur3, Fields: DstPort}, {Kind: Linux, Seed: 3, Fields: DstIP}} {
		r, tu := figureRoute(t, m, Selection{}, 4)
		all := r.Map(tu, Range{0, 65535})
		checkMap(t, all)
		path := r.PathOf(tu)
		if len(all.Ports(path)) != 1<<16 {
			t.Errorf("%v: %d ports on path %d", m.Kind, len(all.Ports(path)), path)
		}
		some := r.Ports(tu, Range{100, 5000}, 3, nil)
		if some.Len() != 3 || !slices.Equal(some.Ports(path), []uint16{100, 101, 102}) {
			t.Errorf("%v: %v", m.Kind, some.Ports(path))
		}
	}
}

func TestPortsAreTheFirstOnesOfEveryPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		n := rapid.IntRange(1, 20).Draw(t, "spines")
		c := leafSpine(2, n, 1, func(int) Model { return m }, anySelection(t, m, n))
		c.Switches[1].Selection = Selection{}
		f, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Route("h1.1", "h2.1")
		if err != nil {
			t.Fatal(err)
		}
		tu := flow(f, "h1.1", "h2.1")
		first, last := rapid.Uint16().Draw(t, "first"), rapid.Uint16().Draw(t, "last")
		if last > first && last-first > 3000 {
			last = first + 3000
		}
		perPath := rapid.IntRange(-1, 20).Draw(t, "per path")
		every := rapid.IntRange(1, 5).Draw(t, "skip")
		var skip func(uint16) bool
		if every > 1 {
			skip = func(p uint16) bool { return int(p)%every == 0 }
		}
		got := r.Ports(tu, Range{first, last}, perPath, skip)
		checkMap(t, got)
		want := make([][]uint16, n)
		for p := int(first); p <= int(last); p++ {
			if skip != nil && skip(uint16(p)) {
				continue
			}
			tu.SrcPort = uint16(p)
			if k := r.PathOf(tu); len(want[k]) < perPath {
				want[k] = append(want[k], uint16(p))
			}
		}
		for k := range want {
			if !slices.Equal(got.Ports(k), want[k]) {
				t.Fatalf("path %d has %v, want %v", k, got.Ports(k), want[k])
			}
		}
	})
}

// Ports looks no further than it must.
func TestPortsStopsWhenItHasEnough(t *testing.T) {
	r, tu := figureRoute(t, linuxModel(9), Selection{Kind: HashRange}, 4)
	asked := 0
	got := r.Ports(tu, RoCE, 16, func(uint16) bool { asked++; return false })
	if got.Len() != 64 || asked > 256 {
		t.Errorf("%d ports, of %d looked at", got.Len(), asked)
	}
	if got := r.Ports(tu, RoCE, 1<<40, nil); got.Len() != RoCE.Len() {
		t.Errorf("%d ports where more than there are were wanted", got.Len())
	}
	if got := r.Ports(tu, Range{5, 4}, 16, nil); got.Len() != 0 {
		t.Errorf("%d ports of none", got.Len())
	}
}

func TestPathOfAllocatesNothing(t *testing.T) {
	for k := Murmur3; k < kinds; k++ {
		c := fatTree(4, func(i int) Model { return Model{Kind: k, Seed: uint32(i) + 1} }, Selection{Kind: HashRange})
		for i := range c.Links {
			c.Links[i].Bond = i % 3
		}
		f := mustNew(t, c)
		r, tu := mustRoute(t, f, "h1.1", "h4.2"), flow(f, "h1.1", "h4.2")
		if n := testing.AllocsPerRun(100, func() { tu.SrcPort++; r.PathOf(tu) }); n != 0 {
			t.Errorf("%v allocates %v times", k, n)
		}
	}
}

// Where a bond hashes as its switch has done before, its members are not independent of the next hop: with four spines and
// two members by modulo, the spine gives the member, and half of the paths get nothing.
func TestABondWithTheSameHashPolarises(t *testing.T) {
	empty := func(own *Model) (n int) {
		c := leafSpine(2, 4, 1, murmurs, Selection{})
		for i := range c.Links {
			if c.Links[i].From == "leaf1" {
				c.Links[i].Bond, c.Links[i].BondModel = 2, own
			}
		}
		f := mustNew(t, c)
		m := mustRoute(t, f, "h1.1", "h2.1").Map(flow(f, "h1.1", "h2.1"), RoCE)
		for k := range m.Paths() {
			if len(m.Ports(k)) == 0 {
				n++
			}
		}
		return n
	}
	if n := empty(nil); n != 4 {
		t.Errorf("with the switch's hash %d of 8 paths have no port, want 4", n)
	}
	if n := empty(&Model{Kind: Murmur3, Seed: 1000}); n != 0 {
		t.Errorf("with a hash of its own %d of 8 paths have no port", n)
	}
}

func TestRoutesThroughUnknownHashes(t *testing.T) {
	f := mustNew(t, leafSpine(2, 4, 1, func(i int) Model { return Model{} }, Selection{Kind: HashRange}))
	r, tu := mustRoute(t, f, "h1.1", "h2.1"), flow(f, "h1.1", "h2.1")
	if r.Known() || r.PathOf(tu) != -1 || r.Map(tu, RoCE).Len() != 0 || r.Ports(tu, RoCE, 4, nil).Len() != 0 || r.Map(tu, RoCE).Paths() != 4 {
		t.Error("an unknown hash is known")
	}
	learned := r.Map(tu, RoCE)
	if !learned.Add(50000, 3) || learned.Len() != 1 {
		t.Error("nothing can be learned")
	}
	known, err := r.With(func(name string, now Model) Model {
		if name != "leaf1" || now != (Model{}) {
			t.Errorf("asked for %s, now %+v", name, now)
		}
		return linuxModel(5)
	})
	if err != nil || !known.Known() || r.Known() {
		t.Fatal(err)
	}
	whole := mustNew(t, leafSpine(2, 4, 1, func(i int) Model { return linuxModel(5) }, Selection{Kind: HashRange}))
	want := mustRoute(t, whole, "h1.1", "h2.1").Map(tu, RoCE)
	got := known.Map(tu, RoCE)
	for k := range 4 {
		if !slices.Equal(got.Ports(k), want.Ports(k)) {
			t.Errorf("path %d: a route with another hash is not the route of a fabric with that hash", k)
		}
	}
	if _, err := r.With(func(string, Model) Model { return Model{Kind: Linux} }); err == nil {
		t.Error("a wrong model is taken")
	}
	narrow, _ := figureRoute(t, linuxModel(1), Selection{Kind: HashRange, Bits: 31}, 4)
	if _, err := narrow.With(func(string, Model) Model { return Model{Kind: Murmur3} }); err == nil {
		t.Error("a hash of another width than the selection's is taken")
	}
	// Where nothing is to be chosen, nothing has to be known.
	f = mustNew(t, leafSpine(2, 1, 1, func(i int) Model { return Model{} }, Selection{}))
	if r := mustRoute(t, f, "h1.1", "h2.1"); !r.Known() || r.PathOf(tu) != 0 {
		t.Error("a single path is not known")
	}
}

func TestBondsFollowTheirSwitchUnlessTheyHaveTheirOwn(t *testing.T) {
	c := leafSpine(2, 2, 1, func(int) Model { return Model{} }, Selection{})
	c.Links[0].Bond = 2
	c.Links[2].Bond, c.Links[2].BondModel = 2, &Model{Kind: CRC32}
	f := mustNew(t, c)
	r, err := mustRoute(t, f, "h1.1", "h2.1").With(func(string, Model) Model { return Model{Kind: Murmur3, Seed: 3} })
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Switches {
		c.Switches[i].Model = Model{Kind: Murmur3, Seed: 3}
	}
	tu := flow(f, "h1.1", "h2.1")
	for p := range 1000 {
		tu.SrcPort = uint16(p)
		if got, want := names(f, r.Paths()[r.PathOf(tu)]), slowPath(c, "h1.1", "h2.1", tu); !slices.Equal(got, want) {
			t.Fatalf("port %d goes over %v, want %v", p, got, want)
		}
	}
}
