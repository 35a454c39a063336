package prefix

import (
	"math"
	"math/bits"
)

// The table of blocks: open addressing in buckets of four entries, one cache line each, in shards, so that growing copies
// one shard and no call stands still for longer. Positions depend on the seed: prompts are chosen by clients, and nobody
// must be able to choose them so that they fall together.
const (
	shardBits   = 10
	shards      = 1 << shardBits
	bucketSlots = 4
)

// A shard is rebuilt 10/16 full when it would be more than 13/16 full, or is less than 5/16 full. At 16 bytes an entry this
// gives 20 to 26 bytes an element while it grows.
const (
	loadUnit = 16
	maxLoad  = 13
	newLoad  = 10
	minLoad  = 5
)

// bucket is one cache line. An entry that finds its own bucket full goes to the next one that is not; passed counts how
// many have gone past, so that a search knows where to end. What is removed makes room for one of them to come back.
type bucket struct {
	keys   [bucketSlots]Hash
	vals   [bucketSlots]holders // 0: the entry is free, and its key is 0
	depths [bucketSlots]uint16
	passed uint32
	_      uint32
}

type shard struct {
	buckets []bucket // 1 at least
	count   int      // entries
}

type table struct {
	seed   [2]uint64
	shards [shards]shard
}

func (t *table) init(seed uint64) {
	t.seed = [2]uint64{mix(seed), mix(seed+1) | 1}
	first := make([]bucket, shards)
	for i := range t.shards {
		t.shards[i].buckets = first[i : i+1 : i+1]
	}
}

// place gives a hash its shard, and the number that its bucket is computed from.
func (t *table) place(h Hash) (shard int, at uint32) {
	hi, lo := bits.Mul64(uint64(h)^t.seed[0], t.seed[1])
	m := hi ^ lo
	return int(m >> (64 - shardBits)), uint32(m)
}

// home is the bucket where an entry belongs. It grows with at, so that rebuilding reads and writes in order.
func (s *shard) home(at uint32) int {
	return int(uint64(at) * uint64(len(s.buckets)) >> 32)
}

// find gives the entry of h, nil where there is none.
func (t *table) find(h Hash) (*bucket, int) {
	i, at := t.place(h)
	s := &t.shards[i]
	n := s.home(at)
	for range s.buckets {
		b := &s.buckets[n]
		for k := range b.keys {
			if b.keys[k] == h && b.vals[k] != 0 {
				return b, k
			}
		}
		if b.passed == 0 {
			break
		}
		n = s.after(n)
	}
	return nil, 0
}

// insert adds an entry for h, which has none, and reports whether the shard has been rebuilt for it.
func (t *table) insert(h Hash, v holders, depth uint16) (shard int, grown bool) {
	shard, at := t.place(h)
	s := &t.shards[shard]
	if (s.count+1)*loadUnit > len(s.buckets)*bucketSlots*maxLoad {
		t.resize(shard)
		grown = true
	}
	s.put(at, h, v, depth)
	s.count++
	return shard, grown
}

func (s *shard) put(at uint32, h Hash, v holders, depth uint16) {
	for n := s.home(at); ; n = s.after(n) {
		b := &s.buckets[n]
		for k := range b.vals {
			if b.vals[k] == 0 {
				b.keys[k], b.vals[k], b.depths[k] = h, v, depth
				return
			}
		}
		b.passed++
	}
}

// erase frees entry k of b, which is h's. The place may be taken at once by an entry that had gone past it, from a later
// bucket or, around the end of the shard, from an earlier one, and so on. It gives the shard, and the first bucket in it that
// another entry has come to; math.MaxInt for none.
func (t *table) erase(h Hash, b *bucket, k int) (shard, first int) {
	shard, at := t.place(h)
	s := &t.shards[shard]
	s.count--
	hole := s.home(at)
	for ; &s.buckets[hole] != b; hole = s.after(hole) {
		s.buckets[hole].passed--
	}
	for first = math.MaxInt; ; {
		b.keys[k], b.vals[k], b.depths[k] = 0, 0, 0
		if b.passed == 0 {
			return shard, first
		}
		first = min(first, hole)
		from, i := t.returning(s, hole)
		other := &s.buckets[from]
		b.keys[k], b.vals[k], b.depths[k] = other.keys[i], other.vals[i], other.depths[i]
		for ; hole != from; hole = s.after(hole) {
			s.buckets[hole].passed--
		}
		b, k = other, i
	}
}

// returning finds the nearest entry that has gone past bucket n; there is one.
func (t *table) returning(s *shard, n int) (bucket, k int) {
	for far := 1; ; far++ {
		bucket = n + far
		if bucket >= len(s.buckets) {
			bucket -= len(s.buckets)
		}
		b := &s.buckets[bucket]
		for k := range b.vals {
			if b.vals[k] == 0 {
				continue
			}
			_, at := t.place(b.keys[k])
			gone := bucket - s.home(at)
			if gone < 0 {
				gone += len(s.buckets)
			}
			if gone >= far {
				return bucket, k
			}
		}
	}
}

// after is the bucket after n.
func (s *shard) after(n int) int {
	if n++; n == len(s.buckets) {
		return 0
	}
	return n
}

// sparse reports whether a shard is worth rebuilding smaller.
func (s *shard) sparse() bool {
	return len(s.buckets) > 1 && s.count*loadUnit < len(s.buckets)*bucketSlots*minLoad
}

// resize rebuilds a shard with room for what it holds.
func (t *table) resize(i int) {
	s := &t.shards[i]
	old := s.buckets
	s.buckets = make([]bucket, (s.count+1)*loadUnit/(bucketSlots*newLoad)+1)
	for n := range old {
		b := &old[n]
		for k, v := range b.vals {
			if v != 0 {
				_, at := t.place(b.keys[k])
				s.put(at, b.keys[k], v, b.depths[k])
			}
		}
	}
}
