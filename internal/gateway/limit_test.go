package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/wire"
)

// shape is OpenAI's error object.
type shape struct {
	Error *struct {
		Message string
		Type    string
		Param   *string
		Code    *string
	}
}

func errorOf(t *testing.T, body string) shape {
	t.Helper()
	var s shape
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Error == nil || s.Error.Message == "" || s.Error.Type == "" {
		t.Fatalf("not an OpenAI error: %q %v", body, err)
	}
	if strings.Contains(body, "127.0.0.1") || strings.Contains(body, "10.") || strings.Contains(body, "http://") {
		t.Errorf("an inner address is told: %s", body)
	}
	return s
}

func TestRequestsThatNoEngineCouldServeAreRefused(t *testing.T) {
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { t.Error("the engine was asked") }))
	_, url := front(t, s, func(c *Config) { c.MaxBody = 5000 })
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		param                    string
	}{
		{"malformed JSON", "POST", pathChat, `{"model":"m","messages":[{"role":"user",]}`, nil, 400, "messages"},
		{"no messages", "POST", pathChat, `{"model":"m"}`, nil, 400, "messages"},
		{"empty messages", "POST", pathChat, `{"model":"m","messages":[]}`, nil, 400, "messages"},
		{"no role", "POST", pathChat, `{"model":"m","messages":[{}]}`, nil, 400, "messages[0].role"},
		{"no prompt", "POST", pathCompletions, `{"model":"m"}`, nil, 400, "prompt"},
		{"no input", "POST", pathEmbeddings, `{"model":"m"}`, nil, 400, "input"},
		{"no model", "POST", pathChat, `{"messages":[{"role":"user"}]}`, nil, 400, "model"},
		{"empty body", "POST", pathChat, ``, nil, 400, ""},
		{"unknown model", "POST", pathChat, `{"model":"gpt-x","messages":[{"role":"user"}]}`, nil, 404, "model"},
		{"unknown model with a long name", "POST", pathChat, `{"model":"` + strings.Repeat("x", 4000) + `","messages":[{"role":"user"}]}`, nil, 404, "model"},
		{"body over the limit", "POST", pathChat, strings.Repeat(" ", 5001), nil, 413, ""},
		{"wrong method", "GET", pathChat, "", nil, 405, ""},
		{"wrong method for models", "POST", pathModels, "", nil, 405, ""},
		{"compressed body", "POST", pathChat, "\x1f\x8b", []string{"Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		{"too many header fields", "POST", pathChat, hello, manyFields(wire.MaxPairs), 431, ""},
		{"long query", "POST", pathChat + "?" + strings.Repeat("q", wire.MaxQuery+1), hello, nil, 414, ""},
		{"nothing there", "GET", "/metrics", "", nil, 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, b := do(t, c.method, url+c.path, c.body, c.header...)
			e := errorOf(t, b)
			if res.StatusCode != c.status || e.Error.Type != invalidRequest {
				t.Errorf("%d %s", res.StatusCode, b)
			}
			if c.param != "" && (e.Error.Param == nil || *e.Error.Param != c.param) {
				t.Errorf("the field is not named: %s", b)
			}
		})
	}
	s.idle(t)
}

func manyFields(n int) (h []string) {
	for i := range n {
		h = append(h, fmt.Sprintf("X-Field-%d", i), "v")
	}
	return h
}

func TestABodyOfUnknownLengthOverTheLimitIsRefused(t *testing.T) {
	s := newShoal("a", engineAt(t, answerJSON))
	_, url := front(t, s, func(c *Config) { c.MaxBody = len(hello) })
	for n, status := range map[int]int{len(hello): 200, len(hello) + 1: 413} {
		r, _ := http.NewRequest("POST", url+pathChat, io.MultiReader(strings.NewReader(hello+strings.Repeat(" ", n-len(hello)))))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%d bytes: %d", n, res.StatusCode)
		}
	}
}

func TestASlowBodyIsNotWaitedForForEver(t *testing.T) {
	s := newShoal("a", engineAt(t, answerJSON))
	_, url := front(t, s, func(c *Config) { c.BodyTime = 30 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", pathChat)
	b, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 408 ") || !strings.Contains(string(b), "request_timeout") {
		t.Errorf("got %q, %v", b, err)
	}
}

// A client that leaves its answer unread is treated as gone, and the engine is freed.
func TestAClientThatStopsReadingIsGivenUp(t *testing.T) {
	freed := make(chan struct{})
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(freed)
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: "+strings.Repeat("x", 4000)+"\n\n"); err != nil {
				return
			}
		}
	}))
	g, url := front(t, s, func(c *Config) { c.StallTime = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", pathChat, len(helloStream), helloStream)
	<-freed
	quiet(t, g, s)
}

// quiet waits until the gateway has no request left, and checks the accounts.
func quiet(t *testing.T, g *Gateway, shoals ...*shoal) {
	t.Helper()
	for g.metrics.inFlight.Load() != 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("requests are left in flight")
		default:
			yield()
		}
	}
	for _, s := range shoals {
		s.idle(t)
	}
}

// Beyond the limit of requests in flight they wait in a bounded queue; beyond that they are refused.
func TestTheQueueIsBounded(t *testing.T) {
	let := make(chan struct{})
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { <-let; answerJSON(w, r) }))
	s.gate = engine.NewGate(1, 2)
	g, url := front(t, s)
	results := make(chan int, 3)
	for n := range 3 {
		go func() {
			res, _ := post(t, url+pathChat, hello)
			results <- res.StatusCode
		}()
		for { // until it is at the engine, or in the queue
			if in, waiting, _, _ := s.gate.State(); in+waiting == n+1 {
				break
			}
			yield()
		}
	}
	res, b := post(t, url+pathChat, hello)
	if e := errorOf(t, b); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || *e.Error.Code != "overloaded" {
		t.Errorf("beyond the queue: %d %s", res.StatusCode, b)
	}
	close(let)
	for range 3 {
		if status := <-results; status != 200 {
			t.Errorf("in the queue: %d", status)
		}
	}
	quiet(t, g, s)
}

func TestRequestsInFlightHaveALimit(t *testing.T) {
	let, there := make(chan struct{}), make(chan struct{}, 2)
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) { there <- struct{}{}; <-let; answerJSON(w, r) }))
	_, url := front(t, s, func(c *Config) { c.MaxRequests = 2 })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if res, b := post(t, url+pathChat, hello); res.StatusCode != 200 {
				t.Errorf("at the limit: %d %s", res.StatusCode, b)
			}
		})
		<-there
	}
	res, b := post(t, url+pathChat, hello)
	if errorOf(t, b); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("above the limit: %d %s", res.StatusCode, b)
	}
	close(let)
	wg.Wait()
}
