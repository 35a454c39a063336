package prefix

import (
	"slices"

	"shoal/internal/peer"
)

// Tree is the account of one engine's prefix cache: which blocks it holds, by the cache model that its adapter declares.
// Use NewTree. It knows what it is told: every prompt that the engine has computed (Insert), and where the engine's own
// count of reused tokens contradicts it (Correct).
//
//   - peer.Paged: blocks of their own, the least recently used one evicted first. A prompt uses its last block first and its
//     first block last, so a block's last use is never after its ancestors', and what is evicted is always a leaf.
//   - peer.Slots: whole sequences, the least recently used one evicted first. A block is held while any sequence has it. A
//     prompt that continues a sequence replaces it, as a conversation does that grows in its slot.
//
// Elements taken over from an earlier life of the agent (Adopt) have no order of use: they go before all others, the
// deepest ones first.
//
// Chains are thinned ones (Thin). The limit on blocks counts what the tree holds; what the cache holds of the engine's
// tokens counts whole text blocks, those that thinning leaves out included.
//
// What a call changes it appends to log: blocks that come in, the first one of the prompt first, then blocks that go,
// leaves first. Whoever replays it has the same set, and never a block without its ancestors.
type Tree struct {
	kind      peer.CacheKind
	maxBlocks int  // distinct blocks that the tree holds
	capacity  int  // of the cache, in text blocks
	told      bool // the engine tells its size
	load      int  // what counts against capacity: in Slots the adopted blocks and those of all sequences

	at    map[Hash]uint32
	nodes []node // nodes[0] is the head of the list by use: its next is the most recently used block
	free  uint32 // first of the nodes that are not used, linked by next

	adopted []uint32 // by depth: first of the list of the nodes adopted there; 0: none
	deepest int      // no adopted node is deeper
	orphans int      // adopted nodes

	sequences [][]uint32 // Slots: nodes of each, the most recently used sequence first
	stamp     uint32     // of the last Each

	clock uint64 // Paged: counts uses

	evicted, reused int // text blocks evicted lately, and those of them that had been used again
}

// node is one block that the cache holds.
type node struct {
	hash       Hash
	used       uint64 // Paged: the tree's clock at its last use; 0: adopted
	prev, next uint32 // Paged: by use; adopted: of the same depth; not used: next only
	depth      uint16
	isReused   bool // used again after it came in
	isAdopted  bool
	holders    uint16 // Slots: sequences that have it
	stamp      uint32 // of the last Each that came to it
}

// reuseWindow is how many evictions ReusePermille remembers before the older half counts half.
const reuseWindow = 2048

// NewTree returns the account of an empty cache. It never holds more than maxBlocks blocks, nor, where the cache tells its
// size in tokens, more than those make at milliTokBytes bytes of rendering for a thousand tokens (the stated prior where
// that is not positive).
func NewTree(c peer.Cache, maxBlocks int, milliTokBytes int64) *Tree {
	t := &Tree{kind: c.Kind, maxBlocks: min(max(maxBlocks, 0), MaxEntries)}
	t.reset()
	t.limit(c.Tokens, milliTokBytes)
	return t
}

func (t *Tree) reset() {
	t.at, t.nodes, t.free = map[Hash]uint32{}, make([]node, 1), 0
	t.adopted, t.deepest, t.orphans = nil, 0, 0
	t.sequences, t.load = nil, 0
	t.evicted, t.reused = 0, 0
}

func (t *Tree) limit(tokens, milliTokBytes int64) {
	if milliTokBytes <= 0 {
		milliTokBytes = peer.PriorMilliTokBytes
	}
	most := int64(t.maxBlocks) * thinDeepSteps
	if t.kind == peer.Slots {
		most *= MaxSequences // a block counts once for each sequence that has it
	}
	t.told, t.capacity = tokens >= 0, int(most)
	if t.told && tokens < most*BlockBytes*1000/milliTokBytes {
		t.capacity = int(tokens * milliTokBytes / 1000 / BlockBytes)
	}
}

// Resize says that the cache holds another number of tokens (peer.Unknown where the engine does not tell), or that its
// tokens are of another size, and evicts what is too much.
func (t *Tree) Resize(tokens, milliTokBytes int64, log []Change) []Change {
	t.limit(tokens, milliTokBytes)
	return t.evict(log)
}

// Len is how many blocks the cache holds.
func (t *Tree) Len() int { return len(t.at) }

// Full is how full the cache is, 0 to 1000; peer.Unknown where the engine does not tell its size.
func (t *Tree) Full() int {
	if !t.told {
		return peer.Unknown
	}
	if t.capacity == 0 {
		return 1000
	}
	return int(int64(t.load) * 1000 / int64(t.capacity))
}

// ReusePermille is the share of the blocks evicted lately that had been used again after they came in, 0 to 1000: what an
// eviction destroys. It is 0 before the first eviction. Corrections count as evictions: that is what they tell of.
func (t *Tree) ReusePermille() int {
	if t.evicted == 0 {
		return 0
	}
	return t.reused * 1000 / t.evicted
}

// Match is how many blocks of chain, from the first one on, the cache holds.
func (t *Tree) Match(chain []Hash) int {
	for i, h := range chain {
		if _, ok := t.at[h]; !ok {
			return i
		}
	}
	return len(chain)
}

// Insert says that the engine has computed this prompt: all of it is in the cache, and was used last; of one that is longer
// than the whole cache, its beginning.
func (t *Tree) Insert(chain []Hash, log []Change) []Change {
	chain = chain[:min(len(chain), MaxBlocks, t.maxBlocks, Thinned(t.capacity))]
	if len(chain) == 0 {
		return log
	}
	if t.kind == peer.Slots {
		log = t.insertSequence(chain, log)
	} else {
		log = t.touch(chain, log)
	}
	return t.evict(log)
}

// Correct says that of this prompt only so many blocks, from the first one on, were in the cache when it came, although
// Match gives more. What must have gone with the first missing block goes too: in a paged cache all that was used before
// it, in the others what the sequences that have it hold from there on. It does nothing where Match gives no more.
//
// An engine counts tokens, in units of its own and without the last ones: the caller rounds up to whole text blocks, and
// leaves alone what differs by rounding.
func (t *Tree) Correct(chain []Hash, blocks int, log []Change) []Change {
	blocks = max(blocks, 0)
	if blocks >= len(chain) || t.Match(chain[:blocks+1]) <= blocks {
		return log
	}
	missing := t.at[chain[blocks]]
	switch {
	case t.nodes[missing].isAdopted:
		return t.dropAdopted(chain[blocks:], log)
	case t.kind == peer.Slots:
		return t.cut(missing, blocks, log)
	default:
		return t.dropUntil(missing, log)
	}
}

// LastUse is when the blocks of a match were used last, on the tree's own clock: for Expire, should the engine say that they
// were not there. Call it before Insert uses them anew. 0: never, or in a cache of whole sequences.
func (t *Tree) LastUse(chain []Hash, match int) uint64 {
	if match == 0 {
		return 0
	}
	return t.nodes[t.at[chain[match-1]]].used
}

// Expire says that a block whose last use was then has been evicted: so have all that were used no later. In a cache of
// whole sequences it does nothing.
func (t *Tree) Expire(lastUse uint64, log []Change) []Change {
	if t.kind == peer.Slots {
		return log
	}
	for t.orphans > 0 {
		log = t.remove(t.deepestAdopted(), log)
	}
	for last := t.nodes[0].prev; last != 0 && t.nodes[last].used <= lastUse; last = t.nodes[0].prev {
		log = t.remove(last, log)
	}
	return log
}

// Forget says that the last prompt of Insert was not computed after all, beyond so many blocks: its client has left, or the
// engine has refused it. What another prompt has used since stays, and so do that block's ancestors. In a cache of whole
// sequences it does nothing: there Insert is for prompts that have ended.
func (t *Tree) Forget(chain []Hash, blocks int, log []Change) []Change {
	if t.kind == peer.Slots {
		return log
	}
	for i := len(chain) - 1; i >= max(blocks, 0); i-- {
		n, ok := t.at[chain[i]]
		if !ok {
			continue
		}
		if t.nodes[n].isReused {
			break
		}
		log = t.remove(n, log)
	}
	return log
}

// evict removes blocks until the cache is within its limits.
func (t *Tree) evict(log []Change) []Change {
	for t.load > t.capacity || len(t.at) > t.maxBlocks || len(t.sequences) > MaxSequences {
		switch {
		case t.orphans > 0:
			log = t.remove(t.deepestAdopted(), log)
		case t.kind == peer.Slots:
			log = t.dropSequence(len(t.sequences)-1, log)
		default:
			log = t.remove(t.nodes[0].prev, log)
		}
	}
	return log
}

// Clear says that the engine has lost its whole cache.
func (t *Tree) Clear(log []Change) []Change {
	from := len(log)
	t.Each(func(e Element) bool {
		log = append(log, Change{e, true})
		return true
	})
	slices.Reverse(log[from:])
	t.reset()
	return log
}

// Each yields the blocks that the cache holds, the most recently used ones first, and every block after its ancestors, until
// yield returns false. yield must not change the tree.
func (t *Tree) Each(yield func(Element) bool) {
	t.stamp++
	visit := func(n uint32) bool {
		b := &t.nodes[n]
		if b.stamp == t.stamp {
			return true
		}
		b.stamp = t.stamp
		return yield(Element{b.hash, b.depth})
	}
	for n := t.nodes[0].next; n != 0; n = t.nodes[n].next {
		if !visit(n) {
			return
		}
	}
	for _, s := range t.sequences {
		for _, n := range s {
			if !visit(n) {
				return
			}
		}
	}
	for _, first := range t.adopted {
		for n := first; n != 0; n = t.nodes[n].next {
			if !visit(n) {
				return
			}
		}
	}
}

// open gives a node to e, which has none.
func (t *Tree) open(e Element) uint32 {
	n := t.free
	if n != 0 {
		t.free = t.nodes[n].next
	} else {
		n = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
	}
	t.nodes[n] = node{hash: e.Hash, depth: e.Depth}
	t.at[e.Hash] = n
	return n
}

// weight is how many text blocks n stands for.
func (t *Tree) weight(n uint32) int {
	d := int(t.nodes[n].depth)
	return Unthinned(d+1) - Unthinned(d)
}

// remove removes a block for good: one that was adopted, one in the list by use, or one that no sequence has any more.
func (t *Tree) remove(n uint32, log []Change) []Change {
	b := t.nodes[n]
	if b.isAdopted {
		t.forgetAdopted(n)
	} else if t.kind != peer.Slots {
		t.unlink(n)
	}
	w := t.weight(n)
	if t.evicted += w; b.isReused {
		t.reused += w
	}
	if t.evicted >= reuseWindow {
		t.evicted, t.reused = t.evicted/2, t.reused/2
	}
	delete(t.at, b.hash)
	t.nodes[n], t.free = node{next: t.free}, n
	return append(log, Change{Element{b.hash, b.depth}, true})
}
