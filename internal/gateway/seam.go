package gateway

import (
	"context"

	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/wire"
)

// Shoal is what the gateway needs of the agent around it: the decisions of the node, the own engine, and hops to other
// peers. All methods are safe for concurrent use. Only OpenHop waits for the network; the rest answer at once. A
// node.Request is used again once its call has ended, except its Chain, which never changes and may be kept.
type Shoal interface {
	Self() peer.ID
	// Resolve finds a model by its name or alias among the live peers. ok is false where no peer serves it. It runs once
	// a request: a map lookup, no allocation.
	Resolve(model string) (m ModelEntry, ok bool)
	// Models is the union over the live peers, sorted by name. The caller does not change it.
	Models() []ModelEntry

	// Route decides which peer serves r. No legs: d.Reason says why, and d.RetryAfter when to come again. An empty
	// r.Model stands for a request that names no model (a pass-through path): any peer with an engine that is up.
	Route(r *node.Request, d *node.Decision)
	// Dispatch counts r at another peer from now on; the Ticket is given back by exactly one Settle. It is not called for
	// the own engine, where Admit counts.
	Dispatch(r *node.Request, leg node.Leg) node.Ticket
	// Accepted notes the stamp that the serving peer promised with its acceptance.
	Accepted(t node.Ticket, s replica.Stamp)
	Settle(t node.Ticket, o node.Outcome)

	// Admit takes a request for the own engine: an own client's with the zero Expect, or a hop's. A Decline comes instead
	// where a hop's expectation was wrong by more than its margin, where the queue is full, while draining, with the
	// engine down, or where the model is not served here. With the zero Expect push-back alone is no reason to decline:
	// the own queue is where a request waits when every peer pushes back. A Serving is given back by exactly one End.
	Admit(r *node.Request, e node.Expect) (node.Serving, *node.Decline)
	// Stamp is the version of the own document that will cover s, for the acceptance of a hop.
	Stamp(s node.Serving) replica.Stamp
	Started(s node.Serving) // left the local queue, now at the engine
	// FirstToken is called for event streams only: a plain answer does not tell when its first token was there.
	FirstToken(s node.Serving)
	End(s node.Serving, u node.Usage, ok bool)

	// OpenHop sends f and body to another peer. Neither changes until the hop is closed; a closed hop reads them no more.
	// When ctx ends the hop is cancelled, as by Close.
	OpenHop(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error)

	Engine() engine.Engine // nil: this peer routes only
	Gate() *engine.Gate    // the engine's limit of requests in flight and its bounded local queue; nil without an engine
	EngineFailed(err error)
}

// ModelEntry is one model as clients see it.
type ModelEntry struct {
	Name     string // the name that engines know
	Parent   string // base model of a LoRA adapter; empty otherwise
	Context  int    // tokens; peer.Unknown where no engine tells
	Emulated bool   // some peer that serves it is emulated
	Salts    bool   // every live peer that serves it separates its cache by cache_salt
}

// Hop is the origin's side of one forwarded request.
type Hop interface {
	// Recv gives the next frame; the payload is valid until the next Recv. An error means that nothing more comes: the
	// connection is gone, the peer was silent for longer than the limit (cluster.ErrSilent, told apart in counters only), or
	// the hop was closed or cancelled.
	Recv() (wire.Type, []byte, error)
	// Close may be called more than once. After End, Fail or Decline the connection is kept for the next hop; before
	// them the peer is told to cancel, and the connection is dropped.
	Close() error
}

// HopStream is the serving peer's side of one forwarded request. Methods are called by one goroutine; what they are
// given is not kept after they have returned.
type HopStream interface {
	Context() context.Context // ends when the origin cancels, or its connection goes
	Forward() *wire.Forward   // valid until ServeHop has returned
	Body() []byte             // valid until ServeHop has returned
	Accept(*wire.Accept) error
	Decline(*wire.Decline) error
	Head(*wire.Head) error
	Data(p []byte) error // written out at once
	End(*wire.End) error
	Fail(*wire.Fail) error
}
