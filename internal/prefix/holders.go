package prefix

import "math/bits"

// MaxSlots bounds the slots of an index: all that a Slot can number.
const MaxSlots = 1 << 16

// holders says who holds a block: 0 nobody; with the bit single, one ID, inline; else the number of a record that holds
// a set of two or more. The same set is only once in memory (it is hash-consed), so two blocks have the same holders where
// these numbers are equal.
type holders uint32

const single holders = 1 << 31

// A bitmap is taken where it needs at most this many times the words of a list: matching is faster over bitmaps.
const bitmapFavour = 2

// sets holds the sets of IDs that several holders of blocks form. It is a hash table by linear hashing, so that it grows by
// one bucket at a time and never stands still to do so.
type sets struct {
	arena
	seed    uint64
	buckets [][]holders // in pages of bucketPage, so that growth copies nothing
	used    int         // buckets in use, 1 at least
	level   int         // the greatest power of two that is at most used
	count   int         // sets
	work    workingSet
	memo    transition
}

const bucketPage = 4096

// transition is the last change of a set: a prompt's blocks have mostly the same holders and change alike.
type transition struct {
	from, to holders // from is 0: none
	id       uint16
	add      bool
}

func (t *sets) init(seed uint64) {
	t.seed, t.used, t.level = seed, 1, 1
	t.buckets = [][]holders{make([]holders, bucketPage)}
}

// hashOf is an ID's part in its sets' hashes. Two sets with one hash are told apart by their members, so its quality is a
// matter of speed alone.
func (t *sets) hashOf(id uint16) uint64 { return mix(t.seed + uint64(id)*0x9E3779B97F4A7C15) }

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// listed is member i of a list.
func listed(members []uint64, i int) uint16 { return uint16(members[i>>2] >> (16 * (i & 3))) }

// size is how many members the record v has.
func (t *sets) size(v holders) int { return int(uint32(t.head(v)[headCount])) }

// contains reports whether v contains id.
func (t *sets) contains(v holders, id uint16) bool {
	if v&single != 0 {
		return v == single|holders(id)
	}
	if v == 0 {
		return false
	}
	members, form := t.members(v)
	if form == bitmap {
		w := int(id >> 6)
		return w < len(members) && members[w]>>(id&63)&1 != 0
	}
	lo, hi := 0, t.size(v)
	for lo < hi {
		mid := (lo + hi) / 2
		if listed(members, mid) < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < t.size(v) && listed(members, lo) == id
}

// change moves one block's reference from v to v with id, or without it. The caller has made sure that it does change v,
// and that v is not 0.
func (t *sets) change(v holders, id uint16, add bool) holders {
	m := &t.memo
	if m.from == v && m.id == id && m.add == add {
		to := m.to
		t.acquire(to)
		t.release(v)
		return to
	}
	t.work.load(t, v)
	if add {
		t.work.add(t, id)
	} else {
		t.work.remove(t, id)
	}
	to := t.intern()
	t.memo = transition{from: v, to: to, id: id, add: add}
	t.release(v)
	return to
}

func (t *sets) acquire(v holders) {
	if v != 0 && v&single == 0 {
		t.head(v)[headLinks]++
	}
}

// release gives back one block's reference to v.
func (t *sets) release(v holders) {
	if v == 0 || v&single != 0 {
		return
	}
	head := t.head(v)
	head[headLinks]--
	if uint32(head[headLinks]) > 0 {
		return
	}
	if t.memo.from == v || t.memo.to == v {
		t.memo = transition{}
	}
	t.unlink(v)
	t.arena.release(v)
	t.count--
	if t.count < t.used/2 {
		t.merge()
	}
}

// intern gives the holders that the working set is, with one more reference.
func (t *sets) intern() holders {
	w := &t.work
	w.trim()
	if w.n == 0 {
		return 0
	}
	if w.n == 1 {
		return single | holders(w.lo<<6+bits.TrailingZeros64(w.words[w.lo]))
	}
	first := t.bucket(t.bucketOf(w.hash))
	for v := *first; v != 0; v = t.next(v) {
		if head := t.head(v); head[headHash] == w.hash && int(uint32(head[headCount])) == w.n && w.equals(t.members(v)) {
			head[headLinks]++
			return v
		}
	}
	form, words := w.form()
	v := t.alloc(form, words)
	*t.head(v) = [listHead]uint64{headHash: w.hash, headLinks: uint64(*first)<<32 | 1, headCount: uint64(w.n)}
	w.store(t.members(v))
	*first = v
	t.count++
	if t.count > t.used {
		t.split()
	}
	return v
}

// The hash table. Bucket i of level buckets has split into i and i+level where i+level < used.

func (t *sets) bucketOf(hash uint64) int {
	i := int(hash & uint64(2*t.level-1))
	if i >= t.used {
		i -= t.level
	}
	return i
}

func (t *sets) bucket(i int) *holders { return &t.buckets[i/bucketPage][i%bucketPage] }

func (t *sets) next(v holders) holders { return holders(t.head(v)[headLinks] >> 32) }

func (t *sets) setNext(v, next holders) {
	head := t.head(v)
	head[headLinks] = uint64(next)<<32 | head[headLinks]&(1<<32-1)
}

func (t *sets) unlink(v holders) {
	next := t.next(v)
	first := t.bucket(t.bucketOf(t.head(v)[headHash]))
	if *first == v {
		*first = next
		return
	}
	before := *first
	for t.next(before) != v {
		before = t.next(before)
	}
	t.setNext(before, next)
}

// split opens one more bucket and moves to it what belongs there.
func (t *sets) split() {
	if t.used%bucketPage == 0 {
		t.buckets = append(t.buckets, make([]holders, bucketPage))
	}
	from := t.bucket(t.used - t.level)
	t.used++
	if t.used == 2*t.level {
		t.level *= 2
	}
	v := *from
	*from = 0
	for v != 0 {
		next := t.next(v)
		first := t.bucket(t.bucketOf(t.head(v)[headHash]))
		t.setNext(v, *first)
		*first = v
		v = next
	}
}

// merge closes the last bucket and moves what is in it to the one that it had split from.
func (t *sets) merge() {
	if t.used == 1 {
		return
	}
	t.used--
	if t.used < t.level {
		t.level /= 2
	}
	last := t.bucket(t.used)
	first := t.bucket(t.used - t.level)
	v := *last
	*last = 0
	for v != 0 {
		next := t.next(v)
		t.setNext(v, *first)
		*first = v
		v = next
	}
	if t.used%bucketPage == 0 {
		t.buckets[len(t.buckets)-1] = nil
		t.buckets = t.buckets[:len(t.buckets)-1]
	}
}
