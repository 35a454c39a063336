package reserve

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// The counted percentile is that of the sorted delays, and late begins and ends where it should.
func TestTheDelaysPercentile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 40 * time.Millisecond
		var d delays
		var all []time.Duration
		late := false
		for range rapid.IntRange(1, 400).Draw(t, "n") {
			v := time.Duration(rapid.SampledFrom([]int{0, 1, 5, 29, 30, 31, 39, 40, 41, 90, 70_000}).Draw(t, "ms")) * time.Millisecond
			d.heard(v, bound)
			all = append(all, min(v, (1<<16-1)*time.Millisecond))
			last := slices.Clone(all[max(0, len(all)-window):])
			slices.SortFunc(last, func(a, b time.Duration) int { return int(b - a) })
			p99 := last[len(last)/100]
			if d.p99() != p99 {
				t.Fatalf("the percentile of %d is %v, want %v", len(last), d.p99(), p99)
			}
			if len(last) >= minDelays {
				late = p99 > bound || late && p99 > bound*3/4
			}
			if d.late != late {
				t.Fatalf("late %v, want %v at %v", d.late, late, p99)
			}
		}
	})
}

// far is a table that hears START after START of a peer, so late.
func far(t *testing.T, x *Table, delay time.Duration, from, n uint64) {
	for i := range n {
		e := entry(from+i, from+i)
		e.Stamp = StampAt(noon + time.Duration(from+i)*10*time.Millisecond)
		wall := noon + time.Duration(from+i)*10*time.Millisecond + delay
		if v := x.Heard(0, wall, "b", &Message{"b", 1, false, e}); v != Accepted {
			t.Fatal(v)
		}
	}
}

func TestLateMessagesEndTheWaiting(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	far(t, x, x.cfg.MaxDelay, 1, 20)
	if x.Mode(0) != Waiting || x.Schedule(0).Delay != x.cfg.MaxDelay-time.Millisecond {
		t.Fatalf("at the bound: %+v", x.Schedule(0))
	}
	far(t, x, x.cfg.MaxDelay+2*time.Millisecond, 21, 1)
	if x.Mode(0) != Late {
		t.Fatalf("beyond it: %+v", x.Schedule(0))
	}
	one := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal})
	two := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal}) // the same NIC
	if one.Queued || two.Queued || !two.Legs[0].Reserved || x.find(two.ID).entry.End == 0 || x.Stats().Unwaited != 2 {
		t.Fatalf("least decides for %+v and %+v", one, two)
	}
	far(t, x, x.cfg.MaxDelay*3/4+10*time.Millisecond, 22, 500)
	if x.Mode(0) != Late {
		t.Fatalf("not yet: %+v", x.Schedule(0))
	}
	far(t, x, x.cfg.MaxDelay*3/4, 522, 256)
	if x.Mode(0) != Waiting {
		t.Fatalf("in time again: %+v", x.Schedule(0))
	}
	// What is missing may come later, and is not late for that; nor is what is said again.
	far(t, x, time.Millisecond, 778, 1)
	before := x.delays
	far(t, x, 10*time.Second, 780, 5)
	m := Message{"b", 1, false, entry(785, 785)}
	m.Entry.Stamp = StampAt(noon)
	x.Heard(0, noon+time.Minute, "b", &m)
	if x.delays != before {
		t.Error("what comes after a gap counts")
	}
}

// What waits starts at once when there is nothing to wait by any more.
func TestAStaleTableWaitsForNothing(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal})
	a := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal})
	b := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal})
	later := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal, Phase: Intent, Ready: (noon + time.Second).Microseconds()})
	if got, _ := x.Admit(0, noon, nil); !a.Queued || !b.Queued || !later.Queued || len(got) != 0 {
		t.Fatalf("%v of %+v %+v %+v", got, a, b, later)
	}
	x.Stale(true)
	got, next := x.Admit(0, noon, nil)
	slices.Sort(got)
	if !slices.Equal(got, []uint64{a.ID, b.ID}) || next != time.Second || x.Mode(0) != Stale {
		t.Fatalf("%v, next %v", got, next)
	}
	for _, id := range got {
		var g Grant
		if !x.Start(0, noon, id, &g) || g.Queued || len(g.Legs) != 1 || g.Legs[0].Path == 0 {
			t.Fatalf("%+v: not where the first is", g)
		}
	}
	x.Stale(false)
	var g Grant
	if got, next := x.Admit(time.Second, noon+time.Second, nil); len(got) != 0 || next <= time.Second || !x.Start(time.Second, noon+time.Second, later.ID, &g) || !g.Queued {
		t.Fatalf("%v, next %v, %+v: its NIC sends", got, next, g)
	}
	now := time.Second + x.cfg.GiveUp
	x.Renew(now, noon+now, a.ID, 1)
	if got, _ := x.Admit(now, noon+now, nil); !slices.Equal(got, []uint64{later.ID}) || !x.Start(now, noon+now, later.ID, &g) || g.Queued || x.Stats().GivenUp != 1 {
		t.Fatalf("%v starts without its turn: %+v", got, g)
	}
	x.auditSchedule(t)
	x.audit(t, nil)
}

// Own transfers that take longer than predicted end the waiting for a while, and for longer if it was no better then.
func TestTransfersThatTakeTooLongEndTheWaiting(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	var now time.Duration
	transfer := func(ratio float64) {
		now += time.Second
		g := mustReserve(t, x, now, Request{Set: set, Bytes: 1e9, Policy: Shoal, Rate: 100e9})
		if g.Queued {
			t.Fatalf("%+v queued at %v", g, now)
		}
		now += time.Duration(ratio * 80 * float64(time.Millisecond))
		if !x.Release(now, noon+now, g.ID) {
			t.Fatal("it has ended before")
		}
	}
	for range 50 {
		transfer(1.1) // as it is with TCP
	}
	if s := x.Schedule(now); s.Mode != Waiting || s.Efficiency < 900 || s.Efficiency > 912 || s.Slowdown < 990 || s.Slowdown > 1010 {
		t.Fatalf("%+v after transfers at 1/1.1 of the rate", s)
	}
	bad := 0
	for ; x.Mode(now) == Waiting; bad++ {
		transfer([]float64{1.1, 2.2}[bad%2])
	}
	if bad < 8 || bad > 64 || x.Stats().Distrusts != 1 {
		t.Errorf("%d transfers, half of them twice as long, until it is noticed", bad)
	}
	for _, times := range []time.Duration{1, 2, 4} {
		from := now
		if now += times*x.cfg.Distrust - time.Millisecond; x.Mode(now) != Distrusted {
			t.Fatalf("no distrust %v later", now-from)
		}
		if now += time.Millisecond; x.Mode(now) != Waiting {
			t.Fatalf("distrust %v later", now-from)
		}
		for x.Mode(now) == Waiting {
			transfer(3)
		}
	}
	now += time.Hour
	for x.Mode(now) == Waiting {
		transfer(8)
	}
	if now += x.cfg.Distrust; x.Mode(now) != Waiting {
		t.Error("distrust lasts for long although all was well for long")
	}
}

// All peers lose their trust by what owners say of their ends.
func TestOthersSlownessCounts(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	for i := range uint64(200) {
		e := entry(i+1, 10*i+1)
		e.Stamp, e.End = StampAt(noon), (noon + 100*time.Millisecond).Microseconds()
		x.Heard(0, noon, "b", &Message{"b", 1, false, e})
		if i >= 100 {
			e.Seq, e.End = e.Seq+1, (noon + 200*time.Millisecond).Microseconds()
			x.Heard(0, noon, "b", &Message{"b", 1, false, e})
		}
		x.Heard(0, noon, "b", &Message{"b", 1, true, Entry{ID: i + 1, Seq: 10*i + 3}})
		if want := Waiting; i < 100 && x.Mode(0) != want {
			t.Fatalf("after %d: %+v", i, x.Schedule(0))
		}
	}
	if x.Mode(0) != Distrusted {
		t.Errorf("%+v", x.Schedule(0))
	}
}

// What a peer says of its ends cannot spoil what is learned of all: neither a prediction that no transfer has, nor an end that
// is beyond all.
func TestWhatAPeerSaysOfItsEndsIsBounded(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	for i := range uint64(2 * theirWeight) {
		e := entry(i+1, 10*i+1)
		e.Stamp, e.End = 0, noon.Microseconds() // its stamp says 1970
		if i%2 == 1 {
			e.Stamp, e.End = StampAt(noon), noon.Microseconds()+100_000
		}
		x.Heard(0, noon, "b", &Message{"b", 1, false, e})
		if i%2 == 1 {
			e.Seq, e.End = e.Seq+1, MaxTime
			x.Heard(0, noon, "b", &Message{"b", 1, false, e})
		}
		x.Heard(0, noon, "b", &Message{"b", 1, true, Entry{ID: i + 1, Seq: 10*i + 3}})
		if s := x.othersSlow; s.took < 0 || s.predicted < 0 || s.predicted > theirWeight*maxLength || s.permille() < 1000 || s.permille() > slowest*1000 {
			t.Fatalf("after %d: %+v, %d thousandths", i+1, s, s.permille())
		}
	}
	if x.Mode(0) != Distrusted {
		t.Error("that all end four times as late as said is no reason for distrust")
	}
}

func TestALapsedLegIsMadeAnew(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	for _, p := range []Policy{Least, Split, Shoal, Ark} {
		req := Request{Dst: "d", Set: set, Bytes: 1 << 30, Policy: p}
		g := mustReserve(t, x, 0, req)
		leg := g.Legs[0]
		for _, l := range g.Legs {
			x.Release(0, noon, l.ID)
		}
		req.Bytes = 1 << 29
		if err := x.Resume(0, noon, &req, &leg); err != nil || leg.ID == g.ID || !leg.Reserved || x.Len() != 1 || x.find(leg.ID).entry.Bytes != 1<<29 {
			t.Errorf("%v: %+v, %v", p, leg, err)
		}
		x.Release(0, noon, leg.ID)
	}
	if err := x.Resume(0, noon, &Request{}, &Leg{}); err == nil {
		t.Error("a request without a destination passes")
	}
}

// The limits of the schedule: what is beyond them is least's, or not kept.
func TestTheScheduleHasLimits(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	list := spread(2, 3, 4)
	x.SetPaths(func(src, dst peer.ID) []ecmp.Path { return list }, gigabits(100))
	id := uint64(0)
	for o := range MaxWaiters/MaxPerOwner + 1 {
		owner := peer.ID(string(rune('a' + o)))
		for range MaxPerOwner {
			id++
			e := Entry{ID: id, Seq: id, Stamp: StampAt(noon), Phase: Intent, Dst: "d", Bytes: 1e9, Ready: noon.Microseconds(), End: noon.Microseconds() + 80_000}
			if v := x.Heard(0, noon, owner, &Message{owner, 1, false, e}); v != Accepted {
				t.Fatal(v)
			}
		}
	}
	if s := x.Schedule(0); s.Mode != Crowded || s.Waiters != MaxWaiters {
		t.Fatalf("%+v", s)
	}
	if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal}); g.Queued || x.Stats().Unwaited != 1 {
		t.Errorf("in the crowd: %+v", g)
	}
	x.Forget("a")
	if s := x.Schedule(0); s.Mode != Waiting || s.Waiters != MaxWaiters-MaxPerOwner || x.Backlog("d") != 4*MaxPerOwner*1e9 {
		t.Errorf("%+v, backlog %d", s, x.Backlog("d"))
	}
	x = newTable(t, "x", 1, 1)
	set = paths(t, x, spread(4, 0, 1))
	for range MaxPerOwner {
		if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal}); g.ID == 0 {
			t.Fatalf("%+v", g)
		}
	}
	if g := mustReserve(t, x, 0, Request{Set: set, Bytes: 1e9, Policy: Shoal}); g.Queued || g.ID != 0 || !g.Fallback || len(x.ours) != MaxPerOwner-1 {
		t.Errorf("one more: %+v", g)
	}
	for i := range maxNICs + 100 { // destinations that come and go
		e := entry(1, uint64(2*i+1))
		e.Dst = peer.ID("d" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
		x.Heard(0, noon, "z", &Message{"z", 1, false, e})
		x.Heard(0, noon, "z", &Message{"z", 1, true, Entry{ID: 1, Seq: uint64(2*i + 2)}})
	}
	if len(x.nics) > maxNICs {
		t.Errorf("%d NICs are kept", len(x.nics))
	}
	x.auditSchedule(t)
	for i := range maxLanes + 100 { // and lanes
		e := Entry{ID: 1, Seq: 1e6 + uint64(2*i), Stamp: StampAt(noon), Phase: Intent, Dst: "d", Bytes: 1e9, Ready: noon.Microseconds(), End: noon.Microseconds() + 80_000}
		x.SetPaths(func(src, dst peer.ID) []ecmp.Path { return spread(2, i, 4) }, gigabits(100))
		x.Heard(0, noon, "y", &Message{"y", 1, false, e})
		x.Heard(0, noon, "y", &Message{"y", 1, true, Entry{ID: 1, Seq: e.Seq + 1}})
	}
	if len(x.lanes) > maxLanes {
		t.Errorf("%d lanes are kept", len(x.lanes))
	}
	x.auditSchedule(t)
}

// Within a leaf, where nobody says what the NICs can do, a transfer is not expected to end at once: others would take them
// for free while it moves.
func TestWithinALeafTheCapacityIsExpected(t *testing.T) {
	x := newTable(t, "a", 1, 1)
	set, err := x.Paths([]ecmp.Path{{}}, func(ecmp.LinkID) int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	const bytes = 12_500_000_000 // a second at 100 Gb/s
	var g Grant
	if err := x.Reserve(0, noon, &Request{Dst: "b", Bytes: bytes, Set: set, Policy: Shoal}, &g); err != nil || g.Queued {
		t.Fatal(err, g)
	}
	if end := time.Duration(x.Section().Entries[0].End)*time.Microsecond - noon; end < time.Second || end > 1100*time.Millisecond {
		t.Errorf("it is said to end after %v", end)
	}
}
