package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"shoal/internal/cluster"
	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/wire"
)

// Both ends of a hop: forward at the origin, ServeHop at the serving peer. A hop carries the chain of the prompt, so that
// the serving peer does not read the body again, and what the origin expects, so that it can decline.

// forward sends the request to another peer, and its answer to the sink. It alone settles the ticket, once, however the
// hop ends.
func (c *call) forward(ctx context.Context, leg node.Leg, d *node.Decision, to sink) (f *failure) {
	g := c.g
	ticket := g.shoal.Dispatch(&c.req, leg)
	var out node.Outcome
	defer func() {
		out.Kind = f.outcome()
		g.shoal.Settle(ticket, out)
		g.metrics.hops.WithLabelValues("out", outcomeWord(f)).Inc()
	}()

	c.frame.Expect = node.Expect{Hopped: true, MatchBlocks: d.MatchBlocks, ServeCost: d.ServeCost, Margin: d.Margin}
	h, err := g.shoal.OpenHop(ctx, leg.Peer, c.forwardFrame(), c.body)
	if err != nil {
		return hopLost(ctx, err)
	}
	defer h.Close()
	headed := false
	for {
		t, p, err := h.Recv()
		if err != nil {
			return hopLost(ctx, err)
		}
		switch t {
		case wire.TypeAlive:
		case wire.TypeAccept:
			var m wire.Accept
			if err = wire.DecodeAccept(p, &m); err == nil {
				g.shoal.Accepted(ticket, m.Stamp)
			}
		case wire.TypeDecline:
			var m wire.Decline
			if err = wire.DecodeDecline(p, &m); err == nil {
				out.Load, out.Stamp, out.Match = &m.Load, m.Stamp, m.Match
				return &failure{cause: declined, detail: m.Reason.String(), retryAfter: m.RetryAfter}
			}
		case wire.TypeHead:
			var m wire.Head
			if err = wire.DecodeHead(p, &m); err == nil && (m.Status < 200 || m.Status > 999 || headed) {
				err = fmt.Errorf("a head of status %d", m.Status)
			}
			if err == nil {
				headed = true
				err = to.Head(m.Status, unpair(m.Header))
			}
		case wire.TypeData:
			if !headed {
				err = errors.New("data before the head")
				break
			}
			if err := to.Data(p); err != nil {
				return &failure{cause: canceled, err: err}
			}
		case wire.TypeEnd:
			if headed {
				return nil
			}
			err = errors.New("an end before the head")
		case wire.TypeFail:
			var m wire.Fail
			if err = wire.DecodeFail(p, &m); err == nil {
				return &failure{cause: causeOf(m.Code), err: errors.New(m.Message)}
			}
		default:
			if !t.Ignorable() {
				err = fmt.Errorf("a frame of type %v", t)
			}
		}
		if err != nil {
			return &failure{cause: garbled, err: fmt.Errorf("hop to %s: %w", leg.Peer, err)}
		}
	}
}

// hopLost classifies the end of a connection to a peer.
func hopLost(ctx context.Context, err error) *failure {
	f := &failure{cause: unreachable, err: err}
	if errors.Is(err, cluster.ErrSilent) {
		f.cause = silent
	}
	return ended(ctx, f)
}

func outcomeWord(f *failure) string {
	if f == nil {
		return "ended"
	}
	return f.cause.String()
}

// ServeHop serves a request that another peer has forwarded. It is never forwarded again: the own engine serves it, or it
// is declined before prefill. It returns when the hop has ended.
func (g *Gateway) ServeHop(h HopStream) {
	m := h.Forward()
	r := &node.Request{Model: m.Model, Chain: m.Chain, Tail: m.Tail, Bytes: m.Bytes, MaxTokens: m.MaxTokens}
	expect := m.Expect
	expect.Hopped = true
	serving, decline := g.shoal.Admit(r, expect)
	if decline != nil {
		h.Decline(decline)
		g.metrics.hops.WithLabelValues("in", declined.String()).Inc()
		return
	}
	to := hopSink{h}
	if err := h.Accept(&wire.Accept{Stamp: g.shoal.Stamp(serving)}); err != nil {
		g.shoal.End(serving, unknownUsage, false)
		g.metrics.hops.WithLabelValues("in", canceled.String()).Inc()
		return
	}
	got, f := g.admitted(h.Context(), serving, &engine.Request{Method: m.Method, Path: m.Path, Query: m.Query, Header: unpair(m.Header),
		Body: h.Body(), Stream: m.Stream, Chat: m.Path == pathChat}, to)
	g.metrics.hops.WithLabelValues("in", outcomeWord(f)).Inc()
	switch {
	case f == nil:
		h.End(&wire.End{Usage: got.usage})
	case f.cause == canceled:
		// nobody listens
	default:
		g.log.Debug("a forwarded request failed", "cause", f.cause.String(), "err", f)
		h.Fail(&wire.Fail{Code: f.cause.String(), Message: f.ending().message})
	}
}

// hopSink sends an answer back over a hop.
type hopSink struct{ h HopStream }

func (s hopSink) Head(status int, h http.Header) error {
	return s.h.Head(&wire.Head{Status: status, Header: pairs(h)})
}

func (s hopSink) Data(p []byte) error { return s.h.Data(p) }
