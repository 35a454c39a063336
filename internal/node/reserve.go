package node

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/reserve"
)

// The second decision: which path a transfer takes. The node's part is replication: the own reservations are a section of
// the own document, those of others come with theirs, and what must not wait for a round of anti-entropy goes out as
// messages (TakeReservations). The table itself is package reserve's, and so are all decisions.

var reservations = replica.Section{Kind: replica.KindReservations}

// Wall says what the wall clock shows at the local time 0. Reservations are ordered by wall time, within what clocks agree.
func (n *Node) Wall(atZero time.Duration) { n.wallAtZero = atZero }

func (n *Node) wall(now time.Duration) time.Duration { return n.wallAtZero + now }

// Table gives the reservations to f, with the time, and publishes what f has changed.
func (n *Node) Table(now time.Duration, f func(t *reserve.Table, now, wall time.Duration)) {
	f(n.table, now, n.wall(now))
	n.publishTable()
}

// publishTable puts the own reservations into the own document where they have changed.
func (n *Node) publishTable() {
	s := n.table.Section()
	if s == n.published {
		return
	}
	n.published = s
	n.docs.Set(reservations, s)
	n.dirty = true
}

// HeardReservation takes in a message of the peer that sent it.
func (n *Node) HeardReservation(now time.Duration, from peer.ID, m *reserve.Message) reserve.Verdict {
	v := n.table.Heard(now, n.wall(now), from, m)
	n.publishTable()
	return v
}

// TakeReservations appends what has to go out at once: the own reservations that are new, have moved or have ended.
func (n *Node) TakeReservations(dst []reserve.Message) []reserve.Message { return n.table.Take(dst) }

// mergeTable takes in what a document says of its owner's reservations.
func (n *Node) mergeTable(now time.Duration, id peer.ID, incarnation uint64) {
	s, _ := n.docs.Content(id, reservations).(*reserve.Section)
	m := n.member(id)
	if s == nil || s == m.paths && m.pathsOf == incarnation {
		return
	}
	m.paths, m.pathsOf = s, incarnation
	n.table.Merge(now, n.wall(now), id, incarnation, s)
	n.publishTable()
}

// Info is what a peer says of itself, nil where it has said nothing.
func (n *Node) Info(id peer.ID) *peer.Info {
	if m := n.members[id]; m != nil {
		return m.info
	}
	return nil
}

// Fabrics yields the digest of the network's description that each live peer has, 0 where it has none, by ID.
func (n *Node) Fabrics(yield func(id peer.ID, digest uint64)) {
	for _, m := range n.order {
		if m.alive && m.paths != nil {
			yield(m.id, m.paths.Fabric)
		}
	}
}
