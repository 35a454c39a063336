package prefix

// Adopt takes over an element that the cache is believed to hold from before. It is false where it is known already, and
// where there is no room for it. A block counts as held whether or not its ancestors are.
func (t *Tree) Adopt(e Element) bool {
	d := int(e.Depth)
	w := Unthinned(d+1) - Unthinned(d)
	if _, ok := t.at[e.Hash]; ok || d >= MaxBlocks || len(t.at) >= t.maxBlocks || t.load+w > t.capacity {
		return false
	}
	n := t.open(e)
	t.load += w
	if d >= len(t.adopted) {
		t.adopted = append(t.adopted, make([]uint32, d+1-len(t.adopted))...)
	}
	next := t.adopted[d]
	t.nodes[n].isAdopted, t.nodes[n].next = true, next
	if next != 0 {
		t.nodes[next].prev = n
	}
	t.adopted[d] = n
	t.deepest = max(t.deepest, d)
	t.orphans++
	return true
}

// deepestAdopted is the adopted node that goes first; there is one.
func (t *Tree) deepestAdopted() uint32 {
	for t.adopted[t.deepest] == 0 {
		t.deepest--
	}
	return t.adopted[t.deepest]
}

// forgetAdopted makes n a block like others, of which the cache's own model keeps account.
func (t *Tree) forgetAdopted(n uint32) {
	b := &t.nodes[n]
	if b.prev != 0 {
		t.nodes[b.prev].next = b.next
	} else {
		t.adopted[b.depth] = b.next
	}
	if b.next != 0 {
		t.nodes[b.next].prev = b.prev
	}
	b.isAdopted = false
	t.load -= t.weight(n)
	if t.orphans--; t.orphans == 0 {
		t.adopted, t.deepest = nil, 0
	}
}

// dropAdopted removes the adopted blocks of the rest of a prompt. Others may have been evicted with them, or not: nothing
// is known of their order.
func (t *Tree) dropAdopted(rest []Hash, log []Change) []Change {
	for i := len(rest) - 1; i >= 0; i-- {
		if n, ok := t.at[rest[i]]; ok && t.nodes[n].isAdopted {
			log = t.remove(n, log)
		}
	}
	return log
}
