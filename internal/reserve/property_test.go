package reserve

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// said is all that owners have ever said, and what they hold in the end.
type history struct {
	naive
	last []*Table
}

// tell makes a history: each owner does random things, and is restarted now and then. Everything is said in the end.
func tell(t *rapid.T, sections bool) *history {
	h := &history{}
	for _, id := range []peer.ID{"a", "b"} {
		var now time.Duration
		x := newTable(t, id, 1, 7)
		set := paths(t, x, spread(4, 0, 1))
		var ids []uint64
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			now += 100 * time.Millisecond
			some := func() uint64 {
				if len(ids) == 0 {
					return 0
				}
				return ids[rapid.IntRange(0, len(ids)-1).Draw(t, "id")]
			}
			var g Grant
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2:
				g = mustReserve(t, x, now, Request{Set: set, Bytes: int64(now), Flows: rapid.IntRange(1, 3).Draw(t, "flows")})
			case 3:
				g = mustReserve(t, x, now, Request{Set: set, Bytes: 9, Phase: Intent})
				ids = append(ids, g.ID)
			case 4:
				x.Start(now, noon+now, some(), &g)
			case 5, 6:
				x.Release(now, noon+now, some())
			case 7:
				now += time.Second
				x.Renew(now, noon+now, some(), int64(now)/2)
				x.Tick(now, noon+now)
			case 8, 9:
				h.messages = x.Take(h.messages)
			case 10:
				h.sections = append(h.sections, naiveSection{id, x.incarnation, x.Section()})
			case 11:
				if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
					h.messages = x.Take(h.messages)
					x = newTable(t, id, x.incarnation+1, 7)
					set, ids = paths(t, x, spread(4, 0, 1)), nil
				}
			}
			for _, l := range g.Legs {
				ids = append(ids, l.ID)
			}
		}
		if !sections {
			h.sections = slices.DeleteFunc(h.sections, func(s naiveSection) bool { return s.owner == id })
		}
		h.messages = x.Take(h.messages)
		if n := len(h.messages); n == 0 || h.messages[n-1].Owner != id || h.messages[n-1].Incarnation != x.incarnation {
			h.sections = append(h.sections, naiveSection{id, x.incarnation, x.Section()}) // a life that has said nothing yet
		}
		h.last = append(h.last, x)
	}
	return h
}

// hear plays the history to a table of its own in an order of its own, some of it twice.
func (h *history) hear(t *rapid.T, self peer.ID) *Table {
	x := newTable(t, self, 1, 3)
	paths(t, x, spread(4, 0, 1))
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
	all := len(h.messages) + len(h.sections)
	order := append(rng.Perm(all), rng.Perm(all)[:all/2]...)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, i := range order {
		if i < len(h.messages) {
			x.Heard(0, noon+time.Hour, h.messages[i].Owner, &h.messages[i])
		} else {
			s := h.sections[i-len(h.messages)]
			x.Merge(0, noon+time.Hour, s.owner, s.incarnation, s.section)
		}
	}
	return x
}

func testAnyOrder(t *testing.T, sections bool) {
	rapid.Check(t, func(t *rapid.T) {
		h := tell(t, sections)
		x, y := h.hear(t, "x"), h.hear(t, "y")
		if err := sameRows(x.Rows(nil), h.rows()); err != nil {
			t.Fatalf("what is heard, and what it comes to: %v", err)
		}
		var truth uint64
		for _, o := range h.last {
			truth += o.Digest()
		}
		if x.Digest() != y.Digest() || x.Digest() != truth {
			t.Fatalf("digests %x and %x; the owners' %x", x.Digest(), y.Digest(), truth)
		}
		x.audit(t, nil)
		for v, n := range x.Stats().Verdicts {
			if n > 0 && Verdict(v) > Old {
				t.Fatalf("%d were %v", n, Verdict(v))
			}
		}
	})
}

func TestMessagesInAnyOrderGiveTheSameTable(t *testing.T) { testAnyOrder(t, false) }

func TestMessagesAndSectionsInAnyOrderGiveTheSameTable(t *testing.T) { testAnyOrder(t, true) }

// What a peer says may be anything: it never breaks the table, and never touches what others hold.
func TestWhatIsSaidNeverBreaksTheTable(t *testing.T) {
	few := func(n uint64) *rapid.Generator[uint64] {
		return rapid.OneOf(rapid.Uint64Range(0, n), rapid.Uint64Range(0, n), rapid.Uint64())
	}
	entry := rapid.Custom(func(t *rapid.T) Entry {
		return Entry{ID: few(6).Draw(t, "id"), Seq: few(20).Draw(t, "seq"), Stamp: Stamp(few(3).Draw(t, "stamp")),
			Phase: Phase(rapid.IntRange(0, 2).Draw(t, "phase")),
			Links: rapid.SliceOfN(rapid.SampledFrom([]ecmp.LinkID{up(0, 1), down(1, 1), up(0, 2), 77}), 0, 3).Draw(t, "links"),
			Dst:   rapid.SampledFrom([]peer.ID{"b", "b", "b", ""}).Draw(t, "dst"),
			Bytes: rapid.SampledFrom([]int64{0, 5, MaxBytes, -1, MaxBytes + 1}).Draw(t, "bytes")}
	})
	rapid.Check(t, func(t *rapid.T) {
		x := newTable(t, "x", 1, 3)
		set := paths(t, x, spread(4, 0, 1))
		mine := mustReserve(t, x, 0, Request{Set: set, Bytes: 1})
		want := x.Rows(nil)
		id := rapid.SampledFrom([]peer.ID{"a", "b", "x", ""})
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			owner, inc := id.Draw(t, "owner"), rapid.Uint64Range(0, 2).Draw(t, "incarnation")
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2, 3:
				x.Heard(0, noon, id.Draw(t, "from"), &Message{owner, inc, rapid.Bool().Draw(t, "released"), entry.Draw(t, "entry")})
			case 4, 5:
				x.Merge(0, noon, owner, inc, &Section{Seq: few(20).Draw(t, "seq"), Entries: rapid.SliceOfN(entry, 0, 4).Draw(t, "entries")})
			case 6:
				x.Forget(owner)
			}
		}
		x.audit(t, nil)
		rows := slices.DeleteFunc(x.Rows(nil), func(r Row) bool { return r.Owner != "x" })
		if err := sameRows(rows, want); err != nil || x.find(mine.ID) == nil {
			t.Fatalf("the own reservation has changed: %v", err)
		}
	})
}

// Own reservations and others', moves, leases, background and capacities: after everything the table is what the naive
// twin reckons, and every choice is one that it would make.
func TestChoicesAreTheNaiveTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newTable(t, "x", 1, rapid.Uint64().Draw(t, "seed"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "twin"), 1))
		capacities := []int64{100e9, 200e9, 400e9, 0, 7}[:rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "capacities")]
		capacity := func(l ecmp.LinkID) int64 { return capacities[int(l)*7%31%len(capacities)] }
		background := map[ecmp.LinkID]int64{}
		var sets []*Set
		k := rapid.SampledFrom([]int{1, 2, 4, 17, 70}).Draw(t, "paths")
		for leaf := range 2 {
			p := spread(k, 0, leaf+1)
			if rapid.Bool().Draw(t, "nic") {
				for i := range p {
					p[i].Links = append([]ecmp.LinkID{1<<30 | 9}, p[i].Links...)
				}
			}
			if s, err := x.Paths(p, capacity); err != nil {
				t.Fatal(err)
			} else {
				sets = append(sets, s)
			}
		}
		var ids []uint64
		var now time.Duration
		seq := uint64(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			now += time.Duration(rng.Int64N(int64(400 * time.Millisecond)))
			set := sets[rng.IntN(len(sets))]
			link := set.paths[rng.IntN(k)].Links[rng.IntN(2)]
			some := uint64(0)
			if len(ids) > 0 {
				some = ids[rng.IntN(len(ids))]
			}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				costs := naiveCosts(set, naiveLoad(x.Rows(nil)), background)
				best, free := naiveCheapest(costs), naiveFree(costs)
				req := Request{Set: set, Bytes: rng.Int64N(1 << 30), Policy: Policy(rng.IntN(4))}
				g := mustReserve(t, x, now, req)
				var sum int64
				for i, l := range g.Legs {
					if slices.ContainsFunc(g.Legs[:i], func(k Leg) bool { return k.Path == l.Path }) {
						t.Fatalf("split over one path twice: %+v", g)
					}
					sum += l.Share
					ids = append(ids, l.ID)
				}
				if sum != req.Bytes || len(g.Legs) == 0 || g.Legs[0].Reserved != (g.ID != 0) {
					t.Fatalf("%+v for %+v", g, req)
				}
				first := g.Legs[0].Path
				switch {
				case req.Policy == ECMP && g.ID != 0,
					req.Policy == Ark && len(free) > 0 && (first != free[0] || g.Fallback),
					req.Policy == Ark && len(free) == 0 && (g.ID != 0 || !g.Fallback),
					req.Policy == Least && (!slices.Contains(best, first) || g.ID == 0),
					req.Policy == Split && len(g.Legs) == 1 && (!slices.Contains(best, first) || len(free) > 1 && req.Bytes > x.cfg.MinSplit),
					req.Policy == Split && len(g.Legs) > 1 && (len(g.Legs) != min(len(free), 4) || !slices.Contains(free, first)):
					t.Fatalf("%v: %+v; best %v, free %v", req.Policy, g, best, free)
				}
			case 3:
				x.Renew(now, noon+now, some, rng.Int64N(1<<30))
			case 4:
				x.Release(now, noon+now, some)
			case 5, 6:
				seq++
				e := Entry{ID: seq, Seq: seq, Stamp: StampAt(noon) - Stamp(rng.IntN(9)), Dst: "d", Bytes: rng.Int64N(1 << 40),
					Links: slices.Clone(set.paths[rng.IntN(k)].Links)}
				x.Heard(now, noon+now, "a", &Message{"a", 1, false, e})
			case 7:
				if !x.Background(link, rng.Int64N(3)*40e9) {
					t.Fatal("no background")
				}
				for _, l := range x.Links(nil) {
					background[l.ID] = l.Background
				}
			case 8:
				x.Tick(now, noon+now)
			case 9:
				for _, id := range ids {
					before := x.find(id)
					if before == nil || !before.contested {
						continue
					}
					o := *before
					rows := slices.DeleteFunc(x.Rows(nil), func(r Row) bool { return r.Owner == "x" && r.Entry.ID == id })
					costs := naiveCosts(o.set, naiveLoad(rows), background)
					best := naiveCheapest(costs)
					better := costs[best[0]].rate.Cmp(costs[o.path].rate) < 0
					if better && costs[best[0]].flows > 0 { // even when all that lose against this one go there too
						n := naiveGreater(rows, o.set, x.self, &o.entry)
						better = costs[best[0]].add(n).Cmp(costs[o.path].add(-n)) < 0
					}
					if o.policy == Ark {
						best = naiveFree(costs)
						better = len(best) > 0 && !slices.Contains(best, o.path)
					}
					leg, moved := x.Move(now, noon+now, id)
					if moved != better || moved && (!slices.Contains(best, leg.Path) || leg.Share != o.left || x.find(id).entry.Stamp <= o.entry.Stamp) {
						t.Fatalf("%v on path %d moved %v to %+v; want %v to one of %v", o.policy, o.path, moved, leg, better, best)
					}
				}
			}
			x.audit(t, background)
		}
	})
}
