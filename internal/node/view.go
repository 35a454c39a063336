package node

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

// Generation changes whenever what peers are (their Info, or whether they are there) has changed.
func (n *Node) Generation() uint64 { return n.generation }

// EachServing yields the live peers that have an engine, by ID. Nobody changes what info points to.
func (n *Node) EachServing(yield func(id peer.ID, info *peer.Info)) {
	for _, m := range n.order {
		if m.alive && m.info != nil && m.info.Role != peer.RouteOnly {
			yield(m.id, m.info)
		}
	}
}

// View is one peer as this node sees it, for people.
type View struct {
	ID          peer.ID
	Self, Alive bool
	Info        *peer.Info // nil: nothing heard yet
	Load        *peer.Load // nil: nothing heard yet
	RTT         time.Duration
	Stamp       replica.Stamp
	Heard       time.Duration // when its document was last known to be the latest; negative: never
	Blocks      int
	Digest      uint64
	Pending     int
	Forwarded   int64
	Declined    int64
	Failed      int64
}

// Views appends all peers by ID, the dead ones that are still remembered among them.
func (n *Node) Views(now time.Duration, dst []View) []View {
	for _, m := range n.order {
		v := View{ID: m.id, Self: m.self, Alive: m.alive, Info: m.info, Load: m.load, RTT: max(m.rtt, 0), Heard: -1,
			Digest: n.docs.Digest(m.id), Pending: m.overlay.open, Forwarded: m.forwarded, Declined: m.declined, Failed: m.failed}
		v.Stamp, _ = n.docs.Stamp(m.id)
		if m.hasSlot {
			v.Blocks = n.index.Len(m.slot)
		}
		if h, ok := n.docs.Heard(m.id); ok {
			v.Heard = h
		}
		if m.self {
			l := *n.load()
			v.Load, v.Heard = &l, now
		}
		dst = append(dst, v)
	}
	return dst
}

// ReplicaStats tells what anti-entropy has done.
func (n *Node) ReplicaStats() replica.Stats { return n.docs.Stats() }

// Dispatched is how many requests of this origin are at other peers.
func (n *Node) Dispatched() int { return len(n.tickets) }

// Digest is that of the own document's blocks and values: it changes with them.
func (n *Node) Digest() uint64 { return n.docs.Digest(n.self) }
