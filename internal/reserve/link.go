package reserve

import (
	"cmp"
	"math/bits"
	"slices"

	"shoal/internal/ecmp"
)

// link is what is on one link. It stays while anything holds it: an entry, a set, or background.
type link struct {
	flows int32 // Active reservations of all owners
	own   int32 // own ones among them for which another path would be without this link
	bytes int64 // that they have still to move
	free  int64 // bit/s: capacity less background, never below a 64th of it
	refs  []ref // paths that listen

	id         ecmp.LinkID
	holds      int32
	capacity   int64 // bit/s; 0: no set with this link has been registered
	background int64 // bit/s that reserve nothing

	// In which round of the schedule it was last found taken, and until when, in us of wall time.
	round uint64
	until int64
}

// ref is one path of a set in use that a change of the link makes out of date. A set that is never asked is told some
// times in vain, and then listens no more until it is: a link that a hundred sets have in common costs something only for
// those that are in use.
type ref struct {
	dirty *uint64 // the word of Set.dirty
	bit   uint64  // of the path in it
	set   *Set
	path  uint32
	at    uint32 // in Set.idx
	vain  int
}

// maxVain is how often. More of it costs sets that nobody asks; less of it those that are asked, since the second link of
// a path that has changed tells them nothing new.
const maxVain = 64

// hold finds or makes the link and holds it once more.
func (t *Table) hold(id ecmp.LinkID) *link {
	l := t.links[id]
	if l == nil {
		l = &link{id: id}
		t.links[id] = l
	}
	l.holds++
	return l
}

func (t *Table) unhold(l *link) {
	if l.holds--; l.holds == 0 {
		delete(t.links, l.id)
	}
}

// change adds reservations to a link, or takes them away.
func (l *link) change(flows int32, bytes int64) {
	l.flows += flows
	l.bytes += bytes
	l.touch()
}

// touch notes that the paths over the link are out of date.
func (l *link) touch() {
	for i := 0; i < len(l.refs); i++ {
		r := &l.refs[i]
		if *r.dirty&r.bit == 0 {
			*r.dirty |= r.bit
			r.set.stale = true
			r.vain = 0
		} else if r.vain++; r.vain >= maxVain {
			r.set.deaf[r.path>>6] |= r.bit
			r.set.listens[r.at] = false
			l.refs[i] = l.refs[len(l.refs)-1]
			l.refs = l.refs[:len(l.refs)-1]
			i--
		}
	}
}

// size sets how much the link can carry.
func (l *link) size(capacity, background int64) {
	l.capacity, l.background = capacity, background
	l.free = max(capacity-background, capacity>>6, 1)
	l.touch()
}

// Background says how much traffic that reserves nothing is on a link, in bit/s: what counters of switches tell. It
// stands until it is said anew; 0 takes it back. It is false where MaxBackground links have background already.
func (t *Table) Background(id ecmp.LinkID, bitsPerSecond int64) bool {
	bitsPerSecond = max(0, min(bitsPerSecond, MaxCapacity))
	l := t.links[id]
	had := l != nil && l.background > 0
	switch {
	case bitsPerSecond == 0 && !had:
		return true
	case !had && t.backgrounds >= MaxBackground:
		return false
	case !had:
		l = t.hold(id)
		t.backgrounds++
	}
	l.size(l.capacity, bitsPerSecond)
	if bitsPerSecond == 0 {
		t.backgrounds--
		t.unhold(l)
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
	for _, l := range t.links {
		dst = append(dst, LinkLoad{l.id, int(l.flows), l.bytes, l.capacity, l.background})
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
func rate(a, b cost) int {
	if a.free == b.free {
		return cmp.Compare(a.flows, b.flows)
	}
	return cmp.Compare(a.flows*b.free, b.flows*a.free) // 2^17 times 2^46
}

// compare is the order of paths by cost: flows for free capacity, then bytes for free capacity, then flows on all links.
func compare(a, b cost) int {
	if a.free != b.free {
		return compareFractions(a, b)
	}
	x, y := a.flows, b.flows
	if x == y {
		if x, y = a.bytes, b.bytes; x == y {
			x, y = a.sum, b.sum
		}
	}
	if x < y {
		return -1
	}
	if x > y {
		return 1
	}
	return 0
}

func compareFractions(a, b cost) int {
	if c := rate(a, b); c != 0 {
		return c
	}
	ah, al := bits.Mul64(a.bytes, b.free)
	bh, bl := bits.Mul64(b.bytes, a.free)
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl), cmp.Compare(a.sum, b.sum))
}
