package replica

import (
	"fmt"
	"testing"

	"shoal/internal/peer"
)

// BenchmarkCommit is a request's worth of changes published.
func BenchmarkCommit(b *testing.B) {
	d := New("a", born, newMemory(), Limits{})
	if err := d.Change(blocks, addRange(1, 30000)); err != nil {
		b.Fatal(err)
	}
	in, out := addRange(100000, 20), addRange(100000, 20)
	for i := range out {
		out[i].Removed = true
	}
	b.ReportAllocs()
	for b.Loop() {
		d.Change(blocks, in)
		d.Commit()
		d.Change(blocks, out)
		d.Commit()
	}
}

// BenchmarkRoundOfAThousand is a round between two peers that know a thousand, and agree.
func BenchmarkRoundOfAThousand(b *testing.B) {
	x, y := New("x", born, newMemory(), Limits{}), New("y", born, newMemory(), Limits{})
	for i := range 1000 {
		id := peer.ID(fmt.Sprintf("peer-%04d", i))
		o := New(id, born, newMemory(), Limits{})
		o.Set(info, "x")
		x.Alive(id, 0)
		y.Alive(id, 0)
		for _, d := range o.Snapshot(id) {
			x.Apply(d, 0)
			y.Apply(d, 0)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if out, _ := y.Answer("x", x.Start(0), 0, nil); len(out.Deltas)+len(out.Wants)+len(out.Offers) > 0 {
			b.Fatal("they do not agree")
		}
	}
}

// BenchmarkCopyOf30000Blocks makes a complete copy and applies it, the store's own work included.
func BenchmarkCopyOf30000Blocks(b *testing.B) {
	o := New("o", born, newMemory(), Limits{Copies: 1})
	if err := o.Change(blocks, addRange(1, 30000)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := New("r", born, newMemory(), Limits{})
		for _, d := range o.Snapshot("o") {
			if r.Apply(d, 0) != Applied {
				b.Fatal("not applied")
			}
		}
	}
}
