package reserve

import (
	"math/bits"
	"slices"
)

// The split policy: a large transfer takes several paths at once when they are free.
//
//	Inputs: as least.
//	Rules: 1. a transfer of one flow and more than Config.MinSplit bytes, when at least two paths are free (no reservation
//	          on any link, those apart that all paths share), takes up to Config.Legs of them: the cheapest by the rules
//	          of least. Each gets a share in proportion to its free capacity;
//	       2. else as least.
//	Two paths that share a link count as free both: where only some paths are apart (three tiers), the second leg looks
//	again after the first has been recorded.
//	Conflicts: each leg by itself, as least.
//	Tie-break: as least.
//	Parameters: Config.MinSplit, Config.Legs.
//	Fallback: as least.
func (t *Table) split(a *asked) {
	s := a.req.Set
	if a.req.Bytes <= t.cfg.MinSplit || a.req.Flows > 1 {
		t.least(a)
		return
	}
	var paths [MaxLegs]int
	var rates [MaxLegs]uint64
	n, total := 0, uint64(0)
	// A path is recorded without bytes first, since the next choice must see it, and the shares need all of them.
	for n < t.cfg.Legs {
		p := t.cheapestFree(s, paths[:n])
		if p < 0 {
			break
		}
		paths[n], rates[n] = p, uint64(s.narrow[p])
		total += rates[n]
		t.carry(s, p, 1, 0)
		n++
	}
	for _, p := range paths[:n] {
		t.carry(s, p, -1, 0)
	}
	if n < 2 {
		t.least(a)
		return
	}
	a.several = true
	left := a.req.Bytes
	for i, p := range paths[:n] {
		part := left
		if i < n-1 {
			part = portion(left, rates[i], total)
		}
		t.reserve(a, p, part)
		left -= part
		total -= rates[i]
	}
}

// portion is bytes * rate / total; rate is at most total.
func portion(bytes int64, rate, total uint64) int64 {
	hi, lo := bits.Mul64(uint64(bytes), rate)
	q, _ := bits.Div64(hi, lo, total)
	return int64(q)
}

// cheapestFree draws among the free paths of least cost, those aside that are taken already; -1 where none is free.
func (t *Table) cheapestFree(s *Set, but []int) int {
	t.refresh(s)
	t.price(s)
	best, ties := -1, 0
	for w, taken := range s.taken {
		for free := ^taken; free != 0; free &= free - 1 {
			p := w<<6 + bits.TrailingZeros64(free)
			if p >= len(s.cost) {
				break
			}
			if slices.Contains(but, p) { // a path without links of its own stays free
				continue
			}
			c := -1
			if best >= 0 {
				c = compare(s.cost[p], s.cost[best])
			}
			switch {
			case c < 0:
				best, ties = p, 1
			case c == 0:
				if ties++; t.rng.IntN(ties) == 0 { // each of them with the same chance in the end
					best = p
				}
			}
		}
	}
	return best
}
