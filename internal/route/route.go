// Package route decides which peer serves a request. It is a set of policies over plain candidates: what the caller
// knows of each peer goes in, a decision with its reason and every term of every candidate's cost comes out. Beside them
// stand the two accounts that a serving peer keeps for others to decide by: its learned rates (Rates) and its push-back
// (PushBack).
//
// It does not hash prompts, keep caches, know membership or send anything: prefix, replica and node do. Its main type is
// Policy. Invariants: a peer that is down, draining, without an engine or excluded by the caller is never chosen; nothing
// that is unknown is taken for zero; the same inputs give the same decision whatever the order of the candidates, except
// for Random, which draws from its generator; Decide allocates nothing once its Decision has grown.
//
// Sources: "Towards Distributed Inference of LLMs on a P2P Network" (arXiv 2606.17059) for longest-prefix and push-back;
// cost joins the cost models of GORGO (arXiv 2602.11688) and NetKV (arXiv 2606.03910) with an eviction price and a
// balance of work; docs/decisions/0001-cost-policy.md has the measurements behind its defaults.
package route

import (
	"math/rand/v2"
	"time"

	"shoal/internal/peer"
)

// MaxCandidates bounds how many candidates one decision considers; what is beyond it is ignored.
const MaxCandidates = 4096

// Candidate is one peer that serves the model, as the deciding peer sees it now. Decide changes nothing in it.
type Candidate struct {
	Peer peer.ID
	Self bool // the deciding peer's own engine; at most one
	// RTT is the round trip to the peer; 0 for Self. Negative where it has not been measured: then Config.PriorRTT counts.
	RTT time.Duration
	// Match is the longest prefix match in blocks, MatchTokens the same in tokens. All candidates serve one model and so
	// share one tokeniser: MatchTokens uses the same ratio as Request.Tokens, or noise in the ratios decides.
	Match       int
	MatchTokens int64
	Info        *peer.Info // nil: nothing known but that it serves the model
	Load        *peer.Load // nil: nothing heard yet; counted as peer.PriorLoad, up
	// PendingRequests and PendingTokens are the deciding peer's own overlay: what it has dispatched to this peer and no
	// report of the peer covers yet. PendingTokens are prompt tokens less the match predicted at dispatch.
	PendingRequests int
	PendingTokens   int64
	Staleness       time.Duration // age of Load
	Excluded        Exclusion     // set by the caller: Tried, Unreachable; Eligible otherwise
}

// Request is what the policies need to know of a request.
type Request struct {
	Tokens int64 // of the whole prompt, estimated
	Output int64 // tokens of answer expected; peer.Unknown where nobody says
	// Key spreads requests over peers that are equal otherwise: the hash of the first block that the best match lacks, or
	// of the prompt's tail where all its full blocks are matched or it has none. Equal prompts have equal keys.
	Key    uint64
	Shared uint64
	Home   int // index of the deciding peer's own candidate, -1 where its engine does not serve the model
}

// Leg is one part of a request's way. Path is 0 where it does not matter.
type Leg struct {
	Peer  peer.ID
	Self  bool
	Role  peer.Role
	Path  int
	Index int // of the candidate
}

// Term is one candidate as a decision saw it. All terms count towards Total; policies other than Cost compute them too,
// so that any decision can be explained, and choose by their own rule.
type Term struct {
	Network   time.Duration // round trip
	Queue     time.Duration // until its engine starts on this request
	Prefill   time.Duration // of the unmatched tokens
	Eviction  time.Duration // price of what its cache loses for them
	Balance   time.Duration // price of the work it has done more than others
	Total     time.Duration
	Excluded  Exclusion // why it could not be chosen; Eligible otherwise
	NearEqual bool      // among those between which the rendezvous hash decided
}

// Decision is the answer. It belongs to the caller, who may reuse it for the next request: Decide overwrites all of it and
// keeps the memory of its slices.
type Decision struct {
	Legs        []Leg // empty: nobody can serve the request, and Reason says why
	Reason      Reason
	Match       int // blocks, predicted at the chosen peer
	MatchTokens int64
	Cost        time.Duration // Total of the chosen peer
	ServeCost   time.Duration // the part of it that the chosen peer can check itself: queue and prefill
	Margin      time.Duration // how much worse than ServeCost the truth may be before the peer declines
	RetryAfter  time.Duration // when to ask again, where nobody can serve it or everyone pushes back
	Terms       []Term        // one for each candidate, in their order
}

// Policy is one policy with its state. It is not safe for concurrent use.
type Policy struct {
	cfg  Config
	rng  *rand.Rand
	heat heat
	last peer.ID // round-robin: the peer chosen last
}

// New returns a policy. rng is used by Random alone and may be nil for the others; it belongs to the policy from now on.
func New(cfg Config, rng *rand.Rand) (*Policy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Policy == Random && rng == nil {
		return nil, errNoRand
	}
	return &Policy{cfg: cfg, rng: rng}, nil
}

// Config returns the configuration that the policy was made with.
func (p *Policy) Config() Config { return p.cfg }

// Decide chooses the peer that serves the request, and fills d. Candidates may come in any order.
func (p *Policy) Decide(req *Request, cands []Candidate, d *Decision) {
	if len(cands) > MaxCandidates {
		cands = cands[:MaxCandidates]
	}
	d.reset(len(cands))
	f := exclude(cands, d.Terms)
	p.price(req, cands, d.Terms)
	p.heat.add(req.Shared)
	if f.eligible == 0 {
		p.nobody(f, d)
		return
	}
	var chosen int
	if chosen, d.Reason = p.choose(req, cands, d.Terms); f.allPushBack {
		d.Reason = ByAllPushBack
	}
	p.settle(req, cands, chosen, d)
}

func (p *Policy) choose(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	switch p.cfg.Policy {
	case Local:
		return p.local(req, cands, terms)
	case Random:
		return p.random(cands, terms)
	case RoundRobin:
		return p.roundRobin(req, cands, terms)
	case LongestPrefix:
		return p.longestPrefix(req, cands, terms)
	}
	return p.cost(req, cands, terms)
}
