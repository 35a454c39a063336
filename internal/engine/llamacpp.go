package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"shoal/internal/peer"
)

// llamacpp is the adapter for llama.cpp's own server. That server notices only in streams that nobody listens any more:
// a plain request, and any prefill, goes on for as long as anything else happens on it. So everything is streamed from
// it, with reports of the prefill's progress in between, and plain answers are assembled here. A conversation id would
// make it go on on purpose; it is not passed on. (One thing is lost with plain answers: the log-probability of the token
// that ends a text, which the server leaves out of streams.) Its cache holds sequences, one a slot, and says nothing about them
// but how much of each prompt it has found again.
type llamacpp struct {
	openai
	slots int
}

func newLlamaCpp(c Config) (*llamacpp, error) {
	c.IdleConns = min(c.IdleConns, 32) // each idle connection holds one of its threads
	c.IdleTimeout = min(c.IdleTimeout, llamaIdle)
	o, err := newOpenAI(c, LlamaCpp, productLlama)
	if err != nil {
		return nil, err
	}
	l := &llamacpp{slots: peer.Unknown}
	l.cl, l.name = o.cl, o.name
	l.learn(productLlama)
	return l, nil
}

const (
	llamaIdle    = 4e9 // 4 s, since the server closes after 5
	conversation = "X-Conversation-Id"
)

// What is appended to a request's body. Of two keys of one name the server takes the last.
var (
	withProgress = []byte(`,"return_progress":true}`)
	withStream   = []byte(`,"stream":true,"return_progress":true,"stream_options":{"include_usage":true}}`)
)

// Do streams a completion from the server; other requests go through as they are.
func (l *llamacpp) Do(ctx context.Context, r *Request) (*Response, error) {
	x := &exchange{method: r.Method, path: r.Path, query: r.Query, header: r.Header, without: conversation, body: r.Body}
	if !completion(r) {
		return l.plain(ctx, x)
	}
	if r.Stream {
		if asksForProgress(r.Body) {
			return l.plain(ctx, x)
		}
		x.body, x.tail = appended(r.Body, withProgress)
	} else {
		x.body, x.tail = appended(r.Body, withStream)
	}
	a, err := l.cl.do(ctx, x)
	if err != nil {
		return nil, err
	}
	switch {
	case !a.sse: // an error of the request, before any event
		return a.response(), nil
	case r.Stream:
		f := &progressFilter{a: a, ev: events{r: a, max: maxEvent}}
		return &Response{Status: a.res.StatusCode, Header: a.res.Header, Body: f, Usage: a.counted}, nil
	}
	return l.assemble(a, r.Chat)
}

func (l *llamacpp) plain(ctx context.Context, x *exchange) (*Response, error) {
	a, err := l.cl.do(ctx, x)
	if err != nil {
		return nil, err
	}
	return a.response(), nil
}

// completion reports whether the request is one whose answer can be streamed and assembled.
func completion(r *Request) bool {
	return orPost(r.Method) == http.MethodPost && (r.Path == "/v1/chat/completions" || r.Path == "/v1/completions")
}

// appended cuts a JSON object open before its last brace, and returns what goes there, with the brace. A body that is no
// object stays as it is: the server says what is wrong with it.
func appended(body, tail []byte) (cut, rest []byte) {
	b := bytes.TrimRight(body, " \t\r\n")
	open := bytes.TrimLeft(b, " \t\r\n")
	if len(open) < 2 || open[0] != '{' || b[len(b)-1] != '}' {
		return body, nil
	}
	b = b[:len(b)-1]
	if before := bytes.TrimRight(b, " \t\r\n"); before[len(before)-1] == '{' {
		tail = tail[1:] // nothing stands before the comma
	}
	return b, tail
}

// asksForProgress reports whether the client itself wants the progress chunks.
func asksForProgress(body []byte) bool {
	if !bytes.Contains(body, []byte(`"return_progress"`)) {
		return false
	}
	var top struct {
		Progress any `json:"return_progress"`
	}
	return json.Unmarshal(body, &top) == nil && top.Progress == true
}

// Probe adds the number of slots, and the context of one.
func (l *llamacpp) Probe(ctx context.Context) (Report, error) {
	r, err := l.openai.Probe(ctx)
	if err != nil {
		return r, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == peer.Unknown || l.age == 1 {
		status, _, body, err := l.cl.get(ctx, "/props", maxPage)
		if err != nil {
			return Report{}, err
		}
		var props struct {
			Slots int `json:"total_slots"`
		}
		if status == http.StatusOK && json.Unmarshal(body, &props) == nil && props.Slots > 0 {
			l.slots = props.Slots
		}
	}
	r.Slots = l.slots
	return r, nil
}

// startOf identifies the life of a llama.cpp server: it names its start in a header of its metrics, in microseconds of
// its machine's own clock. 0 without.
func startOf(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Process-Start-Time-Unix"), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// progressFilter passes an event stream on without the reports of progress.
type progressFilter struct {
	a       *answer
	ev      events
	pending []byte // of an event that did not fit
	err     error
}

var progress = []byte(`"prompt_progress":`)

// Read yields whole events, as many as are here and fit.
func (f *progressFilter) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(f.pending) > 0 {
			m := copy(p[n:], f.pending)
			f.pending = f.pending[m:]
			n += m
			continue
		}
		if f.err != nil {
			break
		}
		if n > 0 && !f.ev.ready() {
			return n, nil
		}
		event, err := f.ev.next()
		f.err = err
		// Inside a JSON string the key's quotation marks would be escaped.
		if !bytes.Contains(event, progress) {
			f.pending = event
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, f.err
}

func (f *progressFilter) Close() error { return f.a.Close() }
