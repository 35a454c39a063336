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
	in     *Table // nil while it is put aside
	place  int    // in Table.sets
	used   uint64
	own    int      // own reservations on its paths: while there are any it is not put aside
	common []*link  // links that all its paths have
	off    []uint32 // where the other links of each path begin in idx; one more at the end
	idx    []*link
	// listens says of each place in idx whether the link's refs have it, deaf of which paths that is not so for all links.
	listens []bool
	deaf    []uint64
	dirty   []uint64 // bit: what is below is out of date
	stale   bool     // any bit of dirty is set
	taken   []uint64 // bit: another link of the path than the common ones has a reservation
	narrow  []int64  // free capacity of the narrowest link, bit/s
	alike   bool     // all paths are equally wide
	resized bool     // alike is out of date

	// The costs are reckoned when taken and alike do not say enough.
	cost     []cost
	unpriced []uint64 // bit: the cost is out of date
	tree     tree     // of cost, from treeFrom paths on
}

// Len is the number of paths.
func (s *Set) Len() int { return len(s.paths) }

// Path is the path with index i. Nobody changes it.
func (s *Set) Path(i int) ecmp.Path { return s.paths[i] }

// links are those of a path that a choice can avoid.
func (s *Set) links(path int) []*link { return s.idx[s.off[path]:s.off[path+1]] }

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
	s := &Set{paths: slices.Clone(paths), caps: caps, key: key}
	t.use(s)
	return s, nil
}

// use takes the set up where it is put aside. It is false where there is no room for it: then all others hold own
// reservations.
func (t *Table) use(s *Set) bool {
	t.uses++
	s.used = t.uses
	if s.in == t {
		return true
	}
	if s.in != nil {
		panic(fmt.Sprintf("reserve: %s uses a set of %s, with %d paths", t.self, s.in.self, len(s.paths)))
	}
	for len(t.sets) >= MaxSets || t.setPaths+len(s.paths) > MaxSetPaths {
		if !t.putAside() {
			return false
		}
	}
	s.in, s.place, t.sets = t, len(t.sets), append(t.sets, s)
	s.next, t.byKey[s.key] = t.byKey[s.key], s
	t.setPaths += len(s.paths)
	n, words := len(s.paths), (len(s.paths)+63)/64
	s.cost, s.narrow = make([]cost, n), make([]int64, n)
	for _, b := range []*[]uint64{&s.taken, &s.dirty, &s.deaf, &s.unpriced} {
		*b = make([]uint64, words)
	}
	t.connect(s)
	t.sizeLinks(s)
	for p := range s.paths {
		s.dirty[p>>6] |= 1 << (p & 63)
		s.deaf[p>>6] |= 1 << (p & 63)
	}
	s.stale = true
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
				s.idx = append(s.idx, t.hold(l))
			case pi == 0:
				s.common = append(s.common, t.hold(l))
			}
		}
	}
	s.off = append(s.off, uint32(len(s.idx)))
	s.listens = make([]bool, len(s.idx))
}

func (t *Table) sizeLinks(s *Set) {
	if s.in == nil {
		return
	}
	for pi, p := range s.paths {
		for j, id := range p.Links {
			if l := t.links[id]; l.capacity != s.caps[pi][j] {
				l.size(s.caps[pi][j], l.background)
			}
		}
	}
}

// putAside frees what the set costs that was not used for longest, of those without own reservations.
func (t *Table) putAside() bool {
	var s *Set
	for _, c := range t.sets {
		if c.own == 0 && (s == nil || c.used < s.used) {
			s = c
		}
	}
	if s == nil {
		return false
	}
	for at, l := range s.idx {
		if s.listens[at] {
			l.refs = slices.DeleteFunc(l.refs, func(r ref) bool { return r.set == s })
		}
		t.unhold(l)
	}
	for _, l := range s.common {
		t.unhold(l)
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
	last := len(t.sets) - 1
	t.sets[s.place] = t.sets[last]
	t.sets[s.place].place = s.place
	t.sets = t.sets[:last]
	t.setPaths -= len(s.paths)
	*s = Set{paths: s.paths, caps: s.caps, key: s.key}
	t.stats.SetsPutAside++
	return true
}

// carry puts reservations of this peer on a path of a set in use, or takes them off.
func (t *Table) carry(s *Set, path int, flows int32, bytes int64) {
	for _, l := range s.links(path) {
		l.own += flows
		l.change(flows, bytes)
	}
	for _, l := range s.common {
		l.change(flows, bytes)
	}
	s.own += int(flows)
}

// refresh brings taken and alike up to date: as many steps as paths have changed since.
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
		s.unpriced[w] |= d
		if deaf := d & s.deaf[w]; deaf != 0 {
			s.deaf[w] &^= deaf
			for ; deaf != 0; deaf &= deaf - 1 {
				t.listen(s, w<<6+bits.TrailingZeros64(deaf))
			}
		}
		for ; d != 0; d &= d - 1 {
			p := w<<6 + bits.TrailingZeros64(d)
			var flows int32
			narrow := int64(MaxCapacity)
			for _, l := range s.links(p) {
				flows |= l.flows
				narrow = min(narrow, l.free)
			}
			bit := d & -d
			if flows == 0 {
				s.taken[w] &^= bit
			} else {
				s.taken[w] |= bit
			}
			if narrow != s.narrow[p] {
				s.narrow[p], s.resized = narrow, true
			}
		}
	}
	if s.resized {
		s.resized = false
		s.alike = !slices.ContainsFunc(s.narrow, func(n int64) bool { return n != s.narrow[0] })
	}
}

// listen has all links of the path tell of their changes.
func (t *Table) listen(s *Set, path int) {
	for at := s.off[path]; at < s.off[path+1]; at++ {
		if !s.listens[at] {
			s.listens[at] = true
			l := s.idx[at]
			l.refs = append(l.refs, ref{dirty: &s.dirty[path>>6], bit: 1 << (path & 63), set: s, path: uint32(path), at: at})
		}
	}
}

// price brings the costs up to date.
func (t *Table) price(s *Set) {
	for w, d := range s.unpriced {
		s.unpriced[w] = 0
		for ; d != 0; d &= d - 1 {
			p := w<<6 + bits.TrailingZeros64(d)
			s.cost[p] = t.costOf(s, p)
			s.tree.late(p)
		}
	}
}

func (t *Table) costOf(s *Set, path int) cost {
	c := cost{flows: 1, free: 1} // what no choice avoids costs nothing
	var sum uint64
	for n, l := range s.links(path) {
		of := cost{flows: uint64(l.flows) + 1, free: uint64(l.free), bytes: uint64(l.bytes)}
		sum += uint64(l.flows)
		if n == 0 || compare(of, c) > 0 {
			c = of
		}
	}
	c.sum = sum
	return c
}
