package prefix

// sweepBuckets is how many buckets of the table one step of a sweep goes over: some microseconds.
const sweepBuckets = 256

// pass is one walk over the table that removes the IDs that were gone when it began.
type pass struct {
	ids           idSet // empty: none is under way
	shard, bucket int   // where it goes on
}

// Clear removes everything that s holds. It is empty at once, and may be used again at once; the memory comes back with
// Sweep.
func (x *Index) Clear(s Slot) {
	id, ok := x.id(s)
	if !ok {
		return
	}
	x.ids[s] = 0
	if x.lens[id] == 0 {
		x.taken.remove(id)
		return
	}
	x.lens[id] = 0
	x.gone.add(id)
}

// Sweep takes so many steps of removing what cleared slots have left behind, and reports whether there is more to do. A
// step goes over 256 buckets, and may rebuild one shard, which is a thousandth of the table.
func (x *Index) Sweep(steps int) (more bool) {
	for ; steps > 0 && x.gone.n > 0; steps-- {
		x.sweepStep()
	}
	return x.gone.n > 0
}

func (x *Index) sweepStep() {
	p := &x.pass
	if p.ids.n == 0 {
		*p = pass{ids: x.gone}
	}
	s := &x.table.shards[p.shard]
	end := min(p.bucket+x.step, len(s.buckets))
	for ; p.bucket < end; p.bucket++ {
		b := &s.buckets[p.bucket]
		for k := range b.vals {
			for b.vals[k] != 0 && x.forget(b, k, &p.ids) {
				x.table.erase(b.keys[k], b, k) // another entry may come in its place, from a bucket that the pass comes to later
			}
		}
	}
	if p.bucket < len(s.buckets) {
		return
	}
	x.shrink(p.shard) // before the pass leaves the shard: nothing is left in it to find
	p.shard, p.bucket = p.shard+1, 0
	if p.shard < shards {
		return
	}
	for i, word := range p.ids.words {
		x.gone.words[i] &^= word
		x.taken.words[i] &^= word
	}
	x.gone.n -= p.ids.n
	x.taken.n -= p.ids.n
	p.ids = idSet{}
}

// forget removes the IDs in mask from entry k of b, and reports whether nobody else holds its block: then the entry keeps
// a holder that counts for nothing, and the caller replaces or erases it.
func (x *Index) forget(b *bucket, k int, mask *idSet) bool {
	v := b.vals[k]
	if v&single != 0 {
		if !mask.has(uint16(v)) {
			return false
		}
		x.entries--
		return true
	}
	if !x.sets.meets(v, mask) {
		return false
	}
	x.sets.work.load(&x.sets, v)
	x.entries -= x.sets.work.subtract(&x.sets, mask)
	to := x.sets.intern()
	x.sets.release(v)
	if to == 0 {
		b.vals[k] = single // any holder: the entry is not free yet
		return true
	}
	b.vals[k] = to
	return false
}

// meets reports whether anyone in v, a set of several, is in mask.
func (t *sets) meets(v holders, mask *idSet) bool {
	members, form := t.members(v)
	if form == bitmap {
		for i, word := range members {
			if word&mask.words[i] != 0 {
				return true
			}
		}
		return false
	}
	for i := range t.size(v) {
		if mask.has(listed(members, i)) {
			return true
		}
	}
	return false
}

// moved says that entries of a shard have been moved to this bucket or others after it: a pass that has gone past it goes
// back there.
func (x *Index) moved(shard, bucket int) {
	if x.gone.n > 0 && x.pass.shard == shard {
		x.pass.bucket = min(x.pass.bucket, bucket)
	}
}
