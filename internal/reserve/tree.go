package reserve

import (
	"math/bits"
	"math/rand/v2"
)

// treeFrom is from how many paths on a tree finds the cheapest faster than looking at all of them.
const treeFrom = 17

// tree is a tournament over the costs of a set's paths: every node knows the cheapest path below it, and how many cost
// the same. A changed cost is log K comparisons, the choice among equals log K steps without any. The zero value is a
// tree that nobody has asked yet: a set that only other policies use pays nothing for it.
type tree struct {
	nodes []node   // 1 is the root, 2i and 2i+1 are below i; the last half are the paths
	dirty []uint64 // bit: the cost of the path has changed
	stale bool
}

// node is the outcome below one node: no path where ties is 0.
type node struct{ path, ties int32 }

// late notes that the cost of a path has changed.
func (x *tree) late(path int) {
	if x.nodes != nil {
		x.dirty[path>>6] |= 1 << (path & 63)
		x.stale = true
	}
}

func (x *tree) join(i int, costs []cost) {
	l, r := x.nodes[2*i], x.nodes[2*i+1]
	switch {
	case r.ties == 0:
		x.nodes[i] = l
	default:
		switch c := compare(costs[l.path], costs[r.path]); {
		case c < 0:
			x.nodes[i] = l
		case c > 0:
			x.nodes[i] = r
		default:
			x.nodes[i] = node{l.path, l.ties + r.ties}
		}
	}
}

// settle plays again what has changed.
func (x *tree) settle(costs []cost) {
	if x.nodes == nil {
		half := 1 << bits.Len(uint(len(costs)-1))
		x.nodes, x.dirty = make([]node, 2*half), make([]uint64, (len(costs)+63)/64)
		for p := range costs {
			x.nodes[half+p] = node{int32(p), 1}
		}
		x.all(costs)
		return
	}
	if !x.stale {
		return
	}
	x.stale = false
	changed := 0
	for _, d := range x.dirty {
		changed += bits.OnesCount64(d)
	}
	if changed > len(costs)/8 {
		clear(x.dirty)
		x.all(costs)
		return
	}
	half := len(x.nodes) / 2
	for w, d := range x.dirty {
		if d == 0 {
			continue
		}
		x.dirty[w] = 0
		for ; d != 0; d &= d - 1 {
			for i := (half + w<<6 + bits.TrailingZeros64(d)) / 2; i >= 1; i /= 2 {
				x.join(i, costs)
			}
		}
	}
}

func (x *tree) all(costs []cost) {
	for i := len(x.nodes)/2 - 1; i >= 1; i-- {
		x.join(i, costs)
	}
}

// pick draws among the cheapest paths.
func (x *tree) pick(rng *rand.Rand) int {
	root := x.nodes[1]
	if root.ties == 1 {
		return int(root.path)
	}
	k := int32(rng.IntN(int(root.ties)))
	i := 1
	for half := len(x.nodes) / 2; i < half; {
		n, l, r := x.nodes[i], x.nodes[2*i], x.nodes[2*i+1]
		i *= 2
		switch {
		case n == l: // the left alone; the same path on both sides cannot be
		case n.path == r.path:
			i++
		case k >= l.ties: // both
			k -= l.ties
			i++
		}
	}
	return i - len(x.nodes)/2
}
