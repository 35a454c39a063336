package route

// The longest-prefix policy: the rule of "Towards Distributed Inference of LLMs on a P2P Network" to the letter.
//
//	Inputs: the longest prefix match of every peer, by the replicas as they are; who pushes back.
//	Rules: 1. a peer that pushes back is left out (the paper's specialist push-back); where all do, home takes it;
//	       2. the peer with the longest match, where it is longer than home's;
//	       3. else home.
//	Tie-break: the lesser ID among peers with the same match; the paper does not say.
//	Parameters: none. Load, distance and cost do not count, and so one prefix that all prompts share draws all of them to
//	one peer: that is the paper's rule, and why cost is the default.
//	Fallback: where home cannot be chosen, the longest match; where nobody has any match then, the greatest rendezvous
//	rank of the request's key, which the paper, whose every node serves, does not need.
func (p *Policy) longestPrefix(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	h := home(req, terms)
	if h >= 0 && exclusion(&cands[h]) == PushedBack { // it is eligible only because all push back
		return h, ByHome
	}
	best := h
	for i := range cands {
		if terms[i].Excluded != Eligible || i == h {
			continue
		}
		switch {
		case best < 0 || cands[i].Match > cands[best].Match:
			best = i
		case best == h || cands[i].Match < cands[best].Match:
		case cands[i].Match > 0 && cands[i].Peer < cands[best].Peer,
			cands[i].Match <= 0 && before(req.Key, cands[i].Peer, cands[best].Peer):
			best = i
		}
	}
	switch {
	case best == h:
		return best, ByHome
	case cands[best].Match > 0:
		return best, ByPrefix
	}
	return best, BySpread
}
