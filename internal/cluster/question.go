package cluster

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// Questions about transfers: one frame there, one frame back. They are rare beside hops, and their answers may take as long
// as a transfer, so each has a connection for itself while it lasts.

// Ask asks a live peer, and waits for its answer until ctx ends.
func (c *Cluster) Ask(ctx context.Context, to peer.ID, m *wire.Ask) (*wire.Reply, error) {
	r := c.members.get(to)
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownPeer, to)
	}
	if l := r.kept(); l != nil {
		reply, err := l.ask(ctx, m)
		if err == nil {
			r.keep(l)
			return reply, nil
		}
		l.close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("cluster: asking %s: %w", to, ctx.Err())
		}
	} // none is kept, or the peer had closed it
	l, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.askOn(ctx, l, to, m, r.keep)
}

// AskOnce asks a live peer over a new connection, and never a second time.
func (c *Cluster) AskOnce(ctx context.Context, to peer.ID, m *wire.Ask) (*wire.Reply, error) {
	r := c.members.get(to)
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownPeer, to)
	}
	l, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.askOn(ctx, l, to, m, r.keep)
}

// AskAt asks a peer at this address of its peer port, whatever membership says: the gossip may be cut off while the data
// network is not. The answer is believed only from the peer itself, as on every connection.
func (c *Cluster) AskAt(ctx context.Context, to peer.ID, addr string, m *wire.Ask) (*wire.Reply, error) {
	l, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if l.id != to {
		l.close()
		return nil, fmt.Errorf("cluster: %s is the peer port of %s, not of %s", addr, l.id, to)
	}
	return c.askOn(ctx, l, to, m, (*link).close)
}

func (c *Cluster) askOn(ctx context.Context, l *link, to peer.ID, m *wire.Ask, after func(*link)) (*wire.Reply, error) {
	reply, err := l.ask(ctx, m)
	if err != nil {
		l.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("cluster: asking %s: %w", to, err)
	}
	after(l)
	return reply, nil
}

// ask sends a question and reads the answer.
func (l *link) ask(ctx context.Context, m *wire.Ask) (*wire.Reply, error) {
	b, err := wire.AppendAsk(nil, m)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { l.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	l.deadline = time.Time{}
	l.nc.SetDeadline(time.Time{})
	if err := l.writeFrame(wire.TypeAsk, b); err != nil {
		return nil, err
	}
	for {
		t, p, err := l.frame()
		if err != nil {
			return nil, unexpected(err)
		}
		if t == wire.TypeReply {
			r := new(wire.Reply)
			if err := wire.DecodeReply(p, r); err != nil {
				return nil, fmt.Errorf("%w: %w", errProtocol, err)
			}
			if !stop() {
				return nil, ctx.Err() // the deadline of the past may be set by now
			}
			return r, nil
		}
		if !t.Ignorable() && t != wire.TypeAlive {
			return nil, fmt.Errorf("%w: %v in answer to a question", errProtocol, t)
		}
	}
}

// answer has the Handler answer a question. That may take long, and nothing else comes on the connection meanwhile: what does
// come is its end, which ends the question's context.
func (in *inbound) answer(p []byte) error {
	var m wire.Ask
	if err := wire.DecodeAsk(p, &m); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	in.mu.Lock()
	clash := in.cur != nil && !in.cur.ended.Load()
	in.mu.Unlock()
	if clash {
		return fmt.Errorf("%w: a question before the end of a request", errProtocol)
	}
	in.asks.Store(true)
	r, lost := in.asked(&m)
	in.l.tick.Store(in.c.tick.Load())
	in.asks.Store(false)
	if lost != nil {
		return lost
	}
	b, err := wire.AppendReply(nil, r)
	if err != nil {
		b, err = wire.AppendReply(nil, &wire.Reply{Refused: "the answer cannot be sent: " + err.Error()})
	}
	if err != nil {
		return err
	}
	in.begin()
	defer in.done()
	in.wmu.Lock()
	defer in.wmu.Unlock()
	return in.l.writeFrame(wire.TypeReply, b)
}

// asked calls the Handler while somebody watches the connection; lost says that it is over.
func (in *inbound) asked(m *wire.Ask) (r *wire.Reply, lost error) {
	ctx, stop := context.WithCancel(in.ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() {
		err := in.l.fill(1)
		if err == nil {
			err = fmt.Errorf("%w: something came before the answer", errProtocol)
		}
		stop()
		watched <- err
	}()
	func() {
		defer func() {
			if p := recover(); p != nil { // a question that meets a bug does not take the agent along
				in.c.log.Error("cluster: panic while answering a question", "peer", in.l.id, "panic", p, "stack", string(debug.Stack()))
				r = &wire.Reply{Refused: "the peer could not answer"}
			}
		}()
		r = in.c.h.Asked(ctx, in.l.id, m)
	}()
	in.l.nc.SetReadDeadline(time.Unix(1, 0)) // the watch ends
	err := <-watched
	in.l.nc.SetReadDeadline(time.Time{})
	in.l.deadline = time.Time{}
	if isTimeout(err) {
		return r, nil
	}
	return nil, err
}
