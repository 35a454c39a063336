package reserve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
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

// crowd is a fabric of 16 hosts a leaf whose table one host has, with so many transfers that wait, a quarter of the hosts
// sending, and no room for the own one. Every round something has changed.
func crowd(b *testing.B, hosts, waiters, spines int) *Table {
	cfg := Defaults()
	x, err := New(cfg, "h0", 1, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		b.Fatal(err)
	}
	pairs := map[[2]int][]ecmp.Path{}
	between := func(i, j int) []ecmp.Path {
		k := [2]int{i / 16, j / 16}
		if pairs[k] == nil {
			if pairs[k] = spread(spines, k[0], k[1]); k[0] == k[1] {
				pairs[k] = []ecmp.Path{{}}
			}
		}
		return pairs[k]
	}
	number := func(id peer.ID) (n int) { fmt.Sscanf(string(id), "h%d", &n); return n }
	x.SetPaths(func(src, dst peer.ID) []ecmp.Path { return between(number(src), number(dst)) }, gigabits(100))
	name := func(i int) peer.ID { return peer.ID(fmt.Sprint("h", i)) }
	rng := rand.New(rand.NewPCG(5, 6))
	seq := uint64(0)
	tell := func(src int, e Entry) {
		seq++
		e.ID, e.Seq, e.Stamp, e.Bytes = seq, seq, StampAt(noon), 1e9
		if v := x.Heard(0, noon, name(src), &Message{name(src), 1, false, e}); v != Accepted {
			b.Fatal(v)
		}
	}
	at := noon.Microseconds()
	for i := 1; i < hosts; i += 4 {
		j := rng.IntN(hosts)
		p := between(i, j)
		tell(i, Entry{Dst: name(j), Links: p[rng.IntN(len(p))].Links, End: at + 1e6 + rng.Int64N(1e6)})
	}
	tell(1, Entry{Dst: "h17", End: at + 1e6}) // where the own one goes
	for range waiters - 1 {
		i := 1 + rng.IntN(hosts-1)
		ready := at - rng.Int64N(1e6)
		tell(i, Entry{Phase: Intent, Dst: name(rng.IntN(hosts)), Ready: ready, End: ready + 10_000 + rng.Int64N(500_000)})
	}
	s, err := x.Paths(between(0, 17%hosts), gigabits(100))
	if err != nil {
		b.Fatal(err)
	}
	var g Grant
	if err := x.Reserve(0, noon, &Request{Dst: "h17", Bytes: 7e9, Set: s, Policy: Shoal}, &g); err != nil || !g.Queued {
		b.Fatal(err, g)
	}
	return x
}

// BenchmarkAdmit is one round after a change, and asking again when nothing has.
func BenchmarkAdmit(b *testing.B) {
	for _, c := range []struct{ hosts, waiters, spines int }{{32, 200, 4}, {1000, 1000, 16}} {
		x := crowd(b, c.hosts, c.waiters, c.spines)
		var ids []uint64
		for _, changed := range []bool{true, false} {
			b.Run(fmt.Sprintf("hosts=%d/waiters=%d/changed=%v", c.hosts, c.waiters, changed), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if changed {
						x.version++
					}
					if ids, _ = x.Admit(0, noon, ids[:0]); len(ids) > 0 {
						b.Fatal("the own one is admitted")
					}
				}
			})
		}
	}
}

// BenchmarkScheduled is one transfer by policy shoal: announced, started, and released, while others wait.
func BenchmarkScheduled(b *testing.B) {
	x := crowd(b, 32, 200, 4)
	s, err := x.Paths(spread(4, 0, 1), gigabits(100))
	if err != nil {
		b.Fatal(err)
	}
	req := Request{Dst: "h30", Bytes: 1e9, Set: s, Policy: Shoal, Phase: Intent, Ready: noon.Microseconds() + 1000}
	var g Grant
	var ids []uint64
	var out []Message
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Reserve(0, noon, &req, &g); err != nil || !g.Queued {
			b.Fatal(err, g)
		}
		id := g.ID
		ids, _ = x.Admit(time.Millisecond, noon+time.Millisecond, ids[:0])
		x.Start(time.Millisecond, noon+time.Millisecond, id, &g)
		if len(g.Legs) > 0 {
			id = g.Legs[0].ID
		}
		x.Release(time.Millisecond, noon+time.Millisecond, id)
		out = x.Take(out[:0])
	}
}
