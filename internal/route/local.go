package route

// The local policy: what a shoal is compared with.
//
//	Inputs: the request's home.
//	Rules: 1. home, also where it pushes back: its queue takes the request;
//	       2. where home is down, draining, or does not serve the model: the peer with the least network time.
//	Tie-break: the greater rendezvous rank of the request's key.
//	Parameters: none.
//	Fallback: where nobody can be chosen, nobody.
func (p *Policy) local(req *Request, cands []Candidate, terms []Term) (int, Reason) {
	if h := req.Home; h >= 0 && h < len(terms) && (terms[h].Excluded == Eligible || terms[h].Excluded == PushedBack) {
		terms[h].Excluded = Eligible
		return h, ByLocal
	}
	best := -1
	for i := range terms {
		if terms[i].Excluded != Eligible {
			continue
		}
		if best < 0 || terms[i].Network < terms[best].Network ||
			terms[i].Network == terms[best].Network && before(req.Key, cands[i].Peer, cands[best].Peer) {
			best = i
		}
	}
	return best, ByLocal
}
