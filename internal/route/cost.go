package route

import "time"

// The cost policy (default). Draft.
func (p *Policy) cost(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	least := maxTerm * 8
	for i := range terms {
		if terms[i].Excluded == Eligible {
			least = min(least, terms[i].Total)
		}
	}
	h := home(req, terms)
	band := max(p.cfg.NearMin, permille(least, p.cfg.NearPermille))
	best, near := -1, 0
	for i := range terms {
		t := &terms[i]
		if t.Excluded != Eligible || t.Total > least+band {
			continue
		}
		t.NearEqual = true
		near++
		if best < 0 || before(req.Key, cands[i].Peer, cands[best].Peer) {
			best = i
		}
	}
	switch {
	case best == h:
		return best, ByHome
	case h >= 0 && !terms[h].NearEqual && terms[h].Total <= least+p.margin(least):
		return h, ByHome
	case near > 1:
		return best, BySpread
	case h >= 0 && cands[best].Match > cands[h].Match:
		return best, ByPrefix
	}
	return best, ByCost
}

// margin is how much a peer must be better than a cost to be worth leaving home for.
func (p *Policy) margin(cost time.Duration) time.Duration {
	return max(p.cfg.GainMin, permille(cost, p.cfg.GainPermille))
}
