package node

import (
	"fmt"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
	"shoal/internal/route"
)

// MaxTries bounds how many peers one request is sent to before it is served at home.
const MaxTries = 3

// Request is what routing needs to know of an inference request.
type Request struct {
	Model string // the name that engines know, aliases resolved
	// Chain is the prompt's text-block hashes, thinned (prefix.Thin). Nobody changes it once it has been routed: the node keeps it while the
	// request is in flight.
	Chain     []prefix.Hash
	Tail      prefix.Hash // hash of what follows the last full block
	Bytes     int         // of the canonical rendering
	MaxTokens int         // asked for by the client; peer.Unknown where it does not say
	Tried     []peer.ID   // peers that declined, pushed back or failed for this request: not again
	Insist    bool        // the chosen peer is to take it whatever it finds: everybody has declined before
	Explain   bool        // fill Decision.Explanation
}

// Leg is one part of the way of a request: which peer takes it, in which role, over which path. Path is 0 where it does
// not matter; requests have one leg for now.
type Leg struct {
	Peer peer.ID
	Self bool
	Role peer.Role
	Path int
	// Uncached is the prompt tokens that the peer is expected to compute: what it counts for from dispatch on.
	Uncached int64
}

// Decision is the answer to a Request. It holds no reference to the node and may be reused.
type Decision struct {
	Legs        []Leg // empty: nobody can serve it, and Reason says why
	Reason      route.Reason
	MatchBlocks int           // predicted at the chosen peer
	MatchTokens int64         // the same in tokens, by the chosen peer's own ratio
	Tokens      int64         // of the whole prompt, estimated
	Cost        time.Duration // of the chosen peer: network, queueing, prefill, eviction, balance
	ServeCost   time.Duration // the part of Cost that the peer itself can check: queueing and prefill
	Margin      time.Duration // how much worse the truth may be before the peer declines
	RetryAfter  time.Duration // where nobody can serve it now
	Explanation *Explanation  // where asked for
}

// Explanation is why a decision fell as it did, one line a candidate.
type Explanation struct {
	Policy     string                 `json:"policy"`
	Reason     string                 `json:"reason"`
	Blocks     int                    `json:"blocks"`
	Tokens     int64                  `json:"tokens"`
	Candidates []ExplanationCandidate `json:"candidates"`
}

// ExplanationCandidate is one peer as the decision saw it; times in microseconds.
type ExplanationCandidate struct {
	Peer        peer.ID `json:"peer"`
	Chosen      bool    `json:"chosen"`
	Excluded    string  `json:"excluded,omitempty"` // why it could not be chosen
	Blocks      int     `json:"match_blocks"`
	Tokens      int64   `json:"match_tokens"`
	StaleMS     int64   `json:"stale_ms"`
	NetworkUS   int64   `json:"network_us"`
	QueueUS     int64   `json:"queue_us"`
	PrefillUS   int64   `json:"prefill_us"`
	EvictionUS  int64   `json:"eviction_us"`
	BalanceUS   int64   `json:"balance_us"`
	TotalUS     int64   `json:"total_us"`
	NearestTies bool    `json:"near_equal,omitempty"` // within the band that the rendezvous hash decides
}

// Ticket is an origin's own account of one request dispatched to a peer; zero is none.
type Ticket uint64

// Serving is a serving peer's own account of one request; zero is none.
type Serving uint64

// Expect is what an origin expected of the serving peer when it decided. The zero value (an own client's request) expects nothing.
type Expect struct {
	Hopped      bool
	MatchBlocks int
	ServeCost   time.Duration
	Margin      time.Duration
}

// Outcome is how a dispatched request ended at the origin.
type Outcome struct {
	Kind  OutcomeKind
	Load  *peer.Load    // the peer's fresh load, with a decline
	Stamp replica.Stamp // of the peer's document that Load belongs to
	Match int           // blocks that the peer really holds, with a decline
}

// OutcomeKind says how.
type OutcomeKind uint8

const (
	Ended    OutcomeKind = iota // the answer came to its end
	Declined                    // before prefill: pushed back, or the truth was worse than expected
	Failed                      // refused, silent, or gone
	Canceled                    // the client went away
)

// Decline is a serving peer's refusal before prefill, with its fresh state.
type Decline struct {
	Reason     DeclineReason
	Load       peer.Load
	Match      int // blocks of this request that it holds
	Stamp      replica.Stamp
	RetryAfter time.Duration
}

// DeclineReason says why.
type DeclineReason uint8

const (
	WorseThanExpected DeclineReason = iota + 1 // evicted, or the queue has grown, by more than the margin
	QueueFull                                  // push-back, or the local queue is at its limit
	EngineDown
	Draining
	NotServed // the model is not served here
)

func (r DeclineReason) String() string {
	switch r {
	case WorseThanExpected:
		return "worse-than-expected"
	case QueueFull:
		return "queue-full"
	case EngineDown:
		return "engine-down"
	case Draining:
		return "draining"
	case NotServed:
		return "not-served"
	}
	return fmt.Sprintf("decline(%d)", uint8(r))
}

// Usage is what the engine itself counted; peer.Unknown where it does not report.
type Usage struct {
	Prompt, Cached, Completion int
}
