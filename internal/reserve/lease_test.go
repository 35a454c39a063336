package reserve

import (
	"testing"
	"time"
)

const lease = 3 * time.Second // Defaults

func TestAnEntryThatIsNotRenewedExpires(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	x.Heard(0, noon, "b", &Message{"b", 1, false, entry(1, 1)})
	x.Heard(time.Second, noon, "b", &Message{"b", 1, false, entry(2, 2)})
	x.Heard(2*time.Second, noon, "b", &Message{"b", 1, false, entry(1, 3)}) // renewed
	x.Heard(2*time.Second, noon, "b", &Message{"b", 1, false, entry(2, 2)}) // heard again: that is no renewal
	x.Tick(lease+time.Second-1, noon)
	if x.Len() != 2 {
		t.Fatalf("%d entries before a lease is over", x.Len())
	}
	x.Tick(lease+time.Second, noon)
	if r := x.Rows(nil); len(r) != 1 || r[0].Entry.ID != 1 || x.Stats().Expired != 1 {
		t.Fatalf("after a lease %+v", r)
	}
	if v := x.Heard(5*time.Second, noon, "b", &Message{"b", 1, false, entry(2, 4)}); v != Accepted {
		t.Errorf("its next message: %v", v)
	}
	x.Tick(time.Minute, noon)
	if x.Len() != 0 || set.lowestFree() != 0 {
		t.Errorf("%d entries after a minute", x.Len())
	}
	x.audit(t, nil)
}

func TestAReservationWithoutBytesIsReleased(t *testing.T) {
	x, y := newTable(t, "x", 1, 1), newTable(t, "y", 1, 2)
	set := paths(t, x, spread(4, 0, 1))
	g := mustReserve(t, x, 0, Request{Set: set, Bytes: 100})
	hear := func(now time.Duration) int {
		m := x.Take(nil)
		for i := range m {
			y.Heard(now, noon+now, "x", &m[i])
		}
		return len(m)
	}
	hear(0)
	// Bytes move: it lives, and says so every third of a lease.
	var now time.Duration
	said := 0
	for ; now < 4*lease; now += 100 * time.Millisecond {
		if !x.Renew(now, noon+now, g.ID, 90) {
			t.Fatalf("ended at %v", now)
		}
		x.Tick(now, noon+now)
		said += hear(now)
		y.Tick(now, noon+now)
	}
	if said < 10 || said > 12 || y.Len() != 1 || y.Rows(nil)[0].Entry.Bytes != 90 || x.Digest() != y.Digest() {
		t.Errorf("said %d times in 4 leases, and the other holds %+v", said, y.Rows(nil))
	}
	// They move no more: one lease later it is free everywhere.
	now -= 100 * time.Millisecond
	x.Tick(now+lease-1, noon)
	if x.Len() != 1 {
		t.Error("released before a lease is over")
	}
	x.Tick(now+lease, noon)
	if hear(now+lease) != 1 || x.Len() != 0 || y.Len() != 0 || x.Stats().Lapsed != 1 {
		t.Errorf("after a lease %d here, %d there, %+v", x.Len(), y.Len(), x.Stats())
	}
	if x.Renew(now+lease, noon, g.ID, 80) || x.Release(now+lease, noon, g.ID) {
		t.Error("what has ended goes on")
	}
	if _, moved := x.Move(now+lease, noon, g.ID); moved || x.Start(now, noon, g.ID, &g) {
		t.Error("what has ended goes on")
	}
	x.audit(t, nil)
}

// An Intent stands until its time has come and a lease more, and nobody has to do anything for that.
func TestAnIntentStandsUntilItsTime(t *testing.T) {
	x, y := newTable(t, "x", 1, 1), newTable(t, "y", 1, 2)
	set := paths(t, x, spread(4, 0, 1))
	ready := (noon + 20*time.Second).Microseconds()
	g := mustReserve(t, x, 0, Request{Set: set, Bytes: 100, Phase: Intent, Ready: ready})
	if !g.Queued || g.ID == 0 || len(g.Legs) != 0 {
		t.Fatalf("%+v", g)
	}
	var now time.Duration
	step := func() {
		now += 50 * time.Millisecond
		x.Tick(now, noon+now)
		for _, m := range x.Take(nil) {
			y.Heard(now, noon+now, "x", &m)
		}
		y.Tick(now, noon+now)
	}
	step()
	x.Renew(now, noon+now, g.ID, 100) // a sign of life does not end it sooner
	for now < 20*time.Second+lease-100*time.Millisecond {
		step()
		if x.Len() != 1 || y.Len() != 1 || y.Rows(nil)[0].Entry.Ready != ready || x.Links(nil)[0].Flows != 0 {
			t.Fatalf("at %v: %+v here, %+v there", now, x.Rows(nil), y.Rows(nil))
		}
	}
	for range 4 {
		step()
	}
	if x.Len() != 0 || y.Len() != 0 {
		t.Errorf("a lease after its time: %d here, %d there", x.Len(), y.Len())
	}
}

func TestStartChoosesThePathOfAnIntent(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(2, 0, 1))
	g := mustReserve(t, x, 0, Request{Set: set, Bytes: 101, Phase: Intent, Flows: 2, Policy: Ark, Group: 5})
	id := g.ID
	x.Renew(0, noon, id, 91)
	x.Heard(0, noon, "b", &Message{"b", 1, false, entry(1, 1)}) // path 0 is taken meanwhile
	if !x.Start(0, noon, id, &g) || g.Queued || g.ID != id || len(g.Legs) != 2 || g.Legs[0] != (Leg{id, 1, 46, true}) || g.Legs[1].Share != 45 || g.Legs[1].Reserved || !g.Fallback {
		t.Errorf("%+v", g)
	}
	if e := x.find(id).entry; e.Phase != Active || e.Group != 5 || len(e.Links) != 2 || e.Bytes != 46 {
		t.Errorf("%+v", e)
	}
	if !x.Start(0, noon, id, &g) || len(g.Legs) != 1 || g.Legs[0] != (Leg{id, 1, 46, true}) {
		t.Errorf("started again: %+v", g)
	}
	x.audit(t, nil)
	// Where no path can be reserved it ends, and the transfer goes without.
	g = mustReserve(t, x, 0, Request{Set: set, Bytes: 7, Phase: Intent, Policy: Ark})
	id = g.ID
	if !x.Start(0, noon, id, &g) || g.ID != 0 || !g.Fallback || len(g.Legs) != 1 || x.find(id) != nil {
		t.Errorf("with all taken: %+v", g)
	}
	// The control has nothing to announce.
	if g = mustReserve(t, x, 0, Request{Set: set, Bytes: 7, Phase: Intent, Policy: ECMP}); g.Queued || g.ID != 0 || len(g.Legs) != 1 {
		t.Errorf("ecmp: %+v", g)
	}
	x.audit(t, nil)
}

func TestStampsOnlyRise(t *testing.T) {
	var c clock
	last := Stamp(0)
	next := func(wall time.Duration) {
		t.Helper()
		s := c.next(wall)
		if s <= last {
			t.Errorf("%v after %v", s, last)
		}
		last = s
	}
	next(noon)
	next(noon) // the same ms
	next(noon - time.Hour)
	next(-time.Hour)
	if last != StampAt(noon)+3 {
		t.Errorf("%v", last)
	}
	if !c.hear(StampAt(noon+MaxAhead), noon) {
		t.Error("not too far ahead, and refused")
	}
	last = StampAt(noon + MaxAhead)
	next(noon)
	if c.hear(StampAt(noon+MaxAhead+time.Millisecond), noon) || c.last != last {
		t.Error("too far ahead, and heard")
	}
	for range 70_000 { // more than the count holds: it goes on into the next ms
		next(noon)
	}
	if s := Stamp(7<<16 | 3); s.String() != "7.3" || s.Milliseconds() != 7 || StampAt(-1) != 0 {
		t.Error(s)
	}
}

// One message an entry waits, however often it changes; of what nobody has heard nobody needs to hear the end.
func TestMessagesOfOneEntryAreOne(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	a, b, c := mustReserve(t, x, 0, Request{Set: set, Bytes: 9}), mustReserve(t, x, 0, Request{Set: set, Bytes: 9}), mustReserve(t, x, 0, Request{Set: set, Bytes: 9})
	x.Renew(lease/2, noon, b.ID, 5)
	x.Release(0, noon, a.ID)
	m := x.Take(nil)
	if len(m) != 2 || m[0].Entry.ID != c.ID || m[1].Entry.ID != b.ID || m[1].Entry.Bytes != 5 || m[1].Entry.Seq != 4 {
		t.Errorf("%+v", m)
	}
	x.Renew(lease, noon, b.ID, 4)
	x.Release(lease, noon, b.ID)
	if m = x.Take(m[:0]); len(m) != 1 || !m[0].Released || m[0].Entry.ID != b.ID || m[0].Entry.Seq != 7 || m[0].Owner != "x" || m[0].Incarnation != 1 {
		t.Errorf("%+v", m)
	}
	if m = x.Take(nil); len(m) != 0 {
		t.Errorf("taken twice: %+v", m)
	}
}

func TestASectionIsTheSameWhileNothingChanges(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	var seen []*Section
	step := func(what string, changes bool, f func()) {
		t.Helper()
		before := x.Section()
		f()
		after := x.Section()
		if (before != after) != changes || changes && after.Seq <= before.Seq {
			t.Errorf("%s: section %+v, then %+v", what, before, after)
		}
		seen = append(seen, after)
	}
	var g, h Grant
	step("a reservation", true, func() { g = mustReserve(t, x, 0, Request{Set: set, Bytes: 9}) })
	step("another", true, func() { h = mustReserve(t, x, 0, Request{Set: set, Bytes: 9}) })
	step("messages taken", false, func() { x.Take(nil) })
	step("bytes", false, func() { x.Renew(time.Millisecond, noon, g.ID, 8) })
	step("bytes, later", true, func() { x.Renew(lease/3, noon, g.ID, 8) })
	step("somebody else's", false, func() { x.Heard(0, noon, "b", &Message{"b", 1, false, entry(1, 1)}) })
	step("no time", false, func() { x.Tick(lease/3, noon) })
	step("a fabric", true, func() { x.SetFabric(77) })
	step("the same fabric", false, func() { x.SetFabric(77) })
	step("a release", true, func() { x.Release(0, noon, g.ID) })
	last := seen[len(seen)-1]
	if len(last.Entries) != 1 || last.Entries[0].ID != h.ID || last.Fabric != 77 || len(seen[1].Entries) != 2 || seen[1].Entries[0].Bytes != 9 {
		t.Errorf("%+v, and before %+v", last, seen[1])
	}
}
