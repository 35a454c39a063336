package transfer

import (
	"testing"
)

func benchmarkSend(b *testing.B, size int64, src Source, legs int) {
	cfg := Defaults()
	to, from := pair(b, cfg)
	b.SetBytes(size)
	b.ReportAllocs()
	way := fixed{}
	for i := range legs {
		way.Legs = append(way.Legs, Leg{ID: i})
	}
	for b.Loop() {
		ticket, err := to.Ticket("p", size, Discard())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := from.Send(b.Context(), "d", to.addr, ticket, src, size, way, nil); err != nil {
			b.Fatal(err)
		}
	}
}

type fixed Route

func (f fixed) Route() Route { return Route(f) }
func (f fixed) Moved(int64)  {}

func BenchmarkSendZeros(b *testing.B)        { benchmarkSend(b, 2<<30, Zeros(2<<30), 1) }
func BenchmarkSendZerosStriped(b *testing.B) { benchmarkSend(b, 2<<30, Zeros(2<<30), 4) }
func BenchmarkSendPattern(b *testing.B)      { benchmarkSend(b, 2<<30, Pattern(1, 2<<30), 1) }
func BenchmarkSendMemory(b *testing.B) {
	benchmarkSend(b, 2<<30, MemorySource(make([]byte, 2<<30)), 1)
}
