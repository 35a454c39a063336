package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

const (
	// silenceSlack is by how much a silent peer may be found out later than after Config.Silence, so that a busy
	// connection sets its deadline twice a second and not with every frame.
	silenceSlack = 500 * time.Millisecond
	// cancelWait bounds how long telling the peer to cancel may take. Where it takes longer the connection is dropped
	// without a word, which means the same.
	cancelWait = 100 * time.Millisecond
)

// Hop is the origin's side of one forwarded request. Recv is for one goroutine; Close may be called by another one.
type Hop struct {
	r    *remote
	ctx  context.Context
	stop func() bool // ends the watch over ctx

	mu     sync.Mutex
	l      *link
	closed bool
	ended  bool // the last frame was received

	first bool   // nothing has come back yet
	body  []byte // for sending the request again; nil after the first frame
}

// OpenHop sends a request to another peer, over a kept connection where there is one. Neither f nor body may change until
// the first frame was received, or Close: a kept connection that turns out to be dead is redialled once, and the request
// sent again. When ctx ends the hop is cancelled, as by Close.
func (c *Cluster) OpenHop(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (*Hop, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cluster: hop to %s: %w", to, err)
	}
	r := c.members.get(to)
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownPeer, to)
	}
	if len(body) > c.cfg.Limits.Body {
		return nil, fmt.Errorf("cluster: a body of %d bytes; the limit is %d", len(body), c.cfg.Limits.Body)
	}
	if f.BodyLen != int64(len(body)) {
		return nil, fmt.Errorf("cluster: a body of %d bytes that claims %d", len(body), f.BodyLen)
	}
	if err := r.acquire(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, to)
	}
	h := &Hop{r: r, ctx: ctx, first: true, body: body}
	if err := h.open(f); err != nil {
		r.release()
		return nil, err
	}
	c.count.hopsOpened.Add(1)
	// Only now: until here everything looks at ctx by itself.
	h.stop = context.AfterFunc(ctx, h.expire)
	return h, nil
}

// open finds a connection and sends the request.
func (h *Hop) open(f *wire.Forward) error {
	l := h.r.kept()
	if l == nil {
		var err error
		if l, err = h.r.connect(h.ctx); err != nil {
			return err
		}
	}
	start := wire.BeginFrame(l.out[:0], wire.TypeForward)
	b, err := wire.AppendForward(start, f)
	if err == nil {
		b, err = wire.EndFrame(b, 0)
	}
	if err != nil {
		h.r.keep(l)
		return fmt.Errorf("cluster: request: %w", err)
	}
	l.out = b
	h.l = l
	err = h.send()
	if err != nil && l.reused {
		return h.redial(err)
	}
	if err != nil {
		l.close()
		return h.why(err)
	}
	return nil
}

// send writes the request, whose encoding is in h.l.out, and its body.
func (h *Hop) send() error {
	l := h.l
	l.watch(h.r.c.cfg.Silence, silenceSlack)
	head, body := l.out, h.body
	if n := len(body); n > 0 && n <= copyBelow {
		head = append(frameHeader(head, wire.TypeBody, n), body...)
		l.out = head[:len(l.out)]
		body = nil
	}
	for len(body) > wire.MaxFrame {
		if err := l.write(frameHeader(head, wire.TypeBody, wire.MaxFrame), body[:wire.MaxFrame]); err != nil {
			return err
		}
		head, body = head[len(head):], body[wire.MaxFrame:]
		l.watch(h.r.c.cfg.Silence, silenceSlack)
	}
	if len(body) > 0 {
		head = frameHeader(head, wire.TypeBody, len(body))
	}
	return l.write(head, body)
}

// redial sends the request once more, over a new connection: the peer had closed the kept one.
func (h *Hop) redial(err error) error {
	old := h.l
	old.close()
	h.r.c.count.redials.Add(1)
	l, derr := h.r.connect(h.ctx)
	if derr != nil {
		return derr
	}
	l.out = old.out
	h.mu.Lock()
	h.l = l
	closed := h.closed
	h.mu.Unlock()
	if closed {
		l.close()
		return ErrClosed
	}
	if err := h.send(); err != nil {
		l.close()
		return h.why(err)
	}
	return nil
}

// Recv gives the next frame; the payload is valid until the next Recv. wire.TypeAlive is not given out: it only shows
// that the peer is there. After the last frame (End, Fail or Decline) it is io.EOF; other errors mean that nothing more
// comes: ErrSilent, ErrClosed, that of the context, or the connection's.
func (h *Hop) Recv() (wire.Type, []byte, error) {
	for {
		if h.ended {
			return 0, nil, io.EOF
		}
		l := h.l
		l.watch(h.r.c.cfg.Silence, silenceSlack)
		t, p, err := l.frame()
		if err != nil {
			if err = h.lost(err); err != nil {
				return 0, nil, err
			}
			continue
		}
		if h.first {
			h.first, h.body = false, nil
		}
		switch t {
		case wire.TypeAlive:
			continue
		case wire.TypeEnd, wire.TypeFail, wire.TypeDecline:
			h.mu.Lock()
			h.ended = true
			h.mu.Unlock()
			return t, p, nil
		case wire.TypeAccept, wire.TypeHead, wire.TypeData:
			return t, p, nil
		}
		if !t.Ignorable() {
			return 0, nil, fmt.Errorf("%w: %v in answer to a request", errProtocol, t)
		}
	}
}

// lost looks at why a frame could not be read. nil: the request was sent again.
func (h *Hop) lost(err error) error {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if h.first && h.l.reused && !closed && !isTimeout(err) && !errors.Is(err, errProtocol) && h.ctx.Err() == nil {
		return h.redial(err)
	}
	return h.why(err)
}

// why turns an error of the connection into what it means to the caller.
func (h *Hop) why(err error) error {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	switch {
	case h.ctx.Err() != nil:
		return fmt.Errorf("cluster: hop to %s: %w", h.r.life.ID, h.ctx.Err())
	case closed || errors.Is(err, net.ErrClosed):
		return ErrClosed
	case isTimeout(err):
		h.r.c.count.silent.Add(1)
		return fmt.Errorf("%w: %s, for %v", ErrSilent, h.r.life.ID, h.r.c.cfg.Silence)
	}
	return fmt.Errorf("cluster: hop to %s: %w", h.r.life.ID, unexpected(err))
}

// Close ends the hop. After the last frame was received the connection is kept for the next one, and the frame's payload
// is no longer valid; before it the peer is told to cancel, and the connection is dropped. Further calls do nothing. It
// always gives nil.
func (h *Hop) Close() error {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	h.r.release()
	if h.ended {
		h.r.keep(h.l)
		return nil
	}
	h.cancel()
	return nil
}

// expire is what happens when the context ends. After the last frame it leaves the rest to Close, since somebody may still
// be looking at that frame.
func (h *Hop) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.ended {
		return
	}
	h.closed = true
	h.r.release()
	h.cancel()
}

// cancel tells the peer and drops the connection, which also ends a Recv that waits. h.mu is held.
func (h *Hop) cancel() {
	h.l.nc.SetWriteDeadline(time.Now().Add(cancelWait))
	h.l.write(frameHeader(nil, wire.TypeCancel, 0), nil)
	h.l.close()
}
