package prefix

import (
	"math/bits"
	"slices"
)

// workingSet is the one set that is being changed, as a bitmap with room for every ID. The zero value is the empty set.
type workingSet struct {
	words  [MaxSlots / 64]uint64
	lo, hi int // words outside [lo, hi) are zero
	n      int // members
	hash   uint64
}

// load makes it the set v.
func (w *workingSet) load(t *sets, v holders) {
	clear(w.words[w.lo:w.hi])
	w.lo, w.hi, w.n, w.hash = 0, 0, 0, 0
	if v == 0 {
		return
	}
	if v&single != 0 {
		w.add(t, uint16(v))
		return
	}
	members, form := t.members(v)
	head := t.head(v)
	w.n, w.hash = int(uint32(head[headCount])), head[headHash]
	if form == bitmap {
		w.hi = copy(w.words[:], members)
		return
	}
	for i := range w.n {
		id := listed(members, i)
		w.words[id>>6] |= 1 << (id & 63)
	}
	w.lo, w.hi = int(listed(members, 0)>>6), int(listed(members, w.n-1)>>6)+1
}

// add adds id, which is not in it.
func (w *workingSet) add(t *sets, id uint16) {
	i := int(id >> 6)
	if w.n == 0 {
		w.lo, w.hi = i, i+1
	} else {
		w.lo, w.hi = min(w.lo, i), max(w.hi, i+1)
	}
	w.words[i] |= 1 << (id & 63)
	w.n++
	w.hash ^= t.hashOf(id)
}

// remove removes id, which is in it.
func (w *workingSet) remove(t *sets, id uint16) {
	w.words[id>>6] &^= 1 << (id & 63)
	w.n--
	w.hash ^= t.hashOf(id)
}

// subtract removes what is in mask, and gives how many that were.
func (w *workingSet) subtract(t *sets, mask *idSet) int {
	before := w.n
	for i := w.lo; i < w.hi; i++ {
		for both := w.words[i] & mask.words[i]; both != 0; both &= both - 1 {
			w.remove(t, uint16(i<<6+bits.TrailingZeros64(both)))
		}
	}
	return before - w.n
}

// trim narrows lo and hi to the words that have members.
func (w *workingSet) trim() {
	for w.hi > w.lo && w.words[w.hi-1] == 0 {
		w.hi--
	}
	for w.lo < w.hi && w.words[w.lo] == 0 {
		w.lo++
	}
}

// form gives how the trimmed set, which has two members or more, is stored, and in how many words. It is determined by the
// members, so that equal sets have equal words.
func (w *workingSet) form() (form, int) {
	words := (w.n + 3) / 4
	if w.hi <= bitmapFavour*words {
		return bitmap, w.hi
	}
	return list, words
}

// equals reports whether the trimmed set, which has as many members, is this one.
func (w *workingSet) equals(members []uint64, f form) bool {
	if own, words := w.form(); own != f || words != len(members) {
		return false
	}
	if f == bitmap {
		return slices.Equal(members, w.words[:w.hi])
	}
	for i := range w.n {
		if id := listed(members, i); w.words[id>>6]>>(id&63)&1 == 0 {
			return false
		}
	}
	return true
}

// store writes the trimmed set, whose form is f.
func (w *workingSet) store(members []uint64, f form) {
	if f == bitmap {
		copy(members, w.words[:])
		return
	}
	clear(members)
	n := 0
	for i := w.lo; i < w.hi; i++ {
		for word := w.words[i]; word != 0; word &= word - 1 {
			members[n>>2] |= uint64(i<<6+bits.TrailingZeros64(word)) << (16 * (n & 3))
			n++
		}
	}
}

// idSet is a set of IDs with room for all of them.
type idSet struct {
	words [MaxSlots / 64]uint64
	n     int
}

func (s *idSet) has(id uint16) bool { return s.words[id>>6]>>(id&63)&1 != 0 }

func (s *idSet) add(id uint16) {
	s.words[id>>6] |= 1 << (id & 63)
	s.n++
}

func (s *idSet) remove(id uint16) {
	s.words[id>>6] &^= 1 << (id & 63)
	s.n--
}

// lowestFree is the lowest ID that is not in it; ok is false where it has them all.
func (s *idSet) lowestFree() (id uint16, ok bool) {
	for i, word := range s.words {
		if word != ^uint64(0) {
			return uint16(i<<6 + bits.TrailingZeros64(^word)), true
		}
	}
	return 0, false
}
