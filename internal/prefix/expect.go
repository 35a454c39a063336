package prefix

// expectAhead is how many changes Expect looks at: their buckets fit the first cache beside what the changes touch.
const expectAhead = 64

// Expect says which elements are about to be added or removed, at most the first 64 of them, so that their places in the
// table come into the cache together: one after the other, each would wait for memory by itself. It changes nothing.
func (x *Index) Expect(next []Change) {
	var touched uint64
	for i := range next[:min(len(next), expectAhead)] {
		shard, at := x.table.place(next[i].Hash)
		s := &x.table.shards[shard]
		touched += uint64(s.buckets[s.home(at)].keys[0])
	}
	x.touched = touched // or the compiler would leave the loads out
}
