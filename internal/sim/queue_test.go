package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The queue beside a list that is sorted, stably, before each look.
func TestQueueIsAStableSort(t *testing.T) {
	type event struct {
		at Time
		id int
	}
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var twin []event
		id := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "pop") == 0 && len(twin) > 0 {
				want := twin[0]
				twin = twin[1:]
				if at, got := q.Pop(); at != want.at || got != want.id {
					t.Fatalf("event %d at %d, want event %d at %d", got, at, want.id, want.at)
				}
			} else {
				id++
				e := event{Time(rapid.Int64Range(0, 8).Draw(t, "at")), id}
				q.Push(e.at, e.id)
				twin = append(twin, e)
				slices.SortStableFunc(twin, func(a, b event) int { return int(a.at - b.at) })
			}
			next := Never
			if len(twin) > 0 {
				next = twin[0].at
			}
			if q.Len() != len(twin) || q.Next() != next {
				t.Fatalf("%d events, the first at %d; want %d, %d", q.Len(), q.Next(), len(twin), next)
			}
		}
	})
}

func TestQueueAllocatesOnlyToGrow(t *testing.T) {
	var q Queue[[4]int64]
	fill := func() {
		for i := range 1000 {
			q.Push(Time(i*7919%1000), [4]int64{int64(i)})
		}
		for q.Len() > 0 {
			q.Pop()
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%g allocations in 2000 operations", n)
	}
}

func TestQueueLetsGoOfWhatWasPopped(t *testing.T) {
	var q Queue[*int]
	q.Push(1, new(int))
	q.Pop()
	if kept := q.items[:1][0].value; kept != nil {
		t.Error("a popped value is still held")
	}
}

func BenchmarkQueue(b *testing.B) {
	var q Queue[int64]
	r := Stream(1, "queue")
	for range 1000 {
		q.Push(Time(r.Int64N(1_000_000)), 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		at, v := q.Pop()
		q.Push(at+Time(v*7919%1_000_000), v+1)
	}
}
