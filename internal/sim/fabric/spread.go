package fabric

import "shoal/internal/sim"

// ways is what a flow knows that is spread over several paths.
type ways struct {
	routes   []int32
	random   uint64 // draws so far
	counted  uint32
	anyOrder bool // the receiver takes packets in any order
	lastSent sim.Time
}

func (n *Packets) newWays(q *flow, f Flow) *ways   { return nil }
func (n *Packets) gather(f *flow)                  {}
func (n *Packets) wayOf(f *flow, t sim.Time) int32 { return f.forth }
func (n *Packets) mayRunAhead(f *flow) bool        { return true }
func (n *Packets) collect(f *flow, seq uint32)     {}
func (n *Packets) judge(f *flow, p packet)         {}
