package reserve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shoal/internal/ecmp"
)

// spread is k paths over k spines from one leaf to another: two links each, 100 Gb/s.
func spread(k, from, to int) []ecmp.Path {
	paths := make([]ecmp.Path, k)
	for i := range paths {
		paths[i].Links = []ecmp.LinkID{up(from, i), down(to, i)}
	}
	return paths
}

func up(leaf, spine int) ecmp.LinkID   { return ecmp.LinkID(leaf<<16 | spine) }
func down(leaf, spine int) ecmp.LinkID { return ecmp.LinkID(1<<31 | leaf<<16 | spine) }

func gigabits(g int64) func(ecmp.LinkID) int64 {
	return func(ecmp.LinkID) int64 { return g * 1_000_000_000 }
}

// traffic is a table about half full, a quarter of the paths by another peer and a quarter by flows of this one; each
// flow that begins ends the oldest, so that paths change all over the set.
type traffic struct {
	table *Table
	req   Request
	grant Grant
	flows []uint64
	next  int
	take  bool
	out   []Message
}

func newTraffic(tb testing.TB, k, sets int, p Policy) *traffic {
	t, err := New(Defaults(), "a", 1, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		tb.Fatal(err)
	}
	x := &traffic{table: t, req: Request{Dst: "b", Bytes: 1 << 30, Policy: p}}
	for i := range sets {
		s, err := t.Paths(spread(k, 0, i+1), gigabits(100))
		if err != nil {
			tb.Fatal(err)
		}
		x.req.Set = s
	}
	for i, spine := range rand.New(rand.NewPCG(3, 4)).Perm(k)[:k/4] {
		m := &Message{Owner: "c", Incarnation: 1, Entry: Entry{ID: uint64(i + 1), Seq: uint64(i + 1), Stamp: 1, Dst: "d", Bytes: 1 << 30,
			Links: []ecmp.LinkID{up(0, spine), down(sets, spine)}}}
		if v := t.Heard(0, 0, "c", m); v != Accepted {
			tb.Fatal(v)
		}
	}
	for range max(k/4, 1) {
		x.flows = append(x.flows, x.reserve(tb))
	}
	return x
}

func (x *traffic) reserve(tb testing.TB) uint64 {
	if err := x.table.Reserve(time.Second, time.Second, &x.req, &x.grant); err != nil || x.grant.ID == 0 {
		tb.Fatal(err, x.grant)
	}
	if x.take {
		x.out = x.table.Take(x.out[:0])
	}
	return x.grant.ID
}

func (x *traffic) one(tb testing.TB) {
	id := x.flows[x.next]
	x.flows[x.next] = x.reserve(tb)
	if !x.table.Release(time.Second, time.Second, id) {
		tb.Fatal("the flow has ended")
	}
	if x.take {
		x.out = x.table.Take(x.out[:0])
	}
	if x.next++; x.next == len(x.flows) {
		x.next = 0
	}
}

// figure is the time of one flow, chosen, recorded and released: the median of many batches, by the slower of the two
// policies. quiet-ns is what a tenth of the batches stayed within. Taking both messages is in BenchmarkFlow.
func figure(b *testing.B, k int) {
	const batch = 500
	x := []*traffic{newTraffic(b, k, 1, Ark), newTraffic(b, k, 1, Least)}
	times := make([][]time.Duration, len(x))
	b.ReportAllocs()
	for b.Loop() {
		for i, x := range x {
			start := time.Now()
			for range batch {
				x.one(b)
			}
			times[i] = append(times[i], time.Since(start))
		}
	}
	var worst, quiet float64
	for i := range times {
		slices.Sort(times[i])
		worst = max(worst, float64(times[i][len(times[i])/2].Nanoseconds())/batch)
		quiet = max(quiet, float64(times[i][len(times[i])/10].Nanoseconds())/batch)
	}
	b.ReportMetric(worst, "ns")
	b.ReportMetric(quiet, "quiet-ns")
}

func BenchmarkFigure_path_k4_ns(b *testing.B)    { figure(b, 4) }
func BenchmarkFigure_path_k1000_ns(b *testing.B) { figure(b, 1000) }

// BenchmarkFlow is the same by policy, paths and sets that share the uplinks, with and without the messages.
func BenchmarkFlow(b *testing.B) {
	for _, p := range []Policy{Ark, Least, Split, ECMP} {
		for _, k := range []int{4, 16, 64, 1000} {
			for _, sets := range []int{1, 100} {
				if p == ECMP || sets > 1 && (k > 16 || p == Split) {
					continue
				}
				for _, take := range []bool{false, true} {
					b.Run(fmt.Sprintf("%v/k=%d/sets=%d/take=%v", p, k, sets, take), func(b *testing.B) {
						x := newTraffic(b, k, sets, p)
						x.take = take
						b.ReportAllocs()
						for b.Loop() {
							x.one(b)
						}
					})
				}
			}
		}
	}
}

// BenchmarkFull is least where no path is free, so that the costs decide: of four by looking, of a thousand by the tree.
func BenchmarkFull(b *testing.B) {
	for _, k := range []int{4, 16, 1000} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			x := newTraffic(b, k, 1, Least)
			for p := range k {
				e := Entry{ID: uint64(p + 1), Seq: uint64(p + 1), Stamp: 1, Dst: "d", Bytes: 1 << 30, Links: x.req.Set.Path(p).Links}
				x.table.Heard(0, 0, "e", &Message{Owner: "e", Incarnation: 1, Entry: e})
			}
			b.ReportAllocs()
			for b.Loop() {
				x.one(b)
			}
		})
	}
}

func BenchmarkHeard(b *testing.B) {
	x := newTraffic(b, 16, 10, Least)
	m := &Message{Owner: "z", Incarnation: 1, Entry: Entry{ID: 1, Stamp: 1, Dst: "b", Bytes: 1 << 30, Links: x.req.Set.Path(3).Links}}
	b.ReportAllocs()
	for b.Loop() {
		m.Entry.Seq++
		m.Released = m.Entry.Seq%2 == 0
		if v := x.table.Heard(time.Second, time.Second, "z", m); v != Accepted {
			b.Fatal(v)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	x := newTraffic(b, 1000, 1, Least)
	for b.Loop() {
		x.table.Digest()
	}
}
