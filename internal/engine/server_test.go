package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/emulate"
	"shoal/internal/peer"
)

// emulatedEngine starts a server on loopback and an engine for it.
func emulatedEngine(t testing.TB, cfg emulate.Config) (*Server, Engine) {
	t.Helper()
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c := Defaults()
	c.URL, c.Adapter = "http://"+l.Addr().String(), Emulated
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return s, e
}

func chat(prompt string, more string) []byte {
	p, _ := json.Marshal(prompt)
	return []byte(`{"model":"emulated","messages":[{"role":"user","content":` + string(p) + `}]` + more + `}`)
}

// ask sends a chat request and reads the whole answer.
func ask(t testing.TB, e Engine, body []byte, stream bool) (status int, answer []byte, u Usage) {
	t.Helper()
	r, err := e.Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: body, Stream: stream, Chat: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
	return r.Status, b, r.Usage()
}

// content is the text of a plain chat answer, or of a stream.
func content(t testing.TB, answer []byte) string {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(string(answer)) {
		d, stream := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if d == "" || d == "[DONE]" || strings.HasPrefix(d, ":") {
			continue
		}
		var v struct {
			Choices []struct {
				Message, Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(d), &v); err != nil {
			t.Fatalf("%v in %s", err, d)
		}
		for _, c := range v.Choices {
			if stream {
				text.WriteString(c.Delta.Content)
			} else {
				text.WriteString(c.Message.Content)
			}
		}
	}
	return text.String()
}

func TestEmulatedEngineSaysSoEverywhere(t *testing.T) {
	_, e := emulatedEngine(t, emulate.Instant())
	if tr := e.Traits(); !tr.Emulated || tr.Adapter != "emulated" {
		t.Errorf("traits %+v", tr)
	}
	_, answer, _ := ask(t, e, chat("hello", ""), false)
	if !strings.HasPrefix(content(t, answer), "[emulated] ") {
		t.Errorf("answer %s", answer)
	}
	for _, page := range []struct{ path, has string }{{"/v1/models", `"owned_by":"shoal-emulated"`}, {"/metrics", "shoal_emulated_requests_running 0"}} {
		r, err := e.Do(t.Context(), &Request{Method: "GET", Path: page.path})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if !strings.Contains(string(b), page.has) || r.Header.Get(EmulatedHeader) != "true" {
			t.Errorf("%s: %v %s", page.path, r.Header, b)
		}
	}
}

func TestEmulatedStreamIsThePlainAnswer(t *testing.T) {
	_, e := emulatedEngine(t, emulate.Instant())
	_, plain, u := ask(t, e, chat("the same prompt for both, long enough for a block of tokens or two", `,"max_tokens":9`), false)
	_, stream, su := ask(t, e, chat("the same prompt for both, long enough for a block of tokens or two", `,"max_tokens":9,"stream":true`), true)
	if p, s := content(t, plain), content(t, stream); p != s || len(p) != 9*4 {
		t.Errorf("plain %q, stream %q", p, s)
	}
	if n := strings.Count(string(stream), `"finish_reason":null`); n != 9 {
		t.Errorf("%d chunks, want one a token", n)
	}
	if u.Completion != 9 || u.Cached != 0 || su.Completion != 9 || su.Prompt != u.Prompt {
		t.Errorf("usage %+v, of the stream %+v", u, su)
	}
	if want := (u.Prompt - 1) / 16 * 16; su.Cached != want {
		t.Errorf("second request: %d tokens cached, want %d of %d", su.Cached, want, u.Prompt)
	}
}

func TestEmulatedEngineReusesAConversationWithItsAnswers(t *testing.T) {
	_, e := emulatedEngine(t, emulate.Instant())
	first := `{"role":"user","content":"` + strings.Repeat("once upon a time ", 40) + `"}`
	_, answer, u := ask(t, e, []byte(`{"model":"emulated","max_tokens":160,"messages":[`+first+`]}`), false)
	second := first + `,{"role":"assistant","content":"` + content(t, answer) + `"},{"role":"user","content":"go on"}`
	_, _, u2 := ask(t, e, []byte(`{"model":"emulated","max_tokens":4,"messages":[`+second+`]}`), false)
	if least := u.Prompt + 160 - 2*16; u2.Cached < least {
		t.Errorf("second turn: %d tokens cached, want at least %d", u2.Cached, least)
	}
}

// pitfalls 21
func TestEmulatedEngineSeparatesSalts(t *testing.T) {
	_, e := emulatedEngine(t, emulate.Instant())
	prompt := strings.Repeat("secret ", 50)
	ask(t, e, chat(prompt, `,"cache_salt":"a"`), false)
	if _, _, u := ask(t, e, chat(prompt, `,"cache_salt":"b"`), false); u.Cached != 0 {
		t.Errorf("another salt finds %d tokens", u.Cached)
	}
	if _, _, u := ask(t, e, chat(prompt, `,"cache_salt":"a"`), false); u.Cached == 0 {
		t.Error("the same salt finds nothing")
	}
}

func TestEmulatedEngineRefusesWhatItCannotServe(t *testing.T) {
	cfg := emulate.Instant()
	cfg.Context = 100
	_, e := emulatedEngine(t, cfg)
	for _, c := range []struct {
		name, body string
		status     int
		param      string
	}{
		{"no JSON", `{"model":`, 400, ""},
		{"another model", `{"model":"x","messages":[{"role":"user","content":"x"}]}`, 404, "model"},
		{"no messages", `{"model":"emulated"}`, 400, "messages"},
		{"empty messages", `{"model":"emulated","messages":[]}`, 400, "messages"},
		{"no role", `{"model":"emulated","messages":[{"content":"x"}]}`, 400, "messages[0].role"},
		{"content of a wrong type", `{"model":"emulated","messages":[{"role":"user","content":1}]}`, 400, "messages[0].content"},
		{"max_tokens 0", string(chat("x", `,"max_tokens":0`)), 400, "max_tokens"},
		{"n 0", string(chat("x", `,"n":0`)), 400, "n"},
		{"too long", string(chat(strings.Repeat("word", 120), "")), 400, "messages"},
	} {
		status, answer, _ := ask(t, e, []byte(c.body), false)
		var v struct {
			Error struct {
				Message string
				Param   string
			}
		}
		if err := json.Unmarshal(answer, &v); err != nil || status != c.status || v.Error.Param != c.param || v.Error.Message == "" {
			t.Errorf("%s: %d %s", c.name, status, answer)
		}
	}
	if status, answer, u := ask(t, e, chat("x", `,"max_tokens":5000`), false); status != 200 || u.Prompt+u.Completion != 100 {
		t.Errorf("too many tokens asked for: %d %+v %s", status, u, answer)
	}
}

func TestEmulatedQueueIsBounded(t *testing.T) {
	cfg := emulate.Defaults()
	cfg.Running, cfg.Waiting, cfg.Decode = 1, 2, time.Hour // the first request never ends
	s, e := emulatedEngine(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			_, err := e.Do(ctx, &Request{Path: "/v1/chat/completions", Body: chat(fmt.Sprint(i), `,"max_tokens":9`)})
			if err == nil {
				t.Error("an answer came")
			}
		})
	}
	eventually(t, func() bool { st := s.Stats(); return st.Running+st.Waiting == 3 })
	if status, answer, _ := ask(t, e, chat("one more", ""), false); status != 503 {
		t.Errorf("%d %s", status, answer)
	}
	cancel()
	wg.Wait()
	eventually(t, func() bool { st := s.Stats(); return st.Running+st.Waiting == 0 })
}

// pitfalls 19
func TestAbortedStreamsLeaveTheEngineIdle(t *testing.T) {
	cfg := emulate.Instant()
	cfg.Decode = 20 * time.Millisecond
	cfg.Running = 256
	s, e := emulatedEngine(t, cfg)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := e.Do(ctx, &Request{Path: "/v1/chat/completions", Body: chat(fmt.Sprint(i), `,"max_tokens":2000,"stream":true`), Stream: true})
			if err != nil {
				t.Error(err)
				return
			}
			var b [512]byte
			if _, err := r.Body.Read(b[:]); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				cancel() // the other half just closes
				if _, err := io.ReadAll(r.Body); err != context.Canceled {
					t.Errorf("after cancel: %v", err)
				}
			}
			r.Body.Close()
		})
	}
	wg.Wait()
	eventually(t, func() bool { st := s.Stats(); return st.Running+st.Waiting+st.Pinned == 0 })
}

func TestEmulatedTimesAreTheModels(t *testing.T) {
	cfg := emulate.Instant()
	cfg.Prefill, cfg.Decode = 100*time.Microsecond, 2*time.Millisecond
	_, e := emulatedEngine(t, cfg)
	start := time.Now()
	_, _, u := ask(t, e, chat(strings.Repeat("word", 500), `,"max_tokens":11`), false)
	least := time.Duration(u.Prompt)*cfg.Prefill + 10*cfg.Decode
	if took := time.Since(start); took < least {
		t.Errorf("took %v, want at least %v", took, least)
	}
}

func TestProbeOfAnEmulatedEngine(t *testing.T) {
	cfg := emulate.Instant()
	cfg.Context, cfg.CacheTokens = 4096, 1600
	s, e := emulatedEngine(t, cfg)
	ask(t, e, chat(strings.Repeat("word", 796), `,"max_tokens":1`), false)
	r, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Models) != 1 || r.Models[0].Name != "emulated" || r.Models[0].Context != 4096 || r.Running != 0 || r.Waiting != 0 || r.Slots != 64 {
		t.Errorf("report %+v", r)
	}
	if r.CacheTokens != 1600 || r.BlockTokens != 16 || r.Cache.Tokens != 1600 || !r.Salts || r.Cache.Kind != peer.Paged {
		t.Errorf("cache %+v", r)
	}
	if r.CachePermille < 480 || r.CachePermille > 520 {
		t.Errorf("cache %d permille full, want about half", r.CachePermille)
	}
	if r.Epoch.Start/1000 != s.born.Unix() {
		t.Errorf("epoch %+v, born %v", r.Epoch, s.born)
	}
}

func TestEmulatedEmbeddings(t *testing.T) {
	_, e := emulatedEngine(t, emulate.Instant())
	get := func(body string) string {
		r, err := e.Do(t.Context(), &Request{Path: "/v1/embeddings", Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		if r.Status != http.StatusOK {
			return fmt.Sprint(r.Status)
		}
		return string(b)
	}
	a := get(`{"model":"emulated","input":"x"}`)
	if a != get(`{"model":"emulated","input":["x"]}`) || a == get(`{"model":"emulated","input":"y"}`) {
		t.Error("vectors depend on something else than the text")
	}
	var v struct {
		Data []struct{ Embedding []byte }
	}
	if err := json.Unmarshal([]byte(get(`{"model":"emulated","input":"x","encoding_format":"base64"}`)), &v); err != nil || len(v.Data[0].Embedding) != 4*embeddingSize {
		t.Errorf("base64: %v", err)
	}
	if got := get(`{"model":"emulated","input":[]}`); got != "400" {
		t.Errorf("without input: %s", got)
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it has not happened within 5 s")
		}
	}
}
