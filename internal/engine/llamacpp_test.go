package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"shoal/internal/peer"
)

// fakeLlama answers completions with these events, and keeps the last request.
type fakeLlama struct {
	events []string
	status int // other than 200: events[0] is the whole answer
	mu     sync.Mutex
	last   *http.Request
	body   string
}

// sent is the last completion request and its body.
func (f *fakeLlama) sent() (*http.Request, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.body
}

func (f *fakeLlama) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("Server", "llama.cpp")
	switch r.URL.Path {
	case "/health":
		io.WriteString(w, `{"status":"ok"}`)
	case "/v1/models":
		io.WriteString(w, `{"object":"list","data":[{"id":"m","aliases":["m","a"],"owned_by":"llamacpp","meta":{"n_ctx":2048,"n_ctx_train":8192}}]}`)
	case "/props":
		io.WriteString(w, `{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}`)
	case "/metrics":
		w.Header().Set("Process-Start-Time-Unix", "1351538855")
		io.WriteString(w, "llamacpp:prompt_tokens_total 100\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n")
	default:
		f.mu.Lock()
		f.last, f.body = r, string(b)
		f.mu.Unlock()
		if f.status != 0 {
			w.WriteHeader(f.status)
			io.WriteString(w, f.events[0])
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range f.events {
			io.WriteString(w, "data: "+e+"\n\n")
			w.(http.Flusher).Flush()
		}
	}
}

func (f *fakeLlama) engine(t testing.TB) Engine {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return plainEngine(t, s.URL, func(c *Config) { c.Adapter = LlamaCpp })
}

const (
	progressEvent = `{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"id":"x","object":"chat.completion.chunk","prompt_progress":{"total":27,"cache":26,"processed":27,"time_ms":16}}`
	roleEvent     = `{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"x","model":"m","system_fingerprint":"b0","object":"chat.completion.chunk"}`
	endEvent      = `{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1,"id":"x","model":"m","object":"chat.completion.chunk"}`
	usageEvent    = `{"choices":[],"created":1,"id":"x","model":"m","object":"chat.completion.chunk","usage":{"completion_tokens":3,"prompt_tokens":27,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":26}},"timings":{"cache_n":26,"prompt_n":1,"predicted_n":3}}`
	timingsEvent  = `{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"id":"x","timings":{"cache_n":26,"prompt_n":1,"predicted_n":3}}`
)

func delta(index int, d string) string {
	return fmt.Sprintf(`{"choices":[{"finish_reason":null,"index":%d,"delta":%s}],"created":1,"id":"x","model":"m","object":"chat.completion.chunk"}`, index, d)
}

func TestLlamaPlainAnswersAreAssembled(t *testing.T) {
	for _, c := range []struct {
		name, path string
		events     []string
		want       string
	}{
		{"chat", "/v1/chat/completions",
			[]string{progressEvent, roleEvent, delta(0, `{"content":"Pa\u0072\"is"}`), delta(0, `{"content":" \\ü\n"}`), endEvent, usageEvent},
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"Par\"is \\ü\n"}}],"object":"chat.completion","created":1,"id":"x","model":"m","system_fingerprint":"b0",
			"usage":{"completion_tokens":3,"prompt_tokens":27,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":26}},"timings":{"cache_n":26,"prompt_n":1,"predicted_n":3}}`},
		{"chat without a word", "/v1/chat/completions", []string{roleEvent, endEvent},
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":""}}],"object":"chat.completion","created":1,"id":"x","model":"m","system_fingerprint":"b0"}`},
		{"reasoning and unknown fields", "/v1/chat/completions",
			[]string{roleEvent, delta(0, `{"reasoning_content":"hm"}`), delta(0, `{"reasoning_content":"m","new":[1]}`), delta(0, `{"content":"x"}`),
				`{"choices":[{"finish_reason":"stop","index":0,"delta":{},"stop_reason":7}],"__verbose":{"a":[1,{"b":"}"}]}}`},
			`{"choices":[{"finish_reason":"stop","index":0,"stop_reason":7,"message":{"role":"assistant","content":"x","reasoning_content":"hmm","new":[1]}}],"object":"chat.completion","created":1,"id":"x","model":"m","system_fingerprint":"b0","__verbose":{"a":[1,{"b":"}"}]}}`},
		{"tool calls", "/v1/chat/completions",
			[]string{roleEvent,
				delta(0, `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"ci"}}]}`),
				delta(0, `{"tool_calls":[{"index":0,"function":{"arguments":"ty\":\"Paris\"}"}}]}`),
				delta(0, `{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"now","arguments":"{}"}}]}`),
				`{"choices":[{"finish_reason":"tool_calls","index":0,"delta":{}}],"id":"x"}`},
			`{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":null,"tool_calls":[
				{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}},
				{"id":"c2","type":"function","function":{"name":"now","arguments":"{}"}}]}}],"object":"chat.completion","created":1,"id":"x","model":"m","system_fingerprint":"b0"}`},
		{"choices in any order, with logprobs", "/v1/chat/completions",
			[]string{
				`{"choices":[{"finish_reason":null,"index":1,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-0.5}]}}],"id":"x"}`,
				`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1e-3}]}}],"id":"x"}`,
				`{"choices":[{"finish_reason":null,"index":1,"delta":{"content":"B"},"logprobs":{"content":[{"token":"B","logprob":-2},{"token":"","logprob":-3}]}}],"id":"x"}`,
				`{"choices":[{"finish_reason":"stop","index":1,"delta":{},"logprobs":null}],"id":"x"}`,
				`{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"id":"x"}`},
			`{"choices":[
				{"finish_reason":"length","index":0,"logprobs":{"content":[{"token":"a","logprob":-1e-3}]},"message":{"role":"assistant","content":"a"}},
				{"finish_reason":"stop","index":1,"logprobs":{"content":[{"token":"b","logprob":-0.5},{"token":"B","logprob":-2},{"token":"","logprob":-3}]},"message":{"role":"assistant","content":"bB"}}],
				"object":"chat.completion","id":"x"}`},
		{"completion", "/v1/completions",
			[]string{
				`{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":null}],"id":"x","object":"text_completion","prompt_progress":{"total":5}}`,
				`{"choices":[{"text":" Par","index":0,"logprobs":null,"finish_reason":null}],"id":"x","object":"text_completion"}`,
				`{"choices":[{"text":"is","index":0,"logprobs":null,"finish_reason":null}],"id":"x","object":"text_completion"}`,
				`{"choices":[{"text":"","index":1,"logprobs":null,"finish_reason":"stop"}],"id":"x","object":"text_completion","usage":{"prompt_tokens":2}}`,
				`{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"id":"x","object":"text_completion","usage":{"prompt_tokens":5}}`},
			`{"choices":[{"finish_reason":"length","index":0,"text":" Paris","logprobs":null},{"finish_reason":"stop","index":1,"text":"","logprobs":null}],"object":"text_completion","id":"x","usage":{"prompt_tokens":5}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeLlama{events: append(c.events, "[DONE]")}
			r, err := f.engine(t).Do(t.Context(), &Request{Path: c.path, Body: []byte(`{"messages":[]}`), Chat: strings.Contains(c.path, "chat")})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(r.Body)
			if r.Status != 200 || same(t, got) != same(t, []byte(c.want)) {
				t.Errorf("%d %s\nwant %s", r.Status, got, c.want)
			}
			if r.Header.Get("Content-Type") != "application/json; charset=utf-8" || r.Header.Get("Content-Length") != fmt.Sprint(len(got)) {
				t.Errorf("header %v", r.Header)
			}
		})
	}
}

// same brings JSON into one form.
func same(t testing.TB, b []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func TestLlamaIsAlwaysAskedForAStream(t *testing.T) {
	for _, c := range []struct {
		name, body string
		stream     bool
		want       string
	}{
		{"plain", ` {"a":1} `, false, ` {"a":1,"stream":true,"return_progress":true,"stream_options":{"include_usage":true}}`},
		{"stream", `{"a":{},"stream":true}`, true, `{"a":{},"stream":true,"return_progress":true}`},
		{"empty object", `{ }`, true, `{ "return_progress":true}`},
		{"the client wants to see the progress", `{"stream":true,"return_progress":true}`, true, `{"stream":true,"return_progress":true}`},
		{"the client does not", `{"stream":true,"return_progress":false}`, true, `{"stream":true,"return_progress":false,"return_progress":true}`},
		{"no object", `[1]`, false, `[1]`},
		{"nothing", ``, false, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeLlama{events: []string{progressEvent, roleEvent, "[DONE]"}}
			r, err := f.engine(t).Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: []byte(c.body), Stream: c.stream, Chat: true,
				Header: http.Header{"X-Conversation-Id": {"c"}, "X-Other": {"o"}}})
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(r.Body)
			last, body := f.sent()
			if err != nil || body != c.want || last.ContentLength != int64(len(c.want)) {
				t.Errorf("sent %s, want %s (%v)", body, c.want, err)
			}
			if last.Header.Get("X-Conversation-Id") != "" || last.Header.Get("X-Other") != "o" {
				t.Errorf("header %v", last.Header)
			}
			if wants := strings.Contains(c.name, "wants"); bytes.Contains(answer, progress) != wants {
				t.Errorf("the client sees %s", answer)
			}
		})
	}
	for _, r := range []*Request{{Path: "/v1/embeddings", Body: []byte(`{"a":1}`)}, {Path: "/v1/models", Method: "GET"}} {
		f := &fakeLlama{events: []string{"[DONE]"}}
		res, err := f.engine(t).Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if _, body := f.sent(); body != string(r.Body) {
			t.Errorf("%s: sent %s", r.Path, body)
		}
	}
}

func TestLlamaStreamIsPassedOnWithoutTheProgress(t *testing.T) {
	events := []string{progressEvent, progressEvent, roleEvent, delta(0, `{"content":"a \"prompt_progress\":{}"}`), progressEvent, timingsEvent, "[DONE]"}
	f := &fakeLlama{events: events}
	want := "data: " + events[2] + "\n\ndata: " + events[3] + "\n\ndata: " + events[5] + "\n\ndata: [DONE]\n\n"
	e := f.engine(t)
	for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
		r, err := e.Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: []byte(`{"stream":true}`), Stream: true, Chat: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(wrap(r.Body))
		r.Body.Close()
		if err != nil || string(got) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
		if u := r.Usage(); u != (Usage{Prompt: 27, Cached: 26, Completion: 3}) {
			t.Errorf("usage %+v", u)
		}
	}
}

func TestLlamaPlainAnswerThatBreaksOffIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name   string
		events []string
		max    int
		want   error
	}{
		{"no [DONE]", []string{roleEvent, endEvent}, 0, ErrIncomplete},
		{"nothing", nil, 0, ErrIncomplete},
		{"no JSON", []string{roleEvent, "{"}, 0, ErrProtocol},
		{"no object", []string{"[1]"}, 0, ErrProtocol},
		{"too long", []string{roleEvent, endEvent, "[DONE]"}, 200, ErrTooLong},
		{"an event too long", []string{delta(0, `{"content":"`+strings.Repeat("x", 9000)+`"}`), "[DONE]"}, 5000, ErrTooLong},
	} {
		s := httptest.NewServer(&fakeLlama{events: c.events})
		e := plainEngine(t, s.URL, func(cfg *Config) {
			cfg.Adapter = LlamaCpp
			if c.max > 0 {
				cfg.MaxAnswer = c.max
			}
		})
		if _, err := e.Do(ctx, &Request{Path: "/v1/chat/completions", Body: []byte(`{}`), Chat: true}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		s.Close()
	}
	cancel()
	e := (&fakeLlama{}).engine(t)
	if _, err := e.Do(ctx, &Request{Path: "/v1/chat/completions", Body: []byte(`{}`)}); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAssemblyIsBounded(t *testing.T) {
	s := assembly{chat: true, room: 1 << 30, choices: map[int]*choice{}}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = s.add([]byte(delta(i, `{"content":"x"}`)))
	}
	if !errors.Is(err, ErrTooLong) || len(s.choices) != maxChoices {
		t.Errorf("%d choices, %v", len(s.choices), err)
	}
	for i := range 1000 {
		if err := s.add([]byte(delta(0, fmt.Sprintf(`{"k%d":"x"}`, i)))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.choices[0].message.keys); n != maxFields {
		t.Errorf("%d members of a message", n)
	}
	for i := 0; err == nil || i < 2; i++ {
		err = s.add([]byte(delta(0, fmt.Sprintf(`{"tool_calls":[{"index":%d}]}`, i-1))))
	}
	same(t, s.append(nil))
}

func TestLlamaErrorsAreAnswers(t *testing.T) {
	long := `{"error":{"code":400,"message":"too long","type":"exceed_context_size_error","n_prompt_tokens":3031,"n_ctx":2048}}`
	for _, c := range []struct {
		name   string
		f      *fakeLlama
		status int
		want   string
	}{
		{"before the stream", &fakeLlama{status: 400, events: []string{long}}, 400, long},
		{"in the stream", &fakeLlama{events: []string{roleEvent, `{"error":{"code":500,"message":"compute","type":"server_error"}}`}}, 500,
			`{"error":{"code":500,"message":"compute","type":"server_error"}}`},
		{"in the stream, with an odd code", &fakeLlama{events: []string{`{"error":{"code":"x"}}`}}, 500, `{"error":{"code":"x"}}`},
	} {
		r, err := c.f.engine(t).Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: []byte(`{}`), Chat: true})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		if r.Status != c.status || string(b) != c.want {
			t.Errorf("%s: %d %s", c.name, r.Status, b)
		}
	}
}

func TestProbeOfLlama(t *testing.T) {
	e := (&fakeLlama{}).engine(t)
	r, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Running != 2 || r.Waiting != 1 || r.Slots != 4 || r.Epoch != (peer.Epoch{Start: 1351538855, Counter: 100}) || r.Salts ||
		r.Cache != (peer.Cache{Kind: peer.Slots, Usable: peer.AfterEnd, Tokens: peer.Unknown, BlockTokens: 1}) {
		t.Errorf("%+v", r)
	}
	if m := r.Models[0]; m.Name != "m" || m.Context != 2048 || len(m.Aliases) != 1 || m.Aliases[0] != "a" {
		t.Errorf("%+v", m)
	}
}

func FuzzAssembly(f *testing.F) {
	for _, s := range []string{progressEvent, roleEvent, endEvent, usageEvent, timingsEvent, delta(0, `{"content":"x","tool_calls":[{"function":{"arguments":"y"}}]}`)} {
		f.Add(s, s, true)
	}
	f.Add(`{"choices":[{"text":"a","logprobs":{"tokens":["a"]}}]}`, `{"choices":[{"text":"b","logprobs":{"tokens":["b"]}}]}`, false)
	f.Add(`{"choices":[1,"x",null,[],{"index":"x","delta":3}],"a":1,"usage":7}`, `{"error":null}`, true)
	f.Fuzz(func(t *testing.T, one, two string, chat bool) {
		s := assembly{chat: chat, room: 1 << 20, choices: map[int]*choice{}}
		for _, c := range []string{one, two, one} {
			if s.add([]byte(c)) != nil {
				return
			}
		}
		if b := s.append(nil); !json.Valid(b) {
			t.Errorf("%q and %q make %s", one, two, b)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\n: c\n\n", uint8(3))
	f.Fuzz(func(t *testing.T, stream string, piece uint8) {
		ev := events{r: &pieces{s: stream, n: int(piece%16) + 1}, max: 64}
		var all []byte
		for {
			e, err := ev.next()
			all = append(all, e...)
			data(e)
			if err == io.EOF {
				break
			}
			if err != nil {
				return // an event over the limit
			}
			if len(e) == 0 {
				t.Fatal("an event of nothing")
			}
		}
		if string(all) != stream {
			t.Errorf("%q comes out as %q", stream, all)
		}
	})
}

type pieces struct {
	s string
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.s == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(p.n, len(b))], p.s)
	p.s = p.s[n:]
	return n, nil
}
