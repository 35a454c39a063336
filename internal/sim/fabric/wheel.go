package fabric

import (
	"fmt"
	"math/bits"

	"shoal/internal/sim"
)

const (
	wheelSlots = 4096
	nobody     = int32(-1)
)

// wheel has, for every link that has something on its wire, the time when the first packet arrives. All those times lie
// within one turn from now, since a wire is no longer than its delay and one transmission: so the slot of a time, and the
// next slot that is not empty, are found without comparing. Those that share a slot are a sorted list.
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
	at   sim.Time
	rank uint64
	next int32 // of the same slot
}

func newWheel(links int, horizon sim.Time) *wheel {
	w := &wheel{events: make([]wheelEvent, links)}
	for wheelSlots-2 <= int64(horizon)>>w.shift {
		w.shift++
	}
	for i := range w.slots {
		w.slots[i] = nobody
	}
	return w
}

// insert adds a link that is not there.
func (w *wheel) insert(now sim.Time, link int32, at sim.Time, rank uint64) {
	if at < now || uint64(at)>>w.shift-uint64(now)>>w.shift >= wheelSlots {
		panic(fmt.Sprintf("fabric: link %d: an arrival at %d ps, which is out of reach from %d ps", link, at, now))
	}
	e := &w.events[link]
	e.at, e.rank = at, rank
	s := uint(at>>w.shift) % wheelSlots
	first := w.slots[s]
	if first == nobody {
		e.next = nobody
		w.slots[s] = link
		w.words[s/64] |= 1 << (s % 64)
		w.sum |= 1 << (s / 64)
		return
	}
	if f := &w.events[first]; at < f.at || at == f.at && rank < f.rank {
		e.next = first
		w.slots[s] = link
		return
	}
	for {
		f := &w.events[first]
		n := f.next
		if n == nobody || at < w.events[n].at || at == w.events[n].at && rank < w.events[n].rank {
			e.next = n
			f.next = link
			return
		}
		first = n
	}
}

// first is the link whose packet arrives next, nobody where there is none. Nothing is before now.
func (w *wheel) first(now sim.Time) int32 {
	s := uint(now>>w.shift) % wheelSlots
	i := s / 64
	if m := w.words[i] >> (s % 64); m != 0 {
		return w.slots[(s+uint(bits.TrailingZeros64(m)))%wheelSlots]
	}
	// The other words in their order from here; this one comes last, with what lies a turn ahead.
	after := bits.RotateLeft64(w.sum, -int(i+1))
	if after == 0 {
		return nobody
	}
	i = (i + 1 + uint(bits.TrailingZeros64(after))) % (wheelSlots / 64)
	return w.slots[i*64+uint(bits.TrailingZeros64(w.words[i]))%64]
}

// pop removes a link that is the first of its slot.
func (w *wheel) pop(link int32) {
	e := &w.events[link]
	s := uint(e.at>>w.shift) % wheelSlots
	w.slots[s] = e.next
	if e.next == nobody {
		w.clear(s)
	}
}

func (w *wheel) clear(s uint) {
	w.words[s/64] &^= 1 << (s % 64)
	if w.words[s/64] == 0 {
		w.sum &^= 1 << (s / 64)
	}
}

// remove takes a link out that is there.
func (w *wheel) remove(link int32) {
	e := &w.events[link]
	s := uint(e.at>>w.shift) % wheelSlots
	at := &w.slots[s]
	for *at != link {
		at = &w.events[*at].next
	}
	*at = e.next
	if w.slots[s] == nobody {
		w.clear(s)
	}
}
