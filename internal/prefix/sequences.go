package prefix

import "slices"

// MaxSequences bounds the sequences of a Tree whose engine keeps whole ones: 32 MiB of node numbers at the most.
const MaxSequences = 1024

// insertSequence is Insert into a cache of whole sequences. No sequence is the beginning of another one: a prompt that
// continues a sequence makes it grow, and one that a sequence begins with only uses that sequence.
func (t *Tree) insertSequence(chain []Hash, log []Change) []Change {
	i := t.related(chain)
	var s []uint32
	if i >= 0 {
		s = t.sequences[i]
		t.sequences = slices.Delete(t.sequences, i, i+1)
	}
	for _, n := range s[:min(len(s), len(chain))] {
		t.nodes[n].isReused = true
	}
	for d := len(s); d < len(chain); d++ {
		n, ok := t.at[chain[d]]
		if !ok {
			e := Element{chain[d], uint16(d)}
			n = t.open(e)
			log = append(log, Change{Element: e})
		} else {
			if t.nodes[n].isAdopted {
				t.forgetAdopted(n)
			}
			t.nodes[n].isReused = true
		}
		t.nodes[n].holders++
		t.load += t.weight(n)
		s = append(s, n)
	}
	t.sequences = slices.Insert(t.sequences, 0, s)
	return log
}

// related is the most recently used sequence that chain begins with, or that begins with chain; -1 where there is none.
// Chained hashes make it cheap: where two agree at a block, they agree in all before it.
func (t *Tree) related(chain []Hash) int {
	for i, s := range t.sequences {
		d := min(len(s), len(chain)) - 1
		if t.nodes[s[d]].hash == chain[d] {
			return i
		}
	}
	return -1
}

// cut shortens to so many blocks all sequences that have n after them. Only the most recently used one of them stays, and
// only where no other sequence begins with it.
func (t *Tree) cut(n uint32, blocks int, log []Change) []Change {
	kept := blocks == 0
	for i := 0; i < len(t.sequences); {
		s := t.sequences[i]
		switch {
		case len(s) <= blocks || s[blocks] != n:
			i++
		case kept:
			log = t.dropSequence(i, log)
		default:
			kept = true
			log = t.shorten(s[blocks:], log)
			t.sequences[i] = s[:blocks:blocks]
			i++
		}
	}
	for i, s := range t.sequences {
		if blocks > 0 && len(s) == blocks && t.nodes[s[blocks-1]].holders > 1 {
			return t.dropSequence(i, log)
		}
	}
	return log
}

// dropSequence removes sequence i.
func (t *Tree) dropSequence(i int, log []Change) []Change {
	log = t.shorten(t.sequences[i], log)
	t.sequences = slices.Delete(t.sequences, i, i+1)
	return log
}

// shorten takes these blocks, the last ones of a sequence, out of it.
func (t *Tree) shorten(end []uint32, log []Change) []Change {
	for i := len(end) - 1; i >= 0; i-- {
		n := end[i]
		t.load -= t.weight(n)
		if t.nodes[n].holders--; t.nodes[n].holders == 0 {
			log = t.remove(n, log)
		}
	}
	return log
}
