package fabric

import (
	"math"
	"math/rand/v2"
	"testing"

	"shoal/internal/sim"
)

// poisson is a workload like that of the paper at 25 requests a second, with sizes / 100 and 100 times as many a second:
// prompts of 1,000 to 51,200 tokens, Zipf 0.7, of 131,072 bytes each.
func poisson(seed uint64, flows int) (list []Transfer) {
	r := sim.Stream(seed, "fabric/poisson")
	at := 0.0
	for range flows {
		at += r.ExpFloat64() / 2500
		list = append(list, Transfer{
			Src: r.IntN(8), Dst: 8 + r.IntN(8), Port: uint16(10000 + r.IntN(50000)), Bytes: int64(zipf(r)) * 131072 / 100, Start: sim.Time(at*1e9) * sim.Nanosecond,
		})
	}
	return list
}

// zipf draws tokens by the inverse of a continuous density x^-0.7.
func zipf(r *rand.Rand) float64 {
	const least, most, s = 1000, 51200, 1 - 0.7
	a, b := math.Pow(least, s), math.Pow(most, s)
	return math.Floor(math.Pow(a+(b-a)*r.Float64(), 1/s))
}

func BenchmarkFigure_sim_packets_per_s(b *testing.B) {
	list := poisson(1, 100)
	b.ReportAllocs()
	packets := int64(0)
	for b.Loop() {
		cfg := Defaults()
		n := reference(b, cfg)
		if _, err := Replay(n, list); err != nil {
			b.Fatal(err)
		}
		packets += n.Stats().Data
	}
	b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
}
