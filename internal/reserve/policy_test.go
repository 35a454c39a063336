package reserve

import (
	"slices"
	"testing"

	"shoal/internal/ecmp"
)

// take has another peer reserve paths of the set, each by one flow of so many bytes.
func take(t *testing.T, x *Table, set *Set, seq uint64, bytes int64, over ...int) {
	t.Helper()
	for i, p := range over {
		e := entry(seq+uint64(i), seq+uint64(i))
		e.Links, e.Bytes = set.Path(p).Links, bytes
		if v := x.Heard(0, noon, "b", &Message{"b", 1, false, e}); v != Accepted {
			t.Fatal(v)
		}
	}
}

func legs(g Grant) (paths []int) {
	for _, l := range g.Legs {
		paths = append(paths, l.Path)
	}
	return paths
}

func TestArkIsThePaper(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	take(t, x, set, 1, 1, 0, 2)
	for _, want := range []int{1, 3} {
		if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 10, Policy: Ark}); g.Legs[0].Path != want || g.Fallback || g.ID == 0 || g.Lease != lease {
			t.Errorf("%+v; want path %d", g, want)
		}
	}
	x.Take(nil)
	seen := map[int]int{}
	for range 400 {
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: 10, Policy: Ark})
		if g.ID != 0 || !g.Fallback || g.Legs[0].Reserved || g.Legs[0].Share != 10 {
			t.Fatalf("with none free: %+v", g)
		}
		seen[g.Legs[0].Path]++
	}
	if len(seen) != 4 || x.Len() != 4 || len(x.Take(nil)) != 0 || x.Stats().Fallbacks != 400 {
		t.Errorf("the fallback took %v; %d entries", seen, x.Len())
	}
}

// A link that all paths share, the destination's own, say, takes none of them.
func TestLinksThatNoChoiceAvoidsDoNotCount(t *testing.T) {
	p := spread(4, 0, 1)
	for i := range p {
		p[i].Links = append(p[i].Links, 7)
	}
	for _, policy := range []Policy{Ark, Least, Split} {
		x := newTable(t, "x", 1, 1)
		set := paths(t, x, p)
		take(t, x, set, 1, 1<<30, 0, 1, 2)
		if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 10, Policy: policy}); g.Fallback || g.Legs[0].Path != 3 || x.find(g.ID).contested {
			t.Errorf("%v: %+v", policy, g)
		}
		if l := x.Links(nil); l[0].ID != up(0, 0) && l[0].Flows != 4 {
			t.Errorf("%v: the shared link has %+v", policy, l[0])
		}
	}
}

func TestLeastIsTheLeastCost(t *testing.T) {
	capacity := map[ecmp.LinkID]int64{up(0, 0): 100e9, up(0, 1): 100e9, up(0, 2): 400e9, up(0, 3): 100e9}
	of := func(l ecmp.LinkID) int64 {
		if c := capacity[l]; c > 0 {
			return c
		}
		return 400e9
	}
	for _, c := range []struct {
		name  string
		given func(x *Table, set *Set)
		want  []int
	}{
		{"an empty wide path", func(x *Table, set *Set) {}, []int{2}},
		{"four times as wide, four times the flows", func(x *Table, set *Set) { take(t, x, set, 1, 5, 2, 2, 2) }, []int{0, 1, 3}},
		{"and a flow less", func(x *Table, set *Set) { take(t, x, set, 1, 5, 2, 2) }, []int{2}},
		{"traffic that reserves nothing", func(x *Table, set *Set) { x.Background(up(0, 2), 350e9); x.Background(up(0, 0), 1e9) }, []int{1, 3}},
		{"no capacity left is a little", func(x *Table, set *Set) { x.Background(up(0, 2), 900e9); take(t, x, set, 1, 5, 0, 0, 0, 1, 1, 3, 3, 3) }, []int{1}},
		{"a little is better than a crowd", func(x *Table, set *Set) {
			x.Background(up(0, 2), 900e9)
			for i, p := range []int{0, 1, 3} {
				take(t, x, set, uint64(100*i+1), 5, slices.Repeat([]int{p}, 20)...)
			}
		}, []int{2}},
		{"on the way down too", func(x *Table, set *Set) { x.Background(down(1, 2), 390e9) }, []int{0, 1, 3}},
		{"bytes decide between equals", func(x *Table, set *Set) {
			take(t, x, set, 1, 1000, 0, 1, 3)
			take(t, x, set, 10, 999, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2) // as many for its width, and more bytes
			take(t, x, set, 25, 0, 3)
			take(t, x, set, 30, 1, 1)
			take(t, x, set, 40, 2, 0)
		}, []int{3}},
	} {
		counts := map[int]bool{}
		for seed := range uint64(40) {
			x := newTable(t, "x", 1, seed)
			set, err := x.Paths(spread(4, 0, 1), of)
			if err != nil {
				t.Fatal(err)
			}
			c.given(x, set)
			g := mustReserve(t, x, 0, Request{Set: set, Bytes: 10})
			if g.ID == 0 || g.Fallback {
				t.Errorf("%s: %+v", c.name, g)
			}
			counts[g.Legs[0].Path] = true
		}
		for p := range 4 {
			if counts[p] != slices.Contains(c.want, p) {
				t.Errorf("%s: chose among %v, want %v", c.name, counts, c.want)
				break
			}
		}
	}
}

// Choosers that know the same spread over equal paths, whichever way the choice is found.
func TestEqualPathsAreDrawnEvenly(t *testing.T) {
	for _, k := range []int{4, 8, 40} {
		for _, busy := range []bool{false, true} {
			counts := make([]int, k)
			x := newTable(t, "x", 1, 5)
			set := paths(t, x, spread(k, 0, 1))
			if busy { // none is free, and path 1 has one more
				for p := range k {
					take(t, x, set, uint64(p+1), 7, p)
				}
				take(t, x, set, 1000, 7, 1)
			}
			n := 500 * k
			for range n {
				g := mustReserve(t, x, 0, Request{Set: set, Bytes: 10})
				counts[g.Legs[0].Path]++
				x.Release(0, noon, g.ID)
			}
			for p, c := range counts {
				if busy && p == 1 {
					if c != 0 {
						t.Errorf("%d paths: the busiest was taken %d times", k, c)
					}
				} else if c < 380 || c > 800 {
					t.Errorf("%d paths, busy %v: path %d was taken %d times of %d", k, busy, p, c, n)
				}
			}
			x.audit(t, nil)
		}
	}
}

func TestFlowsOfOneTransferSpread(t *testing.T) {
	for _, p := range []Policy{Least, Ark, Split} {
		x := newTable(t, "x", 1, 1)
		set := paths(t, x, spread(4, 0, 1))
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1<<30 + 3, Flows: 4, Policy: p})
		got := legs(g)
		slices.Sort(got)
		if !slices.Equal(got, []int{0, 1, 2, 3}) || g.Legs[0].Share != 1<<28+1 || g.Legs[3].Share != 1<<28 || g.ID != g.Legs[0].ID {
			t.Errorf("%v: %+v", p, g)
		}
		for _, r := range x.Rows(nil) {
			if r.Entry.Group != g.ID {
				t.Errorf("%v: %+v is not of group %d", p, r, g.ID)
			}
		}
	}
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	mustReserve(t, x, 0, Request{Set: set, Bytes: 5})
	mustReserve(t, x, 0, Request{Set: set, Bytes: 5, Group: 77})
	if r := x.Rows(nil); r[0].Entry.Group != 0 || r[1].Entry.Group != 77 {
		t.Errorf("%+v", r)
	}
}

func TestSplitTakesFreePathsForLargeTransfers(t *testing.T) {
	const large = 64<<20 + 1 // Defaults
	for _, c := range []struct {
		name  string
		taken []int
		bytes int64
		flows int
		want  []int // paths, in any order; nil: one, by least
	}{
		{"four of six", nil, large, 1, []int{}},
		{"the three that are free", []int{0, 2, 4}, large, 1, []int{1, 3, 5}},
		{"two", []int{0, 1, 2, 4}, large, 1, []int{3, 5}},
		{"one free is none", []int{0, 1, 2, 4, 5}, large, 1, nil},
		{"too small", nil, large - 1, 1, nil},
		{"flows of its own", nil, large, 2, []int{}},
	} {
		x := newTable(t, "x", 1, 1)
		set := paths(t, x, spread(6, 0, 1))
		take(t, x, set, 1, 5, c.taken...)
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: c.bytes, Policy: Split, Flows: c.flows})
		got, sum := legs(g), int64(0)
		for _, l := range g.Legs {
			sum += l.Share
			if slices.Contains(c.taken, l.Path) || !l.Reserved || l.Share < c.bytes/int64(len(g.Legs)) {
				t.Errorf("%s: %+v", c.name, g)
			}
		}
		slices.Sort(got)
		n := map[string]int{"four of six": 4, "flows of its own": 2}[c.name]
		for _, r := range x.Rows(nil) {
			if r.Owner == "x" && (r.Entry.Group == g.ID) != (len(g.Legs) > 1) {
				t.Errorf("%s: %+v is of group %d", c.name, r, g.ID)
			}
		}
		if sum != c.bytes || len(slices.Compact(got)) != len(g.Legs) || n > 0 && len(got) != n || n == 0 && c.want != nil && !slices.Equal(got, c.want) || c.want == nil && len(got) != 1 {
			t.Errorf("%s: %+v", c.name, g)
		}
	}
	// Shares go by what is free on the narrowest link.
	x := newTable(t, "x", 1, 1)
	set, _ := x.Paths(spread(2, 0, 1), func(l ecmp.LinkID) int64 { return map[ecmp.LinkID]int64{up(0, 0): 100e9, up(0, 1): 300e9}[l] })
	g := mustReserve(t, x, 0, Request{Set: set, Bytes: 400 << 20, Policy: Split})
	slices.SortFunc(g.Legs, func(a, b Leg) int { return a.Path - b.Path })
	if len(g.Legs) != 2 || g.Legs[0].Share != 200<<20 { // of down(1, 1) nothing is known: Config.Capacity
		t.Errorf("%+v", g)
	}
}

func TestEcmpReservesNothing(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	take(t, x, set, 1, 5, 0)
	counts := make([]int, 4)
	for range 400 {
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: 11, Policy: ECMP, Flows: 2})
		if g.ID != 0 || g.Fallback || len(g.Legs) != 2 || g.Legs[0] != (Leg{0, g.Legs[0].Path, 6, false}) || g.Legs[1].Share != 5 {
			t.Fatalf("%+v", g)
		}
		counts[g.Legs[0].Path]++
		counts[g.Legs[1].Path]++
	}
	if slices.Min(counts) < 150 || x.Len() != 1 || len(x.Take(nil)) != 0 || x.Section().Seq != 0 {
		t.Errorf("%v, %d entries", counts, x.Len())
	}
	if x.Release(0, noon, 0) || x.Renew(0, noon, 0, 5) {
		t.Error("what is not reserved cannot end")
	}
}

// The third of five paths shares its way up with the fourth: three tiers.
func TestPathsThatShareALink(t *testing.T) {
	p := []ecmp.Path{{Links: []ecmp.LinkID{1, 11}}, {Links: []ecmp.LinkID{1, 12}}, {Links: []ecmp.LinkID{2, 13}}, {Links: []ecmp.LinkID{2, 14}}}
	for seed := range uint64(20) {
		x := newTable(t, "x", 1, seed)
		set := paths(t, x, p)
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1 << 30, Policy: Split})
		if got := legs(g); len(got) != 2 || got[0]/2 == got[1]/2 {
			t.Errorf("split over %v", got)
		}
		// All ways up are taken once: the third flow avoids the links beyond that are taken too.
		third := mustReserve(t, x, 0, Request{Set: set, Bytes: 0})
		if got := append(legs(g), third.Legs[0].Path); got[2] == got[0] || got[2] == got[1] {
			t.Errorf("three flows on %v", got)
		}
		x.audit(t, nil)
	}
}

// A set that nobody asks is told of changes some times, then no more; when it is asked it knows all of them. Who is asked
// hears of everything, also when others beside it fall silent.
func TestASetThatIsNotAskedListensNoMore(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	var sets []*Set
	for leaf := range 6 {
		sets = append(sets, paths(t, x, spread(4, 0, leaf+1)))
	}
	for _, s := range sets {
		x.refresh(s)
	}
	used, beside, idle := sets[0], sets[5], sets[3]
	for i := range 4 * maxVain {
		g := mustReserve(t, x, 0, Request{Set: used, Bytes: 1, Policy: Ark, Flows: 1 + i%4})
		x.refresh(beside)
		if beside.freePaths() != 3-i%4 {
			t.Fatalf("%d of its ways up are taken, and it finds %d free", len(g.Legs), beside.freePaths())
		}
		for _, l := range g.Legs {
			x.Release(0, noon, l.ID)
		}
	}
	for p := range 4 {
		for _, r := range x.links[up(0, p)].refs {
			if r.set == idle {
				t.Errorf("the way up to %d still tells a set that nobody asks", p)
			}
		}
	}
	for range 4 {
		mustReserve(t, x, 0, Request{Set: used, Bytes: 1, Policy: Ark})
	}
	if g := mustReserve(t, x, 0, Request{Set: idle, Bytes: 1, Policy: Ark}); !g.Fallback {
		t.Errorf("all are taken: %+v", g)
	}
	x.audit(t, nil)
}
