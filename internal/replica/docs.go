package replica

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// Docs is all documents that one peer knows, its own among them. It is not safe for concurrent use.
type Docs struct {
	self peer.ID
	lim  Limits
}

// New starts a peer's own document at the given incarnation: the wall clock at the agent's start, in Unix milliseconds.
// The own document has no section and version 0 until the first Commit.
func New(self peer.ID, incarnation uint64, store Store, lim Limits) *Docs { panic("replica: to come") }

// Own document: what the node publishes.

// Set replaces an own value section; others see it from the next Commit on. Nobody changes content after that.
func (d *Docs) Set(s Section, content any) error { panic("replica: to come") }

// Change adds and removes elements of an own set section, which it creates where need be. The slice is copied.
func (d *Docs) Change(s Section, changes []prefix.Change) error { panic("replica: to come") }

// Reset empties an own set section, which it creates where need be.
func (d *Docs) Reset(s Section) error { panic("replica: to come") }

// Drop removes an own section.
func (d *Docs) Drop(s Section) { panic("replica: to come") }

// Commit makes a new version of what changed since the last Commit; changed is false where nothing did. The stamp is the
// own document's: what happened before Commit is covered by it.
func (d *Docs) Commit() (s Stamp, changed bool) { panic("replica: to come") }

// Anti-entropy.

// Start makes the first message of a round: one line for every document.
func (d *Docs) Start(now time.Duration) *Exchange { panic("replica: to come") }

// Answer takes in a message from a peer and gives the answer, nil where none is to be sent. What it did to the documents
// is appended to ev.
func (d *Docs) Answer(from peer.ID, in *Exchange, now time.Duration, ev []Event) (*Exchange, []Event) {
	panic("replica: to come")
}

// Apply takes in one delta; Answer calls it for each.
func (d *Docs) Apply(delta *Delta, now time.Duration) Outcome { panic("replica: to come") }

// Snapshot gives the parts of a complete copy of a document, nil where it is unknown: for a state file. The copy may be
// older than the document by the deltas that follow it in the list.
func (d *Docs) Snapshot(owner peer.ID) []*Delta { panic("replica: to come") }

// Who lives.

// Alive says that the owner is a member of the shoal. Its document is offered to others from now on.
func (d *Docs) Alive(owner peer.ID, now time.Duration) { panic("replica: to come") }

// Dead says that the owner is gone. Its document is kept for a while, for its return, and offered to it alone.
func (d *Docs) Dead(owner peer.ID, now time.Duration) { panic("replica: to come") }

// Expire drops documents dead for too long and incomplete copies; call it about once a second. It appends the owners
// whose documents went to gone.
func (d *Docs) Expire(now time.Duration, gone []peer.ID) []peer.ID { panic("replica: to come") }

// Coming back.

// Recall holds the own document back until the given time, or EndRecall: it is left out of Start, so that peers that
// hold an older incarnation of it send that.
func (d *Docs) Recall(until time.Duration) { panic("replica: to come") }

// Recalled is the newest older incarnation of the own document that has arrived, nil before one has.
func (d *Docs) Recalled() *Document { panic("replica: to come") }

// EndRecall publishes the own document and forgets the recalled one.
func (d *Docs) EndRecall() { panic("replica: to come") }

// Document is one whole document at one stamp, apart from any Store.
type Document struct {
	Owner  peer.ID
	Stamp  Stamp
	Values []Value  // ascending by section
	Sets   []SetOps // ascending by section; Ops are additions, ascending by hash
}

// What is known.

// Self is whose Docs this is.
func (d *Docs) Self() peer.ID { return d.self }

// Stamp is the stamp of what is held of a document; false where nothing is.
func (d *Docs) Stamp(owner peer.ID) (Stamp, bool) { panic("replica: to come") }

// Content is what a value section holds, nil where there is none.
func (d *Docs) Content(owner peer.ID, s Section) any { panic("replica: to come") }

// Sections yields the sections of a document in order.
func (d *Docs) Sections(owner peer.ID, yield func(Section) bool) { panic("replica: to come") }

// Heard is when a document was last known to be its owner's latest: a new version came, or the owner itself confirmed it.
func (d *Docs) Heard(owner peer.ID) (time.Duration, bool) { panic("replica: to come") }

// Owners appends the owners of all documents held, ascending, dead ones included.
func (d *Docs) Owners(dst []peer.ID) []peer.ID { panic("replica: to come") }

// Digest is the digest of a document's content, 0 where it is unknown.
func (d *Docs) Digest(owner peer.ID) uint64 { panic("replica: to come") }

// DigestTree gives the sums of a set section's buckets; false where there is no such section.
func (d *Docs) DigestTree(owner peer.ID, s Section) ([Buckets]uint64, bool) {
	panic("replica: to come")
}

// Stats counts what happened since the start.
func (d *Docs) Stats() Stats { panic("replica: to come") }

// Stats are counters, and sizes as they are now.
type Stats struct {
	Deltas                                                [outcomes]uint64 // deltas taken in, by Outcome
	Disagreed                                             uint64           // times that a peer had another digest at the same stamp: should stay 0
	Outbid                                                uint64           // times that the own incarnation had to be raised above one that peers held
	Snapshots                                             uint64           // complete copies sent
	Patches                                               uint64           // of these, patches
	Scans                                                 uint64           // passes over the store
	Evicted                                               uint64           // dead documents and incomplete copies dropped at a limit
	Documents, Dead, Elements, LogOps, StagedOps, CopyOps int
}
