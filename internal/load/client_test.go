package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/peer"
)

// endpoint is an OpenAI endpoint that answers chats by the given handler.
func endpoint(t *testing.T, chat http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"m1"},{"id":"m2"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", chat)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// ask sends one request of the default workload and returns what was seen.
func ask(t *testing.T, url string, change func(*Config)) Result {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Targets, cfg.Workload, cfg.Requests, cfg.Model = []string{url}, fewShot(t, nil), 1, "m1"
	if change != nil {
		change(&cfg)
	}
	c, err := newClient(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.model = cfg.Model
	return c.do(t.Context(), cfg.Workload.Request(0), 0, time.Now())
}

func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range events {
		fmt.Fprintf(w, "data: %s\n\n", e)
		w.(http.Flusher).Flush()
	}
}

func cutOff() { panic(http.ErrAbortHandler) } // closes the connection in the middle

const (
	role    = `{"choices":[{"delta":{"role":"assistant","content":null}}]}`
	one     = `{"choices":[{"delta":{"content":"one "}}]}`
	two     = `{"choices":[{"delta":{"content":"two"}}]}`
	finish  = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	usage   = `{"choices":[],"usage":{"prompt_tokens":540,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":500}}}`
	timings = `{"choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":500,"prompt_n":40,"predicted_n":2}}`
	failure = `{"error":{"message":"the engine died","type":"server_error"}}`
	refusal = `{"error":{"message":"every peer pushes back","type":"overloaded"}}`
	plain   = `{"choices":[{"message":{"content":"one two"}}],"usage":{"prompt_tokens":540,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":500}}}`
)

func TestErrorsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name    string
		stream  bool
		handler http.HandlerFunc
		kind    Kind
		first   bool // a byte of the answer had come
		detail  string
	}{
		{"a complete stream", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, role, one, two, finish, usage, "[DONE]") }, OK, true, ""},
		{"an empty answer", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, role, finish, "[DONE]") }, OK, true, ""},
		{"an error event", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, one, failure, "[DONE]") }, ErrorEvent, true, "the engine died"},
		{"an error event and nothing after it", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, one, failure) }, ErrorEvent, true, "the engine died"},
		{"an error event of older engines", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, `{"object":"error","message":"no"}`) }, ErrorEvent, true, "no"},
		{"a stream without DONE", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, one, two, finish) }, Truncated, true, "without [DONE]"},
		{"a stream without anything", true, func(w http.ResponseWriter, _ *http.Request) { sse(w) }, Truncated, false, "without [DONE]"},
		{"a stream cut off", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, one); cutOff() }, Cut, true, "EOF"},
		{"cut off before the headers", true, func(http.ResponseWriter, *http.Request) { cutOff() }, Cut, false, "EOF"},
		{"a chunk that is not JSON", true, func(w http.ResponseWriter, _ *http.Request) { sse(w, one, "oops") }, BadAnswer, true, "not JSON"},
		{"a plain answer to a stream", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, plain)
		}, BadAnswer, false, "application/json"},
		{"pushed back", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503); io.WriteString(w, refusal) }, Status, false, "every peer pushes back"},
		{"a redirect is not followed", true, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		}, Status, false, ""},

		{"a complete answer", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, plain) }, OK, true, ""},
		{"an answer cut off", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, plain)
		}, Cut, true, "EOF"},
		{"an answer that is not JSON", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, BadAnswer, true, "not JSON"},
		{"an answer without choices", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, BadAnswer, true, "no choices"},
		{"an error with status 200", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, failure) }, ErrorEvent, true, "the engine died"},
		{"an answer without an end", false, func(w http.ResponseWriter, _ *http.Request) {
			for range 17 {
				w.Write(make([]byte, 1<<20))
			}
		}, BadAnswer, true, "more than 16777216 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask(t, endpoint(t, c.handler).URL, func(cfg *Config) { cfg.Stream = c.stream })
			if r.Kind != c.kind || r.FirstByte != c.first || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("kind %q, first byte %v, detail %q; want %q, %v, %q", r.Kind, r.FirstByte, r.Detail, c.kind, c.first, c.detail)
			}
			if r.Total <= 0 {
				t.Errorf("total %v", r.Total)
			}
		})
	}
}

func TestARefusedConnectionIsNoTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if r := ask(t, "http://"+l.Addr().String(), nil); r.Kind != Refused || r.FirstByte || r.Status != 0 {
		t.Errorf("%+v", r)
	}
}

func TestARequestThatTakesTooLongIsATimeout(t *testing.T) {
	for _, first := range []bool{false, true} {
		s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				sse(w, one)
			}
			io.Copy(io.Discard, r.Body) // or the server does not see the client leave
			<-r.Context().Done()
		})
		r := ask(t, s.URL, func(c *Config) { c.Timeout = 50 * time.Millisecond })
		if r.Kind != TimedOut || r.FirstByte != first {
			t.Errorf("first byte %v: %+v", first, r)
		}
	}
}

func TestARequestLeftAtTheEndOfTheRunHasNotFailed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		sse(w, one)
		cancel()
		<-r.Context().Done()
	})
	cfg := DefaultConfig()
	cfg.Targets, cfg.Workload = []string{s.URL}, fewShot(t, nil)
	c, err := newClient(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if r := c.do(ctx, cfg.Workload.Request(0), 0, time.Now()); r.Kind != Unfinished {
		t.Errorf("%+v", r)
	}
}

// The first chunk of a chat has no content yet: TTFT is the first that has.
func TestTTFTIsTheFirstChunkWithContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := roundTrip(func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				defer w.Close()
				for _, e := range []string{role, one, two, "[DONE]"} {
					wait(r.Context(), time.Second)
					fmt.Fprintf(w, "data: %s\n\n", e)
				}
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r}, nil
		})
		r := ask(t, "http://127.0.0.1:1", func(c *Config) { c.Transport = rt })
		if r.TTFT != 2*time.Second || r.Total != 4*time.Second || r.TPOT != 2*time.Second || r.Output != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func TestEveryKindOfContentCounts(t *testing.T) {
	for _, chunk := range []string{one, `{"choices":[{"text":"x"}]}`, `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`} {
		s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, role, chunk, "[DONE]") })
		if r := ask(t, s.URL, nil); r.TTFT == 0 || r.Output != 1 {
			t.Errorf("%s: %+v", chunk, r)
		}
	}
}

func TestTheEnginesOwnCounts(t *testing.T) {
	const unknown = peer.Unknown
	for _, c := range []struct {
		name                   string
		chunks                 []string
		prompt, cached, output int64
	}{
		{"usage", []string{one, two, finish, usage}, 540, 500, 2},
		{"timings of llama.cpp", []string{one, two, timings}, 540, 500, 2},
		{"usage without details, with timings", []string{one, timings, `{"choices":[],"usage":{"prompt_tokens":541,"completion_tokens":3}}`}, 541, 500, 3},
		{"usage without details", []string{one, `{"choices":[],"usage":{"prompt_tokens":541,"completion_tokens":3,"prompt_tokens_details":null}}`}, 541, unknown, 3},
		{"nothing", []string{one, two, finish}, unknown, unknown, 2},
		{"nothing cached is known to be nothing", []string{one, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`}, 9, 0, 1},
		{"counts below zero are unknown", []string{one, `{"choices":[],"usage":{"prompt_tokens":-9,"completion_tokens":-1}}`}, unknown, unknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, append(c.chunks, "[DONE]")...) })
			r := ask(t, s.URL, nil)
			if r.Kind != OK || r.Prompt != c.prompt || r.Cached != c.cached || r.Output != c.output {
				t.Errorf("%+v, want %d, %d, %d", r, c.prompt, c.cached, c.output)
			}
		})
	}
}

func TestWhatTheShoalSaysInHeaders(t *testing.T) {
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Shoal-Peer", "a2")
		w.Header().Set("X-Shoal-Reason", "cost")
		w.Header().Set("X-Shoal-Matched-Tokens", r.Header.Get("X-Test"))
		sse(w, one, "[DONE]")
	})
	if r := ask(t, s.URL, nil); r.Peer != "a2" || r.Reason != "cost" || r.Matched != peer.Unknown {
		t.Errorf("%+v", r)
	}
	r := Result{Matched: peer.Unknown}
	for value, want := range map[string]int64{"512": 512, "0": 0} {
		if r.headers(http.Header{"X-Shoal-Matched-Tokens": {value}}); r.Matched != want {
			t.Errorf("%q: %d", value, r.Matched)
		}
	}
	for _, value := range []string{"", "-1", "many"} {
		r := Result{Matched: peer.Unknown}
		if r.headers(http.Header{"X-Shoal-Matched-Tokens": {value}}); r.Matched != peer.Unknown {
			t.Errorf("%q: %d", value, r.Matched)
		}
	}
}

func TestWhatIsSent(t *testing.T) {
	for _, c := range []struct {
		name    string
		request Request
		change  func(*Config)
		want    string
	}{
		{"a stream", Request{System: "S", User: "U"}, func(c *Config) { c.MaxTokens = 7 },
			`{"model":"m1","messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}],"max_tokens":7,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`},
		{"no stream, no bound", Request{User: "U"}, func(c *Config) { c.Stream, c.MaxTokens = false, 0 },
			`{"model":"m1","messages":[{"role":"user","content":"U"}],"temperature":0}`},
		{"the workload's output", Request{User: "U", Output: 5}, func(c *Config) { c.Stream, c.MaxTokens = false, 7 },
			`{"model":"m1","messages":[{"role":"user","content":"U"}],"max_tokens":5,"temperature":0}`},
		{"the workload's output, bounded", Request{User: "U", Output: 50}, func(c *Config) { c.Stream, c.MaxTokens = false, 7 },
			`{"model":"m1","messages":[{"role":"user","content":"U"}],"max_tokens":7,"temperature":0}`},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		cl := &client{cfg: &cfg, model: "m1"}
		if got := string(cl.body(c.request)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type"))
	})
	if r := ask(t, s.URL, func(c *Config) { c.APIKey = "k" }); r.Detail != "Bearer k application/json" {
		t.Errorf("headers: %s", r.Detail)
	}
}

// Measured on llama.cpp's server: ten of forty requests were cut off by connections that it had closed after a stream.
func TestLlamaCppGetsAConnectionForEveryRequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "llama.cpp")
		if r.Method == http.MethodGet {
			io.WriteString(w, `{"data":[{"id":"m1"}]}`)
			return
		}
		if !r.Close {
			w.WriteHeader(500)
			return
		}
		sse(w, one, "[DONE]")
	}))
	defer s.Close()
	cfg := DefaultConfig()
	cfg.Targets, cfg.Workload, cfg.Requests = []string{s.URL}, fewShot(t, nil), 5
	if report, err := Run(t.Context(), cfg); err != nil || report.OK != 5 {
		t.Errorf("%v: %+v", err, report)
	}
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	connections := map[string]bool{}
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		sse(w, one, "[DONE]")
	})
	cfg := DefaultConfig()
	cfg.Targets, cfg.Workload, cfg.Requests, cfg.Clients = []string{s.URL}, fewShot(t, nil), 20, 1
	report, err := Run(t.Context(), cfg)
	if err != nil || report.OK != 20 || len(connections) > 2 { // the preflight may have one of its own
		t.Errorf("%v: %+v over %d connections", err, report, len(connections))
	}
}
