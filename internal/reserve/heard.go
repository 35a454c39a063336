package reserve

import (
	"slices"
	"time"

	"shoal/internal/peer"
)

// owner is what is known of one other peer.
type owner struct {
	id          peer.ID
	nic         *nic
	incarnation uint64
	heard       time.Duration
	stamp       Stamp  // the greatest heard
	gap         bool   // a message between those heard is missing, and no section has told of it yet
	taught      bool   // one of its transfers has ended
	section     uint64 // Seq of the last section merged
	// floor is up to where every message is old: sections tell of that, and releases that are not remembered any more.
	floor uint64
	seen  uint64            // the greatest Seq heard
	at    map[uint64]uint32 // place in Table.held, by ID
	held  []uint32          // the same places, for going through them in one order
	tombs map[uint64]uint64 // Seq of releases above the floor, by ID
}

// none is no place in Table.held.
const none = ^uint32(0)

// held is one entry of another peer.
type held struct {
	owner      *owner
	entry      Entry
	links      [MaxLinks]*link // of the entry
	nic        *nic            // of the destination
	turn       *waiter         // of an Intent in the schedule
	began, end int64           // us of wall time: when it began, and its end as it was said then; 0: unknown
	alone      bool            // as of own ones
	heard      time.Duration
	prev, next uint32
	place      uint32 // in owner.held
	moves      uint32 // place in Table.active, where it is Active
	mark       uint64
}

// Heard takes in a message. from is who sent it by the authentication of the connection or datagram; nobody speaks for
// another peer. The table keeps the entry's links.
func (t *Table) Heard(now, wall time.Duration, from peer.ID, m *Message) Verdict {
	v := t.hear(now, wall, from, m)
	t.stats.Verdicts[v]++
	return v
}

func (t *Table) hear(now, wall time.Duration, from peer.ID, m *Message) Verdict {
	e := &m.Entry
	switch {
	case m.Owner != from || from == t.self:
		return NotOwner
	case m.Released && (e.ID == 0 || e.Seq == 0) || !m.Released && !e.wellFormed():
		return Malformed
	case !m.Released && (e.tooFar(wall) || !t.clock.hear(e.Stamp, wall)):
		return TooFarAhead
	}
	o, v := t.life(now, from, m.Incarnation)
	if o == nil {
		return v
	}
	if e.Seq > o.seen+1 && o.seen > 0 {
		t.miss(o, true)
	}
	if !m.Released && e.Seq > o.seen && !o.gap {
		t.hearDelay(o, e.Stamp, wall)
	}
	o.seen = max(o.seen, e.Seq)
	known, tomb := o.tombs[e.ID]
	at, have := o.at[e.ID]
	if have {
		known = t.held[at].entry.Seq
	}
	switch {
	case (have || tomb) && known == e.Seq:
		return Duplicate
	case e.Seq <= o.floor || known >= e.Seq:
		return Old
	case m.Released:
		if have {
			t.learnOf(now, at)
			t.witness(now, wall, &t.held[at])
			o.taught = o.taught || t.held[at].entry.Phase == Active
			t.weigh(now, wall, at, nil)
			t.drop(at)
		}
		t.bury(o, e.ID, e.Seq)
		return Accepted
	case have:
		t.renew(now, wall, at, e)
		return Accepted
	}
	return t.insert(now, wall, o, e)
}

// Merge takes in the section of an owner's document, whoever relayed it: it is what all messages up to its Seq come to.
// The table keeps its entries.
func (t *Table) Merge(now, wall time.Duration, owner peer.ID, incarnation uint64, s *Section) Verdict {
	v := t.merge(now, wall, owner, incarnation, s)
	t.stats.Sections[v]++
	return v
}

func (t *Table) merge(now, wall time.Duration, id peer.ID, incarnation uint64, s *Section) Verdict {
	if id == t.self {
		return NotOwner
	}
	if len(s.Entries) > MaxPerOwner {
		return Malformed
	}
	o, v := t.life(now, id, incarnation)
	switch {
	case o == nil:
		return v
	case s.Seq == o.section:
		return Duplicate
	case s.Seq < o.section:
		return Old
	}
	if s.Seq >= o.seen {
		o.seen = s.Seq
		t.miss(o, false)
	}
	t.marks++
	for i := range s.Entries {
		if at, have := o.at[s.Entries[i].ID]; have {
			t.held[at].mark = t.marks
		}
	}
	for i := len(o.held) - 1; i >= 0; i-- { // what is dropped gives its place to one that has been looked at
		if h := &t.held[o.held[i]]; h.mark != t.marks && h.entry.Seq <= s.Seq {
			t.learnOf(now, o.held[i])
			t.weigh(now, wall, o.held[i], nil)
			t.drop(o.held[i])
		}
	}
	for i := range s.Entries {
		t.stats.Verdicts[t.mergeEntry(now, wall, o, s, &s.Entries[i])]++
	}
	o.section = s.Seq
	if s.Seq > o.floor {
		o.floor = s.Seq
		for id, seq := range o.tombs {
			if seq <= o.floor {
				delete(o.tombs, id)
			}
		}
	}
	return Accepted
}

func (t *Table) mergeEntry(now, wall time.Duration, o *owner, s *Section, e *Entry) Verdict {
	switch {
	case e.Seq > s.Seq || !e.wellFormed():
		return Malformed
	case e.tooFar(wall) || !t.clock.hear(e.Stamp, wall):
		return TooFarAhead
	}
	o.stamp = max(o.stamp, e.Stamp)
	if at, have := o.at[e.ID]; have {
		switch known := t.held[at].entry.Seq; {
		case e.Seq == known:
			return Duplicate
		case e.Seq < known:
			return Old
		}
		t.renew(now, wall, at, e)
		return Accepted
	}
	// A section from before the floor does not tell what has been released between: that will be in a later one.
	if o.tombs[e.ID] >= e.Seq || s.Seq < o.floor && e.Seq <= o.floor {
		return Old
	}
	return t.insert(now, wall, o, e)
}

// Forget frees all that a peer held: it is dead. Messages of it that are still on their way stay out. Where it was not
// dead after all, its next section or renewals bring its entries back.
func (t *Table) Forget(id peer.ID) {
	o := t.owners[id]
	if o == nil {
		return
	}
	t.empty(o)
	o.floor, o.section = max(o.floor, o.seen), 0
}

// empty drops all of an owner's entries and releases.
func (t *Table) empty(o *owner) {
	t.stats.Forgotten += uint64(len(o.held))
	t.version++
	for n := len(o.held); n > 0; n-- {
		t.drop(o.held[n-1])
	}
	clear(o.tombs)
}

// life is what is known of the peer in that incarnation; nil and why for an earlier one, for no
// peer's ID, or where there is no room.
func (t *Table) life(now time.Duration, id peer.ID, incarnation uint64) (*owner, Verdict) {
	o := t.owners[id]
	switch {
	case o == nil:
		if id.Validate() != nil {
			return nil, Malformed
		}
		if len(t.owners) >= MaxOwners && !t.evict() {
			return nil, Quota
		}
		o = &owner{id: id, nic: t.nic(id), incarnation: incarnation, at: map[uint64]uint32{}, tombs: map[uint64]uint64{}}
		t.owners[id] = o
	case incarnation < o.incarnation:
		return nil, Old
	case incarnation > o.incarnation:
		t.empty(o)
		t.miss(o, false)
		o.incarnation, o.floor, o.section, o.seen, o.stamp, o.taught = incarnation, 0, 0, 0, 0, false
	}
	o.heard = now
	return o, Accepted
}

// evict makes room for another owner: of those who hold nothing, who was not heard of for longest goes.
func (t *Table) evict() bool {
	var gone *owner
	for _, o := range t.owners {
		if len(o.held) == 0 && (gone == nil || o.heard < gone.heard || o.heard == gone.heard && o.id < gone.id) {
			gone = o
		}
	}
	if gone != nil {
		t.miss(gone, false)
		delete(t.owners, gone.id)
		t.leave(gone.nic)
	}
	return gone != nil
}

// miss notes that one of an owner's messages is missing, or that a section has told of it.
func (t *Table) miss(o *owner, gap bool) {
	if o.gap != gap {
		if o.gap = gap; gap {
			t.gaps++
		} else {
			t.gaps--
		}
	}
}

// bury remembers a release, so that what was said before it and comes later stays out. Beyond MaxTombstones the oldest
// is given up, and the floor rises to it.
func (t *Table) bury(o *owner, id, seq uint64) {
	if _, again := o.tombs[id]; !again && len(o.tombs) >= MaxTombstones {
		oldest, least := id, seq
		for i, s := range o.tombs {
			if s < least {
				oldest, least = i, s
			}
		}
		o.floor = least
		t.stats.FloorsRaised++
		if oldest == id {
			return
		}
		delete(o.tombs, oldest)
	}
	o.tombs[id] = seq
}

// insert adds an entry that the table does not hold.
func (t *Table) insert(now, wall time.Duration, o *owner, e *Entry) Verdict {
	if len(o.held) >= MaxPerOwner || t.heldCount >= MaxTable-MaxPerOwner {
		return Quota
	}
	var at uint32
	if n := len(t.freeHeld); n > 0 {
		at, t.freeHeld = t.freeHeld[n-1], t.freeHeld[:n-1]
	} else {
		at, t.held = uint32(len(t.held)), append(t.held, held{})
	}
	t.heldCount++
	h := &t.held[at]
	*h = held{owner: o, place: uint32(len(o.held))}
	o.held = append(o.held, at)
	o.at[e.ID] = at
	t.weigh(now, wall, at, e)
	t.put(now, wall, at, e)
	t.last(now, at)
	return Accepted
}

// renew replaces what the owner said before.
func (t *Table) renew(now, wall time.Duration, at uint32, e *Entry) {
	h := &t.held[at]
	if e.Phase == Active && h.entry.Phase == Active && e.Dst == h.entry.Dst && slices.Equal(e.Links, h.entry.Links) {
		for _, l := range h.links[:len(e.Links)] {
			l.change(0, e.Bytes-h.entry.Bytes)
			if l.own > 0 && e.End > h.entry.End && h.entry.End > 0 { // it was taken for gone, perhaps
				t.contest(l, wall, h.owner.id, e)
			}
		}
		h.nic.owed += e.Bytes - h.entry.Bytes
		t.weigh(now, wall, at, e)
		h.entry = *e
		t.suspect(now, h)
	} else if w := h.turn; w != nil && e.Phase == Intent && e.Dst == h.entry.Dst && e.Ready == h.entry.Ready && e.End == h.entry.End && e.Bytes == h.entry.Bytes {
		h.entry = *e
	} else {
		began, end, was := h.began, h.end, h.alone
		t.weigh(now, wall, at, e)
		t.lift(at)
		if t.put(now, wall, at, e); end > 0 { // it has moved
			h.began, h.end, h.alone = began, end, was && h.alone
		}
	}
	t.unlink(at)
	t.last(now, at)
}

// put loads the links of an entry, and sees which own reservations lose against it: only what has not been seen before
// on these links comes here.
func (t *Table) put(now, wall time.Duration, at uint32, e *Entry) {
	h := &t.held[at]
	h.entry = *e
	h.nic = t.nic(e.Dst)
	h.nic.owed += e.Bytes
	if e.Phase != Active {
		h.turn = t.enqueue(now, wall, h.owner.id, h.owner.nic, h.nic, e)
		return
	}
	h.moves = uint32(len(t.active))
	t.active = append(t.active, at)
	h.began, h.end = e.Stamp.Milliseconds()*1000, e.End
	for n, id := range e.Links {
		l := t.hold(id)
		h.links[n] = l
		l.change(1, e.Bytes)
		if l.own > 0 {
			t.contest(l, wall, h.owner.id, e)
		}
	}
	h.owner.nic.sends++
	h.nic.receives++
	h.alone = alone(h.owner.nic, h.nic, h.links[:len(e.Links)])
}

// lift takes an entry off its links.
func (t *Table) lift(at uint32) {
	h := &t.held[at]
	h.nic.owed -= h.entry.Bytes
	t.leave(h.nic)
	if h.turn != nil {
		t.dequeue(h.turn)
		h.turn = nil
	}
	if h.entry.Phase != Active {
		return
	}
	last := t.active[len(t.active)-1]
	t.active[h.moves], t.held[last].moves = last, h.moves
	t.active = t.active[:len(t.active)-1]
	h.owner.nic.sends--
	h.nic.receives--
	for _, l := range h.links[:len(h.entry.Links)] {
		l.change(-1, -h.entry.Bytes)
		t.unhold(l)
	}
}

// drop takes an entry out of the table.
func (t *Table) drop(at uint32) {
	h := &t.held[at]
	t.lift(at)
	t.unlink(at)
	o := h.owner
	delete(o.at, h.entry.ID)
	last := o.held[len(o.held)-1]
	o.held[h.place] = last
	t.held[last].place = h.place
	o.held = o.held[:len(o.held)-1]
	*h = held{}
	t.freeHeld = append(t.freeHeld, at)
	t.heldCount--
}

// last puts an entry at the end of those that expire.
func (t *Table) last(now time.Duration, at uint32) {
	h := &t.held[at]
	h.heard, h.prev, h.next = now, t.tail, none
	if t.tail != none {
		t.held[t.tail].next = at
	} else {
		t.head = at
	}
	t.tail = at
}

func (t *Table) unlink(at uint32) {
	h := &t.held[at]
	if h.prev != none {
		t.held[h.prev].next = h.next
	} else {
		t.head = h.next
	}
	if h.next != none {
		t.held[h.next].prev = h.prev
	} else {
		t.tail = h.prev
	}
}
