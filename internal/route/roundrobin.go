package route

import "shoal/internal/peer"

// The round-robin policy: takes turns, as most deployments do today.
//
//	Inputs: who can be chosen, and who was chosen last.
//	Rules: 1. the peer with the next ID after the last one chosen; after the greatest the least.
//	Tie-break: IDs are unique.
//	Parameters: none. The first turn is the one after home, so that several origins do not march in step.
//	Fallback: push-back excludes a peer while another does not push back; it takes its turn again later.
func (p *Policy) roundRobin(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	if p.last == "" && req.Home >= 0 && req.Home < len(cands) {
		p.last = cands[req.Home].Peer
	}
	i := nextAfter(p.last, cands, terms)
	if i < 0 {
		i = nextAfter("", cands, terms)
	}
	p.last = cands[i].Peer
	return i, ByRoundRobin
}

// nextAfter is the index of the eligible candidate with the least ID greater than id, -1 where there is none.
func nextAfter(id peer.ID, cands []Candidate, terms []Term) int {
	next := -1
	for i := range cands {
		if terms[i].Excluded == Eligible && cands[i].Peer > id && (next < 0 || cands[i].Peer < cands[next].Peer) {
			next = i
		}
	}
	return next
}
