package prefix

import "slices"

// touch is Insert into a paged cache.
func (t *Tree) touch(chain []Hash, log []Change) []Change {
	from := len(log)
	t.clock++
	for i := len(chain) - 1; i >= 0; i-- {
		n, ok := t.at[chain[i]]
		switch {
		case !ok:
			e := Element{chain[i], uint16(i)}
			n = t.open(e)
			log = append(log, Change{Element: e})
		case t.nodes[n].isAdopted:
			t.forgetAdopted(n)
			t.nodes[n].isReused = true
		default:
			t.unlink(n)
			t.nodes[n].isReused = true
		}
		t.nodes[n].used = t.clock
		t.link(n)
	}
	slices.Reverse(log[from:])
	return log
}

// dropUntil removes n, which is not adopted, and all that was used before it.
func (t *Tree) dropUntil(n uint32, log []Change) []Change {
	for t.orphans > 0 {
		log = t.remove(t.deepestAdopted(), log)
	}
	for last := uint32(0); last != n; {
		last = t.nodes[0].prev
		log = t.remove(last, log)
	}
	return log
}

// link makes n, which is in no list, the most recently used block.
func (t *Tree) link(n uint32) {
	t.load += t.weight(n)
	next := t.nodes[0].next
	t.nodes[n].prev, t.nodes[n].next = 0, next
	t.nodes[0].next, t.nodes[next].prev = n, n
}

func (t *Tree) unlink(n uint32) {
	t.load -= t.weight(n)
	prev, next := t.nodes[n].prev, t.nodes[n].next
	t.nodes[prev].next, t.nodes[next].prev = next, prev
}
