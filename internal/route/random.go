package route

// The random policy: spreads blindly, as a load balancer without knowledge does.
//
//	Inputs: who can be chosen.
//	Rules: 1. each of them with the same probability: the greatest rendezvous rank of a key drawn for this request, which
//	          does not depend on the order of the candidates.
//	Tie-break: the lesser ID.
//	Parameters: the generator given to New.
//	Fallback: push-back excludes a peer while another does not push back.
func (p *Policy) random(cands []Candidate, terms []Term) (int, Reason) {
	key, best := p.rng.Uint64(), -1
	for i := range terms {
		if terms[i].Excluded == Eligible && (best < 0 || before(key, cands[i].Peer, cands[best].Peer)) {
			best = i
		}
	}
	return best, ByRandom
}
