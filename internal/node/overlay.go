package node

import (
	"slices"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// The overlay is what this peer knows about the others before they have said it themselves: the requests that it has
// dispatched to them, their load, and the blocks that those will leave in their caches. An entry counts from dispatch
// until a report stamped after the peer's acceptance arrives, at most cfg.OverlayMax; where the peer declines, fails, or
// never accepts, it goes with the ticket.

// dispatched is one request sent to a peer that no report of the peer covers yet.
type dispatched struct {
	ticket Ticket
	chain  []prefix.Hash
	tokens int64 // prompt tokens less the match predicted at dispatch; 0 once it has ended
	ended  bool  // no load any more; its blocks still count
	since  time.Duration
	covers replica.Stamp // the peer's report that will cover it; zero until the peer has accepted
}

// overlay is one peer's entries, oldest first.
type overlay struct {
	entries []dispatched
	tokens  int64 // sum over entries
	open    int   // entries that have not ended
}

func (o *overlay) add(d dispatched) {
	o.entries = append(o.entries, d)
	o.tokens += d.tokens
	o.open++
}

// end takes the load of an entry away and leaves its blocks.
func (o *overlay) end(i int) {
	e := &o.entries[i]
	if e.ended {
		return
	}
	o.tokens -= e.tokens
	o.open--
	e.tokens, e.ended = 0, true
}

func (o *overlay) drop(i int) {
	o.end(i)
	o.entries = slices.Delete(o.entries, i, i+1)
}

func (o *overlay) find(t Ticket) int {
	return slices.IndexFunc(o.entries, func(d dispatched) bool { return d.ticket == t })
}

// covered drops what the peer's report at stamp says itself.
func (o *overlay) covered(stamp replica.Stamp) {
	for i := len(o.entries) - 1; i >= 0; i-- {
		if c := o.entries[i].covers; c != (replica.Stamp{}) && !stamp.Less(c) {
			o.drop(i)
		}
	}
}

// expire drops what is older than max: its peer's report is overdue, and a guess must not outlive what it stood for.
func (o *overlay) expire(now, max time.Duration) {
	for len(o.entries) > 0 && now-o.entries[0].since > max {
		o.drop(0)
	}
}

// match is the longest prefix match of chain among the peer's dispatched prompts, where it is longer than have blocks.
// Chained hashes make it cheap: two prompts that agree at a block agree in all before it. Where the peer's engine can
// reuse a prompt only after its end (endedOnly), the others do not count: sent there now, a second one would be cold.
func (o *overlay) match(chain []prefix.Hash, have int, endedOnly bool) int {
	for i := range o.entries {
		if endedOnly && !o.entries[i].ended {
			continue
		}
		c := o.entries[i].chain
		if have >= len(chain) {
			return have
		}
		if have >= len(c) || c[have] != chain[have] {
			continue
		}
		lo, hi := have+1, min(len(c), len(chain)) // agree in lo blocks; may agree in up to hi
		for lo < hi {
			mid := (lo + hi + 1) / 2
			if c[mid-1] == chain[mid-1] {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		have = lo
	}
	return have
}

// Dispatch records that r goes to another peer, and counts it there from now on. The ticket must be settled, once. It is
// not for Self legs: Admit counts those.
func (n *Node) Dispatch(now time.Duration, r *Request, leg Leg) Ticket {
	if leg.Self {
		panic("node: Dispatch of a request that goes to no other peer")
	}
	m := n.members[leg.Peer]
	n.nextTicket++
	t := n.nextTicket
	if m == nil || len(n.tickets) >= n.cfg.MaxInFlight {
		n.count.OverlayFull++
		n.tickets[t] = nil
		return t
	}
	m.forwarded++
	n.tickets[t] = m
	if len(m.overlay.entries) >= n.cfg.MaxOverlay {
		m.overlay.drop(0)
		n.count.OverlayFull++
	}
	m.overlay.add(dispatched{ticket: t, chain: r.Chain, tokens: leg.Uncached, since: now})
	return t
}

// Accepted records that the peer has taken the request, and which stamp of its document will count it.
func (n *Node) Accepted(t Ticket, covers replica.Stamp) {
	m := n.tickets[t]
	if m == nil {
		return
	}
	if i := m.overlay.find(t); i >= 0 {
		if !m.loadStamp.Less(covers) { // the report has overtaken the acceptance
			m.overlay.drop(i)
			return
		}
		m.overlay.entries[i].covers = covers
	}
}

// Settle ends a ticket. A second time is a fault of the caller's and is counted, not acted on.
func (n *Node) Settle(now time.Duration, t Ticket, o Outcome) {
	m, ok := n.tickets[t]
	if !ok {
		n.count.DoubleSettle++
		return
	}
	delete(n.tickets, t)
	if m == nil {
		return
	}
	switch o.Kind {
	case Declined:
		m.declined++
		if o.Load != nil {
			n.heardLoad(now, m, o.Stamp, o.Load)
		}
	case Failed:
		m.failed++
		m.coldUntil = now + n.cfg.FailurePause
	}
	switch i := m.overlay.find(t); { // after heardLoad, which drops what the fresh load covers
	case i < 0:
	case o.Kind != Ended || m.overlay.entries[i].covers == (replica.Stamp{}):
		m.overlay.drop(i)
	default:
		m.overlay.end(i)
	}
}

// HeardLoad takes a peer's load that came ahead of its document: with a datagram.
func (n *Node) HeardLoad(now time.Duration, from peer.ID, stamp replica.Stamp, l *peer.Load) {
	if m := n.members[from]; m != nil && !m.self {
		n.heardLoad(now, m, stamp, l)
	}
}

func (n *Node) heardLoad(now time.Duration, m *member, stamp replica.Stamp, l *peer.Load) {
	if stamp.Incarnation != m.incarnation || stamp.Less(m.loadStamp) {
		return
	}
	m.load, m.loadStamp, m.loadAt = l, stamp, now
	m.overlay.covered(stamp)
}
