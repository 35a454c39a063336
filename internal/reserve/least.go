package reserve

import "slices"

// The least policy: the path where the flow will be fastest.
//
//	Inputs: of every link the Active reservations of all owners, their bytes still to move, capacity, and background.
//	Rules: a path costs what its worst link costs, those apart that all paths share;
//	       1. the fewest flows, with this one, for the free capacity (capacity less background, at least a 64th of it);
//	       2. the fewest bytes still to move for the free capacity;
//	       3. the fewest flows on all links of the path together.
//	It always reserves. Flows of one transfer are chosen one after the other, each counting for the next, so that they
//	spread.
//	Conflicts: who loses one moves to the path that the rules give, where that is better by rule 1; else it stays. A path
//	that is not free must be better even when all with greater keys on the old one, who lose too, go to the same one:
//	else a crowd would run to and fro.
//	Tie-break: uniformly random, by the table's own generator: simultaneous choosers at different peers spread.
//	Parameters: Config.Capacity, for links of unknown capacity.
//	Fallback: beyond MaxPerOwner reservations, a random path without one.
func (t *Table) least(a *asked) {
	n := max(a.req.Flows, 1)
	for i := range n {
		t.reserve(a, t.cheapest(a.req.Set), share(a.req.Bytes, i, n))
	}
}

// leastAgain is where the loser of a conflict goes; its path is without it already.
func (t *Table) leastAgain(o *own) (int, bool) {
	to := t.cheapest(o.set)
	there, here := t.costOf(o.set, to), t.costOf(o.set, o.path)
	if rate(there, here) >= 0 {
		return 0, false
	}
	if !o.set.isTaken(to) {
		return to, true
	}
	n := t.greater(o)
	there.flows += n
	here.flows -= min(n, here.flows)
	return to, rate(there, here) < 0
}

// greater counts who shares a link with a reservation, those apart that no choice avoids, and loses against it.
func (t *Table) greater(o *own) (n uint64) {
	links := o.set.links(o.path)
	share := func(l *link) bool { return slices.Contains(links, l) }
	for i := range t.own {
		if p := &t.own[i]; p.live && p.entry.Phase == Active && o.entry.before(t.self, &p.entry, t.self) && slices.ContainsFunc(p.set.links(p.path), share) {
			n++
		}
	}
	for i := range t.held {
		if h := &t.held[i]; h.owner != nil && h.entry.Phase == Active && o.entry.before(t.self, &h.entry, h.owner.id) && slices.ContainsFunc(h.links[:len(h.entry.Links)], share) {
			n++
		}
	}
	return n
}

// cheapest draws among the paths of least cost.
func (t *Table) cheapest(s *Set) int {
	t.refresh(s)
	if s.alike { // then the free ones cost the same, and less than all others
		if free := s.freePaths(); free > 0 {
			return s.nthFree(t.upTo(free))
		}
	}
	t.price(s)
	if len(s.cost) >= treeFrom {
		s.tree.settle(s.cost)
		return s.tree.pick(t.rng)
	}
	var best [treeFrom]uint8
	ties := 0
	for p := range s.cost {
		c := -1
		if ties > 0 {
			c = compare(s.cost[p], s.cost[best[0]])
		}
		if c < 0 {
			ties = 0
		}
		if c <= 0 {
			best[ties] = uint8(p)
			ties++
		}
	}
	return int(best[t.upTo(ties)])
}

// upTo draws one of n.
func (t *Table) upTo(n int) int {
	if n == 1 {
		return 0
	}
	return t.rng.IntN(n)
}
