package prefix

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMatchEndsAtTheFirstBlockThatASlotLacks(t *testing.T) {
	c := testChain(0, 600)
	x := NewIndex(7)
	addChain(x, 1, c)
	addChain(x, 2, c[:300])
	addChain(x, 3, c)
	x.Remove(3, c[17]) // the descendants stay
	for d, h := range c[1:] {
		x.Add(4, Element{h, uint16(d + 1)}) // pitfalls 9: deep blocks without their root
	}
	var m Matches
	x.Match(c, &m)
	for s, want := range []int{0, 600, 300, 17, 0} {
		if got := m.Blocks(Slot(s)); got != want {
			t.Errorf("slot %d matches %d blocks, want %d", s, got, want)
		}
	}
	x.Match(nil, &m)
	if m.Blocks(1) != 0 {
		t.Error("an empty prompt matches")
	}
	var none Matches
	if none.Blocks(1) != 0 {
		t.Error("zero Matches match")
	}
}

func TestMatchIgnoresWhatLiesBeyondMaxBlocks(t *testing.T) {
	c := testChain(0, MaxBlocks+10)
	x := NewIndex(1)
	for i, h := range c {
		x.Add(0, Element{h, uint16(i)})
		x.Add(1, Element{h, uint16(i)})
	}
	var m Matches
	x.Match(c, &m)
	if m.Blocks(0) != MaxBlocks || m.Blocks(1) != MaxBlocks {
		t.Errorf("match of %d and %d blocks, want %d", m.Blocks(0), m.Blocks(1), MaxBlocks)
	}
}

func TestMatchesOfOneIndexServeAnother(t *testing.T) {
	c := testChain(0, 100)
	large, small := NewIndex(1), NewIndex(2)
	for s := range Slot(300) {
		addChain(large, s, c)
	}
	addChain(small, 5, c[:40])
	var m Matches
	large.Match(c, &m)
	small.Match(c, &m)
	if m.Blocks(5) != 40 || m.Blocks(6) != 0 {
		t.Errorf("slots 5 and 6 match %d and %d, want 40 and 0", m.Blocks(5), m.Blocks(6))
	}
	large.Match(c, &m)
	if m.Blocks(299) != 100 {
		t.Errorf("slot 299 matches %d, want 100", m.Blocks(299))
	}
}

func TestWarmMatchAllocatesNothing(t *testing.T) {
	for _, w := range worlds[1:] {
		x, prompts := w.make(40)
		var m Matches
		x.Match(prompts[0], &m)
		if n := testing.AllocsPerRun(20, func() { x.Match(prompts[1], &m) }); n != 0 {
			t.Errorf("%s: %v allocations a match", w.name, n)
		}
	}
}

// A cleared slot is empty at once and serves at once, however little has been swept.
func TestClearedSlotIsEmptyAndUsableAtOnce(t *testing.T) {
	c := testChain(0, 5000)
	x := NewIndex(1)
	for s := range Slot(3) {
		addChain(x, s, c)
	}
	addChain(x, 3, testChain(1e6, 5000)) // held by nobody else
	var m Matches
	for round := range 50 {
		x.Clear(1)
		x.Clear(3)
		x.Match(c, &m)
		if m.Blocks(0) != 5000 || m.Blocks(1) != 0 || m.Blocks(2) != 5000 || x.Len(1) != 0 || x.Has(1, c[0]) {
			t.Fatalf("round %d: a cleared slot is not empty, or others are", round)
		}
		if _, ok := x.Depth(testChain(1e6, 1)[0]); ok {
			t.Fatalf("round %d: a block that nobody holds is known", round)
		}
		addChain(x, 1, c[:round+1])
		x.Match(c, &m)
		if m.Blocks(1) != round+1 {
			t.Fatalf("round %d: the slot matches %d", round, m.Blocks(1))
		}
		addChain(x, 3, testChain(1e6, 5000))
		x.Sweep(100)
	}
	for x.Sweep(100) {
	}
	if x.Entries() != 2*5000+50+5000 {
		t.Errorf("%d entries are left", x.Entries())
	}
	checkIndex(t, x)
}

// A shard that is rebuilt while a sweep is in the middle of it moves what the sweep has not come to before the place where
// it goes on.
func TestSweepMissesNothingInAShardThatIsRebuilt(t *testing.T) {
	x := NewIndex(1)
	c := oneShard(x, 8000)
	addChain(x, 1, c[:2000])
	addChain(x, 2, c[2000:])
	x.Clear(1)
	x.Sweep(1)
	if p := x.pass; p.shard != 0 || p.bucket == 0 {
		t.Fatalf("the sweep is not in the middle of the first shard, but at %d, %d", p.shard, p.bucket)
	}
	before := len(x.table.shards[0].buckets)
	for _, h := range c[2100:] {
		x.Remove(2, h)
	}
	if len(x.table.shards[0].buckets) == before {
		t.Fatal("the shard has not been rebuilt")
	}
	for x.Sweep(1) {
	}
	if x.Entries() != 100 {
		t.Errorf("%d entries are left, want 100", x.Entries())
	}
	checkIndex(t, x)
}

// Entries that have gone past the end of a shard stand at its beginning, and come back to its end, before and after the place
// that a sweep has come to.
func TestSweepMissesNothingAroundTheEndOfAShard(t *testing.T) {
	x := NewIndex(1)
	var end []Hash
	for _, h := range oneShard(x, 2000) {
		if _, at := x.table.place(h); at > 0xD8000000 { // the last sixth
			end = append(end, h)
		}
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		x := NewIndex(1)
		x.step = 1
		c := slices.Clone(end[:10+r.IntN(60)])
		kept := map[Hash]bool{}
		for i, h := range c {
			s := Slot(1 + r.IntN(2))
			x.Add(s, Element{h, uint16(i)})
			kept[h] = s == 2
		}
		x.Clear(1)
		for x.Sweep(1 + r.IntN(2)) {
			if h := c[r.IntN(len(c))]; kept[h] && r.IntN(2) == 0 {
				x.Remove(2, h)
				kept[h] = false
			}
		}
		want := 0
		for h, is := range kept {
			if x.Has(2, h) != is {
				t.Fatalf("seed %d: %x is held: %v, want %v", seed, h, !is, is)
			}
			if is {
				want++
			}
		}
		if x.Entries() != want {
			t.Fatalf("seed %d: %d entries are left, want %d", seed, x.Entries(), want)
		}
		checkIndex(t, x)
	}
}

// The IDs of cleared slots run out when nobody sweeps: then the call that needs one does.
func TestSlotsOutnumberIDsOnlyUntilASweep(t *testing.T) {
	x := NewIndex(1)
	h := testChain(0, 1)[0]
	for i := range MaxSlots + 10 {
		s := Slot(i % 3)
		x.Clear(s)
		if !x.Add(s, Element{h, 0}) || x.Len(s) != 1 {
			t.Fatalf("round %d: the slot cannot be used again", i)
		}
	}
	for s := range MaxSlots {
		x.Add(Slot(s), Element{h, 0})
	}
	for s := range MaxSlots {
		if !x.Has(Slot(s), h) {
			t.Fatalf("slot %d of all slots does not hold its block", s)
		}
	}
	x.Clear(9)
	if x.Has(9, h) || !x.Add(9, Element{h, 0}) {
		t.Fatal("the last slot cannot be cleared and used again")
	}
}

func TestFullIndexRefusesAndServesOn(t *testing.T) {
	x := NewIndex(1)
	x.max = 1000
	c := testChain(0, 1001)
	for i, h := range c {
		if got := x.Add(Slot(i%2), Element{h, 0}); got != (i < 1000) {
			t.Fatalf("Add of entry %d = %v", i, got)
		}
	}
	if x.Add(1, Element{c[0], 0}) {
		t.Error("a further holder goes past the limit")
	}
	if !x.Remove(0, c[0]) || !x.Add(0, Element{c[1000], 0}) {
		t.Error("what was removed leaves no room")
	}
	if x.Entries() != 1000 {
		t.Errorf("%d entries, want 1000", x.Entries())
	}
}

// Growing must never copy more than one shard, and the shards must stay even.
func TestGrowthCopiesOneShard(t *testing.T) {
	x := NewIndex(3)
	const n = 1 << 19
	for i := range uint64(n) {
		x.Add(0, Element{Hash(i), 0}) // hashes that are no hashes: positions are mixed with the seed
	}
	largest, farthest := 0, 0
	for i := range x.table.shards {
		s := &x.table.shards[i]
		largest = max(largest, s.count)
		for n := range s.buckets {
			for k, v := range s.buckets[n].vals {
				if v != 0 {
					_, at := x.table.place(s.buckets[n].keys[k])
					farthest = max(farthest, (n-s.home(at)+len(s.buckets))%len(s.buckets))
				}
			}
		}
	}
	if largest > 2*n/shards {
		t.Errorf("a shard has %d entries of %d", largest, n)
	}
	if farthest > 100 {
		t.Errorf("an entry is %d buckets from its own", farthest)
	}
}

// pitfalls 17: what is removed gives its memory back.
func TestMemoryComesBack(t *testing.T) {
	x := NewIndex(1)
	const peers, blocks = 20, 10_000
	r := rand.New(rand.NewPCG(1, 2))
	c := testChain(0, blocks)
	var full int
	for _, clear := range []bool{false, true} {
		for s := range Slot(peers) {
			for i := range blocks {
				if r.IntN(3) == 0 {
					x.Add(s, Element{c[i], uint16(i)})
				}
			}
		}
		full = bytesOf(x)
		for s := range Slot(peers) {
			if clear {
				x.Clear(s)
				continue
			}
			for _, h := range c {
				x.Remove(s, h)
			}
		}
		for steps := 0; x.Sweep(1); steps++ {
			if steps > 3*shards {
				t.Fatal("a sweep does not end")
			}
		}
		checkEmpty(t, x)
		if left := bytesOf(x); left > full/10 {
			t.Errorf("clear=%v: %d of %d bytes are left in an empty index", clear, left, full)
		}
	}
}

// bytesOf is the memory of an index that depends on what is in it.
func bytesOf(x *Index) int {
	n := 0
	for i := range x.table.shards {
		n += 64 * (len(x.table.shards[i].buckets) - 1)
	}
	for i := range x.sets.slabs {
		n += 8 * len(x.sets.slabs[i].words)
	}
	return n + 4*bucketPage*(len(x.sets.buckets)-1)
}

// The worst mixtures of holders must cost no more than the stated 40 bytes a (block, peer) pair: two or three holders, all
// different, are what gives the most sets.
func TestSharedBlocksCostNoMoreThanDistinctOnes(t *testing.T) {
	for _, holders := range []int{2, 3, 8, 40, 500} {
		x := NewIndex(1)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 40_000 / holders {
			for n := 0; n < holders; {
				if x.Add(Slot(r.IntN(1000)), Element{Hash(mix(uint64(i))), 0}) {
					n++
				}
			}
		}
		if per := float64(bytesOf(x)) / float64(x.Entries()); per > 40 {
			t.Errorf("%d holders a block: %.1f bytes a pair", holders, per)
		} else {
			t.Logf("%d holders a block: %.1f bytes a pair", holders, per)
		}
	}
}

func TestSameSeedSameOrder(t *testing.T) {
	order := func() (out []Element) {
		x := NewIndex(5)
		for i, h := range testChain(0, 3000) {
			x.Add(Slot(i%3), Element{h, uint16(i)})
			x.Add(1, Element{h, uint16(i)})
		}
		x.Each(1, func(e Element) bool { out = append(out, e); return len(out) < 2000 })
		return out
	}
	a, b := order(), order()
	if len(a) != 2000 || !slices.Equal(a, b) {
		t.Error("two runs with one seed differ")
	}
}
