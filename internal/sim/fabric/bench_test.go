package fabric

import (
	"testing"

	"shoal/internal/sim"
)

// poisson is the paper's workload at 25 requests a second, with sizes / 100 and 100 times as many a second.
func poisson(t testing.TB, flows int) (list []Transfer) {
	c := sim.DefaultWorkload()
	c.QPS, c.Scale, c.Requests = 2500, 100, flows
	w, err := sim.Generate(c)
	if err != nil {
		t.Fatal(err)
	}
	ports := sim.Stream(c.Seed, "fabric/ports")
	for _, f := range w.Flows {
		list = append(list, Transfer{Src: f.Src, Dst: f.Dst, Port: uint16(10_000 + ports.IntN(50_000)), Bytes: f.Bytes, Start: sim.Of(f.At)})
	}
	return list
}

// measure replays a list again and again.
func measure(b *testing.B, list []Transfer, network func() *Packets) {
	b.ReportAllocs()
	packets := int64(0)
	for b.Loop() {
		n := network()
		if _, err := Replay(n, list); err != nil {
			b.Fatal(err)
		}
		packets += n.Stats().Data
	}
	b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
}

// BenchmarkFigure_sim_packets_per_s is data packets of the window transport, over four hops, on one core; an ack comes back
// for each.
func BenchmarkFigure_sim_packets_per_s(b *testing.B) {
	measure(b, poisson(b, 100), func() *Packets { return reference(b, Defaults()) })
}

// BenchmarkDCQCN has an event for each packet of a flow that is slower than its link, as well.
func BenchmarkDCQCN(b *testing.B) {
	cfg := Defaults()
	cfg.Transport = DCQCN
	measure(b, poisson(b, 100), func() *Packets { return reference(b, cfg) })
}

// BenchmarkPauses is an incast whose switches count exactly, and pause.
func BenchmarkPauses(b *testing.B) {
	cfg := Defaults()
	cfg.Buffer = 4 << 20
	measure(b, incast(140, 500_000), func() *Packets { return reference(b, cfg) })
}

// BenchmarkLarge is 512 hosts under 32 leaves and 16 spines, of which each sends to another one.
func BenchmarkLarge(b *testing.B) {
	var list []Transfer
	for i := range 512 {
		list = append(list, Transfer{Src: i, Dst: (i*37 + 211) % 512, Port: uint16(10_000 + i), Bytes: 2_000_000})
	}
	top, err := NewTopology(LeafSpine(32, 16, 16, 100e9), 100e9, sim.Microsecond)
	if err != nil {
		b.Fatal(err)
	}
	measure(b, list, func() *Packets {
		n, err := NewPackets(top, Defaults())
		if err != nil {
			b.Fatal(err)
		}
		return n
	})
}
