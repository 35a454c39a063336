package reserve

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// A table that leaves rounds out, and looks only at those that have become ready where nothing else has changed, comes to the
// same as one that goes through everything each time.
func TestWhatIsLeftOutChangesNothing(t *testing.T) {
	left := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 9))
		const hosts, perLeaf = 6, 2
		spines := 1 + rng.IntN(4)
		name := func(i int) peer.ID { return peer.ID(rune('a' + i)) }
		all := map[[2]int][]ecmp.Path{}
		for a := range hosts / perLeaf {
			for b := range hosts / perLeaf {
				if all[[2]int{a, b}] = spread(spines, a, b); a == b {
					all[[2]int{a, b}] = []ecmp.Path{{}}
				}
			}
		}
		between := func(src, dst peer.ID) []ecmp.Path {
			return all[[2]int{int(src[0]-'a') / perLeaf, int(dst[0]-'a') / perLeaf}]
		}
		cfg := Defaults()
		cfg.Lease = time.Hour
		if rng.IntN(2) == 0 {
			cfg.MaxWait = time.Duration(1+rng.IntN(100)) * time.Millisecond
		}
		if rng.IntN(4) == 0 {
			cfg.GiveUp = 150 * time.Millisecond
		}
		var both [2]*Table // the second goes through everything
		var sets [2][]*Set
		for i := range both {
			x, err := New(cfg, "a", 1, rand.New(rand.NewPCG(1, 1)))
			if err != nil {
				t.Fatal(err)
			}
			x.SetPaths(between, gigabits(100))
			both[i] = x
			for j := range hosts {
				sets[i] = append(sets[i], paths(t, x, between("a", name(j))))
			}
		}
		now, wall := time.Duration(0), noon
		hear := func(src int, m Message) {
			m.Owner, m.Incarnation, m.Entry.Stamp = name(src), 1, StampAt(noon)
			for _, x := range both {
				if v := x.Heard(now, wall, m.Owner, &m); v != Accepted {
					t.Fatal(v)
				}
			}
		}
		reserve := func(req Request) (g [2]Grant) {
			for i, x := range both {
				req.Set = sets[i][int(req.Dst[0]-'a')]
				g[i] = mustReserveAt(t, x, now, wall, req)
			}
			if !reflect.DeepEqual(g[0], g[1]) {
				t.Fatalf("%+v, and when everything is gone through %+v", g[0], g[1])
			}
			return g
		}
		reserve(Request{Dst: name(1), Bytes: 1e9, Policy: Least})              // the own NIC sends, so that
		own := reserve(Request{Dst: name(2), Bytes: 1e9, Policy: Shoal})[0].ID // this one waits, and the schedule is followed
		known := [hosts][]Entry{}
		seq := uint64(0)
		us := func(d int) int64 { return wall.Microseconds() + int64(d)*1000 }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rng.IntN(3) > 0 {
				now += time.Duration(rng.Int64N(int64(15 * time.Millisecond)))
			}
			wall = noon + now
			seq++
			src := 1 + rng.IntN(hosts-1)
			dst := rng.IntN(hosts)
			switch list := known[src]; {
			case rng.IntN(40) == 0:
				for _, x := range both {
					x.SetPaths(between, gigabits(100))
				}
			case len(list) == 0 || rng.IntN(3) == 0:
				ready := max(us(rng.IntN(60)-20), 1)
				e := Entry{ID: seq, Seq: seq, Phase: Intent, Dst: name(dst), Bytes: 1 + rng.Int64N(1e9), Ready: ready, End: ready + 1 + rng.Int64N(50_000)}
				if rng.IntN(5) == 0 {
					e.Bytes *= 3 // over several paths
				}
				known[src] = append(list, e)
				hear(src, Message{Entry: e})
			default:
				i := rng.IntN(len(list))
				e := list[i]
				e.Seq = seq
				w := both[1].held[both[1].owners[name(src)].at[e.ID]].turn
				switch k := rng.IntN(5); {
				case k == 0:
					known[src] = slices.Delete(list, i, i+1)
					hear(src, Message{Released: true, Entry: e})
				case e.Phase == Intent && k == 1:
					e.Ready += int64(rng.IntN(20_000)) - 10_000
					e.End = e.Ready + 1 + rng.Int64N(50_000)
					list[i] = e
					hear(src, Message{Entry: e})
				case e.Phase == Intent:
					p := between(name(src), e.Dst)
					e.Phase, e.Links, e.End = Active, p[rng.IntN(len(p))].Links, us(rng.IntN(50)-5)
					if w != nil && w.called && w.n == 1 && rng.IntN(4) > 0 { // as everybody expects
						e.Links = w.lane.paths[w.paths[0]].Links
						e.End = w.until + int64(rng.IntN(1000))
					}
					switch rng.IntN(20) {
					case 0:
						e.End = 0
					case 1:
						e.Dst = name(dst)
					}
					list[i] = e
					hear(src, Message{Entry: e})
				default:
					if rng.IntN(2) == 0 {
						e.End = us(rng.IntN(50) - 5)
					}
					list[i] = e
					hear(src, Message{Entry: e})
				}
			}
			was := both[0].round
			both[1].version++
			for range 3 {
				var ids [2][]uint64
				for i, x := range both {
					ids[i], _ = x.Admit(now, wall, nil)
				}
				if !slices.Equal(ids[0], ids[1]) {
					t.Fatalf("%v are admitted, and when everything is gone through %v", ids[0], ids[1])
				}
				if x, y := both[0].calls(), both[1].calls(); !reflect.DeepEqual(x, y) {
					t.Fatalf("it calls\n%+v, and when everything is gone through\n%+v", x, y)
				}
				if slices.Contains(ids[0], own) { // it has given up
					own = 0
				}
				for _, id := range ids[0] {
					for _, x := range both {
						x.Release(now, wall, id)
					}
				}
				if len(ids[0]) == 0 {
					break
				}
				both[1].version++
			}
			if both[0].round == was {
				left++
			}
			if own == 0 {
				break
			}
		}
		for _, x := range both {
			x.auditSchedule(t)
		}
	})
	if left == 0 {
		t.Error("no round was left out")
	}
	t.Logf("%d whole rounds were left out", left)
}

// Before the first own waiter is nearly ready the schedule is nothing to this peer.
func TestTheScheduleIsFollowedFromShortlyBefore(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 7, 8))
	far(t, x, 31*time.Millisecond, 1, 20) // messages take 30 ms
	in := func(d time.Duration) Grant {
		return mustReserve(t, x, 0, Request{Dst: "e", Set: set, Bytes: 1e9, Policy: Shoal, Phase: Intent, Ready: (noon + d).Microseconds()})
	}
	in(4 * time.Second)
	g := in(2 * time.Second)
	from := 2*time.Second - 2*30*time.Millisecond - x.cfg.Lease/3
	for i, now := range []time.Duration{0, from / 2, from - time.Microsecond} {
		e := Entry{ID: uint64(100 + i), Seq: uint64(100 + i), Stamp: StampAt(noon), Phase: Intent, Dst: "d", Bytes: 1e9, Ready: (noon + now).Microseconds() - 1, End: (noon + now).Microseconds() + 80_000}
		x.Heard(now, noon+now, "c", &Message{"c", 1, false, e})
		if ids, next := x.Admit(now, noon+now, nil); len(ids) > 0 || next != from || x.round != 0 {
			t.Fatalf("at %v: %v, next at %v, want %v, %d rounds", now, ids, next, from, x.round)
		}
	}
	if _, next := x.Admit(from, noon+from, nil); next <= from || x.round != 1 || len(x.calls()) != 1 {
		t.Fatalf("next at %v, %d rounds, %v", next, x.round, x.calls())
	}
	at := 2 * time.Second
	ids, _ := x.Admit(at, noon+at, nil)
	var s Grant
	if !slices.Equal(ids, []uint64{g.ID}) || !x.Start(at, noon+at, g.ID, &s) || s.Queued {
		t.Fatalf("%v, %+v", ids, s)
	}
	from += at
	if _, next := x.Admit(at, noon+at, nil); next != from {
		t.Fatalf("next at %v, want %v", next, from)
	}
}
