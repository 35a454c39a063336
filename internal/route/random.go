package route

import "shoal/internal/peer"

// The random policy: spreads blindly, as a load balancer without knowledge does.
//
//	Inputs: who can be chosen.
//	Rules: 1. each of them with the same probability.
//	Tie-break: none is needed.
//	Parameters: the generator given to New. The draw is over peers in the order of their IDs, so that one seed gives one
//	sequence whatever the order of the candidates.
//	Fallback: push-back excludes a peer while another does not push back.
func (p *Policy) random(cands []Candidate, terms []Term, f field) (int, Reason) {
	// The k-th least ID, without sorting: candidates come sorted in practice, so that this is one pass.
	k := p.rng.IntN(f.eligible)
	var after peer.ID
	for {
		i := nextAfter(after, cands, terms)
		if k == 0 {
			return i, ByRandom
		}
		after, k = cands[i].Peer, k-1
	}
}
