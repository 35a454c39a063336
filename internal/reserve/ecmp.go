package reserve

// The ecmp policy: what the fabric does by itself; the control that the others are measured against.
//
//	Inputs: how many paths there are.
//	Rule: every flow takes a uniformly random path. Nothing is reserved, and nobody is told; an Intent is a grant.
//	Tie-break: none needed.
//	Parameters: none. One random path a flow, not one a pair of hosts: that is how source ports of new connections hash.
//	Fallback: it is everybody's fallback.
func (t *Table) ecmp(a *asked) {
	n := max(a.req.Flows, 1)
	for i := range n {
		t.unreserved(a, share(a.req.Bytes, i, n))
	}
}
