package reserve

import (
	"cmp"
	"slices"
	"time"
)

// said is one message that waits for Take: about a live reservation, or the release of one.
type said struct {
	id  uint64
	seq uint64 // of a release; 0: a live reservation, as it is when it is taken
}

// say gives the reservation its next Seq, and lets the others know: one message an entry waits, however often it changes.
func (t *Table) say(o *own, now time.Duration) {
	t.seq++
	o.entry.Seq, o.saidAt = t.seq, now
	t.section = nil
	if o.waiting == 0 {
		t.out = append(t.out, said{id: o.entry.ID})
		o.waiting = int32(len(t.out))
	}
}

// end takes the reservation out, and says so to whom it may have been told.
func (t *Table) end(o *own) {
	if o.entry.Phase == Active {
		t.carry(o.set, o.path, -1, -o.entry.Bytes)
		t.sending--
		t.selfNIC.sends--
		o.nic.receives--
	}
	t.unaim(o)
	t.seq++
	t.section = nil
	id := o.entry.ID
	if at := int(o.waiting) - 1; at >= 0 {
		t.unsay(at)
	}
	switch {
	case !o.told: // nobody has heard of it: nobody needs to
	case t.releases < MaxWaiting-MaxPerOwner:
		t.out = append(t.out, said{id, t.seq})
		t.releases++
	default:
		t.stats.Unsaid++
	}
	o.waiting, o.live, o.told, o.contested, o.moves = 0, false, false, false, 0 // the rest is set by who takes the place
	t.freeOwn = append(t.freeOwn, uint16(id&(1<<slotBits-1)))
}

// unsay takes back what waits; the last takes its place.
func (t *Table) unsay(at int) {
	last := len(t.out) - 1
	if t.out[at] = t.out[last]; at != last && t.out[at].seq == 0 {
		t.find(t.out[at].id).waiting = int32(at) + 1
	}
	t.out = t.out[:last]
}

// Take appends to dst what has to go out at once, and forgets it; at most MaxWaiting messages, one an entry. A message
// that gets lost is repaired by the next section.
func (t *Table) Take(dst []Message) []Message {
	for _, s := range t.out {
		dst = append(dst, Message{Owner: t.self, Incarnation: t.incarnation, Released: s.seq != 0})
		e := &dst[len(dst)-1].Entry
		if s.seq != 0 {
			e.ID, e.Seq = s.id, s.seq
			continue
		}
		o := t.find(s.id)
		o.waiting, o.told = 0, true
		*e = o.entry
	}
	t.out, t.releases = t.out[:0], 0
	return dst
}

// SetFabric says what the links of all paths belong to: the digest of the fabric, which the section carries.
func (t *Table) SetFabric(digest uint64) {
	if t.fabric != digest {
		t.fabric, t.section = digest, nil
		t.seq++
	}
}

// Section is what the document carries: all own entries. It is the same pointer while nothing has changed.
func (t *Table) Section() *Section {
	if t.section != nil {
		return t.section
	}
	s := &Section{Seq: t.seq, Fabric: t.fabric}
	for i := range t.own {
		if o := &t.own[i]; o.live {
			o.told = true
			s.Entries = append(s.Entries, o.entry)
		}
	}
	slices.SortFunc(s.Entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	t.section = s
	return s
}
