// Package engine talks to one LLM inference engine over its OpenAI-compatible HTTP API: it sends requests, streams the
// answers back, and asks how the engine is doing. Each adapter hides what is particular about its engine:
//
//   - openai: anything that speaks the API. Bodies go on as received. Load, cache shape and epoch are read from the
//     metrics of vLLM, SGLang and TensorRT-LLM where they are.
//   - llamacpp: llama.cpp's own server, which cancels only what it streams: everything is streamed from it, and plain
//     answers are assembled here.
//   - emulated: the engine of package emulate behind HTTP; it computes nothing, says so, and tells exactly what it has cached.
//
// It is not a router: it does not choose an engine, does not try another one, and knows no prefix. Limits of concurrency
// are a Gate beside the engine, its health is watched by a Prober.
//
// Invariants: an answer is complete (io.EOF) only where the engine said so, which for an event stream is [DONE]; the end
// of a request's context closes its connection to the engine at once; no error's Public text names an address.
package engine

import (
	"context"
	"io"
	"net/http"

	"shoal/internal/peer"
)

// Engine is one engine behind one adapter. All methods may be called concurrently.
type Engine interface {
	// Do sends one request and returns when the engine's response header is there. An error means that no part of the
	// answer has been seen, so that another engine may be asked; it wraps one of the Err values of this package, or ctx's
	// error. Where r.Stream is false and the adapter assembles the answer itself (llamacpp), Do returns only when the
	// whole answer is there. The end of ctx, also after Do has returned, ends the request at the engine.
	Do(ctx context.Context, r *Request) (*Response, error)
	// Probe asks for health, models, load, capacity and epoch. Call it at most once a second: engines have been slowed
	// down by being asked more often.
	Probe(ctx context.Context) (Report, error)
	// Traits says what the adapter is and what it knows of its engine without asking. It changes only for an adapter
	// that is still to be detected.
	Traits() Traits
	// Close drops idle connections and makes further calls fail. Requests in flight go on.
	Close() error
}

// Request is one OpenAI request as it came in. Nothing of it is changed or kept beyond the life of its Response.
type Request struct {
	Method string      // "" means POST
	Path   string      // escaped, from "/v1" on, for example "/v1/chat/completions"
	Query  string      // escaped, without the question mark
	Header http.Header // end-to-end fields are passed on; hop-by-hop ones, Host, Content-Length and Accept-Encoding are not
	Body   []byte      // the caller leaves it alone until Do has failed or Response.Body is closed
	Stream bool        // the body asks for an event stream
	Chat   bool        // a chat completion; an adapter that assembles answers needs to know
}

// Response is the answer to a Request. Close Body, always: it gives the connection back.
type Response struct {
	Status int
	Header http.Header // without hop-by-hop fields; the caller owns it
	// Body yields the answer as the engine sends it, without waiting to fill the buffer. It ends with io.EOF only where
	// the answer is complete; else with an error that wraps ErrIncomplete, ErrSilent, ErrTooLong or ctx's error.
	Body io.ReadCloser
	// Usage is what the engine itself counted. Valid after Body has returned io.EOF; before that all Unknown.
	Usage func() Usage
}

// Usage is an engine's own count of one request's tokens; peer.Unknown where it does not report.
type Usage struct {
	Prompt, Cached, Completion int
}

// UnknownUsage is the usage of an answer that reports none.
func UnknownUsage() Usage {
	return Usage{Prompt: peer.Unknown, Cached: peer.Unknown, Completion: peer.Unknown}
}

// Report is what a Probe found. Counts are peer.Unknown where the engine does not tell.
type Report struct {
	Models        []peer.Model
	Running       int // requests that it computes now, of all its clients
	Waiting       int // requests in its own queue
	KVPermille    int // of its KV memory, what requests in flight hold: load, not fullness of the prefix cache
	CachePermille int // how full its prefix cache is; vLLM and SGLang do not tell
	Slots         int // requests that it runs at once
	CacheTokens   int64
	BlockTokens   int
	Epoch         peer.Epoch
	Cache         peer.Cache // the adapter's declaration, completed by what the engine told
	Salts         bool
}

// Traits is what an adapter declares about its engine.
type Traits struct {
	Adapter  string // "openai", "llamacpp", "emulated"
	Product  string // what Detect recognised behind it: "vllm", "ollama", …; empty where nothing told
	Emulated bool   // it computes nothing
	Salts    bool   // it separates its cache by the request's cache_salt
	Cache    peer.Cache
}
