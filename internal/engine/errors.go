package engine

import (
	"errors"
	"fmt"
)

// What can go wrong with an engine, by who should do what about it. Test with errors.Is.
var (
	// ErrDown: not reachable, or the connection was lost before any response header. Try another engine, probe this one.
	ErrDown = errors.New("engine: not reachable")
	// ErrSilent: connected, but nothing came for longer than a limit. Before the header try another engine.
	ErrSilent = errors.New("engine: silent for too long")
	// ErrIncomplete: the answer broke off: the connection was lost, or the event stream ended without [DONE].
	ErrIncomplete = errors.New("engine: the answer broke off")
	// ErrTooLong: an answer that has to be held in memory exceeds its limit.
	ErrTooLong = errors.New("engine: the answer is too long")
	// ErrProtocol: what came is not the HTTP or JSON that the API promises.
	ErrProtocol = errors.New("engine: the answer is not understood")
	// ErrKey: the engine refuses the configured key.
	ErrKey = errors.New("engine: the API key is refused")
	// ErrRequest: the request cannot be sent as it is (a header field or path that HTTP does not allow). No engine takes it.
	ErrRequest = errors.New("engine: the request cannot be sent")
	// ErrFull: the Gate's queue is at its limit.
	ErrFull = errors.New("engine: the queue is full")
	// ErrClosed: the engine or gate has been closed.
	ErrClosed = errors.New("engine: closed")
)

// Error is a failure with its kind. Error() is for logs and may name the engine's address; Public() is for clients.
type Error struct {
	Kind error // one of the Err values
	Err  error // what happened, in detail; may be nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.Error()
	}
	return fmt.Sprintf("%v: %v", e.Kind, e.Err)
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Public says what clients may see: never an address, a path, or an engine's own words.
func (e *Error) Public() string { return Public(e.Kind) }

// Public is the text that clients may see of any error of this package.
func Public(err error) string {
	switch {
	case errors.Is(err, ErrDown):
		return "The inference engine cannot be reached; try again shortly."
	case errors.Is(err, ErrSilent):
		return "The inference engine stopped answering; try again shortly."
	case errors.Is(err, ErrIncomplete):
		return "The inference engine's answer broke off; try again."
	case errors.Is(err, ErrTooLong):
		return "The inference engine's answer is longer than this server passes on; ask for fewer tokens or a stream."
	case errors.Is(err, ErrProtocol):
		return "The inference engine's answer was not understood."
	case errors.Is(err, ErrRequest):
		return "The request has a header field or a path that cannot be passed on."
	case errors.Is(err, ErrFull):
		return "Too many requests are waiting; try again shortly."
	case errors.Is(err, ErrClosed):
		return "The server is shutting down; try again."
	}
	return "The inference engine failed; try again."
}

// Dead reports whether err says that the engine itself may be gone, so that it should be probed at once.
func Dead(err error) bool {
	return errors.Is(err, ErrDown) || errors.Is(err, ErrIncomplete) || errors.Is(err, ErrSilent)
}

func failed(kind, err error) error { return &Error{Kind: kind, Err: err} }
