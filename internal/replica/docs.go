package replica

import (
	"time"

	"shoal/internal/peer"
)

// Docs is all documents that one peer knows, its own among them. It is not safe for concurrent use.
type Docs struct {
	self  peer.ID
	born  uint64 // the incarnation it was started with: the wall clock then, in milliseconds
	store Store
	lim   Limits

	docs  map[peer.ID]*document
	order []*document // ascending by owner
	own   *document

	alive   map[peer.ID]struct{}      // at most MaxRows
	asked   map[peer.ID]time.Duration // complete copies asked for, until when nobody else is; at most MaxRows
	refused map[peer.ID]time.Duration // documents over a limit, until when they are not asked for; at most MaxRows
	staged  map[peer.ID]*staged       // at most maxStaged
	gone    []peer.ID                 // dropped since the last Expire

	pending  []*pending // own changes since the last Commit, ascending
	clock    uint64     // counts uses of copies, to find the least recently used
	copyOps  int        // elements in all copies
	stageOps int        // elements in all staged parts
	logCost  int        // of all logs
	turn     int        // where the next answer begins, so that a tight limit does not starve the last

	outbidAt time.Duration // when the own incarnation may be raised again
	recall   recall
	stats    Stats
}

// New starts a peer's own document at the given incarnation: the wall clock at the agent's start, in Unix milliseconds.
// The own document has no section and version 0 until the first Commit. The limits must be valid.
func New(self peer.ID, incarnation uint64, store Store, lim Limits) *Docs {
	if err := lim.Validate(); err != nil {
		panic(err)
	}
	d := &Docs{
		self: self, born: incarnation, store: store, lim: lim.orDefault(),
		docs: make(map[peer.ID]*document), alive: make(map[peer.ID]struct{}), asked: make(map[peer.ID]time.Duration),
		refused: make(map[peer.ID]time.Duration), staged: make(map[peer.ID]*staged),
	}
	d.own = d.insert(self, 0)
	d.own.stamp.Incarnation = incarnation
	d.own.declared = d.own.digest()
	return d
}

// Self is whose Docs this is.
func (d *Docs) Self() peer.ID { return d.self }

// Stamp is the stamp of what is held of a document; false where nothing is. Of the own document it is the last Commit's.
func (d *Docs) Stamp(owner peer.ID) (Stamp, bool) {
	if doc := d.docs[owner]; doc != nil {
		return doc.stamp, true
	}
	return Stamp{}, false
}

// Content is what a value section holds, nil where there is none. Of the own document it is what was last committed.
func (d *Docs) Content(owner peer.ID, s Section) any {
	if doc := d.docs[owner]; doc != nil {
		if sec := doc.section(s); sec != nil {
			return sec.value.Content
		}
	}
	return nil
}

// Sections yields the sections of a document in order. The document must not change meanwhile.
func (d *Docs) Sections(owner peer.ID, yield func(Section) bool) {
	if doc := d.docs[owner]; doc != nil {
		for _, s := range doc.sections {
			if !yield(s.id) {
				return
			}
		}
	}
}

// Heard is when a document was last known to be its owner's latest: a new version came, or the owner itself confirmed it.
func (d *Docs) Heard(owner peer.ID) (time.Duration, bool) {
	if doc := d.docs[owner]; doc != nil {
		return doc.heard, true
	}
	return 0, false
}

// Owners appends the owners of all documents held, ascending, dead ones included.
func (d *Docs) Owners(dst []peer.ID) []peer.ID {
	for _, doc := range d.order {
		dst = append(dst, doc.owner)
	}
	return dst
}

// Stats counts what happened since the start.
func (d *Docs) Stats() Stats {
	s := d.stats
	s.Documents = len(d.docs)
	for _, doc := range d.order {
		if !doc.alive {
			s.Dead++
		}
	}
	s.LogCost, s.StagedOps, s.CopyOps = d.logCost, d.stageOps, d.copyOps
	return s
}

// Stats are counters, and sizes as they are now.
type Stats struct {
	Deltas      [outcomes]uint64 // deltas taken in, by Outcome
	Disagreed   uint64           // times that a peer had another digest at the same stamp: should stay 0
	Implausible uint64           // summaries and offers with an incarnation too far in the future
	Outbid      uint64           // times that the own incarnation had to be raised above one that peers held
	Snapshots   uint64           // complete copies sent, patches among them
	Patches     uint64
	Changes     uint64 // deltas sent that are not complete copies
	Scans       uint64 // passes over the store
	Evicted     uint64 // dead documents and incomplete copies dropped at a limit

	Documents int // now, the own one included
	Dead      int // of them, those whose owner is not known to live
	Elements  int // of all sets
	LogCost   int // of all logs, in operations; see Limits.Log
	StagedOps int // elements of incomplete copies
	CopyOps   int // elements of copies kept for sending
}
