package cluster

import (
	"context"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// Member is one live peer as the gossip describes it.
type Member struct {
	ID          peer.ID
	Incarnation uint64 // of its agent's start: greater with every start
	PeerAddr    string // host:port of its peer port
	ControlAddr string // IP:port at which it takes datagrams on a control network; empty: by the gossip
	// MinVersion and MaxVersion are the wire versions that it speaks.
	MinVersion, MaxVersion uint8
}

// Handler is the agent behind a cluster. All methods may be called concurrently, except PeerUp and PeerDown, which come
// one at a time and in order. Only ServeHop and Asked may wait for the network or an engine; the others answer in microseconds to
// a few milliseconds, and none of them may call Close or Leave. Slices and messages that a method is given belong to the
// cluster and are valid until it returns, except in, whose deltas may be kept.
type Handler interface {
	// PeerUp says that a peer is there, or is there again: with a greater Incarnation than before where its agent was
	// started anew, without a PeerDown between. The own peer is never reported.
	PeerUp(m Member)
	// PeerDown says that a peer is gone: by its own word (left), or because it does not answer.
	PeerDown(id peer.ID, left bool)
	// RTT is the round-trip time to a live peer: the median of the last few probes. Before the first call it is unknown.
	RTT(id peer.ID, d time.Duration)
	// Summary is the own peer's half of an anti-entropy round: what it knows, one line a document. The caller owns it.
	Summary() *wire.Exchange
	// Exchange takes the other side's half of a round and gives the answer to it; nil: nothing to say. The caller owns
	// the answer. An answer to the last half of a round is dropped.
	Exchange(from peer.ID, in *wire.Exchange) *wire.Exchange
	// Datagram is one datagram of a live peer: unordered, possibly lost or doubled.
	Datagram(from peer.ID, b []byte)
	// Asked answers a question about a transfer; it may wait as long as the transfer does. ctx ends with the connection.
	Asked(ctx context.Context, from peer.ID, m *wire.Ask) *wire.Reply
	// ServeHop serves one forwarded request and returns when it has ended.
	ServeHop(s *HopStream)
	// Refused says that somebody was turned away: garbage, a wrong key, a bad certificate, a peer without a common
	// version, a second agent under one ID. The cluster logs it once an address; here it is for counting.
	Refused(addr string, err error)
}
