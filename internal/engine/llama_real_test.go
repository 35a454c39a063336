package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/llama"
)

// TestRealLlama shares one server, which the last part kills.
func TestRealLlama(t *testing.T) {
	e, kill := realLlama(t)
	t.Run("Answers", func(t *testing.T) { testRealLlamaAnswers(t, e) })
	t.Run("PlainAnswersAreItsOwn", func(t *testing.T) { testRealLlamaPlainAnswersAreItsOwn(t, e) })
	t.Run("StopsWhenTheClientLeaves", func(t *testing.T) { testRealLlamaStopsWhenTheClientLeaves(t, e) })
	t.Run("GoesOnBeyondAHundredRequestsAConnection", func(t *testing.T) { testRealLlamaBeyondAHundredRequestsAConnection(t, e) })
	t.Run("KilledInAStreamIsIncomplete", func(t *testing.T) { testRealLlamaKilledInAStreamIsIncomplete(t, e, kill) })
}

// realLlama starts llama.cpp's own server where it is installed in this checkout, with one thread.
func realLlama(t *testing.T) (e Engine, kill func()) {
	t.Helper()
	dir, err := filepath.Abs("../../.engines")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "installed.json")); err != nil {
		t.Skip("llama.cpp is not installed in .engines; `make up` or `shoal up` installs it")
	}
	env, err := llama.Setup(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cmd := env.Command(context.Background(), llama.Options{Context: 2048, Batch: 64})
	cmd.Stderr = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		t.Fatalf("it does not start: %q %v", line, err)
	}
	c := Defaults()
	c.URL = url // and find out what it is
	if e, err = New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, kill
}

func france(more string) []byte {
	return []byte(`{"model":"SmolLM2-135M-Instruct","messages":[{"role":"system","content":"` + llama.SystemPrompt +
		`"},{"role":"user","content":"What is the capital of France?"}],"temperature":0,"max_tokens":12` + more + `}`)
}

func testRealLlamaAnswers(t *testing.T, e Engine) {
	if tr := e.Traits(); tr.Adapter != LlamaCpp {
		t.Fatalf("traits %+v", tr)
	}
	r, err := e.Probe(t.Context())
	if err != nil || len(r.Models) != 1 || r.Models[0].Name != llama.ModelName || r.Models[0].Context != 2048 || r.Slots != 4 ||
		r.Running != 0 || r.Waiting != 0 || r.Epoch.Start == 0 {
		t.Fatalf("report %+v, %v", r, err)
	}
	status, answer, u := ask(t, e, france(""), false)
	if text := content(t, answer); status != 200 || text != "The capital of France is Paris." {
		t.Errorf("%d %q", status, text)
	}
	if u.Prompt != 27 || u.Completion < 7 || u.Cached != 0 {
		t.Errorf("usage %+v", u)
	}
	status, stream, su := ask(t, e, france(`,"stream":true`), true)
	if text := content(t, stream); status != 200 || text != "The capital of France is Paris." {
		t.Errorf("stream: %d %q", status, text)
	}
	if strings.Contains(string(stream), "prompt_progress") {
		t.Error("the client sees reports of progress")
	}
	if su.Prompt != 27 || su.Cached != 26 || su.Completion != u.Completion {
		t.Errorf("usage of the stream %+v", su)
	}
}

// testRealLlamaPlainAnswersAreItsOwn compares what is assembled with what the server itself gives without a stream.
func testRealLlamaPlainAnswersAreItsOwn(t *testing.T, e Engine) {
	inner := e.(*auto).engine().(*llamacpp)
	for _, c := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", string(france(""))},
		{"chat with choices and logprobs", "/v1/chat/completions", string(france(`,"n":2,"logprobs":true,"top_logprobs":2,"max_tokens":6`))},
		{"chat without a token of content", "/v1/chat/completions", string(france(`,"stop":["The"]`))},
		{"completion", "/v1/completions", `{"prompt":"The capital of France is","temperature":0,"max_tokens":5}`},
		{"completion with choices and logprobs", "/v1/completions", `{"prompt":"The capital of France is","temperature":0,"max_tokens":5,"n":2,"logprobs":2}`},
		{"several prompts", "/v1/completions", `{"prompt":["The capital of France is","The sky"],"temperature":0,"max_tokens":3}`},
		{"an error", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":"abc"}`},
		{"too long", "/v1/completions", `{"prompt":"` + strings.Repeat("word ", 3000) + `"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			chat := strings.Contains(c.path, "chat")
			get := func(do func() (*Response, error)) (int, map[string]any) {
				r, err := do()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				var v map[string]any
				if err := json.Unmarshal(b, &v); err != nil {
					t.Fatalf("%v in %s", err, b)
				}
				return r.Status, v
			}
			own := func() (*Response, error) {
				return inner.openai.Do(t.Context(), &Request{Path: c.path, Body: []byte(c.body), Chat: chat})
			}
			get(own) // so that the cache is the same for both
			status, want := get(own)
			gotStatus, got := get(func() (*Response, error) {
				return e.Do(t.Context(), &Request{Path: c.path, Body: []byte(c.body), Chat: chat})
			})
			for _, v := range []map[string]any{got, want} {
				for _, key := range []string{"id", "created"} {
					delete(v, key)
				}
				if timings, ok := v["timings"].(map[string]any); ok {
					for key := range timings {
						if !strings.HasSuffix(key, "_n") {
							delete(timings, key)
						}
					}
				}
			}
			g, _ := json.Marshal(rounded(got))
			w, _ := json.Marshal(rounded(want))
			if gotStatus != status || string(g) != string(w) {
				t.Errorf("%d\n%s\nwant %d\n%s", gotStatus, g, status, w)
			}
		})
	}
}

// rounded takes the noise of batch shapes off log-probabilities.
func rounded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			v[k] = rounded(one)
		}
	case []any:
		for i, one := range v {
			v[i] = rounded(one)
		}
	case float64:
		return float64(int64(v*10)) / 10
	}
	return v
}

// pitfalls 19
func testRealLlamaStopsWhenTheClientLeaves(t *testing.T, e Engine) {
	idle := func() bool {
		inner := e.(*auto).engine().(*llamacpp)
		_, _, b, err := inner.cl.get(t.Context(), "/metrics", maxPage)
		if err != nil {
			t.Fatal(err)
		}
		return readMetrics(b).running == 0
	}
	for _, c := range []struct {
		name, prompt string
		stream       bool
		first        bool // wait for the first byte
	}{
		{"in a stream", "Tell me a story.", true, true},
		{"in a plain answer", "Tell me another story.", false, false},
		{"in the prefill", strings.Repeat("one two three four ", 400), true, false},
		{"in the prefill of a plain answer", strings.Repeat("five six seven eight ", 400), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}],"max_tokens":1000,"ignore_eos":true,"stream":%v}`, c.prompt, c.stream)
			done := make(chan error, 1)
			go func() {
				r, err := e.Do(ctx, &Request{Path: "/v1/chat/completions", Body: body, Stream: c.stream, Chat: true})
				if err == nil {
					if c.first {
						r.Body.Read(make([]byte, 1))
						cancel()
					}
					_, err = io.ReadAll(r.Body)
					r.Body.Close()
				}
				done <- err
			}()
			eventually(t, func() bool { return !idle() })
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the request ends with %v", err)
			}
			began := time.Now()
			eventually(t, idle)
			t.Logf("idle %v after the client left", time.Since(began).Round(time.Millisecond))
		})
	}
}

// pitfalls 30
func testRealLlamaKilledInAStreamIsIncomplete(t *testing.T, e Engine, kill func()) {
	r, err := e.Do(t.Context(), &Request{Path: "/v1/chat/completions", Chat: true, Stream: true,
		Body: []byte(`{"messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":1000,"ignore_eos":true,"stream":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := r.Body.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	kill()
	if _, err := io.ReadAll(r.Body); !errors.Is(err, ErrIncomplete) {
		t.Errorf("the stream ends with %v", err)
	}
	if _, err := e.Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: france("")}); !errors.Is(err, ErrDown) {
		t.Errorf("after that %v", err)
	}
	if _, err := e.Probe(t.Context()); !errors.Is(err, ErrDown) {
		t.Errorf("probe %v", err)
	}
}

func testRealLlamaBeyondAHundredRequestsAConnection(t *testing.T, e Engine) {
	for i := range 230 {
		r, err := e.Do(t.Context(), &Request{Method: http.MethodPost, Path: "/tokenize", Body: []byte(`{"content":"x"}`)})
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		r.Body.Close()
	}
}
