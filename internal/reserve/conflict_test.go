package reserve

import (
	"testing"
	"time"

	"shoal/internal/peer"
)

// pair is two peers with the same paths.
func pair(t *testing.T, k int) (x, y *Table, xs, ys *Set) {
	x, y = newTable(t, "x", 1, 1), newTable(t, "y", 1, 2)
	return x, y, paths(t, x, spread(k, 0, 1)), paths(t, y, spread(k, 0, 1))
}

func pass(t *testing.T, now time.Duration, from, to *Table) {
	t.Helper()
	for _, m := range from.Take(nil) {
		if v := to.Heard(now, noon+now, from.self, &m); v != Accepted {
			t.Fatalf("%s heard of %s: %v", to.self, from.self, v)
		}
	}
}

func TestOfTwoConcurrentReservationsTheGreaterKeyMoves(t *testing.T) {
	for _, p := range []Policy{Ark, Least} {
		x, y, xs, ys := pair(t, 2)
		gx := mustReserve(t, x, time.Millisecond, Request{Set: xs, Bytes: 100, Policy: p})
		gy := mustReserve(t, y, 0, Request{Set: ys, Bytes: 100, Policy: p}) // a millisecond before
		for gy.Legs[0].Path != gx.Legs[0].Path {
			y.Release(0, noon, gy.ID)
			gy = mustReserve(t, y, 0, Request{Set: ys, Bytes: 100, Policy: p})
		}
		pass(t, 0, x, y)
		pass(t, 0, y, x)
		if _, moved := y.Move(0, noon, gy.ID); moved || y.Rows(nil)[1].Contested {
			t.Errorf("%v: the lesser key moves", p)
		}
		if !x.Rows(nil)[0].Contested {
			t.Errorf("%v: the greater key does not know", p)
		}
		x.Renew(0, noon, gx.ID, 60)
		leg, moved := x.Move(0, noon, gx.ID)
		if !moved || leg != (Leg{gx.ID, 1 - gx.Legs[0].Path, 60, true}) {
			t.Errorf("%v: the loser moved %v to %+v", p, moved, leg)
		}
		// It has lost nothing on its new path: who comes later goes, even where the old one is free again.
		later := entry(1, 1)
		later.Links, later.Stamp = xs.Path(leg.Path).Links, StampAt(noon+100*time.Millisecond)
		x.Heard(0, noon, "c", &Message{"c", 1, false, later})
		x.Heard(0, noon, "y", &Message{"y", 1, true, Entry{ID: gy.ID, Seq: 1000}})
		if _, again := x.Move(0, noon, gx.ID); again {
			t.Errorf("%v: it moves twice", p)
		}
		x.Heard(0, noon, "c", &Message{"c", 1, true, Entry{ID: 1, Seq: 2}})
		x.Heard(0, noon, "y", &Message{"y", 1, false, Entry{ID: gy.ID, Seq: 1001, Stamp: StampAt(noon), Dst: "dst", Links: ys.Path(gy.Legs[0].Path).Links}})
		pass(t, 0, x, y)
		if y.Rows(nil)[0].Entry.Bytes != 60 || x.Stats().Conflicts != 1 || x.Stats().Moves != 1 {
			t.Errorf("%v: %+v here, %+v there", p, x.Rows(nil), y.Rows(nil))
		}
		x.audit(t, nil)
		y.audit(t, nil)
	}
}

func TestEqualStampsAreDecidedByOwnerAndID(t *testing.T) {
	e, f := entry(2, 1), entry(3, 1)
	for _, c := range []struct {
		a, b peer.ID
		want bool
	}{{"a", "b", true}, {"b", "a", false}, {"a", "a", true}} {
		if e.before(c.a, &f, c.b) != c.want {
			t.Errorf("%s %d before %s %d: %v", c.a, e.ID, c.b, f.ID, !c.want)
		}
	}
	if e.before("a", &e, "a") {
		t.Error("before itself")
	}
}

// Who has seen a reservation has a greater stamp, even where its clock is behind; and whoever is seen stays.
func TestWhoHasSeenAReservationNeverDisplacesIt(t *testing.T) {
	x, y, xs, ys := pair(t, 1)
	gx := mustReserve(t, x, 400*time.Millisecond, Request{Set: xs, Bytes: 100})
	pass(t, 0, x, y) // y's clock is 400 ms behind
	gy := mustReserve(t, y, 0, Request{Set: ys, Bytes: 100})
	pass(t, 0, y, x)
	if y.find(gy.ID).entry.Stamp <= x.find(gx.ID).entry.Stamp || x.find(gx.ID).contested || y.find(gy.ID).contested {
		t.Errorf("%+v, %+v", x.Rows(nil), y.Rows(nil))
	}
}

// A conflict is kept in mind: the loser that finds nothing better moves when there is.
func TestALoserMovesWhenAPathBecomesFree(t *testing.T) {
	for _, p := range []Policy{Ark, Least} {
		x := newTable(t, "x", 1, 1)
		set := paths(t, x, spread(2, 0, 1))
		other := entry(1, 1)
		other.Links = set.Path(1).Links
		x.Heard(0, noon, "b", &Message{"b", 1, false, other})
		g := mustReserve(t, x, 0, Request{Set: set, Bytes: 100, Policy: p})
		x.Heard(0, noon, "c", &Message{"c", 1, false, entry(1, 1)}) // on path 0 too, and a lesser key
		if _, moved := x.Move(0, noon, g.ID); moved || !x.find(g.ID).contested {
			t.Errorf("%v: moved to where it is no better", p)
		}
		x.Heard(0, noon, "b", &Message{"b", 1, true, Entry{ID: 1, Seq: 2}})
		if leg, moved := x.Move(0, noon, g.ID); !moved || leg.Path != 1 {
			t.Errorf("%v: %+v, %v", p, leg, moved)
		}
		x.audit(t, nil)
	}
}

func TestALoserStaysWhereItIsAloneAgain(t *testing.T) {
	for _, p := range []Policy{Ark, Least, Split} {
		x := newTable(t, "x", 1, 1)
		g := mustReserve(t, x, 0, Request{Set: paths(t, x, spread(3, 0, 1)), Bytes: 100, Policy: p})
		early := entry(1, 1)
		early.Links = x.find(g.ID).entry.Links
		x.Heard(0, noon, "b", &Message{"b", 1, false, early})
		x.Heard(0, noon, "b", &Message{"b", 1, true, Entry{ID: 1, Seq: 2}})
		if _, moved := x.Move(0, noon, g.ID); moved || x.Stats().Conflicts != 1 {
			t.Errorf("%v: moved from a path of its own, %+v", p, x.Stats())
		}
		x.audit(t, nil)
	}
}

func TestNobodyMovesMoreOftenThanConfigured(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	x.cfg.Moves = 3
	set := paths(t, x, spread(2, 0, 1))
	g := mustReserve(t, x, 0, Request{Set: set, Bytes: 100})
	for i := range uint64(4) {
		o := x.find(g.ID)
		e := entry(1, i+1)
		e.Links, e.Stamp = set.Path(o.path).Links, 1
		x.Heard(0, noon, "b", &Message{"b", 1, false, e})
		if _, moved := x.Move(0, noon, g.ID); moved != (i < 3) {
			t.Errorf("conflict %d: moved %v", i, moved)
		}
	}
	if st := x.Stats(); st.Moves != 3 || st.MovesRefused != 1 {
		t.Errorf("%+v", st)
	}
}
