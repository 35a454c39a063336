package prefix

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveIndex is the oracle: a set of blocks for each slot.
type naiveIndex struct {
	held  map[Slot]map[Hash]bool
	depth map[Hash]uint16 // what the first holder said
}

func newNaiveIndex() *naiveIndex {
	return &naiveIndex{map[Slot]map[Hash]bool{}, map[Hash]uint16{}}
}

func (x *naiveIndex) holders(h Hash) int {
	n := 0
	for _, set := range x.held {
		if set[h] {
			n++
		}
	}
	return n
}

func (x *naiveIndex) add(s Slot, e Element) bool {
	if x.held[s][e.Hash] {
		return false
	}
	if x.holders(e.Hash) == 0 {
		x.depth[e.Hash] = e.Depth
	}
	if x.held[s] == nil {
		x.held[s] = map[Hash]bool{}
	}
	x.held[s][e.Hash] = true
	return true
}

func (x *naiveIndex) remove(s Slot, h Hash) bool {
	was := x.held[s][h]
	delete(x.held[s], h)
	return was
}

func (x *naiveIndex) match(s Slot, chain []Hash) int {
	for i, h := range chain {
		if !x.held[s][h] {
			return i
		}
	}
	return len(chain)
}

// Few blocks, or many that crowd a few; few slots, or slots far apart: lists, bitmaps, and the changes between them.
func TestIndexAgreesWithNaiveSets(t *testing.T) {
	const seed = 11
	crowded := oneShard(NewIndex(seed), 400)
	check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		slots := make([]Slot, rapid.SampledFrom([]int{1, 2, 5, 40, 130}).Draw(t, "slots"))
		spread := rapid.SampledFrom([]int{1, 3, 500}).Draw(t, "spread")
		for i := range slots {
			slots[i] = Slot(i * spread)
		}
		chains := make([][]Hash, rapid.IntRange(1, 4).Draw(t, "chains"))
		source := testChain(0, 400)
		if rapid.Bool().Draw(t, "crowd") {
			source = crowded
		}
		for i := range chains {
			chains[i] = slices.Clone(source[i*100:][:rapid.IntRange(1, 100).Draw(t, "length")])
			if rapid.Bool().Draw(t, "zero") {
				chains[i][r.IntN(len(chains[i]))] = 0 // a hash like any other
			}
		}
		x, naive := NewIndex(seed), newNaiveIndex()
		x.step = 1 + r.IntN(3)
		var m Matches
		for range rapid.IntRange(1, 400).Draw(t, "operations") {
			s, c := slots[r.IntN(len(slots))], chains[r.IntN(len(chains))]
			i := r.IntN(len(c))
			switch r.IntN(16) {
			case 0, 1, 2, 3, 4: // the beginning of a chain
				for d, h := range c[:i+1] {
					if got, want := x.Add(s, Element{h, uint16(d)}), naive.add(s, Element{h, uint16(d)}); got != want {
						t.Fatalf("Add(%d, %x) = %v, want %v", s, h, got, want)
					}
				}
			case 5: // a beginning, by every slot
				for _, s := range slots {
					for d, h := range c[:i+1] {
						x.Add(s, Element{h, uint16(d)})
						naive.add(s, Element{h, uint16(d)})
					}
				}
			case 6, 7: // one block, its ancestors held or not
				if got, want := x.Add(s, Element{c[i], uint16(i + 7)}), naive.add(s, Element{c[i], uint16(i + 7)}); got != want {
					t.Fatalf("Add(%d, %x) = %v, want %v", s, c[i], got, want)
				}
			case 8, 9, 10:
				if got, want := x.Remove(s, c[i]), naive.remove(s, c[i]); got != want {
					t.Fatalf("Remove(%d, %x) = %v, want %v", s, c[i], got, want)
				}
			case 11: // an end
				for _, h := range c[i:] {
					x.Remove(s, h)
					naive.remove(s, h)
				}
			case 12:
				x.Clear(s)
				delete(naive.held, s)
			case 13:
				x.Sweep(r.IntN(60))
			default:
				checkMatch(t, x, naive, slots, c, &m)
			}
		}
		for _, c := range chains {
			checkMatch(t, x, naive, slots, c, &m)
		}
		checkSets(t, x, naive, slots)
		for _, s := range slots {
			if len(naive.held[s])%2 == 0 {
				x.Clear(s)
				delete(naive.held, s)
			}
		}
		for x.Sweep(1000) {
		}
		checkSets(t, x, naive, slots)
		want := 0
		for _, set := range naive.held {
			want += len(set)
		}
		if x.Entries() != want {
			t.Fatalf("%d entries after a whole sweep, want %d", x.Entries(), want)
		}
		checkIndex(t, x)
		for _, s := range slots {
			for h := range naive.held[s] {
				x.Remove(s, h)
			}
		}
		checkEmpty(t, x)
	})
}

// oneShard gives n hashes that all fall into the first shard: searches that go from bucket to bucket, and growth.
func oneShard(x *Index, n int) []Hash {
	c := make([]Hash, 0, n)
	for h := Hash(1); len(c) < n; h++ {
		if shard, _ := x.table.place(h); shard == 0 {
			c = append(c, h)
		}
	}
	return c
}

func checkMatch(t *rapid.T, x *Index, naive *naiveIndex, slots []Slot, chain []Hash, m *Matches) {
	x.Match(chain, m)
	for _, s := range slots {
		if got, want := m.Blocks(s), naive.match(s, chain); got != want {
			t.Fatalf("slot %d matches %d blocks of %d, want %d", s, got, len(chain), want)
		}
	}
	if m.Blocks(65535) != 0 {
		t.Fatal("a slot that holds nothing matches")
	}
}

func checkSets(t *rapid.T, x *Index, naive *naiveIndex, slots []Slot) {
	got := map[Slot]map[Hash]bool{}
	x.EachOf(slots, func(i int, e Element) bool {
		s := slots[i]
		if got[s] == nil {
			got[s] = map[Hash]bool{}
		}
		if got[s][e.Hash] {
			t.Fatalf("slot %d: %x yielded twice", s, e.Hash)
		}
		got[s][e.Hash] = true
		if d, ok := x.Depth(e.Hash); !ok || d != e.Depth || d != naive.depth[e.Hash] {
			t.Fatalf("depth of %x is %d, %v; yielded %d, want %d", e.Hash, d, ok, e.Depth, naive.depth[e.Hash])
		}
		return true
	})
	for _, s := range slots {
		if len(got[s]) != len(naive.held[s]) || x.Len(s) != len(naive.held[s]) {
			t.Fatalf("slot %d yields %d blocks, has %d, want %d", s, len(got[s]), x.Len(s), len(naive.held[s]))
		}
		for h := range got[s] {
			if !naive.held[s][h] || !x.Has(s, h) {
				t.Fatalf("slot %d must not hold %x", s, h)
			}
		}
	}
	for h := range naive.depth {
		if _, ok := x.Depth(h); ok != (naive.holders(h) > 0) {
			t.Fatalf("%x: known %v, held by %d", h, ok, naive.holders(h))
		}
	}
}

// checkIndex checks what must hold inside: entries are reachable, references and counts are right, no set is there twice.
func checkIndex(t interface {
	Helper()
	Fatalf(string, ...any)
}, x *Index) {
	t.Helper()
	refs := map[holders]int{}
	entries := 0
	for i := range x.table.shards {
		s := &x.table.shards[i]
		count := 0
		passed := make([]uint32, len(s.buckets))
		for n := range s.buckets {
			b := &s.buckets[n]
			for k, v := range b.vals {
				if v == 0 {
					if b.keys[k] != 0 {
						t.Fatalf("a free entry has a key")
					}
					continue
				}
				count++
				shard, at := x.table.place(b.keys[k])
				if shard != i {
					t.Fatalf("%x is in shard %d, not %d", b.keys[k], i, shard)
				}
				for p := s.home(at); p != n; p = (p + 1) % len(s.buckets) {
					passed[p]++
				}
				if v&single != 0 {
					entries++
				} else {
					refs[v]++
					entries += x.sets.size(v)
				}
			}
		}
		if count != s.count {
			t.Fatalf("shard %d has %d entries, counts %d", i, count, s.count)
		}
		for n := range s.buckets {
			if s.buckets[n].passed != passed[n] {
				t.Fatalf("shard %d bucket %d: %d passed, counted %d", i, n, passed[n], s.buckets[n].passed)
			}
		}
	}
	if entries != x.entries {
		t.Fatalf("%d entries, counted %d", entries, x.entries)
	}
	if len(refs) != x.sets.count {
		t.Fatalf("%d sets in use, %d counted", len(refs), x.sets.count)
	}
	seen := map[string]bool{}
	records := 0
	for i := range x.sets.used {
		for v := *x.sets.bucket(i); v != 0; v = x.sets.next(v) {
			head := x.sets.head(v)
			if int(uint32(head[headLinks])) != refs[v] {
				t.Fatalf("set %d has %d references, counts %d", v, refs[v], uint32(head[headLinks]))
			}
			if x.sets.bucketOf(head[headHash]) != i {
				t.Fatalf("set %d is in bucket %d, not %d", v, i, x.sets.bucketOf(head[headHash]))
			}
			var w workingSet
			w.load(&x.sets, v)
			key := string(binaryOf(w.words[:]))
			if seen[key] {
				t.Fatalf("a set is there twice")
			}
			seen[key] = true
			records++
		}
	}
	if records != x.sets.count {
		t.Fatalf("%d sets in the table, %d counted", records, x.sets.count)
	}
	used := 0
	for _, s := range x.sets.slabs {
		used += int(s.used)
	}
	if used != records {
		t.Fatalf("%d records in slabs, %d sets", used, records)
	}
}

func binaryOf(words []uint64) []byte {
	var b []byte
	for i, w := range words {
		if w != 0 {
			b = append(b, byte(i), byte(i>>8))
			for ; w != 0; w >>= 8 {
				b = append(b, byte(w))
			}
			b = append(b, 0, 0, 0)
		}
	}
	return b
}

func checkEmpty(t interface {
	Helper()
	Fatalf(string, ...any)
}, x *Index) {
	t.Helper()
	checkIndex(t, x)
	if x.entries != 0 || x.sets.count != 0 {
		t.Fatalf("%d entries and %d sets are left", x.entries, x.sets.count)
	}
	for i := range x.sets.slabs {
		if x.sets.slabs[i].words != nil {
			t.Fatalf("a slab without records keeps its memory")
		}
	}
}
