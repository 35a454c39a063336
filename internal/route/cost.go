package route

import "time"

// The cost policy (default): the peer where the request costs least, and home where that is nearly as good.
//
//	Inputs: for every peer the round trip, the work queued (its own report, and what this peer has sent it since), the
//	longest match, the learned prefill rate, and the work done lately; for the request its tokens, the hash of the last
//	block that anybody holds, and the hash of the first one that nobody holds.
//
//	Cost of a peer, in integer nanoseconds:
//	  network   the round trip; nothing for home
//	+ queue     the longer of: prompt tokens ahead x prefill rate; requests ahead of a place x service time / places
//	+ prefill   unmatched tokens x prefill rate
//	+ eviction  EvictionPermille of the prefill of those tokens that the best match would save, shared by all the recent
//	            requests with the same last held block (heat.go): computing them again displaces as much from this cache
//	            and makes the holder's copy useless, unless many will use both
//	+ balance   BalancePermille of the work that it has done in the last half minute, or has begun, more than the least
//	            busy peer
//
//	Rules, with the margin = max(GainMin, GainPermille of the prefill of the whole prompt):
//	  1. those are near that cost at most the margin more than the cheapest, and are at most a quarter of the margin
//	     farther away than the nearest of them (the margin is for what is estimated; distance is measured). The one with
//	     the greatest rendezvous rank for the request's key is proposed: every origin finds the same peer for the same new
//	     prefix before any view tells of it, and different prefixes spread, however stale the views are;
//	  2. home instead, where it is near, holds some of the prompt and as much as any of them, and lacks less than the
//	     margin: what it lacks is not worth placing well, so there is nothing to gain by leaving;
//	  3. home instead, where the proposed peer holds more of the prompt, and the distance takes more than its prefill
//	     saves, or would do so over the next requests with the same prefix: a copy at home serves those without a hop.
//	Tie-break: the lesser ID, where two ranks are equal.
//
//	Parameters: GainMin, GainPermille, EvictionPermille, BalancePermille; docs/decisions/0001-cost-policy.md has the
//	measurements behind their defaults.
//	Fallback: push-back excludes a peer while another does not push back. The peer that is chosen declines where the truth
//	is worse by more than the margin and the lead over the next best; it is then excluded and the rules apply again.
func (p *Policy) cost(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	least := cheapest(cands, terms, -1)
	margin := p.margin(req, &cands[least])
	best, near, match := p.near(req, cands, terms, terms[least].Total+margin, margin/4)
	h := home(req, terms)
	if h < 0 {
		switch {
		case near > 1:
			return best, BySpread
		case cands[best].Match > 0:
			return best, ByPrefix
		}
		return best, ByCost
	}
	held := cands[h].Match
	nothingToPlace := terms[h].NearEqual && held > 0 && held >= match && terms[h].Prefill <= margin
	tooFar := cands[best].Match > held && !p.worthLeaving(req, &terms[h], &terms[best])
	switch {
	case best == h, nothingToPlace, tooFar:
		return h, ByHome
	case near > 1:
		return best, BySpread
	case cands[best].Match > held:
		return best, ByPrefix
	}
	return best, ByCost
}

// followersShare is the part of a prefix's recent requests (one in so many) that a copy of it can count on: caches evict.
const followersShare = 4

// worthLeaving is rule 3, for a peer that holds more of the prompt than home.
func (p *Policy) worthLeaving(req *Request, here, there *Term) bool {
	saved := here.Queue + here.Prefill - there.Prefill
	again := time.Duration(min(int64(there.Network)*(p.heat.count(req.Shared)/followersShare), int64(maxTerm)))
	return saved > there.Network && here.Total-there.Total > again
}

// near marks the candidates that cost at most limit and are not farther than slack beyond the nearest of them. It returns
// the one with the greatest rank, how many there are, and the longest match among them.
func (p *Policy) near(req *Request, cands []Candidate, terms []Term, limit, slack time.Duration) (best, count, match int) {
	nearest := maxTerm
	for i := range terms {
		if terms[i].Excluded == Eligible && terms[i].Total <= limit {
			nearest = min(nearest, terms[i].Network)
		}
	}
	best = -1
	var rankBest uint64
	for i := range terms {
		t := &terms[i]
		if t.Excluded != Eligible || t.Total > limit || t.Network > nearest+slack {
			continue
		}
		t.NearEqual = true
		count++
		match = max(match, cands[i].Match)
		if r := rank(req.Key, cands[i].Peer); best < 0 || r > rankBest || r == rankBest && cands[i].Peer < cands[best].Peer {
			best, rankBest = i, r
		}
	}
	return best, count, match
}

// margin is which difference between costs is one, for this prompt at the speed of the candidate.
func (p *Policy) margin(req *Request, c *Candidate) time.Duration {
	return max(p.cfg.GainMin, permille(term(clamp(req.Tokens, 1, maxTokens), prefillRate(c.Load)), p.cfg.GainPermille))
}

// cheapest is the eligible candidate with the least total, other than one; -1 where there is none.
func cheapest(cands []Candidate, terms []Term, other int) int {
	best := -1
	for i := range terms {
		if terms[i].Excluded != Eligible || i == other {
			continue
		}
		if best < 0 || terms[i].Total < terms[best].Total || terms[i].Total == terms[best].Total && cands[i].Peer < cands[best].Peer {
			best = i
		}
	}
	return best
}
