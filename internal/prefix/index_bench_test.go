package prefix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// The sizes that the figures name.
const (
	figurePeers   = 1000
	figureBlocks  = 30_000 // of a peer
	figureChain   = 512
	figurePrompts = 64
)

// worlds are the shapes over which Match is measured: an index and the prompts that rotate.
var worlds = []struct {
	name string
	make func(peers int) (*Index, [][]Hash)
}{
	{"distinct", distinctWorld},
	{"shared", sharedWorld},
	{"staggered", staggeredWorld},
}

// distinctWorld: no block is held by two peers; every peer holds as many as the memory figure says.
func distinctWorld(peers int) (*Index, [][]Hash) {
	x := NewIndex(1)
	var prompts [][]Hash
	for p := range peers {
		for from := 0; from < figureBlocks; from += figureChain {
			c := testChain(uint64(p*figureBlocks+from), min(figureChain, figureBlocks-from))
			addChain(x, Slot(p), c)
			if from == 0 && p*figurePrompts/peers == len(prompts) {
				prompts = append(prompts, c)
			}
		}
	}
	for p := len(prompts); p < figurePrompts; p++ { // further chains of the same peers
		prompts = append(prompts, testChain(uint64(p%peers*figureBlocks+p/peers*figureChain), figureChain))
	}
	return x, prompts
}

// sharedWorld: every peer holds every prompt.
func sharedWorld(peers int) (*Index, [][]Hash) {
	x := NewIndex(1)
	var prompts [][]Hash
	for i := range figurePrompts {
		c := testChain(uint64(i*figureChain), figureChain)
		prompts = append(prompts, c)
		for p := range peers {
			addChain(x, Slot(p), c)
		}
	}
	return x, prompts
}

// staggeredWorld: every peer holds another length of every prompt, and the lengths are dealt anew for each prompt, so that
// the holders change at almost every block and no set serves two prompts.
func staggeredWorld(peers int) (*Index, [][]Hash) {
	x := NewIndex(1)
	var prompts [][]Hash
	r := rand.New(rand.NewPCG(1, 2))
	for i := range figurePrompts {
		c := testChain(uint64(i*figureChain), figureChain)
		prompts = append(prompts, c)
		for rank, p := range r.Perm(peers) {
			addChain(x, Slot(p), c[:(rank+1)*figureChain/peers])
		}
	}
	return x, prompts
}

// testChain is n hashes that no other number up to a billion gives.
func testChain(from uint64, n int) []Hash {
	c := make([]Hash, n)
	for i := range c {
		c[i] = Hash(mix(from + uint64(i) + 1<<40))
	}
	return c
}

func addChain(x *Index, s Slot, chain []Hash) {
	for i, h := range chain {
		x.Add(s, Element{h, uint16(i)})
	}
}

// matchFigure measures each shape in passes over all its prompts, and reports the worst as the figure. A round of passes
// over one shape is long enough to bring its own memory back into the caches.
func matchFigure(b *testing.B, peers int) {
	b.ReportAllocs()
	const round = 32
	indexes := make([]*Index, len(worlds))
	prompts := make([][][]Hash, len(worlds))
	for i, w := range worlds {
		indexes[i], prompts[i] = w.make(peers)
	}
	runtime.GC()
	passes := make([][]time.Duration, len(worlds))
	var m Matches
	for b.Loop() {
		for i, x := range indexes {
			for range round {
				start := time.Now()
				for _, c := range prompts[i] {
					x.Match(c, &m)
				}
				passes[i] = append(passes[i], time.Since(start))
			}
		}
	}
	worst, worstQuiet := 0.0, 0.0
	for i, w := range worlds {
		us := float64(median(passes[i]).Nanoseconds()) / 1e3 / figurePrompts
		b.ReportMetric(us, w.name+"-us")
		worst = max(worst, us)
		worstQuiet = max(worstQuiet, float64(quiet(passes[i]).Nanoseconds())/1e3/figurePrompts)
	}
	b.ReportMetric(worstQuiet, "quiet-us")
	b.ReportMetric(worst, "us")
}

func BenchmarkFigure_match_512x16_us(b *testing.B)   { matchFigure(b, 16) }
func BenchmarkFigure_match_512x1000_us(b *testing.B) { matchFigure(b, figurePeers) }

// Real memory: what the heap holds after a collection, index alone, for each (block, peer) pair.
func BenchmarkFigure_index_bytes_per_entry(b *testing.B) {
	for b.Loop() {
		before := heapNow()
		x := NewIndex(1)
		for p := range figurePeers {
			for i := range figureBlocks {
				x.Add(Slot(p), Element{Hash(mix(uint64(p*figureBlocks + i))), uint16(i % figureChain)})
			}
		}
		b.ReportMetric(float64(heapNow()-before)/float64(x.Entries()), "bytes")
		runtime.KeepAlive(x)
	}
}

func heapNow() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Insertion and removal, over the whole life of an index: 100 peers fill it with 3,000,000 blocks, all distinct, every
// growth of the table included, and take them out again in random order, shrinking included. The same piece of work is
// timed in every round, and counts with the median of them.
func lifeFigure(b *testing.B, removals bool) {
	const entries, rounds, piece = 3_000_000, 5, 1024
	order := rand.New(rand.NewPCG(1, 2)).Perm(entries)
	insert := func(x *Index, i int) {
		x.Add(Slot(i/figureBlocks), Element{Hash(mix(uint64(i))), uint16(i % figureChain)})
	}
	remove := func(x *Index, i int) { x.Remove(Slot(order[i]/figureBlocks), Hash(mix(uint64(order[i])))) }
	took := make([][]time.Duration, entries/piece+1)
	run := func(x *Index, step func(*Index, int), timed bool) {
		for from := 0; from < entries; from += piece {
			start := time.Now()
			for i := from; i < min(from+piece, entries); i++ {
				step(x, i)
			}
			if timed {
				took[from/piece] = append(took[from/piece], time.Since(start))
			}
		}
	}
	for b.Loop() {
		for range rounds {
			x := NewIndex(1)
			run(x, insert, !removals)
			if removals {
				run(x, remove, true)
			}
		}
	}
	var best, middle time.Duration
	for _, t := range took {
		best += quiet(t)
		middle += median(t)
	}
	b.ReportMetric(float64(best.Nanoseconds())/entries, "quiet-ns")
	b.ReportMetric(float64(middle.Nanoseconds())/entries, "ns")
}

func BenchmarkFigure_index_insert_ns(b *testing.B) { lifeFigure(b, false) }
func BenchmarkFigure_index_remove_ns(b *testing.B) { lifeFigure(b, true) }

// Blocks that two peers hold, out of many: each holder beyond the first makes or finds a set.
func BenchmarkAddSecondHolder(b *testing.B) {
	for _, peers := range []int{16, 1000} {
		b.Run(fmt.Sprint(peers), func(b *testing.B) {
			x := NewIndex(1)
			c := testChain(0, 1<<18)
			for i, h := range c {
				x.Add(Slot(i%peers), Element{h, 0})
			}
			for n := 1; b.Loop(); n++ {
				i := n & (1<<18 - 1)
				s := Slot((i + 1 + i/7%(peers-1)) % peers)
				if !x.Add(s, Element{c[i], 0}) {
					x.Remove(s, c[i])
				}
			}
		})
	}
}
