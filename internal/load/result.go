package load

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"shoal/internal/peer"
)

// Kind says how a request ended.
type Kind string

const (
	OK         Kind = ""            // the zero value: a complete answer
	Refused    Kind = "refused"     // no connection
	Cut        Kind = "cut"         // the connection ended before the answer did
	TimedOut   Kind = "timeout"     // no complete answer within Config.Timeout
	Status     Kind = "status"      // an HTTP status other than 200; Result.Status has it
	ErrorEvent Kind = "error-event" // the stream said that it failed
	Truncated  Kind = "truncated"   // the stream ended as if it were complete, but without [DONE]
	BadAnswer  Kind = "bad-answer"  // what came is not what the API says
	Unfinished Kind = "unfinished"  // the run ended first: neither good nor bad
)

// Result is what was seen of one request. Counts that nobody reported are peer.Unknown, times that do not exist are 0.
type Result struct {
	Index  int    `json:"index"` // in the workload
	Group  string `json:"group,omitempty"`
	Target string `json:"target"`
	// Due is when the request was to be sent, since the start of the run. Times count from it, so that a load generator
	// that falls behind shows as latency and does not hide it.
	Due   time.Duration `json:"due_ns"`
	TTFT  time.Duration `json:"ttft_ns"`  // to the first chunk with content; streams only
	TPOT  time.Duration `json:"tpot_ns"`  // mean time of a further token; streams of two and more only
	Total time.Duration `json:"total_ns"` // to [DONE], or to the last byte of a plain answer

	Kind      Kind   `json:"kind"`
	Detail    string `json:"detail,omitempty"` // the error's text
	Status    int    `json:"status"`           // 0 without an answer
	FirstByte bool   `json:"first_byte"`       // the first byte of a body with status 200 had come

	Peer    string `json:"peer"`              // that served it, by X-Shoal-Peer; else the target
	Reason  string `json:"reason,omitempty"`  // X-Shoal-Reason
	Matched int64  `json:"predicted_tokens"`  // X-Shoal-Matched-Tokens
	Prompt  int64  `json:"prompt_tokens"`     // the engine's own counts
	Cached  int64  `json:"cached_tokens"`     //
	Output  int64  `json:"completion_tokens"` // the engine's, else the chunks counted
}

// counted reports whether the engine told both of what a hit rate is made.
func (r *Result) counted() bool {
	return r.Prompt != peer.Unknown && r.Cached != peer.Unknown && r.Prompt > 0
}

// fail notes the first failure; later ones are its consequences.
func (r *Result) fail(k Kind, detail string) {
	if r.Kind == OK {
		r.Kind, r.Detail = k, detail
	}
}

// failed notes an error of the network or of a context. run is the run's own context: where it has ended, the request
// did not fail but was left.
func (r *Result) failed(run context.Context, err error) { r.fail(classify(run, err)) }

func classify(run context.Context, err error) (Kind, string) {
	var timeout net.Error
	switch {
	case run.Err() != nil:
		return Unfinished, "the run ended first"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut, err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused, err.Error()
	case errors.Is(err, errEventTooLong):
		return BadAnswer, err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Cut, err.Error()
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return Refused, err.Error()
	}
	return Cut, err.Error()
}
