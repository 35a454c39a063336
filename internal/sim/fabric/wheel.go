package fabric

import (
	"fmt"
	"math/bits"

	"shoal/internal/sim"
)

const (
	wheelSlots = 2048
	nobody     = int32(-1)
)

// wheel has, for every link that has something on its wire, the time when the first packet arrives. All those times lie
// within one turn from now, since a wire is no longer than its delay and one transmission: so the slot of a time, and the
// next slot that is not empty, are found without comparing. Those that share a slot are a pairing heap, which is one entry
// as a rule, and quick where thousands of links are in step.
//
// Of arrivals at one time the one with the lesser rank is first: see Packets.rank.
type wheel struct {
	shift  uint // a slot is 2^shift picoseconds
	sum    uint64
	words  [wheelSlots / 64]uint64
	slots  [wheelSlots]int32
	events []wheelEvent // by link
}

type wheelEvent struct {
	at      sim.Time
	rank    uint64
	child   int32 // the first of those that come after this one, in the heap of its slot
	sibling int32
}

func (w *wheel) init(links int, horizon sim.Time) {
	w.events = make([]wheelEvent, links)
	for wheelSlots-2 <= int64(horizon)>>(w.shift&63) {
		w.shift++
	}
	for i := range w.slots {
		w.slots[i] = nobody
	}
}

// insert adds a link that is not there.
func (w *wheel) insert(now sim.Time, link int32, at sim.Time, rank uint64) {
	shift := w.shift & 63
	if uint64(at>>shift-now>>shift) >= wheelSlots {
		outOfReach(now, link, at)
	}
	e := &w.events[link]
	e.at, e.rank, e.child = at, rank, nobody
	s := uint(at>>shift) % wheelSlots
	if first := w.slots[s]; first != nobody {
		w.slots[s] = w.meld(first, link)
		return
	}
	w.slots[s] = link
	w.words[s/64] |= 1 << (s % 64)
	w.sum |= 1 << (s / 64)
}

// meld makes one heap of two, and says which link is its first.
func (w *wheel) meld(a, b int32) int32 {
	x, y := &w.events[a], &w.events[b]
	if y.at < x.at || y.at == x.at && y.rank < x.rank {
		a, b, x, y = b, a, y, x
	}
	y.sibling = x.child
	x.child = b
	return a
}

// meldAll makes one heap of siblings: in pairs from the left, and those from the right.
func (w *wheel) meldAll(a int32) int32 {
	pairs := nobody
	for a != nobody {
		b := w.events[a].sibling
		next := nobody
		if b != nobody {
			next = w.events[b].sibling
			a = w.meld(a, b)
		}
		w.events[a].sibling = pairs
		pairs, a = a, next
	}
	first := pairs
	for pairs = w.events[first].sibling; pairs != nobody; {
		next := w.events[pairs].sibling
		first = w.meld(first, pairs)
		pairs = next
	}
	return first
}

func outOfReach(now sim.Time, link int32, at sim.Time) {
	panic(fmt.Sprintf("fabric: link %d: an arrival at %d ps, which is out of reach from %d ps", link, at, now))
}

// first is the first slot that is not empty; where all are, it is an empty one. Nothing is before now.
func (w *wheel) first(now sim.Time) uint {
	s := uint(now>>(w.shift&63)) % wheelSlots
	i := s / 64
	if m := w.words[i] >> (s % 64); m != 0 {
		return s + uint(bits.TrailingZeros64(m))
	}
	return w.search(i)
}

// search goes through the other words in their order after i; that one comes last, with what lies a turn ahead.
func (w *wheel) search(i uint) uint {
	after := bits.RotateLeft64(w.sum, -int(i+1))
	i = (i + 1 + uint(bits.TrailingZeros64(after))) % (wheelSlots / 64)
	return i*64 + uint(bits.TrailingZeros64(w.words[i]))%64
}

// pop removes the first link of a slot.
func (w *wheel) pop(s uint, e *wheelEvent) {
	s %= wheelSlots
	if e.child != nobody {
		w.slots[s] = w.meldAll(e.child)
		return
	}
	w.slots[s] = nobody
	w.words[s/64] &^= 1 << (s % 64)
	if w.words[s/64] == 0 {
		w.sum &^= 1 << (s / 64)
	}
}

// remove takes a link out that is there.
func (w *wheel) remove(link int32) {
	e := &w.events[link]
	s := uint(e.at>>(w.shift&63)) % wheelSlots
	var others []int32
	for first := w.slots[s]; first != nobody; first = w.slots[s] {
		w.pop(s, &w.events[first])
		if first != link {
			others = append(others, first)
		}
	}
	for _, o := range others {
		w.insert(w.events[o].at, o, w.events[o].at, w.events[o].rank)
	}
}
