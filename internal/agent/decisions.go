package agent

import (
	"time"

	"shoal/internal/node"
	"shoal/internal/peer"
)

// maxDecisions bounds the decisions remembered for the admin API.
const maxDecisions = 256

// DecisionRecord is one decision as the admin API shows it.
type DecisionRecord struct {
	AtMS        int64   `json:"at_ms"` // since the agent's start
	Model       string  `json:"model"`
	Peer        peer.ID `json:"peer"` // empty: nobody
	Reason      string  `json:"reason"`
	Blocks      int     `json:"blocks"`
	MatchBlocks int     `json:"match_blocks"`
	Tokens      int64   `json:"tokens"`
	MatchTokens int64   `json:"match_tokens"`
	CostUS      int64   `json:"cost_us"`
	Tried       int     `json:"tried"` // peers that had been tried before
}

// decisions is a ring of the last ones, and counts by reason and peer.
type decisions struct {
	ring    [maxDecisions]DecisionRecord
	next    int
	reasons [256]int64
}

func (d *decisions) add(now time.Duration, r *node.Request, x *node.Decision) {
	d.reasons[x.Reason]++
	e := &d.ring[d.next%maxDecisions]
	d.next++
	*e = DecisionRecord{AtMS: now.Milliseconds(), Model: r.Model, Reason: x.Reason.String(), Blocks: len(r.Chain), MatchBlocks: x.MatchBlocks,
		Tokens: x.Tokens, MatchTokens: x.MatchTokens, CostUS: x.Cost.Microseconds(), Tried: len(r.Tried)}
	if len(x.Legs) > 0 {
		e.Peer = x.Legs[0].Peer
	}
}

// list returns them, the latest first.
func (d *decisions) list() []DecisionRecord {
	n := min(d.next, maxDecisions)
	out := make([]DecisionRecord, 0, n)
	for i := range n {
		out = append(out, d.ring[(d.next-1-i)%maxDecisions])
	}
	return out
}
