package reserve

// The least policy: the path where the flow will be fastest.
//
//	Inputs: of every link the Active reservations of all owners, their bytes still to move, capacity, and background.
//	Rules: a path costs what its worst link costs, those apart that all paths share;
//	       1. the fewest flows, with this one, for the free capacity (capacity less background, at least a 64th of it);
//	       2. the fewest bytes still to move for the free capacity;
//	       3. the fewest flows on all links of the path together.
//	It always reserves. Flows of one transfer are chosen one after the other, each counting for the next, so that they
//	spread.
//	Conflicts: who loses one moves to the path that the rules give, where that is better by rule 1; else it stays.
//	Tie-break: uniformly random, by the table's own generator: simultaneous choosers at different peers spread.
//	Parameters: Config.Capacity, for links of unknown capacity.
//	Fallback: beyond MaxPerOwner reservations, a random path without one.
func (t *Table) least(a *asked) {
	n := max(a.req.Flows, 1)
	for i := range n {
		t.reserve(a, t.cheapest(a.req.Set), share(a.req.Bytes, i, n))
	}
}

// leastAgain is where the loser of a conflict goes; from is without it already.
func (t *Table) leastAgain(s *Set, from int) (int, bool) {
	to := t.cheapest(s)
	return to, rate(&s.cost[to], &s.cost[from]) < 0
}

// cheapest draws among the paths of least cost.
func (t *Table) cheapest(s *Set) int {
	t.refresh(s)
	if len(s.cost) >= treeFrom {
		s.tree.settle(s.cost)
		return s.tree.pick(t.rng)
	}
	best, ties := 0, 1
	for p := 1; p < len(s.cost); p++ {
		switch c := compare(&s.cost[p], &s.cost[best]); {
		case c < 0:
			best, ties = p, 1
		case c == 0:
			ties++
		}
	}
	if ties == 1 {
		return best
	}
	n := t.rng.IntN(ties)
	for p := best; ; p++ {
		if compare(&s.cost[p], &s.cost[best]) == 0 {
			if n == 0 {
				return p
			}
			n--
		}
	}
}
