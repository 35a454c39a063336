package fabric

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/sim"
)

// TestWheelIsASortedList does the same to a wheel and to a list that is sorted anew each time.
func TestWheelIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const links = 40
		horizon := sim.Time(pick(t, "horizon", 1000, 100_000, 2_000_000, 1<<40))
		var w wheel
		w.init(links, horizon)
		type entry struct {
			link int32
			at   sim.Time
			rank uint64
		}
		var list []entry
		now := sim.Time(rapid.Int64Range(0, 1<<50).Draw(t, "now"))
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			slices.SortFunc(list, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
			link := int32(rapid.IntRange(0, links-1).Draw(t, "link"))
			there := slices.IndexFunc(list, func(e entry) bool { return e.link == link })
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what < 3 && there < 0:
				// Few different times, so that many are the same.
				at := now + horizon*sim.Time(rapid.IntRange(0, 8).Draw(t, "at"))/8
				e := entry{link, at, uint64(rapid.Uint32().Draw(t, "rank"))<<32 | uint64(step)}
				w.insert(now, link, at, e.rank)
				list = append(list, e)
			case what == 3 && there >= 0:
				w.remove(link)
				list = slices.Delete(list, there, there+1)
			default:
				slot := w.first(now)
				got := w.slots[slot%wheelSlots]
				if len(list) == 0 {
					if got != nobody {
						t.Fatalf("link %d is in an empty wheel", got)
					}
					continue
				}
				if want := list[0]; got != want.link || w.events[got].at != want.at {
					t.Fatalf("link %d is first, want %d", got, want.link)
				}
				now = list[0].at
				w.pop(slot, &w.events[got])
				list = list[1:]
			}
		}
	})
}

func TestTimersAreSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q timers
		var list []timer
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") || len(list) == 0 {
				a := timer{sim.Time(rapid.IntRange(0, 20).Draw(t, "at")), phase(uint64(rapid.IntRange(1, 5).Draw(t, "kind")), int32(rapid.IntRange(0, 9).Draw(t, "id")))}
				q.push(a.at, a.phase)
				list = append(list, a)
				continue
			}
			first := slices.MinFunc(list, func(a, b timer) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.phase, b.phase)) })
			if next, got := q.next(), q.pop(); got != first || next != first.at {
				t.Fatalf("%v comes first, want %v", got, first)
			}
			list = slices.Delete(list, slices.Index(list, first), slices.Index(list, first)+1)
		}
	})
}
