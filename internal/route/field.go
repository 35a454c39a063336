package route

import (
	"time"

	"shoal/internal/peer"
)

// field counts the candidates of one decision by what keeps them from being chosen.
type field struct {
	eligible    int
	tried, down int
	draining    int
	pushedBack  int
	allPushBack bool // those who are eligible all push back
}

// NoDecline is the margin of decisions that costs did not make: the peer takes the request whatever it finds.
const NoDecline = maxTerm

// Bounds of Decision.RetryAfter.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

func (d *Decision) reset(n int) {
	legs, terms := d.Legs[:0], d.Terms
	if cap(terms) < n {
		terms = make([]Term, n)
	}
	terms = terms[:n]
	clear(terms)
	*d = Decision{Legs: legs, Terms: terms}
}

// exclude marks who cannot be chosen. Push-back excludes a peer only while somebody else can be chosen.
func exclude(cands []Candidate, terms []Term) field {
	var f field
	for i := range cands {
		e := exclusion(&cands[i])
		terms[i].Excluded = e
		switch e {
		case Eligible:
			f.eligible++
		case PushedBack:
			f.pushedBack++
		case Tried, Unreachable:
			f.tried++
		case Draining:
			f.draining++
		default:
			f.down++
		}
	}
	if f.eligible > 0 || f.pushedBack == 0 {
		return f
	}
	f.allPushBack = true
	f.eligible = f.pushedBack
	for i := range terms {
		if terms[i].Excluded == PushedBack {
			terms[i].Excluded = Eligible
		}
	}
	return f
}

func exclusion(c *Candidate) Exclusion {
	switch {
	case c.Excluded != Eligible:
		return c.Excluded
	case c.Info != nil && c.Info.Role == peer.RouteOnly:
		return NoEngine
	case c.Load == nil:
		return Eligible
	case !c.Load.Up:
		return Down
	case c.Load.Draining:
		return Draining
	case c.Load.PushBack:
		return PushedBack
	}
	return Eligible
}

// nobody says why no candidate could be chosen. What somebody may wait for comes before what nobody can.
func (p *Policy) nobody(f field, d *Decision) {
	d.RetryAfter = minRetry
	switch {
	case f.tried > 0:
		d.Reason = AllTried
	case f.draining > 0:
		d.Reason = AllDraining
	case f.down > 0:
		d.Reason = AllDown
	default:
		d.Reason = NoCandidate
		d.RetryAfter = 0
	}
}

// settle writes the chosen candidate into the decision.
func (p *Policy) settle(req *Request, cands []Candidate, chosen int, d *Decision) {
	c, t := &cands[chosen], &d.Terms[chosen]
	d.Legs = append(d.Legs, Leg{Peer: c.Peer, Self: c.Self, Role: peer.Serve, Index: chosen})
	d.Match, d.MatchTokens = c.Match, c.MatchTokens
	d.Cost, d.ServeCost = t.Total, t.Queue+t.Prefill
	d.Margin = NoDecline
	if p.cfg.Policy == Cost {
		if next := cheapest(cands, d.Terms, chosen); next >= 0 { // where there is nobody else, a decline helps nobody
			d.Margin = p.margin(req, c) + max(d.Terms[next].Total-t.Total, 0)
		}
	}
	if d.Reason == ByAllPushBack {
		d.Margin = NoDecline
		d.RetryAfter = min(max(t.Queue, minRetry), maxRetry)
	}
}

// home returns the own candidate's index where it can be chosen, else -1.
func home(req *Request, terms []Term) int {
	if req.Home >= 0 && req.Home < len(terms) && terms[req.Home].Excluded == Eligible {
		return req.Home
	}
	return -1
}
