package ecmp

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// figureRoute is between two hosts on two leaves, with this many spines between them, and its flow.
func figureRoute(tb testing.TB, m Model, s Selection, spines int) (*Route, Tuple) {
	tb.Helper()
	f := mustNew(tb, leafSpine(2, spines, 1, func(int) Model { return m }, s))
	return mustRoute(tb, f, "h1.1", "h2.1"), flow(f, "h1.1", "h2.1")
}

func linuxModel(seed uint32) Model { return Model{Kind: Linux, Seed: seed} }

// timed reports the median time of f.
func timed(b *testing.B, batch int, f func()) {
	f()
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		for range batch {
			f()
		}
		took = append(took, time.Since(start)/time.Duration(batch))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "us")
}

func mapFigure(b *testing.B, m Model, s Selection) {
	r, t := figureRoute(b, m, s, 4)
	timed(b, 1, func() {
		if r.Map(t, Range{0, 0xFFFF}).Len() != 1<<16 {
			b.Fatal("not all ports are in the map")
		}
	})
}

// BenchmarkFigure_map_65536_us is the time for the whole map of 65,536 ports into 4 buckets, under murmur3 and modulo.
func BenchmarkFigure_map_65536_us(b *testing.B) {
	mapFigure(b, Model{Kind: Murmur3, Seed: 16}, Selection{})
}

// BenchmarkFigure_map_kernel_65536_us is the same as Linux forwards: SipHash, policy 3, ranges.
func BenchmarkFigure_map_kernel_65536_us(b *testing.B) {
	mapFigure(b, linuxModel(16), Selection{Kind: HashRange})
}

// BenchmarkFigure_map_crc_65536_us is the same for a linear hash.
func BenchmarkFigure_map_crc_65536_us(b *testing.B) {
	mapFigure(b, Model{Kind: CRC16CCITT, Seed: 16}, Selection{})
}

// BenchmarkFigure_ports_lazy_us is the time to find 16 ports for each of 4 paths, as Linux forwards.
func BenchmarkFigure_ports_lazy_us(b *testing.B) {
	r, t := figureRoute(b, linuxModel(16), Selection{Kind: HashRange}, 4)
	timed(b, 100, func() {
		if r.Ports(t, RoCE, 16, nil).Len() != 64 {
			b.Fatal("not all ports were found")
		}
	})
}

// BenchmarkFigure_maps_1000_peers_mb is the memory of what a peer keeps of 1,000 others: their routes of 16 paths each, and
// 16 ports for each path.
func BenchmarkFigure_maps_1000_peers_mb(b *testing.B) {
	const peers, perLeaf = 1000, 25
	c := leafSpine(1+peers/perLeaf, 16, perLeaf, func(i int) Model { return linuxModel(uint32(i) + 1) }, Selection{Kind: HashRange})
	f := mustNew(b, c)
	type kept struct {
		route *Route
		ports *PortMap
	}
	var mb []float64
	for b.Loop() {
		all := make([]kept, 0, peers)
		before := heap()
		for i := range peers {
			to := fmt.Sprintf("h%d.%d", 2+i/perLeaf, 1+i%perLeaf)
			r := mustRoute(b, f, "h1.1", to)
			all = append(all, kept{r, r.Ports(flow(f, "h1.1", to), RoCE, 16, nil)})
		}
		mb = append(mb, float64(heap()-before)/1e6)
		for _, k := range all {
			if k.ports.Len() != 16*16 {
				b.Fatal("not all ports were found")
			}
		}
	}
	slices.Sort(mb)
	b.ReportMetric(mb[len(mb)/2], "mb")
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func BenchmarkFill(b *testing.B) {
	t := Tuple{Src: netip.MustParseAddr("10.0.1.1"), Dst: netip.MustParseAddr("10.0.2.1"), DstPort: 4791, Proto: UDP}
	for k := Murmur3; k < kinds; k++ {
		b.Run(k.String(), func(b *testing.B) {
			p := Model{Kind: k, Seed: 7}.Prepare(t)
			out := make([]uint32, 1<<16)
			b.ReportAllocs()
			for b.Loop() {
				p.Fill(0, out)
			}
		})
	}
}

func BenchmarkPathOf(b *testing.B) {
	r, t := figureRoute(b, linuxModel(16), Selection{Kind: HashRange}, 4)
	b.ReportAllocs()
	for b.Loop() {
		t.SrcPort++
		r.PathOf(t)
	}
}
