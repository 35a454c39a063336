package fluid

import (
	"testing"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// drive runs a workload; choose gives the paths.
func drive(b testing.TB, f *Fluid, w *sim.Workload, choose func(i int, s *fabric.Flow)) {
	paths, start := make([]int, 0, 1024), f.Now()
	var s fabric.Flow
	for next, done := 0, 0; done < len(w.Flows); {
		until := sim.Never
		if next < len(w.Flows) {
			until = start + sim.Of(w.Flows[next].At)
		}
		if _, ok := f.Step(until); ok {
			done++
			continue
		}
		x := w.Flows[next]
		s = fabric.Flow{Src: x.Src, Dst: x.Dst, Bytes: x.Bytes, Paths: paths[:0]}
		choose(next, &s)
		f.Start(s)
		next++
	}
}

func workload(b testing.TB, qps float64, requests, sources, sinks int) *sim.Workload {
	b.Helper()
	c := sim.DefaultWorkload().On(sources, sinks, 100*gbit)
	c.QPS, c.Requests = qps, requests
	w, err := sim.Generate(c)
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// measure runs the workload again and again on one network, and says how many flows there are at once, in the mean.
func measure(b *testing.B, topo *fabric.Topology, w *sim.Workload, choose func(i int, s *fabric.Flow)) {
	f := newFluid(b, topo)
	drive(b, f, w, choose) // grows what has to grow
	b.ReportAllocs()
	for b.Loop() {
		drive(b, f, w, choose)
	}
	b.ReportMetric(float64(len(f.flows)), "flows-at-once-max")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(w.Flows)), "ns/flow")
}

// random paths, the same ones in each run.
func random(paths int) func(i int, s *fabric.Flow) {
	r := sim.Stream(1, "paths")
	chosen := make([]int, 1<<17)
	for i := range chosen {
		chosen[i] = r.IntN(paths)
	}
	return func(i int, s *fabric.Flow) { s.Paths = append(s.Paths, chosen[i]) }
}

func striped(paths int) func(i int, s *fabric.Flow) {
	return func(_ int, s *fabric.Flow) {
		s.Spread = fabric.Spray
		for p := range paths {
			s.Paths = append(s.Paths, p)
		}
	}
}

func BenchmarkPaperRandom25(b *testing.B) {
	measure(b, paper(b), workload(b, 25, 1000, 8, 8), random(4))
}
func BenchmarkPaperRandom30(b *testing.B) {
	measure(b, paper(b), workload(b, 30, 1000, 8, 8), random(4))
}
func BenchmarkPaperStriped30(b *testing.B) {
	measure(b, paper(b), workload(b, 30, 1000, 8, 8), striped(4))
}

// 1,024 hosts on 16 leaves with 1,000 spines.
func large(b *testing.B) *fabric.Topology {
	return leafSpine(b, 16, 64, 1000, 100*gbit, sim.Microsecond)
}

func BenchmarkLargeRandom(b *testing.B) {
	measure(b, large(b), workload(b, 2500, 4000, 512, 512), random(1000))
}
func BenchmarkLargeStriped(b *testing.B) {
	measure(b, large(b), workload(b, 2500, 4000, 512, 512), striped(1000))
}

// 1,024 hosts on 16 leaves with 16 spines: much of the network hangs together.
func BenchmarkLargeOversubscribed(b *testing.B) {
	measure(b, leafSpine(b, 16, 64, 16, 100*gbit, sim.Microsecond), workload(b, 600, 4000, 512, 512), random(16))
}

// A hundred thousand flows of 1 to 50 KB beside nothing else.
func BenchmarkMice(b *testing.B) {
	c := sim.DefaultWorkload().On(8, 8, 100*gbit)
	c.QPS, c.Requests, c.TokenBytes = 10_000, 100_000, 1
	w, err := sim.Generate(c)
	if err != nil {
		b.Fatal(err)
	}
	measure(b, paper(b), w, random(4))
}
