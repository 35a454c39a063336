package agent

import (
	"context"
	"time"

	"shoal/internal/cluster"
	"shoal/internal/engine"
	"shoal/internal/gateway"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/reserve"
	"shoal/internal/wire"
)

// The two faces of an agent: what the gateway asks of it, and what the cluster tells it. Both only take the lock, call the
// node with the time, and send on at once what must not wait for a round.

// now is the local monotonic time since the agent's start.
func (a *Agent) now() time.Duration { return time.Since(a.start) }

// locked runs f with the node, then lets out what has become urgent: push-back, reservations, and a changed directory of
// models.
func (a *Agent) locked(f func(n *node.Node, now time.Duration)) {
	u := a.underLock(f)
	if u.load != nil {
		a.broadcast(u.stamp, u.load)
	}
	if a.paths != nil {
		a.paths.tell(u.reservations)
	}
}

// urgent is what must not wait for a round of anti-entropy.
type urgent struct {
	stamp        replica.Stamp
	load         *peer.Load // nil: unchanged
	reservations []reserve.Message
}

func (a *Agent) underLock(f func(n *node.Node, now time.Duration)) (u urgent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.paths != nil {
		a.node.Wall(time.Duration(time.Now().UnixNano()) - now)
	}
	f(a.node, now)
	if a.paths != nil {
		a.paths.admit(a.node, now)
	}
	if a.directory.Load().generation != a.node.Generation() {
		a.directory.Store(newDirectory(a.node))
	}
	u.stamp, u.load, _ = a.node.TakePushBack(now)
	u.reservations = a.node.TakeReservations(nil)
	return u
}

func (a *Agent) broadcast(stamp replica.Stamp, load *peer.Load) {
	if c := a.cluster.Load(); c != nil {
		c.Broadcast(wire.AppendPushBack(nil, &wire.PushBack{Owner: a.id, Stamp: stamp, Load: *load}))
	}
}

// For the gateway (gateway.Shoal).

func (a *Agent) Self() peer.ID { return a.id }

func (a *Agent) Resolve(model string) (gateway.ModelEntry, bool) {
	e, ok := a.directory.Load().byName[model]
	return e, ok
}

func (a *Agent) Models() []gateway.ModelEntry { return a.directory.Load().models }

func (a *Agent) Route(r *node.Request, d *node.Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.node.Route(now, r, d)
	a.decisions.add(now, r, d)
}

func (a *Agent) Dispatch(r *node.Request, leg node.Leg) (t node.Ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node.Dispatch(a.now(), r, leg)
}

func (a *Agent) Accepted(t node.Ticket, s replica.Stamp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node.Accepted(t, s)
}

func (a *Agent) Settle(t node.Ticket, o node.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node.Settle(a.now(), t, o)
}

func (a *Agent) Admit(r *node.Request, e node.Expect) (s node.Serving, d *node.Decline) {
	a.locked(func(n *node.Node, now time.Duration) { s, d = n.Admit(now, r, e) })
	return s, d
}

func (a *Agent) Stamp(node.Serving) replica.Stamp {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node.Stamp()
}

func (a *Agent) Started(s node.Serving) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node.Started(a.now(), s)
}

func (a *Agent) FirstToken(s node.Serving) {
	a.locked(func(n *node.Node, now time.Duration) { n.FirstToken(now, s) })
}

func (a *Agent) End(s node.Serving, u node.Usage, ok bool) {
	a.locked(func(n *node.Node, now time.Duration) { n.End(now, s, u, ok) })
}

func (a *Agent) OpenHop(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (gateway.Hop, error) {
	c := a.cluster.Load()
	if c == nil {
		return nil, cluster.ErrClosed
	}
	h, err := c.OpenHop(ctx, to, f, body)
	if err != nil {
		return nil, err // not a typed nil in an interface
	}
	return h, nil
}

func (a *Agent) Engine() engine.Engine { return a.engine }
func (a *Agent) Gate() *engine.Gate    { return a.gate }

func (a *Agent) EngineFailed(err error) {
	if a.prober != nil {
		a.prober.Failed(err)
	}
}

// For the cluster (cluster.Handler).

func (a *Agent) PeerUp(m cluster.Member) {
	a.log.Info("peer is there", "peer", m.ID, "addr", m.PeerAddr)
	a.locked(func(n *node.Node, now time.Duration) {
		n.PeerUp(now, m.ID, m.Incarnation)
		a.addrs[m.ID] = m.PeerAddr
		if _, known := a.lastAddr[m.ID]; known || len(a.lastAddr) < maxLast {
			a.lastAddr[m.ID] = m.PeerAddr
		}
	})
}

// maxLast bounds the addresses kept of peers that membership may have lost.
const maxLast = 4096

func (a *Agent) PeerDown(id peer.ID, left bool) {
	a.log.Info("peer is gone", "peer", id, "left", left)
	a.locked(func(n *node.Node, now time.Duration) {
		n.PeerDown(now, id)
		delete(a.addrs, id)
	})
}

func (a *Agent) RTT(id peer.ID, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node.RTT(id, d)
}

func (a *Agent) Summary() (x *replica.Exchange) {
	a.locked(func(n *node.Node, now time.Duration) { x = n.Start(now) })
	return x
}

func (a *Agent) Exchange(from peer.ID, in *replica.Exchange) (out *replica.Exchange) {
	a.locked(func(n *node.Node, now time.Duration) { out = n.Answer(now, from, in) })
	return out
}

func (a *Agent) Datagram(from peer.ID, b []byte) {
	t, payload, err := wire.ParseDatagram(b)
	if err == nil && (t == wire.DatagramReserve || t == wire.DatagramRelease) {
		a.heardReservation(from, t, payload)
		return
	}
	if err == nil && t != wire.DatagramPushBack {
		return // of a later version
	}
	p := new(wire.PushBack) // its load is kept
	if err == nil {
		err = wire.DecodePushBack(payload, p)
	}
	if err != nil || p.Owner != from {
		a.badDatagrams.Add(1)
		return
	}
	a.locked(func(n *node.Node, now time.Duration) { n.HeardLoad(now, from, p.Stamp, &p.Load) })
}

func (a *Agent) ServeHop(s *cluster.HopStream) { a.gateway.ServeHop(s) }

func (a *Agent) Refused(addr string, err error) { a.refused.Add(1) }
