package reserve

import "math/bits"

// The ark policy: the rule of "ARK: Avoiding Routing Collisions for KV Cache Transfer" to the letter.
//
//	Inputs: one bit a path: whether anybody's reservation is on any of its links, those apart that all paths share.
//	Rules: 1. the free path of the lowest index, reserved;
//	       2. where none is free, a uniformly random path, for which nothing is reserved.
//	Conflicts: who loses one re-hashes onto another path: a uniformly random one of the free, so that several losers of
//	one path spread; where none is free it stays. The paper says no more than "re-hashes".
//	Tie-break: the index; simultaneous choosers collide on it, and the conflict parts them.
//	Parameters: none. How many flows a path has, how many bytes they will move, and how fast its links are, do not count.
//	Fallback: rule 2, for most flows under load: that is where the paper loses its gain.
func (t *Table) ark(a *asked) {
	n := max(a.req.Flows, 1)
	for i := range n {
		t.refresh(a.req.Set)
		if path := a.req.Set.lowestFree(); path >= 0 {
			t.reserve(a, path, share(a.req.Bytes, i, n))
		} else {
			t.fallback(a, share(a.req.Bytes, i, n))
		}
	}
}

// arkAgain is where the loser of a conflict goes; from is without it already.
func (t *Table) arkAgain(s *Set, from int) (int, bool) {
	if !s.isTaken(from) {
		return 0, false // who was there has gone
	}
	free := s.freePaths()
	if free == 0 {
		return 0, false
	}
	return s.nthFree(t.rng.IntN(free)), true
}

func (s *Set) isTaken(path int) bool { return s.taken[path>>6]>>(path&63)&1 != 0 }

// lowestFree is the lowest index of a free path, -1 where there is none.
func (s *Set) lowestFree() int {
	for w, taken := range s.taken {
		if taken != ^uint64(0) {
			if p := w<<6 + bits.TrailingZeros64(^taken); p < len(s.paths) {
				return p
			}
		}
	}
	return -1
}

func (s *Set) freePaths() int {
	n := len(s.paths)
	for _, taken := range s.taken {
		n -= bits.OnesCount64(taken)
	}
	return n
}

// nthFree is the n-th free path, from 0; there are more than n.
func (s *Set) nthFree(n int) int {
	for w, taken := range s.taken {
		free := ^taken
		if k := bits.OnesCount64(free); n >= k {
			n -= k
			continue
		}
		for ; n > 0; n-- {
			free &= free - 1
		}
		return w<<6 + bits.TrailingZeros64(free)
	}
	panic("reserve: fewer free paths than counted")
}
