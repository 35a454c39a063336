package transfer

import (
	"io"
	"os"
	"path/filepath"
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

func benchmarkFile(b *testing.B, sink bool) {
	const size = 2 << 30
	dir := b.TempDir()
	path := filepath.Join(dir, "src")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(f, io.NewSectionReader(Pattern(1, size), 0, size)); err != nil {
		b.Fatal(err)
	}
	f.Close()
	src, err := FileSource(path)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	to, from := pair(b, Defaults())
	b.SetBytes(size)
	for b.Loop() {
		var s Sink = Discard()
		if sink {
			if s, err = FileSink(dir, "got"); err != nil {
				b.Fatal(err)
			}
		}
		ticket, err := to.Ticket("p", size, s)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := from.Send(b.Context(), "d", to.addr, ticket, src, size, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSendFile(b *testing.B)       { benchmarkFile(b, false) }
func BenchmarkSendFileToFile(b *testing.B) { benchmarkFile(b, true) }
