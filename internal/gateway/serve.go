package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/peer"
)

// The buffer that an answer is read through. It is used as a window that moves forward and starts again at the front, so
// that the last tailBytes of a stream are always in one piece, without a copy for each chunk.
const (
	readBytes = 32 << 10
	minRead   = 8 << 10
	tailBytes = 4 << 10
)

// served is what serve has learned of an answer.
type served struct {
	usage node.Usage
	ok    bool // the engine did what was asked, and its counts mean something
}

var unknownUsage = node.Usage{Prompt: peer.Unknown, Cached: peer.Unknown, Completion: peer.Unknown}

// admitted serves one request, own or forwarded, that the node has admitted: it alone ends the serving, once, however it
// ends.
func (g *Gateway) admitted(ctx context.Context, s node.Serving, r *engine.Request, to sink) (got served, f *failure) {
	got.usage = unknownUsage
	defer func() { g.shoal.End(s, got.usage, got.ok) }()

	e := g.shoal.Engine()
	if e == nil {
		return got, &failure{cause: engineDown, err: errors.New("admitted without an engine")}
	}
	if gate := g.shoal.Gate(); gate != nil {
		release, err := gate.Acquire(ctx)
		if err != nil {
			return got, ended(ctx, engineFailure(err))
		}
		defer release()
	}
	g.shoal.Started(s)
	return g.ask(ctx, s, e, r, to)
}

// ask sends the request to the engine, and its answer to the sink.
func (g *Gateway) ask(ctx context.Context, s node.Serving, e engine.Engine, r *engine.Request, to sink) (got served, f *failure) {
	got.usage = unknownUsage
	res, err := e.Do(ctx, r)
	if err != nil {
		return got, g.engineFailed(ctx, err)
	}
	defer res.Body.Close()
	if f := busy(res); f != nil {
		return got, f
	}
	for name := range res.Header {
		if strings.HasPrefix(name, ownPrefix) {
			delete(res.Header, name)
		}
	}
	if e.Traits().Emulated {
		res.Header.Set(headerEmulated, "true")
	}
	if err := to.Head(res.Status, res.Header); err != nil {
		return got, ended(ctx, &failure{cause: garbled, err: err}) // a head that a hop cannot carry
	}

	stream := isEvents(res.Header.Get("Content-Type"))
	var first func()
	if stream {
		first = func() { g.shoal.FirstToken(s) }
	}
	tail, err, lost := g.pass(res.Body, to, first)
	switch {
	case lost != nil:
		return got, &failure{cause: canceled, err: lost}
	case errors.Is(err, io.EOF):
		got.usage = node.Usage(res.Usage())
		got.ok = res.Status/100 == 2
		return got, nil
	case stream && errors.Is(err, engine.ErrIncomplete) && endsInError(tail):
		return got, nil // its own last word: the client has it
	}
	return got, g.engineFailed(ctx, err)
}

// pass moves a body to the sink, each read at once. It tells how the body ended (io.EOF: whole; else tail is its last
// bytes), or that the sink takes no more.
func (g *Gateway) pass(body io.Reader, to sink, first func()) (tail []byte, err, lost error) {
	buf := g.buffers.Get().(*[readBytes]byte)
	defer g.buffers.Put(buf)
	w := 0
	for {
		if readBytes-w < minRead {
			w = copy(buf[:], buf[w-tailBytes:w])
		}
		n, err := body.Read(buf[w:])
		if n > 0 {
			if first != nil {
				first()
				first = nil
			}
			if lost := to.Data(buf[w : w+n]); lost != nil {
				return nil, nil, lost
			}
			w += n
		}
		if errors.Is(err, io.EOF) {
			return nil, io.EOF, nil
		}
		if err != nil {
			return bytes.Clone(buf[max(0, w-tailBytes):w]), err, nil
		}
	}
}

// busy reports that the engine, or a proxy of its own before it, has no room: nothing was computed, and another peer may
// have room. Any other status is the engine's answer.
func busy(res *engine.Response) *failure {
	switch res.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f := &failure{cause: engineBusy, err: errors.New("the engine answered " + http.StatusText(res.Status))}
		if s := res.Header.Get("Retry-After"); s != "" {
			if d, err := time.ParseDuration(s + "s"); err == nil && d > 0 {
				f.retryAfter = min(d, time.Minute)
			}
		}
		return f
	}
	return nil
}

// engineFailed classifies what went wrong at the engine, and has it probed where it may be dead.
func (g *Gateway) engineFailed(ctx context.Context, err error) *failure {
	f := ended(ctx, engineFailure(err))
	if f.cause != canceled && f.cause != stopping && engine.Dead(err) {
		g.shoal.EngineFailed(err)
	}
	return f
}

// ErrStopping is the cause with which an agent ends the contexts of what is still in flight when it has drained for long
// enough: event streams then end in an error event, and what has not begun is refused.
var ErrStopping = errors.New("gateway: this peer is shutting down")

// ended turns a failure into the client's doing, or the agent's, where the request's context has ended.
func ended(ctx context.Context, f *failure) *failure {
	switch {
	case ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), ErrStopping):
		f.cause = stopping
	default:
		f.cause = canceled
	}
	return f
}
