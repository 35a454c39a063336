package emulate

import (
	"fmt"

	"shoal/internal/prefix"
)

// cache is the KV memory in blocks. A block with a hash can be found by it. It is pinned while sequences use it; after
// that it waits in a queue for being evicted, and is taken out of the queue when it is used again.
type cache struct {
	capacity int
	at       map[prefix.Hash]int32
	slab     []block // 0 is the head of the queue
	free     []int32
	found    []int32 // scratch of match
	pinned   int     // blocks with a hash and users
	private  int     // blocks without a hash; every one has one user
	reserved int     // blocks that running sequences may still take
	evicted  int64
}

// block is one block with a hash; prev and next are its place in the queue while it has no users.
type block struct {
	hash       prefix.Hash
	users      int32
	prev, next int32
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, at: map[prefix.Hash]int32{}, slab: make([]block, 1)}
}

// used is how many blocks hold something.
func (c *cache) used() int { return len(c.at) + c.private }

// match finds those of the first blocks of a chain that are cached, at most limit. They are valid until the next match.
func (c *cache) match(chain []prefix.Hash, limit int) []int32 {
	c.found = c.found[:0]
	for _, h := range chain[:min(limit, len(chain))] {
		i, ok := c.at[h]
		if !ok {
			break
		}
		c.found = append(c.found, i)
	}
	return c.found
}

// fits reports whether a sequence can use these cached blocks and take so many more, whatever the others still take.
func (c *cache) fits(cached []int32, more int) bool {
	for _, i := range cached {
		if c.slab[i].users == 0 {
			more++ // it cannot be evicted any more
		}
	}
	return c.pinned+c.private+c.reserved+more <= c.capacity
}

// pin adds a user to a cached block.
func (c *cache) pin(i int32) {
	b := &c.slab[i]
	if b.users == 0 {
		c.unlink(i)
		c.pinned++
	}
	b.users++
}

// unpin takes a user away; without any the block goes to the end of the queue.
func (c *cache) unpin(i int32) {
	b := &c.slab[i]
	if b.users--; b.users > 0 {
		return
	}
	c.pinned--
	last := c.slab[0].prev
	b.prev, b.next = last, 0
	c.slab[last].next, c.slab[0].prev = i, i
}

// store makes a computed block findable, for one user. Where another sequence has computed the same one, it is shared.
func (c *cache) store(h prefix.Hash) int32 {
	if i, ok := c.at[h]; ok {
		c.pin(i)
		return i
	}
	c.room()
	var i int32
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
	} else {
		c.slab = append(c.slab, block{})
		i = int32(len(c.slab) - 1)
	}
	c.slab[i] = block{hash: h, users: 1}
	c.at[h] = i
	c.pinned++
	return i
}

// own takes a block without a hash.
func (c *cache) own() {
	c.room()
	c.private++
}

// room evicts where all blocks are in use. There is always one to evict: sequences take no more than they reserved.
func (c *cache) room() {
	if c.used() < c.capacity {
		return
	}
	i := c.slab[0].next
	if i == 0 {
		panic(fmt.Sprintf("emulate: no block to evict: capacity %d, pinned %d, private %d, reserved %d", c.capacity, c.pinned, c.private, c.reserved))
	}
	c.unlink(i)
	delete(c.at, c.slab[i].hash)
	c.free = append(c.free, i)
	c.evicted++
}

func (c *cache) unlink(i int32) {
	b := &c.slab[i]
	c.slab[b.prev].next, c.slab[b.next].prev = b.next, b.prev
}
