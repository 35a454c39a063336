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
