// Package reserve says which network path a KV transfer takes. It keeps the table R(t) of who holds which path: the union
// of what the peers say about their own reservations, learned by messages that go out at once and by the sections of
// their documents. Over it stand the path policies, the schedule of one of them (shoal.go), the order in which conflicts are
// decided, and the leases that free what a crash left behind.
//
// It moves no bytes, sends nothing, and knows neither ports nor hashes: a path is a list of links, whose IDs are equal at
// all peers. Package ecmp finds the paths and the source ports that lead to them; the driver sends what Take returns.
// The main type is Table, one a peer. It is pure: now is the local monotonic time, wall the time since the Unix epoch;
// a Table is not safe for concurrent use.
//
// Invariants: an entry is changed by its owner alone, by a higher Seq; the same messages and sections in any order, with
// duplicates, give the same table, up to the limits below; of two concurrent reservations of one path the one with the
// greater key (Stamp, Owner, ID) moves, and no other ever does; what the table holds is bounded, whoever sends what.
// Wrong entries cost time, never correctness: any path carries any flow. A Request and a Grant may be used again.
//
// Source: "ARK: Avoiding Routing Collisions for KV Cache Transfer in Disaggregated LLM Inference" (Lin, Hsu, Ho, Saeed;
// NIAC 2026), made independent of synchronised clocks by hybrid logical time (Kulkarni et al., OPODIS 2014).
package reserve

import (
	"fmt"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// The limits. What is beyond them is refused and counted.
const (
	MaxPerOwner   = 1024            // reservations of one owner
	MaxOwners     = 4096            // peers other than this one
	MaxTable      = 65536           // reservations of all of them, MaxPerOwner of these for this peer
	MaxLinks      = 8               // links of a path
	MaxPaths      = 4096            // equal-cost paths of one set
	MaxSets       = 4096            // path sets in use; beyond it the one not used for longest is put aside
	MaxSetPaths   = 1 << 20         // paths of all sets in use
	MaxLegs       = 16              // paths that one transfer is split over
	MaxFlows      = 64              // flows of one request
	MaxTombstones = 256             // releases remembered of one owner
	MaxWaiting    = 2048            // messages waiting for Take
	MaxBackground = 65536           // links with background
	MaxBytes      = 1 << 46         // of one reservation: 64 TiB; MaxTable of them do not overflow
	MaxCapacity   = 1 << 46         // of a link, bit/s: 70 Tb/s
	MaxWaiters    = 4096            // other peers' transfers that wait in the schedule of policy shoal
	MaxTime       = maxStamp * 1000 // wall time in us: what a Stamp holds, which counts ms
)

// Phase says how far a reservation is.
type Phase uint8

const (
	Active Phase = iota // the zero value: bytes move on Links
	Intent              // bytes and the time when they are ready are known; no path is chosen, nothing moves, no link is loaded
)

func (p Phase) String() string {
	switch p {
	case Active:
		return "active"
	case Intent:
		return "intent"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Entry is one reservation, as its owner last said. It is immutable once it has been given to a Table or come from it,
// Links included.
type Entry struct {
	ID    uint64 // the owner's own number, never 0, ascending within an incarnation
	Seq   uint64 // of the owner's last change of it, never 0: one counter for all that the owner says
	Stamp Stamp  // hybrid logical time when this path was reserved: with owner and ID the order of conflicts
	Phase Phase
	Links []ecmp.LinkID // of the one path; empty for an Intent, and where both ends hang on one leaf
	Dst   peer.ID       // who receives the bytes
	Bytes int64         // still to move, as last said
	Group uint64        // joins the flows of one transfer; 0: none
	Ready int64         // when the bytes can move, in us of wall time; 0: unknown
	// End is when they will have moved, in us of wall time; 0: unknown. Of an Intent it is when they would have, could they
	// begin at Ready: such an Intent takes part in the schedule of policy shoal, one without End does not.
	End int64
}

// Message is what an owner tells the others at once: a reservation (new, renewed, moved or started), or its release.
type Message struct {
	Owner       peer.ID
	Incarnation uint64
	Released    bool // then only ID and Seq of the Entry count
	Entry       Entry
}

// Section is what an owner's document carries: all of its entries, in the order of their IDs, as they were at Seq. It is
// immutable.
type Section struct {
	Seq     uint64
	Fabric  uint64 // digest of the fabric that the links belong to; 0: unknown
	Entries []Entry
}

// wellFormed reports whether an entry from the network can be kept.
func (e *Entry) wellFormed() bool {
	if e.ID == 0 || e.Seq == 0 || e.Phase > Intent || len(e.Links) > MaxLinks || e.Phase == Intent && len(e.Links) > 0 ||
		e.Bytes < 0 || e.Bytes > MaxBytes || e.Ready < 0 || e.Ready > MaxTime || e.End < 0 || e.End > MaxTime ||
		e.Dst.Validate() != nil {
		return false
	}
	for i, l := range e.Links {
		if slices.Contains(e.Links[:i], l) {
			return false
		}
	}
	return true
}

// tooFar reports whether an entry is ready later than anybody may announce.
func (e *Entry) tooFar(wall time.Duration) bool {
	return e.Ready > (wall + MaxReady + MaxAhead).Microseconds()
}

// Verdict is what became of something heard.
type Verdict uint8

const (
	Accepted    Verdict = iota
	Duplicate           // known already
	Old                 // something newer is known, or a later life of its owner
	NotOwner            // not from whom it is about, or about this peer
	TooFarAhead         // its stamp is more than MaxAhead ahead of the own wall clock, or it is ready more than MaxReady after that
	Quota               // beyond MaxPerOwner, MaxOwners or MaxTable
	Malformed           // no entry can be like this
	verdicts
)

func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Duplicate:
		return "duplicate"
	case Old:
		return "old"
	case NotOwner:
		return "not-owner"
	case TooFarAhead:
		return "too-far-ahead"
	case Quota:
		return "quota"
	case Malformed:
		return "malformed"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}
