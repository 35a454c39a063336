package prefix

import (
	"slices"
	"testing"

	"shoal/internal/peer"
)

// A thinned block stands for 1, 4 or 16 blocks of text by its place: the cache is as full as the whole prompts make it.
func TestThinnedBlocksCountAsWhatTheyStandFor(t *testing.T) {
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(1000)}, 1<<16, 4000)
		c := testChain(0, Thinned(500))
		tree.Insert(c, nil)
		if want := Unthinned(len(c)); tree.Full() != want {
			t.Errorf("%v: %d full with %d blocks of text, want %d", kind, tree.Full(), want, want)
		}
		tree.Insert(testChain(1e6, Thinned(500)), nil)
		if got := removed(tree.Insert(testChain(2e6, 20), nil)); kind == peer.Paged && len(got) != 1 || tree.Full() > 1000 {
			t.Errorf("%v: %d blocks go, %d full", kind, len(got), tree.Full())
		}
		long := testChain(3e6, MaxThinned)
		tree.Insert(long, nil)
		if n := Thinned(1000); tree.Match(long) != n || tree.Full() > 1000 {
			t.Errorf("%v: holds %d blocks of a prompt longer than the cache, want %d", kind, tree.Match(long), n)
		}
		tree.Clear(nil)
		if tree.Full() != 0 {
			t.Errorf("%v: an empty cache is %d full", kind, tree.Full())
		}
		for d, h := range c {
			tree.Adopt(Element{h, uint16(d)})
		}
		if want := Unthinned(len(c)); tree.Full() != want {
			t.Errorf("%v: %d full with adopted blocks, want %d", kind, tree.Full(), want)
		}
	}
}

func removed(log []Change) (out []Hash) {
	for _, c := range log {
		if c.Removed {
			out = append(out, c.Hash)
		}
	}
	return out
}

// The invariant that eviction rests on: the last one of the list is always a leaf, without any search for leaves.
func TestEvictionTakesTheOldestLeafFirst(t *testing.T) {
	shared, a, b := testChain(0, 4), testChain(100, 3), testChain(200, 3)
	tree := NewTree(peer.Cache{Kind: peer.Paged, Tokens: tokensFor(10)}, 1000, 4000)
	tree.Insert(slices.Concat(shared, a), nil)
	tree.Insert(slices.Concat(shared, b), nil)
	got := removed(tree.Insert(testChain(300, 5), nil))
	want := []Hash{a[2], a[1], a[0], b[2], b[1]}
	if !slices.Equal(got, want) {
		t.Errorf("evicted %x, want %x", got, want)
	}
}

func TestPromptLongerThanTheCacheKeepsItsBeginning(t *testing.T) {
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(10)}, 1000, 4000)
		c := testChain(0, 30)
		tree.Insert(c, nil)
		if tree.Len() != 10 || tree.Match(c) != 10 || tree.Full() != 1000 {
			t.Errorf("%v: holds %d, matches %d", kind, tree.Len(), tree.Match(c))
		}
	}
}

// pitfalls 17: a prefix trie without a bound. Whatever comes, the tree keeps to its limits, and so does its arena.
func TestTreeStaysWithinItsLimits(t *testing.T) {
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		for _, tokens := range []int64{peer.Unknown, 1 << 62, tokensFor(500), 1, 0} {
			const maxBlocks = 3000
			tree := NewTree(peer.Cache{Kind: kind, Tokens: tokens}, maxBlocks, 4000)
			for i := range uint64(3000) {
				tree.Insert(testChain(i*100, 1+int(i%40)), nil)
				if tree.Len() > maxBlocks || len(tree.sequences) > MaxSequences {
					t.Fatalf("%v, %d tokens: %d blocks, %d sequences", kind, tokens, tree.Len(), len(tree.sequences))
				}
			}
			tree.Insert(testChain(1e9, 2*MaxBlocks), nil)
			if tree.Len() > maxBlocks || len(tree.nodes) > maxBlocks+MaxBlocks+1 {
				t.Errorf("%v, %d tokens: %d blocks in an arena of %d", kind, tokens, tree.Len(), len(tree.nodes))
			}
			switch {
			case tokens == peer.Unknown && tree.Full() != peer.Unknown:
				t.Errorf("%v: %d full although nothing tells its size", kind, tree.Full())
			case tokens >= 0 && tokens < 64 && (tree.Len() != 0 || tree.Full() != 1000):
				t.Errorf("%v: a cache of %d tokens holds %d blocks", kind, tokens, tree.Len())
			}
		}
	}
	none := NewTree(peer.Cache{}, -5, 0)
	if none.Insert(testChain(0, 3), nil) != nil || none.Adopt(Element{1, 0}) {
		t.Error("a tree without room takes blocks")
	}
}

func TestSequencesAreBoundedByNumber(t *testing.T) {
	tree := NewTree(peer.Cache{Kind: peer.Slots, Tokens: peer.Unknown}, 1<<20, 4000)
	for i := range uint64(MaxSequences + 1) {
		tree.Insert(testChain(i, 1), nil)
	}
	if len(tree.sequences) != MaxSequences || tree.Match(testChain(0, 1)) != 0 || tree.Match(testChain(1, 1)) != 1 {
		t.Errorf("%d sequences, the oldest one held: %d", len(tree.sequences), tree.Match(testChain(0, 1)))
	}
}

func TestGrowingConversationIsOneSequence(t *testing.T) {
	c := testChain(0, 50)
	tree := NewTree(peer.Cache{Kind: peer.Slots, Tokens: tokensFor(60)}, 1000, 4000)
	for n := 10; n <= 50; n += 10 {
		if got := removed(tree.Insert(c[:n], nil)); got != nil {
			t.Fatalf("%d blocks are evicted by the conversation itself", len(got))
		}
	}
	tree.Insert(c[:30], nil) // a repetition only uses it
	if len(tree.sequences) != 1 || tree.Match(c) != 50 || tree.Full() != 50*1000/60 {
		t.Errorf("%d sequences, match %d, %d full", len(tree.sequences), tree.Match(c), tree.Full())
	}
}

func TestSharedBlocksCountInEverySequenceAndStayUntilTheLast(t *testing.T) {
	shared := testChain(0, 10)
	tree := NewTree(peer.Cache{Kind: peer.Slots, Tokens: tokensFor(30)}, 1000, 4000)
	for i := range uint64(3) { // 15 blocks each: two of them fit, although 20 blocks would do
		tree.Insert(slices.Concat(shared, testChain(1000+i*100, 5)), nil)
	}
	if len(tree.sequences) != 2 || tree.Len() != 20 || tree.Match(shared) != 10 {
		t.Errorf("%d sequences with %d blocks, shared ones held: %d", len(tree.sequences), tree.Len(), tree.Match(shared))
	}
}

func TestCorrectionForgetsWhatIsOlderThanTheFirstMissingBlock(t *testing.T) {
	old, c, recent := testChain(0, 5), testChain(100, 8), testChain(200, 5)
	tree := NewTree(peer.Cache{Kind: peer.Paged, Tokens: peer.Unknown}, 1000, 4000)
	for _, c := range [][]Hash{old, c, recent} {
		tree.Insert(c, nil)
	}
	tree.Correct(c, 3, nil)
	if tree.Match(old) != 0 || tree.Match(c) != 3 || tree.Match(recent) != 5 {
		t.Errorf("matches %d, %d, %d, want 0, 3, 5", tree.Match(old), tree.Match(c), tree.Match(recent))
	}
	for _, blocks := range []int{3, 4, 8, 100, -1} { // -1: everything
		log := tree.Correct(c, blocks, nil)
		if blocks >= 3 && log != nil {
			t.Errorf("Correct to %d blocks, where 3 are predicted, changes %v", blocks, log)
		}
	}
	if tree.Match(c) != 0 || tree.Match(recent) != 5 {
		t.Errorf("matches %d and %d, want 0 and 5", tree.Match(c), tree.Match(recent))
	}
}

func TestCorrectionOfASequenceLeavesTheOthers(t *testing.T) {
	shared := testChain(0, 4)
	a, b := slices.Concat(shared, testChain(100, 4)), slices.Concat(shared, testChain(200, 4))
	other := testChain(300, 6)
	tree := NewTree(peer.Cache{Kind: peer.Slots, Tokens: peer.Unknown}, 1000, 4000)
	for _, c := range [][]Hash{a, b, other} {
		tree.Insert(c, nil)
	}
	tree.Correct(a, 6, nil)
	if tree.Match(a) != 6 || tree.Match(b) != 8 || tree.Match(other) != 6 {
		t.Errorf("matches %d, %d, %d, want 6, 8, 6", tree.Match(a), tree.Match(b), tree.Match(other))
	}
	tree.Correct(a, 2, nil)
	if tree.Match(a) != 2 || tree.Match(b) != 2 || len(tree.sequences) != 2 {
		t.Errorf("matches %d and %d in %d sequences, want 2 and 2 in 2", tree.Match(a), tree.Match(b), len(tree.sequences))
	}
}

// pitfalls 16: the tree of before the agent's restart is taken over. Nothing tells its order, so it goes first.
func TestAdoptedBlocksGoFirstDeepestFirst(t *testing.T) {
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		before, now := testChain(0, 6), testChain(100, 4)
		tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(10)}, 1000, 4000)
		for _, d := range []int{3, 0, 5, 1, 4, 2} {
			tree.Adopt(Element{before[d], uint16(d)})
		}
		tree.Insert(now, nil)
		tree.Insert(before[:2], nil) // used again: no orphans any more
		got := removed(tree.Insert(testChain(200, 5), nil))
		if want := []Hash{before[5], before[4], before[3], before[2]}; !slices.Equal(got[:4], want) {
			t.Errorf("%v: evicted %x first, want %x", kind, got, want)
		}
		if tree.Match(before) != 2 {
			t.Errorf("%v: what is used again goes with the others", kind)
		}
		if tree.Adopt(Element{before[0], 0}) || tree.Adopt(Element{9, MaxBlocks}) {
			t.Errorf("%v: adopts what is known, or deeper than any prompt", kind)
		}
	}
}

func TestReuseOfWhatIsEvicted(t *testing.T) {
	tree := NewTree(peer.Cache{Kind: peer.Paged, Tokens: tokensFor(100)}, 1000, 4000)
	if tree.ReusePermille() != 0 {
		t.Error("reuse before any eviction")
	}
	next := uint64(0)
	run := func(rounds int, again bool) int {
		for range rounds {
			c := testChain(next, 50)
			next += 50
			tree.Insert(c, nil)
			if again {
				tree.Insert(c[:25], nil)
			}
		}
		return tree.ReusePermille()
	}
	if got := run(100, false); got != 0 {
		t.Errorf("reuse %d of prompts that never come again", got)
	}
	if got := run(200, true); got < 450 || got > 550 {
		t.Errorf("reuse %d where half of every prompt comes again, want about 500", got)
	}
	if got := run(200, false); got > 100 {
		t.Errorf("reuse %d remembers what is long gone", got)
	}
}

func TestEachYieldsTheMostRecentFirstAndStopsWhenTold(t *testing.T) {
	a, b, old := testChain(0, 3), testChain(100, 3), testChain(200, 2)
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		tree := NewTree(peer.Cache{Kind: kind, Tokens: peer.Unknown}, 1000, 4000)
		for d := range old {
			tree.Adopt(Element{old[d], uint16(d)})
		}
		tree.Insert(a, nil)
		tree.Insert(b, nil)
		all := slices.Concat(b, a, old)
		for n := range len(all) + 1 {
			var got []Hash
			tree.Each(func(e Element) bool { got = append(got, e.Hash); return len(got) <= n })
			if !slices.Equal(got, all[:min(n+1, len(all))]) {
				t.Errorf("%v: yields %x, want the first %d of %x", kind, got, n+1, all)
			}
		}
	}
}

func TestTreeSaysNothingToALogOfOthers(t *testing.T) {
	before := Change{Element{42, 1}, true}
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(5)}, 1000, 4000)
		log := []Change{before}
		log = tree.Insert(testChain(0, 5), log)
		log = tree.Insert(testChain(9, 5), log)
		log = tree.Correct(testChain(9, 5), 2, log)
		log = tree.Clear(log)
		if log[0] != before || len(log) != 1+5+5+5+3+2 {
			t.Errorf("%v: log of %d changes begins with %v", kind, len(log), log[0])
		}
	}
}

func BenchmarkTreeInsert(b *testing.B) {
	for _, kind := range []peer.CacheKind{peer.Paged, peer.Slots} {
		b.Run(kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(30_000)}, 1<<18, 4000)
			var log []Change
			for i := uint64(0); b.Loop(); i++ {
				log = tree.Insert(testChain(i%2000*40, 40), log[:0])
			}
		})
	}
}
