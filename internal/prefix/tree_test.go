package prefix

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/peer"
)

// trie is a world of prompts: every block's hash follows from the blocks before it.
type trie struct {
	parent map[Hash]Hash
	depth  map[Hash]uint16
}

// chain gives a random prompt of n blocks, whose beginning other prompts are likely to share.
func (w *trie) chain(r *rand.Rand, n, branches int) []Hash {
	var c []Hash
	h := Hash(1)
	for d := range n {
		next := Hash(mix(uint64(h)*31 + uint64(r.IntN(branches))))
		w.parent[next], w.depth[next] = h, uint16(d)
		c = append(c, next)
		h = next
	}
	return c
}

// oracle is what naive code makes of a cache: no list, no arena, everything searched for.
type oracle interface {
	insert(chain []Hash)
	correct(chain []Hash, blocks int)
	adopt(e Element) bool
	resize(capacity int)
	clear()
	held() map[Hash]bool
	load() int
}

// naivePaged is leaves evicted least recently used first, by the definition.
type naivePaged struct {
	w        *trie
	capacity int
	clock    int
	used     map[Hash]int // last use; negative: adopted, the later the lower
	adopted  int
}

func (o *naivePaged) held() map[Hash]bool {
	out := map[Hash]bool{}
	for h := range o.used {
		out[h] = true
	}
	return out
}

func (o *naivePaged) load() int { return len(o.used) }

func (o *naivePaged) isLeaf(h Hash) bool {
	for c := range o.used {
		if o.w.parent[c] == h {
			return false
		}
	}
	return true
}

// victim is the block to evict: adopted ones first, of those the deepest; of the others the leaf used longest ago.
func (o *naivePaged) victim() Hash {
	var best Hash
	better := func(a, b Hash) bool {
		if (o.used[a] < 0) != (o.used[b] < 0) {
			return o.used[a] < 0
		}
		if o.used[a] < 0 && o.w.depth[a] != o.w.depth[b] {
			return o.w.depth[a] > o.w.depth[b]
		}
		return o.used[a] < o.used[b]
	}
	for h, used := range o.used {
		if (used < 0 || o.isLeaf(h)) && (best == 0 || better(h, best)) {
			best = h
		}
	}
	return best
}

func (o *naivePaged) insert(chain []Hash) {
	chain = chain[:min(len(chain), o.capacity)]
	for _, h := range slices.Backward(chain) {
		o.clock++
		o.used[h] = o.clock
	}
	o.resize(o.capacity)
}

func (o *naivePaged) resize(capacity int) {
	o.capacity = capacity
	for len(o.used) > o.capacity {
		delete(o.used, o.victim())
	}
}

func (o *naivePaged) correct(chain []Hash, blocks int) {
	for _, h := range chain[:min(blocks, len(chain))] {
		if _, ok := o.used[h]; !ok {
			return
		}
	}
	if blocks >= len(chain) || !o.held()[chain[blocks]] {
		return
	}
	limit := o.used[chain[blocks]]
	if limit < 0 {
		for _, h := range chain[blocks:] {
			delete(o.used, h)
		}
		return
	}
	maps.DeleteFunc(o.used, func(_ Hash, used int) bool { return used <= limit })
}

func (o *naivePaged) adopt(e Element) bool {
	if _, ok := o.used[e.Hash]; ok || len(o.used) >= o.capacity {
		return false
	}
	o.adopted++
	o.used[e.Hash] = -o.adopted
	return true
}

func (o *naivePaged) clear() { clear(o.used) }

// naiveSlots is whole sequences, each with all its blocks.
type naiveSlots struct {
	capacity  int
	sequences [][]Hash // the most recently used first
	adopted   []Element
}

func (o *naiveSlots) held() map[Hash]bool {
	out := map[Hash]bool{}
	for _, s := range o.sequences {
		for _, h := range s {
			out[h] = true
		}
	}
	for _, e := range o.adopted {
		out[e.Hash] = true
	}
	return out
}

func (o *naiveSlots) load() int {
	n := len(o.adopted)
	for _, s := range o.sequences {
		n += len(s)
	}
	return n
}

func begins(s, with []Hash) bool { return len(s) >= len(with) && slices.Equal(s[:len(with)], with) }

func (o *naiveSlots) insert(chain []Hash) {
	chain = slices.Clone(chain[:min(len(chain), o.capacity)])
	if len(chain) == 0 {
		return
	}
	for i, s := range o.sequences {
		if begins(s, chain) || begins(chain, s) {
			if len(s) > len(chain) {
				chain = s
			}
			o.sequences = slices.Delete(o.sequences, i, i+1)
			break
		}
	}
	o.sequences = slices.Insert(o.sequences, 0, chain)
	o.adopted = slices.DeleteFunc(o.adopted, func(e Element) bool { return slices.Contains(chain, e.Hash) })
	o.resize(o.capacity)
}

func (o *naiveSlots) resize(capacity int) {
	o.capacity = capacity
	for o.load() > o.capacity {
		if len(o.adopted) == 0 {
			o.sequences = o.sequences[:len(o.sequences)-1]
			continue
		}
		deepest := 0
		for i, e := range o.adopted {
			if e.Depth >= o.adopted[deepest].Depth {
				deepest = i
			}
		}
		o.adopted = slices.Delete(o.adopted, deepest, deepest+1)
	}
}

func (o *naiveSlots) correct(chain []Hash, blocks int) {
	held := o.held()
	if blocks >= len(chain) {
		return
	}
	for _, h := range chain[:blocks+1] {
		if !held[h] {
			return
		}
	}
	if i := slices.IndexFunc(o.adopted, func(e Element) bool { return e.Hash == chain[blocks] }); i >= 0 {
		o.adopted = slices.DeleteFunc(o.adopted, func(e Element) bool { return slices.Contains(chain[blocks:], e.Hash) })
		return
	}
	var kept [][]Hash
	for _, s := range o.sequences {
		if begins(s, chain[:blocks+1]) {
			s = s[:blocks]
		}
		kept = append(kept, s)
	}
	o.sequences = nil
	for i, s := range kept { // nothing that is empty, there twice, or the beginning of another
		redundant := len(s) == 0
		for j, other := range kept {
			redundant = redundant || begins(other, s) && (len(other) > len(s) || j < i)
		}
		if !redundant {
			o.sequences = append(o.sequences, s)
		}
	}
}

func (o *naiveSlots) adopt(e Element) bool {
	if o.held()[e.Hash] || o.load() >= o.capacity {
		return false
	}
	o.adopted = append(o.adopted, e)
	return true
}

func (o *naiveSlots) clear() { o.sequences, o.adopted = nil, nil }

func TestPagedTreeAgreesWithLeavesEvictedByDefinition(t *testing.T) {
	check(t, func(t *rapid.T) { checkTree(t, peer.Paged) })
}

func TestSlotTreeAgreesWithWholeSequences(t *testing.T) {
	check(t, func(t *rapid.T) { checkTree(t, peer.Slots) })
}

// tokensFor is a cache size that is exactly so many blocks, at 4 bytes a token.
func tokensFor(blocks int) int64 { return int64(blocks) * BlockBytes / 4 }

func checkTree(t *rapid.T, kind peer.CacheKind) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	w := &trie{map[Hash]Hash{}, map[Hash]uint16{}}
	capacity := rapid.IntRange(1, 60).Draw(t, "capacity")
	longest := rapid.IntRange(1, 20).Draw(t, "longest")
	branches := rapid.IntRange(1, 3).Draw(t, "branches")
	adopts := rapid.Bool().Draw(t, "adopts")
	tree := NewTree(peer.Cache{Kind: kind, Tokens: tokensFor(capacity)}, 1000, 4000)
	var o oracle = &naivePaged{w: w, capacity: capacity, used: map[Hash]int{}}
	if kind == peer.Slots {
		o = &naiveSlots{capacity: capacity}
	}
	replayed := map[Hash]bool{} // what whoever reads the log believes
	whole := true               // every block's ancestors are held: adopting and its corrections may leave holes
	apply := func(log []Change) {
		for _, c := range log {
			if c.Depth != w.depth[c.Hash] {
				t.Fatalf("%x is logged at depth %d, is at %d", c.Hash, c.Depth, w.depth[c.Hash])
			}
			if replayed[c.Hash] == !c.Removed {
				t.Fatalf("%x is logged (removed %v) although it was so already", c.Hash, c.Removed)
			}
			if c.Removed {
				delete(replayed, c.Hash)
				continue
			}
			replayed[c.Hash] = true
			if p := w.parent[c.Hash]; whole && p != 1 && !replayed[p] {
				t.Fatalf("%x comes into the log before its parent", c.Hash)
			}
		}
		for h := range replayed {
			if p := w.parent[h]; whole && p != 1 && !replayed[p] {
				t.Fatalf("%x is held without its parent", h)
			}
		}
	}
	for range rapid.IntRange(1, 120).Draw(t, "operations") {
		c := w.chain(r, 1+r.IntN(longest), branches)
		switch op := r.IntN(20); {
		case op < 11:
			apply(tree.Insert(c, nil))
			o.insert(c)
		case op < 15:
			blocks := r.IntN(len(c) + 2)
			apply(tree.Correct(c, blocks, nil))
			o.correct(c, blocks)
		case op < 17 && adopts:
			whole = false
			for d, h := range c {
				e := Element{h, uint16(d)}
				got, want := tree.Adopt(e), o.adopt(e)
				if got != want {
					t.Fatalf("Adopt(%v) = %v, want %v", e, got, want)
				}
				if got {
					replayed[h] = true
				}
			}
		case op == 17 && r.IntN(4) == 0:
			capacity = 1 + r.IntN(60)
			apply(tree.Resize(tokensFor(capacity), 4000, nil))
			o.resize(capacity)
		case op == 18 && r.IntN(10) == 0:
			apply(tree.Clear(nil))
			o.clear()
			if tree.Len() != 0 || len(replayed) != 0 {
				t.Fatalf("a cleared tree holds %d blocks, its log leaves %d", tree.Len(), len(replayed))
			}
		default:
			want := 0
			for held := o.held(); want < len(c) && held[c[want]]; {
				want++
			}
			if got := tree.Match(c); got != want {
				t.Fatalf("Match = %d, want %d", got, want)
			}
		}
		if held := o.held(); !maps.Equal(held, replayed) || tree.Len() != len(held) {
			t.Fatalf("holds %d blocks, its log says %d, want %d", tree.Len(), len(replayed), len(held))
		}
		if got, want := tree.Full(), o.load()*1000/capacity; got != want || got > 1000 {
			t.Fatalf("Full = %d, want %d", got, want)
		}
	}
	seen := map[Hash]bool{}
	tree.Each(func(e Element) bool {
		if seen[e.Hash] || e.Depth != w.depth[e.Hash] {
			t.Fatalf("%v yielded twice, or at the wrong depth", e)
		}
		if p := w.parent[e.Hash]; whole && p != 1 && !seen[p] {
			t.Fatalf("%x yielded before its parent", e.Hash)
		}
		seen[e.Hash] = true
		return true
	})
	if !maps.Equal(seen, replayed) {
		t.Fatalf("Each yields %d blocks of %d", len(seen), len(replayed))
	}
}

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
