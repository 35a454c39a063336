package replica

import "shoal/internal/peer"

// Summary is one line about one document: what its sender holds of it.
type Summary struct {
	Owner  peer.ID
	Stamp  Stamp
	Digest uint64
	// Dead: the sender holds it, but believes its owner gone (or has never seen it up), so nobody should ask for it.
	Dead bool
}

// Want asks for a document.
type Want struct {
	Owner peer.ID
	Have  Stamp // what the sender holds; zero: nothing
	// Digest and Trees describe what the sender holds where a complete copy is wanted and a patch may do: after a restart of
	// the owner most of an old document is still right. Digest 0: changes from Have will do. No Trees: no patch.
	Digest uint64
	Trees  []Tree
}

// Tree is the digest tree of one set section: for each bucket the sum of its elements' mixed hashes.
type Tree struct {
	Section Section
	Sums    *[Buckets]uint64
}

// Exchange is one message of a round of anti-entropy.
//
// A round is a conversation of at most MaxRound messages, which either side may begin. Its rule: a message that Asks is
// answered by exactly one message; one that does not ends the round.
//
//	1  A to B  Begin, Summaries     one line for each document that A knows
//	2  B to A  Deltas               what A lacks, where B's log reaches back to what A has
//	           Wants                what B lacks
//	           Offers               what A lacks and only a complete copy can bring: A asks for it, from one peer at a time
//	3  A to B  Deltas, Wants        what B wanted; of B's offers those that nobody else has been asked for
//	4  B to A  Deltas
//
// So the driver on either side is: after sending x, where x.Asks(), wait for the answer and hand it to Docs.Answer, which
// returns nil where nothing is to be sent. An Exchange and what it refers to are immutable once made.
type Exchange struct {
	Begin     bool      // the first message: Summaries lists everything its sender knows, even where that is nothing
	Summaries []Summary // ascending by owner
	Offers    []Summary // ascending by owner
	Deltas    []*Delta
	Wants     []Want // ascending by owner
}

// MaxRound bounds the messages of one round.
const MaxRound = 4

// Asks reports whether the message must be answered.
func (x *Exchange) Asks() bool { return x.Begin || len(x.Wants) > 0 || len(x.Offers) > 0 }

// Outcome is what came of a delta.
type Outcome uint8

const (
	Applied   Outcome = iota + 1 // the document is now at the delta's stamp
	Staged                       // one part of a complete copy of which others are missing: kept, nothing changed
	Stale                        // nothing new
	Gap                          // it starts after what is held: a later round brings what is between
	Recalled                     // an older incarnation of the own document, kept aside (see Docs.Recall)
	Refused                      // the own document, by another writer
	TooFar                       // its incarnation is too far in the future
	OverLimit                    // it does not fit the limits: the document is dropped, and not asked for again for a while
	Corrupt                      // malformed, or a complete copy that does not have the digest it claims: dropped
	Diverged                     // applied, but the digest is not the owner's: to be repaired by buckets
	outcomes
)

var outcomeNames = [outcomes]string{"", "applied", "staged", "stale", "gap", "recalled", "refused", "too-far", "over-limit", "corrupt", "diverged"}

func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return "outcome?"
}

// Event says what a message did to one document.
type Event struct {
	Owner   peer.ID
	Outcome Outcome
	Stamp   Stamp // of the delta
}
