package reserve

import (
	"cmp"
	"math/bits"
	"slices"

	"shoal/internal/ecmp"
)

// link is what is on one link. It stays while anything holds it: an entry, a set, or background.
type link struct {
	id         ecmp.LinkID
	flows      int32 // Active reservations of all owners
	own        int32 // own ones among them for which another path would be without this link
	bytes      int64 // that they have still to move
	capacity   int64 // bit/s; 0: no set with this link has been registered
	background int64 // bit/s that reserve nothing
	free       int64 // bit/s: capacity less background, never below a 64th of it
	holds      int32
	refs       []ref // paths whose cost it is part of
}

// ref is one path of a set in use.
type ref struct{ set, path uint32 }

// hold finds or makes the link and holds it once more.
func (t *Table) hold(id ecmp.LinkID) uint32 {
	i, ok := t.byLink[id]
	if !ok {
		if n := len(t.freeLinks); n > 0 {
			i, t.freeLinks = t.freeLinks[n-1], t.freeLinks[:n-1]
		} else {
			i, t.links = uint32(len(t.links)), append(t.links, link{})
		}
		t.links[i] = link{id: id}
		t.byLink[id] = i
	}
	t.links[i].holds++
	return i
}

func (t *Table) unhold(i uint32) {
	l := &t.links[i]
	if l.holds--; l.holds == 0 {
		delete(t.byLink, l.id)
		*l = link{}
		t.freeLinks = append(t.freeLinks, i)
	}
}

// change adds reservations to a link, or takes them away.
func (t *Table) change(i uint32, flows int32, bytes int64) {
	l := &t.links[i]
	l.flows += flows
	l.bytes += bytes
	t.touch(l)
}

// touch notes that the paths over the link have to be priced again.
func (t *Table) touch(l *link) {
	for _, r := range l.refs {
		s := t.sets[r.set]
		s.dirty[r.path>>6] |= 1 << (r.path & 63)
		s.stale = true
	}
}

// size sets how much the link can carry.
func (t *Table) size(l *link, capacity, background int64) {
	l.capacity, l.background = capacity, background
	l.free = max(capacity-background, capacity>>6, 1)
	t.touch(l)
}

// Background says how much traffic that reserves nothing is on a link, in bit/s: what counters of switches tell. It
// stands until it is said anew; 0 takes it back. It is false where MaxBackground links have background already.
func (t *Table) Background(id ecmp.LinkID, bitsPerSecond int64) bool {
	bitsPerSecond = max(0, min(bitsPerSecond, MaxCapacity))
	i, known := t.byLink[id]
	had := known && t.links[i].background > 0
	switch {
	case bitsPerSecond == 0 && !had:
		return true
	case !had && t.backgrounds >= MaxBackground:
		return false
	case !had:
		i = t.hold(id)
		t.backgrounds++
	}
	t.size(&t.links[i], t.links[i].capacity, bitsPerSecond)
	if bitsPerSecond == 0 {
		t.backgrounds--
		t.unhold(i)
	}
	return true
}

// LinkLoad is what the table knows of one link.
type LinkLoad struct {
	ID         ecmp.LinkID
	Flows      int   // Active reservations
	Bytes      int64 // that they have still to move
	Capacity   int64 // bit/s; 0: unknown
	Background int64 // bit/s
}

// Links appends all links that the table knows to dst, by ID.
func (t *Table) Links(dst []LinkLoad) []LinkLoad {
	from := len(dst)
	for i := range t.links {
		if l := &t.links[i]; l.holds > 0 {
			dst = append(dst, LinkLoad{l.id, int(l.flows), l.bytes, l.capacity, l.background})
		}
	}
	slices.SortFunc(dst[from:], func(a, b LinkLoad) int { return cmp.Compare(a.ID, b.ID) })
	return dst
}

// cost is what one more flow would find on a path: its worst link. Links that all paths of a set share do not count, since
// no choice avoids them.
type cost struct {
	flows uint64 // with the one more
	free  uint64 // bit/s
	bytes uint64
	sum   uint64 // flows on all its links: which of two paths over one and the same worst link disturbs fewer
}

// rate compares the flows for the free capacity: what the flow's own speed will be.
func rate(a, b *cost) int {
	if a.free == b.free {
		return cmp.Compare(a.flows, b.flows)
	}
	return cmp.Compare(a.flows*b.free, b.flows*a.free) // 2^17 times 2^46
}

// compare is the order of paths by cost: flows for free capacity, then bytes for free capacity, then flows on all links.
func compare(a, b *cost) int {
	if a.free == b.free {
		switch {
		case a.flows != b.flows:
			return cmp.Compare(a.flows, b.flows)
		case a.bytes != b.bytes:
			return cmp.Compare(a.bytes, b.bytes)
		}
		return cmp.Compare(a.sum, b.sum)
	}
	if c := rate(a, b); c != 0 {
		return c
	}
	ah, al := bits.Mul64(a.bytes, b.free)
	bh, bl := bits.Mul64(b.bytes, a.free)
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl), cmp.Compare(a.sum, b.sum))
}
