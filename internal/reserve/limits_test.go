package reserve

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "reserve: ") || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v; want one of reserve's that says %q", err, part)
	}
}

func TestOwnReservationsHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	var last Grant
	for range MaxPerOwner / MaxFlows {
		last = mustReserve(t, x, 0, Request{Set: set, Bytes: 1 << 20, Flows: MaxFlows})
		if last.Fallback || len(last.Legs) != MaxFlows {
			t.Fatalf("%+v", last)
		}
	}
	for _, phase := range []Phase{Active, Intent} {
		for _, p := range []Policy{Least, Split} {
			g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1 << 30, Policy: p, Phase: phase})
			if g.ID != 0 || g.Queued || !g.Fallback || len(g.Legs) != 1 || g.Legs[0].Reserved {
				t.Errorf("beyond the limit: %+v", g)
			}
		}
	}
	if len(x.Section().Entries) != MaxPerOwner || len(x.Take(nil)) != MaxPerOwner || x.Len() != MaxPerOwner {
		t.Errorf("%d entries", x.Len())
	}
	x.Release(0, noon, last.Legs[7].ID)
	if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1, Flows: 2}); !g.Legs[0].Reserved || g.Legs[1].Reserved || !g.Fallback {
		t.Errorf("one place: %+v", g)
	}
	x.audit(t, nil)
}

func TestOthersReservationsHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	for o := range MaxTable/MaxPerOwner - 1 {
		owner := peer.ID(fmt.Sprint("o", o))
		if o%2 == 0 {
			for i := range uint64(MaxPerOwner) {
				if v := x.Heard(0, noon, owner, &Message{owner, 1, false, entry(i+1, i+1)}); v != Accepted {
					t.Fatal(v)
				}
			}
			if v := x.Heard(0, noon, owner, &Message{owner, 1, false, entry(9999, 9999)}); v != Quota {
				t.Fatalf("one more of an owner: %v", v)
			}
			continue
		}
		s := &Section{Seq: 9999}
		for i := range uint64(MaxPerOwner) {
			s.Entries = append(s.Entries, entry(i+1, i+1))
		}
		if v := x.Merge(0, noon, owner, 1, s); v != Accepted {
			t.Fatal(v)
		}
		if v := x.Merge(0, noon, owner, 1, &Section{Seq: 10000, Entries: append(s.Entries, entry(5000, 5000))}); v != Malformed {
			t.Fatalf("a section of one more: %v", v)
		}
	}
	if v := x.Heard(0, noon, "last", &Message{"last", 1, false, entry(1, 1)}); v != Quota || x.Len() != MaxTable-MaxPerOwner {
		t.Errorf("beyond the table: %v, %d entries", v, x.Len())
	}
	for range MaxPerOwner / MaxFlows { // the own ones have room of their own
		mustReserve(t, x, 0, Request{Set: set, Bytes: 1 << 20, Flows: MaxFlows})
	}
	if x.Len() != MaxTable || len(x.Rows(nil)) != MaxTable {
		t.Errorf("%d entries, want %d", x.Len(), MaxTable)
	}
	x.Heard(0, noon, "o0", &Message{"o0", 1, true, Entry{ID: 1, Seq: 99999}})
	if v := x.Heard(0, noon, "last", &Message{"last", 1, false, entry(1, 2)}); v != Accepted {
		t.Errorf("with room again: %v", v)
	}
}

func TestOwnersHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	hear := func(o int) Verdict {
		owner := peer.ID(fmt.Sprint("o", o))
		return x.Heard(time.Duration(o), noon, owner, &Message{owner, 1, false, entry(1, 1)})
	}
	for o := range MaxOwners {
		if v := hear(o); v != Accepted {
			t.Fatal(v)
		}
	}
	if v := hear(MaxOwners); v != Quota {
		t.Errorf("one more: %v", v)
	}
	x.Forget("o7")
	x.Forget("o5") // silent for longer
	if v := hear(MaxOwners); v != Accepted || x.owners["o5"] != nil || x.owners["o7"] == nil {
		t.Errorf("after a death: %v", v)
	}
	x.audit(t, nil)
}

func TestPathsHaveLimits(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	none := func(ecmp.LinkID) int64 { return 0 }
	for _, c := range []struct {
		paths []ecmp.Path
		want  string
	}{
		{spread(MaxPaths, 0, 1), ""},
		{spread(MaxPaths+1, 0, 1), "4097 paths"},
		{nil, "0 paths"},
		{[]ecmp.Path{{Links: []ecmp.LinkID{1, 2, 3, 4, 5, 6, 7, 8}}}, ""},
		{[]ecmp.Path{{}, {Links: []ecmp.LinkID{1, 2, 3, 4, 5, 6, 7, 8, 9}}}, "path 1 has 9 links"},
		{[]ecmp.Path{{Links: []ecmp.LinkID{1, 2, 1}}}, "00000001 twice"},
		{[]ecmp.Path{{}}, ""}, // both ends on one leaf
	} {
		s, err := x.Paths(c.paths, none)
		if c.want != "" {
			wantError(t, err, c.want)
		} else if err != nil || s.Len() != len(c.paths) {
			t.Errorf("%d paths: %v", len(c.paths), err)
		} else if g := mustReserve(t, x, 0, Request{Set: s, Bytes: 1}); g.ID == 0 {
			t.Errorf("%+v", g)
		}
	}
	x.audit(t, nil)
}

func TestSetsAreSharedAndHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	first := paths(t, x, spread(2, 0, 0))
	if again := paths(t, x, spread(2, 0, 0)); again != first {
		t.Error("equal paths are two sets")
	}
	if other := paths(t, x, spread(2, 0, 1)); other == first {
		t.Error("different paths are one set")
	}
	held := mustReserve(t, x, 0, Request{Set: first, Bytes: 5}) // it is not put aside
	second := paths(t, x, spread(2, 0, 1))
	for leaf := 2; leaf < MaxSets; leaf++ {
		paths(t, x, spread(2, 0, leaf))
	}
	if len(x.sets) != MaxSets || x.Stats().SetsPutAside != 0 {
		t.Fatalf("%d sets", len(x.sets))
	}
	paths(t, x, spread(2, 0, MaxSets))
	if len(x.sets) != MaxSets || x.Stats().SetsPutAside != 1 || second.in != nil || first.in == nil {
		t.Fatalf("%d sets, %d put aside", len(x.sets), x.Stats().SetsPutAside)
	}
	if x.Background(down(1, 0), 9e9) && x.Background(down(1, 0), 0) && len(x.Links(nil)) != 2+2*MaxSets {
		t.Errorf("%d links stay", len(x.Links(nil)))
	}
	// A set that was put aside is taken up again where it is used.
	e := entry(1, 1)
	e.Links = []ecmp.LinkID{down(1, 0)}
	x.Heard(0, noon, "b", &Message{"b", 1, false, e})
	if g := mustReserve(t, x, 0, Request{Set: second, Bytes: 5}); g.Legs[0].Path == int(0) && x.find(held.ID).path == 1 {
		t.Errorf("the taken path: %+v", g)
	}
	if second.in == nil || second.Path(0).Links[1] != down(1, 0) {
		t.Error("not taken up")
	}
	x.audit(t, nil)
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "y uses a set of x") {
			t.Errorf("a set of another table: %v", r)
		}
	}()
	mustReserve(t, newTable(t, "y", 1, 1), 0, Request{Set: first, Bytes: 1})
}

func TestPathsOfAllSetsHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	p := spread(MaxPaths, 0, 1)
	for range MaxSetPaths / MaxPaths {
		p = append(p[1:], p[0]) // another order is another set
		mustReserve(t, x, 0, Request{Set: paths(t, x, p), Bytes: 1})
	}
	if x.setPaths != MaxSetPaths || x.Stats().SetsPutAside != 0 {
		t.Fatalf("%d paths", x.setPaths)
	}
	s := paths(t, x, spread(2, 0, 1))
	if g := mustReserve(t, x, 0, Request{Set: s, Bytes: 1}); !g.Fallback || g.ID != 0 || len(g.Legs) != 1 || s.in != nil {
		t.Errorf("where all sets hold reservations: %+v", g)
	}
}

func TestReleasesRememberedHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	release := func(id, seq uint64) {
		t.Helper()
		if v := x.Heard(0, noon, "b", &Message{"b", 1, true, Entry{ID: id, Seq: seq}}); v != Accepted {
			t.Fatal(v)
		}
	}
	x.Heard(0, noon, "b", &Message{"b", 1, false, entry(5000, 1)})
	for i := range uint64(MaxTombstones) {
		release(i+1, i+10)
	}
	o := x.owners["b"]
	if len(o.tombs) != MaxTombstones || o.floor != 0 {
		t.Fatalf("%d releases, floor %d", len(o.tombs), o.floor)
	}
	release(2000, 5000)
	if len(o.tombs) != MaxTombstones || o.floor != 10 || x.Stats().FloorsRaised != 1 {
		t.Errorf("%d releases, floor %d", len(o.tombs), o.floor)
	}
	for _, e := range []Entry{entry(1, 9), entry(7, 9), entry(3000, 10), entry(5000, 9)} { // all from below the floor
		if v := x.Heard(0, noon, "b", &Message{"b", 1, false, e}); v != Old {
			t.Errorf("%d at %d: %v", e.ID, e.Seq, v)
		}
	}
	if x.Len() != 1 {
		t.Errorf("%d entries: what is held stays", x.Len())
	}
	// A section from before the floor does not bring back what may have been released; one from after it tells all.
	x.Merge(0, noon, "b", 1, &Section{Seq: 8, Entries: []Entry{entry(4000, 8), entry(5000, 1)}})
	if x.Len() != 1 {
		t.Error("an old section brought back an entry")
	}
	x.Merge(0, noon, "b", 1, &Section{Seq: 5000, Entries: []Entry{entry(3000, 10), entry(5000, 1)}})
	if x.Len() != 2 || len(o.tombs) != 0 || o.floor != 5000 {
		t.Errorf("%d entries, %d releases, floor %d", x.Len(), len(o.tombs), o.floor)
	}
	for i := range uint64(MaxTombstones) { // a release older than all that are remembered
		release(i+1, i+6000)
	}
	release(9000, 5500)
	if o.floor != 5500 || len(o.tombs) != MaxTombstones {
		t.Errorf("floor %d, %d releases", o.floor, len(o.tombs))
	}
}

func TestWaitingMessagesHaveALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	begin := func(n int) (ids []uint64) {
		for range n {
			ids = append(ids, mustReserve(t, x, 0, Request{Set: set, Bytes: 1}).ID)
		}
		x.Section() // now they are known of
		return ids
	}
	end := func(ids []uint64) {
		for _, id := range ids {
			x.Release(0, noon, id)
		}
	}
	end(begin(MaxPerOwner))
	ids := begin(MaxPerOwner)
	if len(x.out) != MaxWaiting || x.Stats().Unsaid != 0 {
		t.Fatalf("%d waiting", len(x.out))
	}
	end(ids[:3])
	if len(x.out) != MaxWaiting-3 || x.Stats().Unsaid != 3 {
		t.Errorf("%d waiting, %d unsaid", len(x.out), x.Stats().Unsaid)
	}
	if m := x.Take(nil); len(m) != MaxWaiting-3 || len(x.Take(nil)) != 0 {
		t.Errorf("%d messages", len(m))
	}
	end(ids[3:])
	if m := x.Take(nil); len(m) != MaxPerOwner-3 || !m[0].Released {
		t.Errorf("%d messages", len(m))
	}
}

func TestBackgroundHasALimit(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	for i := range MaxBackground {
		if !x.Background(ecmp.LinkID(i), 1e9) {
			t.Fatal(i)
		}
	}
	if x.Background(MaxBackground, 1e9) || !x.Background(MaxBackground, 0) || !x.Background(3, 2e9) {
		t.Error("one more, none, and another value")
	}
	if !x.Background(3, 0) || !x.Background(MaxBackground, 1<<62) {
		t.Error("no room again")
	}
	if l := x.Links(nil); len(l) != MaxBackground || l[len(l)-1].Background != MaxCapacity {
		t.Errorf("%d links", len(l))
	}
}

func TestRequestsAreChecked(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	ok := Request{Dst: "b", Set: set, Bytes: MaxBytes, Flows: MaxFlows, Ready: (noon + MaxReady).Microseconds(), Rate: MaxCapacity}
	for _, c := range []struct {
		change func(r *Request)
		want   string
	}{
		{func(r *Request) {}, ""},
		{func(r *Request) { r.Dst = "" }, "destination"},
		{func(r *Request) { r.Set = nil }, "no paths to b"},
		{func(r *Request) { r.Bytes++ }, "bytes to b"},
		{func(r *Request) { r.Bytes = -1 }, "-1 bytes"},
		{func(r *Request) { r.Flows++ }, "65 flows"},
		{func(r *Request) { r.Flows = -1 }, "-1 flows"},
		{func(r *Request) { r.Policy = 99 }, "policy 99"},
		{func(r *Request) { r.Phase = 2 }, "phase 2"},
		{func(r *Request) { r.Ready++ }, "ready at"},
		{func(r *Request) { r.Ready = -1 }, "ready at -1"},
		{func(r *Request) { r.Rate++ }, "a rate of"},
		{func(r *Request) { r.Rate = -1 }, "a rate of -1"},
	} {
		r, g := ok, Grant{ID: 7, Legs: make([]Leg, 3)}
		c.change(&r)
		err := x.Reserve(0, noon, &r, &g)
		if c.want == "" && err != nil {
			t.Error(err)
		} else if c.want != "" {
			wantError(t, err, c.want)
			if g.ID != 0 || len(g.Legs) != 0 {
				t.Errorf("%s: granted %+v", c.want, g)
			}
		}
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *Config)
	}{
		{"Lease", func(c *Config) { c.Lease = time.Millisecond }}, {"Lease", func(c *Config) { c.Lease = 0 }},
		{"MinSplit", func(c *Config) { c.MinSplit = 0 }}, {"Legs", func(c *Config) { c.Legs = 1 }},
		{"Legs", func(c *Config) { c.Legs = MaxLegs + 1 }}, {"Moves", func(c *Config) { c.Moves = -1 }},
		{"Capacity", func(c *Config) { c.Capacity = 0 }}, {"Capacity", func(c *Config) { c.Capacity = MaxCapacity + 1 }},
	} {
		cfg := Defaults()
		c.change(&cfg)
		_, err := New(cfg, "x", 1, rand.New(rand.NewPCG(1, 1)))
		wantError(t, err, c.name)
	}
	if _, err := New(Defaults(), "", 1, rand.New(rand.NewPCG(1, 1))); err == nil {
		t.Error("a table of nobody")
	}
	_, err := New(Defaults(), "x", 1, nil)
	wantError(t, err, "generator")
	if x := newTable(t, "x", 1, 1); x.Config() != Defaults() {
		t.Error(x.Config())
	}
}
