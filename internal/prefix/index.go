package prefix

// MaxEntries bounds the (block, slot) pairs of an index. With 4,096 peers that is 262,144 blocks each.
const MaxEntries = 1 << 30

// Index is who holds which block: the block sets of all slots, kept once. Use NewIndex.
//
// A block held by one slot costs 20 to 25 bytes. Where several hold it, it refers to a set of holders, which all blocks
// that the same slots hold share.
//
// Slots are the caller's names. Inside, each has an ID, given at its first Add and changed by Clear, so that a cleared slot
// is empty at once and may be used again at once, while Sweep removes what the old ID left behind.
type Index struct {
	table   table
	sets    sets
	ids     []uint32 // by slot: 1 + its ID; 0: none yet
	lens    []int32  // by ID
	taken   idSet    // IDs in use, or not swept yet
	gone    idSet    // IDs of cleared slots that are not swept yet
	pass    pass
	touched uint64 // by Expect; means nothing
	entries int    // pairs, those of gone IDs included
	max     int    // MaxEntries; tests lower it
	step    int    // sweepBuckets; tests lower it
}

// NewIndex returns an empty index. The seed places the blocks: who knows it could choose prompts that make the index slow,
// so it is to be drawn at random where prompts come from strangers.
func NewIndex(seed uint64) *Index {
	x := &Index{max: MaxEntries, step: sweepBuckets}
	x.table.init(seed)
	x.sets.init(mix(seed + 2))
	return x
}

// id is the slot's ID; ok is false where it has none, and so no blocks.
func (x *Index) id(s Slot) (id uint16, ok bool) {
	if int(s) >= len(x.ids) || x.ids[s] == 0 {
		return 0, false
	}
	return uint16(x.ids[s] - 1), true
}

// open is the slot's ID, a new one where it has none. There is one for every slot once the cleared ones are swept.
func (x *Index) open(s Slot) uint16 {
	if id, ok := x.id(s); ok {
		return id
	}
	for int(s) >= len(x.ids) {
		x.ids = append(x.ids, 0)
	}
	id, ok := x.taken.lowestFree()
	for !ok {
		x.Sweep(1)
		id, ok = x.taken.lowestFree()
	}
	for int(id) >= len(x.lens) {
		x.lens = append(x.lens, 0)
	}
	x.taken.add(id)
	x.ids[s] = uint32(id) + 1
	return id
}

// Add records that s holds e. It is false where that was known, and where the index is full (MaxEntries). A block's depth
// is what the first of its holders says.
func (x *Index) Add(s Slot, e Element) bool {
	id := x.open(s)
	b, k := x.table.find(e.Hash)
	if b != nil && x.sets.contains(b.vals[k], id) {
		return false
	}
	if x.entries >= x.max {
		return false
	}
	x.entries++
	x.lens[id]++
	if b == nil {
		if shard, grown := x.table.insert(e.Hash, single|holders(id), e.Depth); grown {
			x.moved(shard, 0)
		}
		return true
	}
	if x.gone.n > 0 && x.forget(b, k, &x.gone) {
		b.vals[k], b.depths[k] = single|holders(id), e.Depth
		return true
	}
	b.vals[k] = x.sets.change(b.vals[k], id, true)
	return true
}

// Remove records that s does not hold h any more. It is false where it did not.
func (x *Index) Remove(s Slot, h Hash) bool {
	id, ok := x.id(s)
	if !ok {
		return false
	}
	b, k := x.table.find(h)
	if b == nil || !x.sets.contains(b.vals[k], id) {
		return false
	}
	x.entries--
	x.lens[id]--
	if v := b.vals[k]; v&single == 0 {
		b.vals[k] = x.sets.change(v, id, false)
		return true
	}
	shard, first := x.table.erase(h, b, k)
	if x.shrink(shard) {
		first = 0
	}
	x.moved(shard, first)
	return true
}

// shrink rebuilds the shard where it has become sparse, and reports whether it has.
func (x *Index) shrink(shard int) bool {
	if !x.table.shards[shard].sparse() {
		return false
	}
	x.table.resize(shard)
	return true
}

// Has reports whether s holds h.
func (x *Index) Has(s Slot, h Hash) bool {
	id, ok := x.id(s)
	if !ok {
		return false
	}
	b, k := x.table.find(h)
	return b != nil && x.sets.contains(b.vals[k], id)
}

// Depth is the place of h in its prompt's chain; ok is false where nobody holds it.
func (x *Index) Depth(h Hash) (depth uint16, ok bool) {
	b, k := x.table.find(h)
	if b == nil || !x.live(b.vals[k]) {
		return 0, false
	}
	return b.depths[k], true
}

// live reports whether anyone in v has not been cleared.
func (x *Index) live(v holders) bool {
	if x.gone.n == 0 {
		return true
	}
	if v&single != 0 {
		return !x.gone.has(uint16(v))
	}
	members, form := x.sets.members(v)
	if form == bitmap {
		for i, word := range members {
			if word&^x.gone.words[i] != 0 {
				return true
			}
		}
		return false
	}
	for i := range x.sets.size(v) {
		if !x.gone.has(listed(members, i)) {
			return true
		}
	}
	return false
}

// Len is how many blocks s holds.
func (x *Index) Len(s Slot) int {
	id, ok := x.id(s)
	if !ok {
		return 0
	}
	return int(x.lens[id])
}

// Entries is how many (block, slot) pairs the index stores, those that are cleared and not yet swept included.
func (x *Index) Entries() int { return x.entries }

// Each yields what s holds, in no particular order, until yield returns false. It goes through the whole table (about 10
// ns for each block of every slot). yield must not change the index.
func (x *Index) Each(s Slot, yield func(Element) bool) {
	x.EachOf([]Slot{s}, func(_ int, e Element) bool { return yield(e) })
}

// EachOf yields what these slots hold, which are all different, each element with the position of its slot in the list, in
// one pass over the whole table. yield must not change the index.
func (x *Index) EachOf(slots []Slot, yield func(i int, e Element) bool) {
	ids := make([]uint16, 0, len(slots))
	at := make([]int32, len(x.lens)) // by ID: 1 + the position of its slot; 0: not asked for
	for i, s := range slots {
		if id, ok := x.id(s); ok {
			ids = append(ids, id)
			at[id] = int32(i) + 1
		}
	}
	var one [1]uint16
	for i := range x.table.shards {
		for n := range x.table.shards[i].buckets {
			b := &x.table.shards[i].buckets[n]
			for k, v := range b.vals {
				if v == 0 {
					continue
				}
				among := ids
				if v&single != 0 {
					one[0] = uint16(v)
					among = one[:]
				}
				for _, id := range among {
					if at[id] != 0 && x.sets.contains(v, id) && !yield(int(at[id]-1), Element{b.keys[k], b.depths[k]}) {
						return
					}
				}
			}
		}
	}
}
