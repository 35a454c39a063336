package reserve

import (
	"slices"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// nic is one peer's connection to the fabric: what it sends and what it receives do not disturb each other.
type nic struct {
	id    peer.ID
	holds int32
	owed  int64 // bytes still to move to it, as last said: Intents too
	// Active entries, from it and to it.
	sends, receives int32
	// In which round of the schedule the two directions were last found taken.
	sending, receiving uint64
}

// maxNICs is how many are kept before those are forgotten of which nothing is held.
const maxNICs = 2 * MaxOwners

// nic finds or makes a peer's, and holds it once more.
func (t *Table) nic(id peer.ID) *nic {
	n := t.nics[id]
	if n == nil {
		if len(t.nics) >= maxNICs && t.idleNICs >= maxNICs/2 {
			for id, n := range t.nics {
				if n.holds == 0 {
					delete(t.nics, id)
				}
			}
			t.idleNICs = 0
		}
		n = &nic{id: id}
		t.nics[id] = n
		t.idleNICs++
	}
	if n.holds == 0 {
		t.idleNICs--
	}
	n.holds++
	return n
}

// leave takes back what nic holds.
func (t *Table) leave(n *nic) {
	if n.holds--; n.holds == 0 {
		t.idleNICs++
	}
}

// Backlog is how many bytes are still to move to a peer by all reservations and Intents, as last said: where several
// destinations serve equally well the one with the least makes the transfer wait least.
func (t *Table) Backlog(dst peer.ID) int64 {
	if n := t.nics[dst]; n != nil {
		return n.owed
	}
	return 0
}

// lanes are the paths of a pair of peers, whoever they are, as the schedule looks at them: with all of their links.
type lanes struct {
	paths []ecmp.Path
	off   []uint32 // where the links of each path begin; one more at the end
	links []*link
	holds int
	round uint64 // of the schedule in which
	full  int    // the paths before this one were last found taken
}

// maxLanes is how many are kept before those are forgotten that no waiter uses.
const maxLanes = 4096

func (l *lanes) path(i int) []*link { return l.links[l.off[i]:l.off[i+1]] }

// lane finds or makes the lanes of these paths, which nobody changes: the same slice is the same lanes. nil where nothing is
// known of them.
func (t *Table) lane(paths []ecmp.Path) *lanes {
	if len(paths) == 0 || len(paths) > MaxPaths || slices.ContainsFunc(paths, func(p ecmp.Path) bool { return len(p.Links) > MaxLinks }) {
		return nil
	}
	l := t.lanes[&paths[0]]
	if l == nil {
		if len(t.lanes) >= maxLanes || t.lanePaths+len(paths) > MaxSetPaths {
			t.forgetLanes()
		}
		if t.lanePaths+len(paths) > MaxSetPaths {
			return nil
		}
		l = &lanes{paths: paths}
		for _, p := range paths {
			l.off = append(l.off, uint32(len(l.links)))
			for _, id := range p.Links {
				x := t.hold(id)
				if x.capacity == 0 && t.capacityOf != nil {
					if c := min(t.capacityOf(id), MaxCapacity); c > 0 {
						x.size(c, x.background)
					}
				}
				l.links = append(l.links, x)
			}
		}
		l.off = append(l.off, uint32(len(l.links)))
		t.lanes[&paths[0]] = l
		t.lanePaths += len(paths)
	}
	l.holds++
	return l
}

func (t *Table) forgetLanes() {
	for key, l := range t.lanes {
		if l.holds == 0 {
			for _, x := range l.links {
				t.unhold(x)
			}
			t.lanePaths -= len(l.paths)
			delete(t.lanes, key)
		}
	}
}

// width is the capacity of a path's narrowest link in bit/s, background left aside: all peers reckon with the same.
func (t *Table) width(links []*link) int64 {
	narrow := int64(MaxCapacity)
	for _, l := range links {
		if l.capacity > 0 {
			narrow = min(narrow, l.capacity)
		} else {
			narrow = min(narrow, t.cfg.Capacity)
		}
	}
	return narrow
}

// SetPaths says where the paths between other peers come from, in the order in which these peers themselves have them, and
// the capacity of their links in bit/s (0: unknown). Nil for a pair of which nothing is known: then only its two ends count.
// paths is asked at most once for each Intent that is heard of; what it returns nobody changes, and the same slice for pairs whose
// paths are the same keeps it cheap.
func (t *Table) SetPaths(paths func(src, dst peer.ID) []ecmp.Path, capacity func(ecmp.LinkID) int64) {
	t.pathsOf, t.capacityOf = paths, capacity
	t.version++
	for _, all := range [][]*waiter{t.waiters, t.coming} {
		for _, w := range all {
			if !w.own {
				t.leaveLane(w)
				w.asked = false
			}
		}
	}
}

func (t *Table) leaveLane(w *waiter) {
	if w.lane != nil {
		w.lane.holds--
		w.lane, w.called = nil, false
	}
}

func (t *Table) pathsBetween(src, dst peer.ID) []ecmp.Path {
	if t.pathsOf == nil {
		return nil
	}
	return t.pathsOf(src, dst)
}
