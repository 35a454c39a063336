package reserve

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"shoal/internal/ecmp"
)

// Set is the equal-cost paths from this peer to a destination, registered with one Table by Paths. It stays valid for
// ever: a set that the table has put aside, having too many, is taken up again when it is used.
type Set struct {
	paths []ecmp.Path
	caps  [][]int64 // of the links of paths, bit/s
	key   uint64
	next  *Set // with the same key

	// What follows holds while the set is in use.
	slot   int // in Table.sets; -1 while it is put aside
	used   uint64
	own    int      // own reservations on its paths: while there are any it is not put aside
	common []uint32 // links that all its paths have
	off    []uint32 // where the other links of each path begin in idx; one more at the end
	idx    []uint32
	cost   []cost
	taken  []uint64 // bit: another link of the path than the common ones has a reservation
	dirty  []uint64 // bit: cost and taken are out of date
	stale  bool     // any bit of dirty is set
	tree   tree     // of cost, from treeFrom paths on
}

// Len is the number of paths.
func (s *Set) Len() int { return len(s.paths) }

// Path is the path with index i. Nobody changes it.
func (s *Set) Path(i int) ecmp.Path { return s.paths[i] }

// Paths registers equal-cost paths, in their order; the same lists of links are the same set, so that destinations
// behind one leaf share it. capacity gives a link's capacity in bit/s, 0 where it is unknown; a link that is known
// already takes the new value. The table keeps the paths; nobody changes them afterwards.
func (t *Table) Paths(paths []ecmp.Path, capacity func(ecmp.LinkID) int64) (*Set, error) {
	if len(paths) == 0 || len(paths) > MaxPaths {
		return nil, fmt.Errorf("reserve: a set has %d paths; give 1 to %d", len(paths), MaxPaths)
	}
	var text []byte
	caps := make([][]int64, len(paths))
	for i, p := range paths {
		if len(p.Links) > MaxLinks {
			return nil, fmt.Errorf("reserve: path %d has %d links; at most %d", i, len(p.Links), MaxLinks)
		}
		text = append(text, byte(len(p.Links)))
		for j, l := range p.Links {
			if slices.Contains(p.Links[:j], l) {
				return nil, fmt.Errorf("reserve: path %d has the link %08x twice; a path crosses a link once", i, uint32(l))
			}
			text = binary.LittleEndian.AppendUint32(text, uint32(l))
			c := min(capacity(l), MaxCapacity)
			if c <= 0 {
				c = t.cfg.Capacity
			}
			caps[i] = append(caps[i], c)
		}
	}
	key := xxh3.Hash(text)
	for s := t.byKey[key]; s != nil; s = s.next {
		if slices.EqualFunc(s.paths, paths, func(a, b ecmp.Path) bool { return slices.Equal(a.Links, b.Links) }) {
			s.caps = caps
			t.sizeLinks(s)
			return s, nil
		}
	}
	s := &Set{paths: slices.Clone(paths), caps: caps, key: key, slot: -1}
	t.use(s)
	return s, nil
}

// use takes the set up where it is put aside. It is false where there is no room for it: then all others hold own
// reservations.
func (t *Table) use(s *Set) bool {
	t.uses++
	s.used = t.uses
	if s.slot >= 0 {
		if s.slot >= len(t.sets) || t.sets[s.slot] != s {
			panic(fmt.Sprintf("reserve: a set of another table, with %d paths", len(s.paths)))
		}
		return true
	}
	for t.setCount >= MaxSets || t.setPaths+len(s.paths) > MaxSetPaths {
		if !t.putAside() {
			return false
		}
	}
	if n := len(t.freeSets); n > 0 {
		s.slot, t.freeSets = t.freeSets[n-1], t.freeSets[:n-1]
		t.sets[s.slot] = s
	} else {
		s.slot, t.sets = len(t.sets), append(t.sets, s)
	}
	s.next, t.byKey[s.key] = t.byKey[s.key], s
	t.setCount++
	t.setPaths += len(s.paths)
	words := (len(s.paths) + 63) / 64
	s.cost, s.taken, s.dirty = make([]cost, len(s.paths)), make([]uint64, words), make([]uint64, words)
	t.connect(s)
	t.sizeLinks(s)
	for p := range s.paths {
		t.price(s, p)
	}
	s.stale = false
	clear(s.dirty)
	return true
}

// connect finds the set's links, those apart that no choice among its paths avoids.
func (t *Table) connect(s *Set) {
	in := make(map[ecmp.LinkID]int, 2*len(s.paths))
	for _, p := range s.paths {
		for _, l := range p.Links {
			in[l]++
		}
	}
	for pi, p := range s.paths {
		s.off = append(s.off, uint32(len(s.idx)))
		for _, l := range p.Links {
			common := in[l] == len(s.paths)
			switch {
			case !common:
				i := t.hold(l)
				s.idx = append(s.idx, i)
				t.links[i].refs = append(t.links[i].refs, ref{uint32(s.slot), uint32(pi)})
			case pi == 0:
				s.common = append(s.common, t.hold(l))
			}
		}
	}
	s.off = append(s.off, uint32(len(s.idx)))
}

func (t *Table) sizeLinks(s *Set) {
	if s.slot < 0 {
		return
	}
	for pi, p := range s.paths {
		for j, id := range p.Links {
			if l := &t.links[t.byLink[id]]; l.capacity != s.caps[pi][j] {
				t.size(l, s.caps[pi][j], l.background)
			}
		}
	}
}

// putAside frees what the set costs that was not used for longest, of those without own reservations.
func (t *Table) putAside() bool {
	var s *Set
	for _, c := range t.sets {
		if c != nil && c.own == 0 && (s == nil || c.used < s.used) {
			s = c
		}
	}
	if s == nil {
		return false
	}
	for _, i := range s.idx {
		l := &t.links[i]
		for j := 0; j < len(l.refs); j++ {
			if l.refs[j].set == uint32(s.slot) {
				l.refs[j] = l.refs[len(l.refs)-1]
				l.refs = l.refs[:len(l.refs)-1]
				j--
			}
		}
		t.unhold(i)
	}
	for _, i := range s.common {
		t.unhold(i)
	}
	if p := t.byKey[s.key]; p != s {
		for p.next != s {
			p = p.next
		}
		p.next = s.next
	} else if s.next != nil {
		t.byKey[s.key] = s.next
	} else {
		delete(t.byKey, s.key)
	}
	t.sets[s.slot] = nil
	t.freeSets = append(t.freeSets, s.slot)
	t.setCount--
	t.setPaths -= len(s.paths)
	*s = Set{paths: s.paths, caps: s.caps, key: s.key, slot: -1}
	t.stats.SetsPutAside++
	return true
}

// carry puts reservations of this peer on a path of a set in use, or takes them off.
func (t *Table) carry(s *Set, path int, flows int32, bytes int64) {
	for _, i := range s.idx[s.off[path]:s.off[path+1]] {
		t.links[i].own += flows
		t.change(i, flows, bytes)
	}
	for _, i := range s.common {
		t.change(i, flows, bytes)
	}
	s.own += int(flows)
}

// refresh brings cost and taken up to date: as many steps as paths have changed since.
func (t *Table) refresh(s *Set) {
	if !s.stale {
		return
	}
	s.stale = false
	for w, d := range s.dirty {
		if d == 0 {
			continue
		}
		s.dirty[w] = 0
		for ; d != 0; d &= d - 1 {
			p := w<<6 + bits.TrailingZeros64(d)
			t.price(s, p)
			s.tree.late(p)
		}
	}
}

// price reckons one path anew.
func (t *Table) price(s *Set, path int) {
	c := cost{flows: 1, free: 1} // what no choice avoids costs nothing
	for n, i := range s.idx[s.off[path]:s.off[path+1]] {
		l := &t.links[i]
		of := cost{flows: uint64(l.flows) + 1, free: uint64(l.free), bytes: uint64(l.bytes), sum: c.sum}
		if n == 0 || compare(&of, &c) > 0 {
			c = of
		}
		c.sum += uint64(l.flows)
	}
	s.cost[path] = c
	if bit := uint64(1) << (path & 63); c.sum > 0 {
		s.taken[path>>6] |= bit
	} else {
		s.taken[path>>6] &^= bit
	}
}
