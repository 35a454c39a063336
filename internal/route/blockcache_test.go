package route

import "slices"

// blockCache is a true LRU of chained blocks that evicts leaves first: touching a chain deepest first keeps every block
// at least as young as its descendants.
type blockCache struct {
	capacity   int
	at         map[uint64]*cachedBlock
	head, tail *cachedBlock    // youngest, oldest
	changed    map[uint64]bool // since the last publication
}

type cachedBlock struct {
	hash       uint64
	prev, next *cachedBlock
}

func newBlockCache(capacity int) *blockCache {
	return &blockCache{capacity: capacity, at: map[uint64]*cachedBlock{}, changed: map[uint64]bool{}}
}

func (c *blockCache) match(chain []uint64) int {
	for i, h := range chain {
		if c.at[h] == nil {
			return i
		}
	}
	return len(chain)
}

func (c *blockCache) insert(chain []uint64) {
	for _, h := range slices.Backward(chain) {
		b := c.at[h]
		if b == nil {
			b = &cachedBlock{hash: h}
			c.at[h], c.changed[h] = b, true
		} else {
			c.unlink(b)
		}
		b.next, b.prev = c.head, nil
		if c.head != nil {
			c.head.prev = b
		} else {
			c.tail = b
		}
		c.head = b
	}
	for len(c.at) > c.capacity {
		b := c.tail
		c.unlink(b)
		delete(c.at, b.hash)
		c.changed[b.hash] = true
	}
}

func (c *blockCache) unlink(b *cachedBlock) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		c.head = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		c.tail = b.prev
	}
}

// oneCache is the hit rate, in percent of blocks, of one cache as large as all peers' together: what routing can reach
// with engines that evict by LRU, short of knowing the future.
func oneCache(trace []traceRequest, blocks int) float64 {
	c := newBlockCache(blocks)
	hits, all := 0, 0
	for i := range trace {
		hits += c.match(trace[i].blocks)
		all += len(trace[i].blocks)
		c.insert(trace[i].blocks)
	}
	return 100 * float64(hits) / float64(all)
}
