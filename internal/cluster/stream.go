package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

const (
	// plainHold is how much of a plain answer is held back, in bytes, for the rest of it: most fit one write.
	plainHold = 32 << 10
)

// errEnded: the hop has had its last frame.
var errEnded = errors.New("cluster: the hop has ended")

// HopStream is the serving peer's side of one forwarded request. Its methods are for one goroutine at a time. What they
// are given is not kept.
type HopStream struct {
	in    *inbound
	ctx   context.Context
	stop  context.CancelFunc
	fwd   wire.Forward
	body  []byte
	taken bool        // in.mu: somebody else reads the connection now
	ended atomic.Bool // the last frame is out, or cannot go out any more
	begun bool        // in.wmu: Accept was given
}

// newHopStream makes the stream of one hop. It is not taken from a pool: its context outlives it.
func newHopStream(in *inbound) *HopStream {
	s := &HopStream{in: in}
	s.ctx, s.stop = context.WithCancel(in.ctx)
	return s
}

// Context ends when the origin cancels, its connection goes, or ServeHop returns.
func (s *HopStream) Context() context.Context { return s.ctx }

// Forward is the request, valid until ServeHop returns.
func (s *HopStream) Forward() *wire.Forward { return &s.fwd }

// Body is the request's body, valid until ServeHop returns.
func (s *HopStream) Body() []byte { return s.body }

// From is the peer that forwards the request.
func (s *HopStream) From() peer.ID { return s.in.l.id }

// cancel ends the context; false where it had ended before.
func (s *HopStream) cancel() bool {
	was := s.ctx.Err() == nil && !s.ended.Load()
	s.stop()
	return was
}

// Accept says that the request is served here. From then on the origin hears every second that it is.
func (s *HopStream) Accept(m *wire.Accept) error {
	return s.put(wire.TypeAccept, false, func(b []byte) ([]byte, error) {
		s.begun = true
		return wire.AppendAccept(b, m), nil
	})
}

// Decline says that it is not, and ends the hop.
func (s *HopStream) Decline(m *wire.Decline) error {
	return s.put(wire.TypeDecline, true, func(b []byte) ([]byte, error) { return wire.AppendDecline(b, m), nil })
}

// Head begins the answer. It is held back until the first Data, or the end: headers alone are of no use to the origin.
func (s *HopStream) Head(m *wire.Head) error {
	return s.put(wire.TypeHead, false, func(b []byte) ([]byte, error) { return wire.AppendHead(b, m) })
}

// End ends an answer that is whole.
func (s *HopStream) End(m *wire.End) error {
	return s.put(wire.TypeEnd, true, func(b []byte) ([]byte, error) { return wire.AppendEnd(b, m), nil })
}

// Fail ends the hop without an answer, or without the rest of it.
func (s *HopStream) Fail(m *wire.Fail) error {
	return s.put(wire.TypeFail, true, func(b []byte) ([]byte, error) { return wire.AppendFail(b, m), nil })
}

// put appends a frame to what is held back and, where it is the last, writes all of it.
func (s *HopStream) put(t wire.Type, last bool, enc func([]byte) ([]byte, error)) error {
	in := s.in
	in.wmu.Lock()
	defer in.wmu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	start := len(in.out)
	b, err := enc(wire.BeginFrame(in.out, t))
	if err == nil {
		b, err = wire.EndFrame(b, start)
	}
	if err != nil {
		in.out = in.out[:start]
		return fmt.Errorf("cluster: %v: %w", t, err)
	}
	in.out = b
	if !last {
		if start == 0 {
			in.soon(s)
		}
		return nil
	}
	s.ended.Store(true)
	return in.write(nil)
}

// usable reports why nothing can be sent any more. in.wmu is held.
func (s *HopStream) usable() error {
	if s.ended.Load() {
		return errEnded
	}
	return s.ctx.Err()
}

// Data is written out at once for a stream; of a plain answer some is held back for a moment, for the rest of it. Where
// the origin does not take it Data waits, and so slows the engine down.
func (s *HopStream) Data(p []byte) error {
	in := s.in
	in.wmu.Lock()
	defer in.wmu.Unlock()
	for len(p) > 0 {
		if err := s.usable(); err != nil {
			return err
		}
		n := min(len(p), wire.MaxFrame)
		first := len(in.out) == 0
		in.out = frameHeader(in.out, wire.TypeData, n)
		var err error
		switch {
		case n > copyBelow:
			err = in.write(p[:n])
		default:
			in.out = append(in.out, p[:n]...)
			if s.fwd.Stream || len(in.out) >= plainHold {
				err = in.write(nil)
			} else if first {
				in.soon(s)
			}
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// alive sends what is held back, or else, where the origin has heard nothing lately, Alive. in.wmu is held.
func (s *HopStream) alive() {
	if s.usable() != nil {
		return
	}
	in := s.in
	if len(in.out) == 0 && s.begun && !in.sent {
		in.out = frameHeader(in.out, wire.TypeAlive, 0)
	}
	in.sent = false
	if len(in.out) > 0 {
		in.write(nil)
	}
}

// finish makes sure that the origin hears of an end, when ServeHop has returned.
func (s *HopStream) finish() {
	if s.ended.Load() {
		return
	}
	if s.Fail(&wire.Fail{Code: "internal", Message: "the peer gave no answer"}) != nil {
		s.in.wmu.Lock()
		s.in.out = s.in.out[:0] // of a hop that was cancelled
		s.ended.Store(true)
		s.in.wmu.Unlock()
	}
}
