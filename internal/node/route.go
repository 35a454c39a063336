package node

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/route"
)

// Route decides which peer serves r, and fills d. It allocates nothing per peer, and reads replicas only: it never waits.
func (n *Node) Route(now time.Duration, r *Request, d *Decision) {
	*d = Decision{Legs: d.Legs[:0]}
	n.index.Match(r.Chain, &n.matches)
	ratio := n.ratio(r.Model)
	req := route.Request{Tokens: ratio.BytesToTokens(int64(r.Bytes)), Output: int64(r.MaxTokens), Home: -1}
	n.cands = n.cands[:0]
	best := 0
	for _, m := range n.order {
		if m.info == nil || m.info.Role == peer.RouteOnly || !m.serves(r.Model) {
			continue
		}
		c := n.candidate(now, m, r)
		c.MatchTokens = min(n.blockTokens(ratio, c.Match), req.Tokens)
		best = max(best, c.Match)
		if m.self {
			req.Home = len(n.cands)
		}
		n.cands = append(n.cands, c)
		if len(n.cands) == route.MaxCandidates {
			break
		}
	}
	n.pause(now)
	req.Key = uint64(r.Tail)
	if best < len(r.Chain) {
		req.Key = uint64(r.Chain[best])
	}
	if best > 0 {
		req.Shared = uint64(r.Chain[best-1])
	}
	n.policy.Decide(&req, n.cands, &n.decided)
	n.answer(&req, d)
	if r.Insist {
		d.Margin = route.NoDecline
	}
	if r.Explain {
		d.Explanation = n.explain(r, &req)
	}
	n.count.Decisions++
}

func (n *Node) candidate(now time.Duration, m *member, r *Request) route.Candidate {
	c := route.Candidate{Peer: m.id, Self: m.self, RTT: m.rtt, Info: m.info, Load: m.load}
	if m.hasSlot {
		c.Match = n.matches.Blocks(m.slot)
	}
	if m.self {
		c.Load = n.load()
	} else {
		m.overlay.expire(now, n.cfg.OverlayMax)
		c.Match = m.overlay.match(r.Chain, c.Match, m.info.Cache.Usable == peer.AfterEnd)
		c.PendingRequests, c.PendingTokens = m.overlay.open, m.overlay.tokens
		c.Staleness = now - m.loadAt
		if !m.alive {
			c.Excluded = route.Unreachable
		}
	}
	for _, t := range r.Tried {
		if t == m.id {
			c.Excluded = route.Tried
		}
	}
	return c
}

// pause leaves out those that have just failed, where there is anybody else.
func (n *Node) pause(now time.Duration) {
	others := false
	for i := range n.cands {
		c := &n.cands[i]
		others = others || c.Excluded == route.Eligible && (c.Load == nil || c.Load.Up && !c.Load.Draining) && now >= n.members[c.Peer].coldUntil
	}
	if !others {
		return
	}
	for i := range n.cands {
		if c := &n.cands[i]; c.Excluded == route.Eligible && now < n.members[c.Peer].coldUntil {
			c.Excluded = route.Unreachable
		}
	}
}

// ratio is the load whose bytes-a-token the decision uses for all peers alike, since they share the model's tokeniser: the
// own one where it has been measured, else that of the peer with the most samples.
func (n *Node) ratio(model string) *peer.Load {
	if n.own.Samples > 0 && n.serves(model) {
		return &n.own
	}
	best := &n.own
	for _, m := range n.order {
		if m.load != nil && m.load.Samples > best.Samples && m.serves(model) {
			best = m.load
		}
	}
	return best
}

func (n *Node) answer(req *route.Request, d *Decision) {
	x := &n.decided
	for _, l := range x.Legs {
		d.Legs = append(d.Legs, Leg{Peer: l.Peer, Self: l.Self, Role: l.Role, Path: l.Path,
			Uncached: max(req.Tokens-x.MatchTokens, 1)})
	}
	d.Reason, d.RetryAfter = x.Reason, x.RetryAfter
	d.MatchBlocks, d.MatchTokens, d.Tokens = x.Match, x.MatchTokens, req.Tokens
	d.Cost, d.ServeCost, d.Margin = x.Cost, x.ServeCost, x.Margin
}

func (n *Node) explain(r *Request, req *route.Request) *Explanation {
	x := &n.decided
	e := &Explanation{Policy: n.policy.Config().Policy.String(), Reason: x.Reason.String(), Blocks: len(r.Chain), Tokens: req.Tokens,
		Candidates: make([]ExplanationCandidate, len(x.Terms))}
	for i, t := range x.Terms {
		c := &n.cands[i]
		e.Candidates[i] = ExplanationCandidate{
			Peer: c.Peer, Excluded: t.Excluded.String(), Blocks: c.Match, Tokens: c.MatchTokens,
			StaleMS:   c.Staleness.Milliseconds(),
			NetworkUS: t.Network.Microseconds(), QueueUS: t.Queue.Microseconds(), PrefillUS: t.Prefill.Microseconds(),
			EvictionUS: t.Eviction.Microseconds(), BalanceUS: t.Balance.Microseconds(), TotalUS: t.Total.Microseconds(),
			NearestTies: t.NearEqual,
		}
		e.Candidates[i].Chosen = len(x.Legs) > 0 && x.Legs[0].Index == i
	}
	return e
}
