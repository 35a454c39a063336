package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/wire"
)

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

const helloStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`

// answerJSON and answerEvents are engines that answer properly.
func answerJSON(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`)
}

func answerEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"n\":1}\n\n")
	w.(http.Flusher).Flush()
	io.WriteString(w, "data: {\"n\":2}\n\ndata: [DONE]\n\n")
}

// post sends a body and reads the whole answer.
func post(t testing.TB, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodPost, url, body, header...)
}

func do(t testing.TB, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
	return res, string(b)
}

// twoPeers are gateways a, which routes to b, and b with the engine.
func twoPeers(t testing.TB, h http.HandlerFunc) (a, b *shoal, url string) {
	t.Helper()
	b = newShoal("b", engineAt(t, h))
	gb := gatewayOf(t, b)
	a = newShoal("a", nil)
	a.via("b")
	a.hop = func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
		return dial(ctx, f, body, func(p *hopPipe) { gb.ServeHop(p) }), nil
	}
	_, url = front(t, a)
	return a, b, url
}

// eachWay runs a test with the answer coming from the own engine, and over a hop.
func eachWay(t *testing.T, h http.HandlerFunc, f func(t *testing.T, url string, by peer.ID, idle func())) {
	t.Run("own", func(t *testing.T) {
		s := newShoal("a", engineAt(t, h))
		_, url := front(t, s)
		f(t, url, "a", func() { s.idle(t) })
		s.idle(t)
	})
	t.Run("hop", func(t *testing.T) {
		a, b, url := twoPeers(t, h)
		f(t, url, "b", func() { a.idle(t); b.idle(t) })
		a.idle(t)
		b.idle(t)
	})
}

// pitfalls 29
func TestUnknownFieldsAndHeadersReachTheEngine(t *testing.T) {
	const body = `{ "model":"m" , "messages":[{"role":"user","content":"caf\u00e9 \ud83d\ude00","vendor":{"a":[1.0e2]}}],"cache_salt":"mine","priority":-1,"new_field":{"x":null} }`
	var got []byte
	var header http.Header
	var query string
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header, query = r.Header, r.URL.RawQuery
		w.Header().Add("X-Vendor-Answer", "one")
		w.Header().Add("X-Vendor-Answer", "two")
		answerJSON(w, r)
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		res, _ := post(t, url+"/v1/chat/completions?a=b%20c", body, "X-Vendor", "v", "Traceparent", "00-1-2-01", "OpenAI-Beta", "x",
			"Connection", "keep-alive, X-Hop", "X-Hop", "1", "Te", "trailers", "X-Shoal-Explain", "1", "Authorization", "Bearer secret")
		if string(got) != body {
			t.Errorf("the engine got %s", got)
		}
		if header.Get("X-Vendor") != "v" || header.Get("Traceparent") != "00-1-2-01" || header.Get("Openai-Beta") != "x" || query != "a=b%20c" {
			t.Errorf("the engine got %v, query %q", header, query)
		}
		for _, name := range []string{"X-Hop", "Te", "X-Shoal-Explain", "Authorization", "Accept-Encoding"} {
			if v := header.Get(name); v != "" {
				t.Errorf("the engine got %s: %s", name, v)
			}
		}
		if v := res.Header.Values("X-Vendor-Answer"); len(v) != 2 || v[1] != "two" {
			t.Errorf("the client got X-Vendor-Answer %q", v)
		}
	})
}

func TestAuthorizationGoesOnOnlyWhereConfigured(t *testing.T) {
	var got string
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization"); answerJSON(w, r) }))
	_, url := front(t, s, func(c *Config) { c.PassAuthorization = true })
	post(t, url+pathChat, hello, "Authorization", "Bearer theirs")
	if got != "Bearer theirs" {
		t.Errorf("the engine got %q", got)
	}
}

func TestAliasesReachTheEngineAsTheNameItKnows(t *testing.T) {
	var got []byte
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body); answerJSON(w, r) }))
	_, url := front(t, s)
	if res, b := post(t, url+pathChat, `{"temperature": 1.50, "model" : "m-alias","messages":[{"role":"user","content":"m-alias"}]}`); res.StatusCode != 200 {
		t.Fatal(b)
	}
	if want := `{"temperature": 1.50, "model" : "m","messages":[{"role":"user","content":"m-alias"}]}`; string(got) != want {
		t.Errorf("the engine got %s", got)
	}
	if s.routed[0].Model != "m" {
		t.Errorf("routed by the model %q", s.routed[0].Model)
	}
}

func TestAnswersNameThePeerTheMatchAndTheReason(t *testing.T) {
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Shoal-Peer", "forged")
		w.Header().Set("X-Shoal-New", "forged")
		answerJSON(w, r)
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		res, _ := post(t, url+pathChat, hello)
		h := res.Header
		if h.Get(headerPeer) != string(by) || h.Get(headerMatched) != "448" || h.Get(headerReason) == "" || h.Get(headerExplanation) != "" || h.Get("X-Shoal-New") != "" {
			t.Errorf("headers %v", h)
		}
		res, _ = post(t, url+pathChat, hello, headerExplain, "1")
		var e node.Explanation
		if err := json.Unmarshal([]byte(res.Header.Get(headerExplanation)), &e); err != nil || len(e.Candidates) != 1 || e.Candidates[0].Peer != by {
			t.Errorf("explanation %q: %v", res.Header.Get(headerExplanation), err)
		}
	})
}

func TestLongExplanationsAreShortened(t *testing.T) {
	e := &node.Explanation{Policy: "cost", Candidates: make([]node.ExplanationCandidate, 1000)}
	for i := range e.Candidates {
		e.Candidates[i].Peer = peer.ID(strings.Repeat("x", 64))
	}
	e.Candidates[990].Chosen = true
	s := explanation(e)
	var got node.Explanation
	if err := json.Unmarshal([]byte(s), &got); err != nil || len(s) > maxExplanation || len(got.Candidates) < 10 {
		t.Fatalf("%d bytes with %d candidates: %v", len(s), len(got.Candidates), err)
	}
	if !got.Candidates[len(got.Candidates)-1].Chosen {
		t.Error("the chosen peer is left out")
	}
	if len(e.Candidates) != 1000 {
		t.Error("the explanation itself was changed")
	}
}

// Each chunk is at the client before the engine makes the next: nothing on the way batches. pitfalls 28
func TestEachChunkIsPassedOnAtOnce(t *testing.T) {
	next := make(chan struct{})
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			io.WriteString(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		io.WriteString(w, "data: [DONE]\n\n")
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		res, err := http.Post(url+pathChat, "application/json", strings.NewReader(helloStream))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for range 5 {
			if lines.Scan(); lines.Text() != "data: {}" {
				t.Fatalf("got %q, %v", lines.Text(), lines.Err())
			}
			lines.Scan()
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(res.Body); err != nil {
			t.Fatalf("%q: %v", rest, err)
		}
	})
}

// pitfalls 28
func TestConnectionsOfClientsHaveNoDelay(t *testing.T) {
	s := newShoal("a", engineAt(t, answerJSON))
	g := gatewayOf(t, s)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = g.Server(g)
	var delay atomic.Int64
	delay.Store(-1)
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return ctx
		}
		raw.Control(func(fd uintptr) {
			v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
			if err != nil || v == 0 {
				t.Errorf("TCP_NODELAY is %d: %v", v, err)
			}
			delay.Store(int64(v))
		})
		return ctx
	}
	srv.Start()
	defer srv.Close()
	post(t, srv.URL+pathChat, hello)
	if delay.Load() < 0 {
		t.Error("no connection was looked at")
	}
}

// An engine that answers before it has read the body, and a body that is still arriving: neither cuts the answer short.
// pitfalls 32
func TestAnswersAreWholeWhereTheEngineDoesNotReadTheBody(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	body := `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"text":"`+long[:300_000]+`"}`)
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		for range 8 {
			res, got := post(t, url+pathChat, body)
			if res.StatusCode == http.StatusOK && len(got) != 300_000+11 {
				t.Fatalf("the answer has %d bytes", len(got))
			}
		}
	})
}

func TestUsageAndSuccessReachTheAccounts(t *testing.T) {
	b := newShoal("b", engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathCompletions {
			w.WriteHeader(http.StatusBadRequest)
		}
		answerJSON(w, r)
	}))
	_, url := front(t, b)
	post(t, url+pathChat, hello)
	post(t, url+pathCompletions, `{"model":"m","prompt":"x"}`)
	b.idle(t)
	if len(b.ends) != 2 || b.ends[0] != (ended_{node.Usage{Prompt: 9, Cached: 5, Completion: 3}, true}) || b.ends[1].ok {
		t.Errorf("ended %+v", b.ends)
	}
	if b.started != 2 || b.firsts != 0 {
		t.Errorf("%d started, %d first tokens of plain answers", b.started, b.firsts)
	}
}

func TestTheChainTravelsWithAHop(t *testing.T) {
	a, b, url := twoPeers(t, answerEvents)
	body := `{"model":"m","stream":true,"max_tokens":77,"messages":[{"role":"user","content":"` + strings.Repeat("many words ", 200) + `"}]}`
	if res, got := post(t, url+pathChat, body); res.StatusCode != 200 || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Fatalf("%d %s", res.StatusCode, got)
	}
	a.idle(t)
	b.idle(t)
	at, there := a.routed[0], b.admitted[0]
	if len(at.Chain) < 8 || len(at.Chain) != len(there.Chain) || at.Chain[7] != there.Chain[7] || at.Tail != there.Tail || at.Bytes != there.Bytes || there.MaxTokens != 77 || there.Model != "m" {
		t.Errorf("routed %+v\nadmitted %+v", at, there)
	}
	if len(a.accepted) != 1 || a.accepted[0] != b.Stamp(0) || a.outcomes[0].Kind != node.Ended || b.firsts != 1 || len(b.routed) != 0 {
		t.Errorf("accepted %v, outcomes %+v, first tokens %d, routed again %d", a.accepted, a.outcomes, b.firsts, len(b.routed))
	}
}

func TestEmulatedEnginesAreSaidToBe(t *testing.T) {
	a, b, url := twoPeers(t, answerJSON)
	b.eng = emulated{b.eng}
	res, _ := post(t, url+pathChat, hello)
	if res.Header.Get(headerEmulated) != "true" {
		t.Errorf("headers %v", res.Header)
	}
	a.models[0].Emulated = true
	_, list := do(t, http.MethodGet, url+pathModels, "")
	if !strings.Contains(list, `"emulated":true`) {
		t.Error(list)
	}
}

func TestAnyPathBelowV1IsPassedThrough(t *testing.T) {
	var got, path, method, contentType string
	h := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, path, method, contentType = string(b), r.URL.Path, r.Method, r.Header.Get("Content-Type")
		w.Header().Set("Content-Type", "audio/mpeg")
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "\x00mp3")
	}
	own := newShoal("a", engineAt(t, h))
	_, url := front(t, own)
	res, b := post(t, url+"/v1/audio/speech", "--x\r\nno JSON", "Content-Type", "multipart/form-data; boundary=x")
	if b != "\x00mp3" || got != "--x\r\nno JSON" || path != "/v1/audio/speech" || method != "POST" || contentType != "multipart/form-data; boundary=x" || res.Header.Get("Content-Type") != "audio/mpeg" {
		t.Errorf("engine got %s %s %s %q; client %d %q %v", method, path, contentType, got, res.StatusCode, b, res.Header)
	}
	if res.Header.Get(headerReason) != reasonPassThrough || res.Header.Get(headerPeer) != "a" || len(own.routed) != 0 {
		t.Errorf("own engine first: %v", res.Header)
	}
	if res, _ := do(t, http.MethodHead, url+"/v1/files/1", ""); res.StatusCode != 200 || method != "HEAD" || res.ContentLength != 4 {
		t.Errorf("HEAD: %d, %s, length %d", res.StatusCode, method, res.ContentLength)
	}
	do(t, http.MethodDelete, url+"/v1/files/1", "")
	if method != "DELETE" {
		t.Error("DELETE came as", method)
	}

	// A peer without an engine passes it to one that serves the model, else to any.
	a, bee, url := twoPeers(t, h)
	if _, b := post(t, url+"/v1/responses", `{"model":"m-alias","input":"x"}`); b != "\x00mp3" || a.routed[0].Model != "m" || got != `{"model":"m","input":"x"}` {
		t.Errorf("%q, routed by %q, engine got %q", b, a.routed[0].Model, got)
	}
	if _, b := post(t, url+"/v1/responses", `{"model":"nobody's","input":"x"}`); b != "\x00mp3" || a.routed[1].Model != "" {
		t.Errorf("%q, routed by %q", b, a.routed[1].Model)
	}
	a.route = func(r *node.Request, d *node.Decision) {
		if r.Model == "" {
			to("b")(a, r, d)
		}
	}
	if _, b := post(t, url+"/v1/responses", `{"model":"m","input":"x"}`); b != "\x00mp3" {
		t.Errorf("with nobody for the model: %q", b)
	}
	a.idle(t)
	bee.idle(t)
}

func TestPathsThatLeadElsewhereAreNotPassedOn(t *testing.T) {
	called := false
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { called = true }))
	g := gatewayOf(t, s)
	for _, path := range []string{"/", "/slots", "/v1", "/v1/../slots", "/v1/%2e%2e/slots", "/v1/x/..%2f..%2f../slots", "/v1//slots", "/v2/x", "/v1/./x"} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "unknown_url") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if called {
		t.Error("the engine was asked")
	}
}

func TestModelsAreTheUnionOfThePeers(t *testing.T) {
	s := newShoal("a", nil)
	s.models = []ModelEntry{{Name: "m", Context: 8192}, {Name: "org/lora", Parent: "m", Context: peer.Unknown}}
	_, url := front(t, s)
	res, b := do(t, http.MethodGet, url+"/v1/models", "")
	if want := `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"shoal","max_model_len":8192},` +
		`{"id":"org/lora","object":"model","created":0,"owned_by":"shoal","parent":"m"}]}` + "\n"; b != want || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s", b)
	}
	for path, want := range map[string]string{
		"/v1/models/org/lora":   `{"id":"org/lora","object":"model","created":0,"owned_by":"shoal","parent":"m"}` + "\n",
		"/v1/models/org%2Flora": `{"id":"org/lora","object":"model","created":0,"owned_by":"shoal","parent":"m"}` + "\n",
		"/v1/models/m-alias":    `{"id":"m-alias","object":"model","created":0,"owned_by":"shoal","root":"m","max_model_len":8192}` + "\n",
	} {
		if _, b := do(t, http.MethodGet, url+path, ""); b != want {
			t.Errorf("%s: %s", path, b)
		}
	}
	if res, b := do(t, http.MethodGet, url+"/v1/models/none", ""); res.StatusCode != 404 || !strings.Contains(b, "model_not_found") {
		t.Errorf("%d %s", res.StatusCode, b)
	}
	s.models = nil
	if _, b := do(t, http.MethodGet, url+"/v1/models", ""); b != `{"object":"list","data":[]}`+"\n" {
		t.Errorf("of no peers: %s", b)
	}
}

// Connections of clients are kept, whatever was answered on them.
func TestConnectionsAreKept(t *testing.T) {
	s := newShoal("a", engineAt(t, answerEvents))
	_, url := front(t, s)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	for _, body := range []string{helloStream, `{}`, helloStream, `{"model":"x"}`, helloStream} {
		var req bytes.Buffer
		r, _ := http.NewRequest(http.MethodPost, url+pathChat, strings.NewReader(body))
		r.Write(&req)
		conn.Write(req.Bytes())
		res, err := http.ReadResponse(br, r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
}
