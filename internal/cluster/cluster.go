package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// Errors that callers tell apart. Others mean that the connection failed.
var (
	// ErrSilent: the peer sent nothing for longer than Config.Silence.
	ErrSilent = errors.New("cluster: the peer is silent")
	// ErrUnknownPeer: no live peer has this ID.
	ErrUnknownPeer = errors.New("cluster: no live peer of this ID")
	// ErrBusy: as many hops as Limits.Hops allows are open to this peer.
	ErrBusy = errors.New("cluster: too many hops open to this peer")
	// ErrClosed: the cluster or the hop was closed.
	ErrClosed = errors.New("cluster: closed")
)

// MaxDatagram bounds a datagram, in bytes: it fits one packet on any network, headers and encryption included.
const MaxDatagram = 1200

// Cluster is one peer's membership of a shoal. All methods are safe for concurrent use.
type Cluster struct{}

// Start listens, and joins the shoal in the background. self.PeerAddr is filled in from what the peer port listens on
// where it is empty. The errors are those of the configuration and of the listen addresses.
func Start(cfg Config, self Member, h Handler, log *slog.Logger) (*Cluster, error) { panic("stub") }

// Self is the own peer as it tells the others, with its real address.
func (c *Cluster) Self() Member { panic("stub") }

// GossipAddr is what others put into their join lists: host:port.
func (c *Cluster) GossipAddr() string { panic("stub") }

// Members are the other live peers, by ID. The caller owns the slice.
func (c *Cluster) Members() []Member { panic("stub") }

// Failed gives the error that makes this peer useless to its shoal, where there is one: another agent of the same ID was
// there first. At most one value ever comes. The cluster goes on, refused by the others; its owner should stop it.
func (c *Cluster) Failed() <-chan error { panic("stub") }

// OpenHop sends a request to another peer, over a kept connection where there is one. Neither f nor body may change until
// the first frame was received, or Close: a kept connection that turns out to be dead is redialled once, and the request sent
// again. When ctx ends the hop is cancelled, as by Close.
func (c *Cluster) OpenHop(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (*Hop, error) {
	panic("stub")
}

// Broadcast sends b to every live peer, best effort; Send to one. b is at most MaxDatagram bytes and not kept.
func (c *Cluster) Broadcast(b []byte)              { panic("stub") }
func (c *Cluster) Send(to peer.ID, b []byte) error { panic("stub") }

// Leave tells the others that this peer goes, waits at most timeout until the word is out, and closes the cluster.
func (c *Cluster) Leave(timeout time.Duration) error { panic("stub") }

// Close ends everything at once; the others find out by themselves.
func (c *Cluster) Close() error { panic("stub") }

// Stats are the counters so far.
func (c *Cluster) Stats() Stats { panic("stub") }

// Stats count since the start, except where a field says now.
type Stats struct {
	Members       int // live peers now, without this one
	Conns         int // connections now, open to the peer port
	IdleConns     int // kept connections now, to other peers
	HopsOut       int // hops open now, to other peers
	HopsIn        int // hops being served now
	Dials         uint64
	DialErrors    uint64
	HopsOpened    uint64
	HopsServed    uint64
	Redials       uint64 // kept connections that were dead
	Silent        uint64 // hops that ended in ErrSilent
	Cancels       uint64 // served hops that the origin gave up
	Refused       uint64
	Rounds        uint64 // anti-entropy rounds that ended well, begun here
	RoundErrors   uint64
	RoundNanos    uint64 // time spent in rounds that ended well
	RoundBytesIn  uint64 // of rounds, whoever began them
	RoundBytesOut uint64
	DatagramsIn   uint64
	DatagramsOut  uint64
	DatagramsLost uint64 // that could not be sent
	JoinTries     uint64
	JoinErrors    uint64
}

// Hop is the origin's side of one forwarded request. Recv is for one goroutine; Close may be called by another one.
type Hop struct{}

// Recv gives the next frame (never wire.TypeAlive, which is swallowed); the payload is valid until the next Recv.
func (h *Hop) Recv() (wire.Type, []byte, error) { panic("stub") }

// Close ends the hop. After an End, Fail or Decline was received the connection is kept for the next one; before it the
// peer is told to cancel, and the connection is dropped. Further calls do nothing.
func (h *Hop) Close() error { panic("stub") }

// HopStream is the serving peer's side of one forwarded request. Its methods are for one goroutine at a time. What they are
// given is not kept.
type HopStream struct{}

// Context ends when the origin cancels, its connection goes, or ServeHop returns.
func (s *HopStream) Context() context.Context { panic("stub") }

// Forward and Body are the request, both valid until ServeHop returns.
func (s *HopStream) Forward() *wire.Forward { panic("stub") }
func (s *HopStream) Body() []byte           { panic("stub") }

// From is the peer that forwards the request.
func (s *HopStream) From() peer.ID { panic("stub") }

// Accept, or Decline, is the first answer. Decline, End and Fail are the last.
func (s *HopStream) Accept(*wire.Accept) error   { panic("stub") }
func (s *HopStream) Decline(*wire.Decline) error { panic("stub") }

// Head is held back until the first Data, or the end: headers alone are of no use to the origin.
func (s *HopStream) Head(*wire.Head) error { panic("stub") }

// Data is written out at once. Where the origin does not take it, Data waits, and so slows the engine down.
func (s *HopStream) Data(p []byte) error   { panic("stub") }
func (s *HopStream) End(*wire.End) error   { panic("stub") }
func (s *HopStream) Fail(*wire.Fail) error { panic("stub") }
