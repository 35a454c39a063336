package reserve

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// naive is the table as its definition says, by maps and scans: all that was ever said, and what it comes to.
type naive struct {
	messages []Message
	sections []naiveSection
}

type naiveSection struct {
	owner       peer.ID
	incarnation uint64
	section     *Section
}

// rows is what the messages and sections come to: of each owner's last life the last section, and over it the last
// message about each ID that the section does not cover.
func (n *naive) rows() []Row {
	lives := map[peer.ID]uint64{}
	for _, m := range n.messages {
		lives[m.Owner] = max(lives[m.Owner], m.Incarnation)
	}
	for _, s := range n.sections {
		lives[s.owner] = max(lives[s.owner], s.incarnation)
	}
	var rows []Row
	for owner, life := range lives {
		last := &Section{}
		for _, s := range n.sections {
			if s.owner == owner && s.incarnation == life && s.section.Seq > last.Seq {
				last = s.section
			}
		}
		facts := map[uint64]Message{}
		for _, e := range last.Entries {
			facts[e.ID] = Message{Entry: e}
		}
		for _, m := range n.messages {
			if m.Owner == owner && m.Incarnation == life && m.Entry.Seq > last.Seq && m.Entry.Seq > facts[m.Entry.ID].Entry.Seq {
				facts[m.Entry.ID] = m
			}
		}
		for _, f := range facts {
			if !f.Released {
				rows = append(rows, Row{Owner: owner, Incarnation: life, Entry: f.Entry})
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Entry.ID, b.Entry.ID))
	})
	return rows
}

// naiveLoad is what Active entries put on each link.
func naiveLoad(rows []Row) map[ecmp.LinkID]LinkLoad {
	loads := map[ecmp.LinkID]LinkLoad{}
	for _, r := range rows {
		for _, id := range r.Entry.Links {
			l := loads[id]
			l.ID = id
			l.Flows++
			l.Bytes += r.Entry.Bytes
			loads[id] = l
		}
	}
	return loads
}

// naiveCost is what one more flow would find: the worst link by exact fractions, of those that not all paths share.
type naiveCost struct {
	rate, bytes *big.Rat
	flows       int // on all links together
	free        *big.Int
}

// add is the rate with n flows more.
func (a naiveCost) add(n int64) *big.Rat {
	more := new(big.Rat).Add(a.rate, new(big.Rat).SetFrac(big.NewInt(n), a.free))
	if more.Sign() < 0 {
		return new(big.Rat)
	}
	return more
}

// naiveGreater counts the rows that lose against e and share a link with it, which not all paths of the set have.
func naiveGreater(rows []Row, s *Set, self peer.ID, e *Entry) (n int64) {
	for _, r := range rows {
		if r.Entry.Stamp < e.Stamp || r.Entry.Stamp == e.Stamp && (r.Owner < self || r.Owner == self && r.Entry.ID < e.ID) {
			continue
		}
		if slices.ContainsFunc(e.Links, func(l ecmp.LinkID) bool {
			return slices.Contains(r.Entry.Links, l) && slices.ContainsFunc(s.paths, func(p ecmp.Path) bool { return !slices.Contains(p.Links, l) })
		}) {
			n++
		}
	}
	return n
}

func (a naiveCost) compare(b naiveCost) int {
	return cmp.Or(a.rate.Cmp(b.rate), a.bytes.Cmp(b.bytes), cmp.Compare(a.flows, b.flows))
}

func naiveCosts(s *Set, loads map[ecmp.LinkID]LinkLoad, background map[ecmp.LinkID]int64) []naiveCost {
	var costs []naiveCost
	for pi, p := range s.paths {
		c := naiveCost{rate: big.NewRat(1, 1), bytes: new(big.Rat), free: big.NewInt(1)}
		first := true
		for j, id := range p.Links {
			everywhere := true
			for _, q := range s.paths {
				everywhere = everywhere && slices.Contains(q.Links, id)
			}
			if everywhere {
				continue
			}
			l, capacity := loads[id], s.caps[pi][j]
			free := big.NewInt(max(capacity-background[id], capacity/64, 1))
			of := naiveCost{free: free, rate: new(big.Rat).SetFrac(big.NewInt(int64(l.Flows)+1), free), bytes: new(big.Rat).SetFrac(big.NewInt(l.Bytes), free)}
			of.flows = c.flows
			if first || of.compare(c) > 0 {
				c = of
			}
			c.flows += l.Flows
			first = false
		}
		costs = append(costs, c)
	}
	return costs
}

func naiveCheapest(costs []naiveCost) (best []int) {
	for p := range costs {
		c := -1
		if len(best) > 0 {
			c = costs[p].compare(costs[best[0]])
		}
		if c < 0 {
			best = best[:0]
		}
		if c <= 0 {
			best = append(best, p)
		}
	}
	return best
}

func naiveFree(costs []naiveCost) (free []int) {
	for p := range costs {
		if costs[p].flows == 0 {
			free = append(free, p)
		}
	}
	return free
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// audit compares everything that the table keeps for speed with what its rows say.
func (t *Table) audit(f failer, background map[ecmp.LinkID]int64) {
	f.Helper()
	rows := t.Rows(nil)
	loads := naiveLoad(rows)
	seen := 0
	for _, l := range t.Links(nil) {
		n := loads[l.ID]
		if n.Flows != l.Flows || n.Bytes != l.Bytes || l.Background != background[l.ID] {
			f.Fatalf("link %08x: %+v; by the rows %+v, background %d", uint32(l.ID), l, n, background[l.ID])
		}
		if n.Flows > 0 {
			seen++
		}
	}
	if seen != len(loads) {
		f.Fatalf("%d loaded links known, %d by the rows", seen, len(loads))
	}
	if t.Len() != len(rows) {
		f.Fatalf("Len %d, %d rows", t.Len(), len(rows))
	}
	own := map[*Set]int{}
	for i := range t.own {
		if o := &t.own[i]; o.live && o.entry.Phase == Active {
			own[o.set]++
			if !slices.Equal(o.entry.Links, o.set.paths[o.path].Links) {
				f.Fatalf("own %d is on %v and says %v", o.entry.ID, o.set.paths[o.path].Links, o.entry.Links)
			}
		}
	}
	inUse, inUsePaths := 0, 0
	for _, s := range t.sets {
		inUse, inUsePaths = inUse+1, inUsePaths+len(s.paths)
		if s.own != own[s] {
			f.Fatalf("set with %d own reservations counts %d", own[s], s.own)
		}
		costs := naiveCosts(s, loads, background)
		t.refresh(s)
		t.price(s)
		for at, l := range s.idx {
			n := 0
			for _, r := range l.refs {
				if r.set == s && r.at == uint32(at) {
					n++
				}
			}
			if n != 1 || !s.listens[at] {
				f.Fatalf("place %d of a set without changes listens %v, %d times", at, s.listens[at], n)
			}
		}
		for p := range costs {
			for _, q := range []int{(p + 1) % len(costs), (p + len(costs)/2) % len(costs)} {
				if got, want := compare(s.cost[p], s.cost[q]), costs[p].compare(costs[q]); got != want {
					f.Fatalf("paths %d and %d compare as %d, want %d: %+v %+v", p, q, got, want, s.cost[p], s.cost[q])
				}
			}
			if s.isTaken(p) != (costs[p].flows > 0) {
				f.Fatalf("path %d taken %v, flows %d", p, s.isTaken(p), costs[p].flows)
			}
		}
		best, free := naiveCheapest(costs), naiveFree(costs)
		if got := t.cheapest(s); !slices.Contains(best, got) {
			f.Fatalf("cheapest %d; want one of %v", got, best)
		}
		if len(costs) >= treeFrom {
			s.tree.settle(s.cost)
			if !slices.Contains(best, s.tree.pick(t.rng)) {
				f.Fatalf("the tree's choice is not one of %v", best)
			}
		}
		if len(costs) >= treeFrom && int(s.tree.nodes[1].ties) != len(best) {
			f.Fatalf("%d paths tie, want %v", s.tree.nodes[1].ties, best)
		}
		lowest, some := -1, t.cheapestFree(s, nil)
		if len(free) > 0 {
			lowest = free[0]
		}
		if s.lowestFree() != lowest || s.freePaths() != len(free) || (some >= 0) != (len(free) > 0) || some >= 0 && !slices.Contains(free, some) {
			f.Fatalf("free: lowest %d, %d of them, one is %d; want %v", s.lowestFree(), s.freePaths(), some, free)
		}
		for n, p := range free {
			if s.nthFree(n) != p {
				f.Fatalf("free path %d is %d, want %d", n, s.nthFree(n), p)
			}
		}
	}
	if inUse != len(t.sets) || inUsePaths != t.setPaths {
		f.Fatalf("%d sets with %d paths counted as %d with %d", inUse, inUsePaths, len(t.sets), t.setPaths)
	}
	last, n := time.Duration(-1<<62), 0
	for i := t.head; i != none; i = t.held[i].next {
		if h := &t.held[i]; h.heard < last || h.owner.held[h.place] != i || h.owner.at[h.entry.ID] != i {
			f.Fatalf("held %d out of place: %+v", i, h)
		} else {
			last = h.heard
		}
		n++
	}
	if n != t.heldCount || n+len(t.freeHeld) != len(t.held) {
		f.Fatalf("%d entries in line, %d counted, %d free of %d", n, t.heldCount, len(t.freeHeld), len(t.held))
	}
}

func sameRows(a, b []Row) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d rows and %d", len(a), len(b))
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Contested, y.Contested = false, false
		if len(x.Entry.Links) == 0 && len(y.Entry.Links) == 0 {
			x.Entry.Links, y.Entry.Links = nil, nil
		}
		if !reflect.DeepEqual(x, y) {
			return fmt.Errorf("row %d: %+v and %+v", i, a[i], b[i])
		}
	}
	return nil
}
