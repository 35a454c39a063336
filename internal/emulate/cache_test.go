package emulate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/prefix"
)

// naive is the same cache as a list, with everything looked for anew each time.
type naive struct {
	capacity int
	hashes   []prefix.Hash // cached; the unused ones in the order in which they are evicted
	users    map[prefix.Hash]int
	private  int
}

func (n *naive) pin(h prefix.Hash) {
	n.users[h]++
	i := slices.Index(n.hashes, h)
	n.hashes = append(slices.Delete(n.hashes, i, i+1), h)
}

func (n *naive) unpin(h prefix.Hash) {
	if n.users[h]--; n.users[h] == 0 {
		i := slices.Index(n.hashes, h)
		n.hashes = append(slices.Delete(n.hashes, i, i+1), h)
	}
}

func (n *naive) room() {
	if len(n.hashes)+n.private < n.capacity {
		return
	}
	for i, h := range n.hashes {
		if n.users[h] == 0 {
			n.hashes = slices.Delete(n.hashes, i, i+1)
			return
		}
	}
	panic("full")
}

func (n *naive) store(h prefix.Hash) {
	if !slices.Contains(n.hashes, h) {
		n.room()
		n.hashes = append(n.hashes, h)
	}
	n.pin(h)
}

func TestCacheIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		c, n := newCache(capacity), &naive{capacity: capacity, users: map[prefix.Hash]int{}}
		var held []prefix.Hash // one for each user
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			h := prefix.Hash(rapid.IntRange(1, 20).Draw(t, "hash"))
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op == 0 && c.pinned+c.private < capacity:
				c.store(h)
				n.store(h)
				held = append(held, h)
			case op == 1 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				c.unpin(c.at[held[i]])
				n.unpin(held[i])
				held = slices.Delete(held, i, i+1)
			case op == 2 && c.pinned+c.private < capacity:
				c.own()
				n.room()
				n.private++
			case op == 3 && c.private > 0:
				c.private--
				n.private--
			}
			var got []prefix.Hash
			for h := range c.at {
				got = append(got, h)
			}
			want := slices.Clone(n.hashes)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("cached %v, want %v", got, want)
			}
			if c.used() > capacity {
				t.Fatalf("%d of %d blocks used", c.used(), capacity)
			}
		}
	})
}
