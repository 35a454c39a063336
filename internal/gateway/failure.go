package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"shoal/internal/engine"
	"shoal/internal/node"
)

// cause is why an attempt to serve a request came to nothing. The word is what a failed hop carries, and what counters
// are labelled with.
type cause uint8

const (
	noCause      cause = iota
	declined           // the peer refused before prefill; the reason is the failure's detail
	unreachable        // no connection to the peer, or it went away
	silent             // the peer's agent showed no life for longer than the limit
	engineDown         // the engine cannot be reached
	engineSilent       // the engine is connected and says nothing
	engineBusy         // the engine or the queue before it is full
	brokeOff           // the engine's answer broke off
	garbled            // the engine, or the peer, said what the protocol does not allow
	tooLong            // the answer is over a limit
	unsendable         // HTTP cannot carry the request
	stopping           // this peer is shutting down and waits no longer
	canceled           // the client went away
)

var causeWords = [...]string{"none", "declined", "unreachable", "silent", "engine-down", "engine-silent", "engine-busy",
	"broke-off", "garbled", "too-long", "unsendable", "stopping", "canceled"}

func (c cause) String() string { return causeWords[c] }

// causeOf reads the word of another peer's failure. What a peer cannot fail of, or a word of a later version, is a peer
// that failed.
func causeOf(word string) cause {
	for c := engineDown; c < canceled; c++ {
		if causeWords[c] == word {
			return c
		}
	}
	return unreachable
}

// failure is one failed attempt.
type failure struct {
	cause      cause
	detail     string        // of a decline, for counters
	err        error         // for logs; may name addresses
	retryAfter time.Duration // where the peer told
}

func (f *failure) Error() string {
	if f.err == nil {
		return "gateway: " + f.cause.String() + " " + f.detail
	}
	return fmt.Sprintf("gateway: %v: %v", f.cause, f.err)
}

// outcome is what the origin's node is told of a hop that ended so; f may be nil. A request that no engine could take, or
// whose answer is too long, is not held against the peer.
func (f *failure) outcome() node.OutcomeKind {
	if f == nil {
		return node.Ended
	}
	switch f.cause {
	case canceled:
		return node.Canceled
	case declined, engineBusy:
		return node.Declined
	case unsendable, tooLong:
		return node.Ended
	case stopping:
		return node.Canceled
	}
	return node.Failed
}

// final reports whether another peer would do no better.
func (f *failure) final() bool {
	return f.cause == canceled || f.cause == stopping || f.cause == unsendable || f.cause == tooLong
}

// engineFailure classifies an error of package engine.
func engineFailure(err error) *failure {
	f := &failure{err: err}
	switch {
	case errors.Is(err, engine.ErrDown), errors.Is(err, engine.ErrClosed):
		f.cause = engineDown
	case errors.Is(err, engine.ErrSilent):
		f.cause = engineSilent
	case errors.Is(err, engine.ErrFull):
		f.cause = engineBusy
	case errors.Is(err, engine.ErrIncomplete):
		f.cause = brokeOff
	case errors.Is(err, engine.ErrTooLong):
		f.cause = tooLong
	case errors.Is(err, engine.ErrRequest):
		f.cause = unsendable
	default:
		f.cause = garbled
	}
	return f
}

// problem is what the client is told where nobody is left to try.
func (f *failure) problem() *problem {
	switch f.cause {
	case unsendable:
		return invalid("", engine.Public(engine.ErrRequest))
	case tooLong:
		return &problem{status: http.StatusBadGateway, kind: serverError, code: "answer_too_long", message: engine.Public(engine.ErrTooLong)}
	case declined, engineBusy:
		if f.detail == node.Draining.String() || f.detail == node.EngineDown.String() || f.detail == node.NotServed.String() {
			break
		}
		return overloaded("Every engine that serves this model is busy; try again shortly.", f.retryAfter)
	}
	return &problem{status: http.StatusServiceUnavailable, kind: serverError, code: "engine_unavailable",
		message: "No engine that serves this model can be reached now; try again shortly.", retryAfter: max(f.retryAfter, time.Second)}
}

// ending is what the client is told where its answer has begun.
func (f *failure) ending() *problem {
	p := &problem{kind: serverError, code: "answer_incomplete"}
	switch f.cause {
	case unreachable, silent:
		p.message = "The peer that served this request was lost; the answer is incomplete."
	case engineDown, engineSilent:
		p.message = "The inference engine stopped answering; the answer is incomplete."
	case tooLong:
		p.message = engine.Public(engine.ErrTooLong)
	case stopping:
		p.message = "The peer that this request came in at is shutting down; the answer is incomplete."
	default:
		p.message = "The inference engine's answer broke off; it is incomplete."
	}
	return p
}
