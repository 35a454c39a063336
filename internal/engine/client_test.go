package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// plainEngine is an `openai` engine for a URL.
func plainEngine(t testing.TB, url string, change func(*Config)) Engine {
	t.Helper()
	c := Defaults()
	c.URL, c.Adapter = url, OpenAI
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// scripted is an engine that reads each request and then does what the test says, on the bare connection. It returns its
// URL. The connections are those of net.Pipe, so that time can be the test's own.
func scripted(t testing.TB, serve func(n int, r *http.Request, nc net.Conn) (goOn bool)) func(*Config) {
	var conns atomic.Int32
	return func(c *Config) {
		c.URL = "http://inner-address:8000"
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			n := int(conns.Add(1))
			go func() {
				defer far.Close()
				br := bufio.NewReader(far)
				for {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					if !serve(n, r, far) {
						return
					}
				}
			}()
			return near, nil
		}
	}
}

const (
	okHead  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// chunk frames one piece of a chunked body.
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

var (
	aChunk = chunk("data: {\"choices\":[]}\n\n")
	aDone  = chunk("data: [DONE]\n\n")
)

const lastChunk = "0\r\n\r\n"

func do(t testing.TB, e Engine) (string, error) {
	t.Helper()
	r, err := e.Do(t.Context(), &Request{Path: "/v1/completions", Body: []byte(`{}`)})
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

func TestAConnectionServesManyRequests(t *testing.T) {
	var most atomic.Int32
	e := plainEngine(t, "", scripted(t, func(n int, _ *http.Request, nc net.Conn) bool {
		most.Store(int32(n))
		io.WriteString(nc, okHead)
		return true
	}))
	for range 50 {
		if got, err := do(t, e); err != nil || got != "{}" {
			t.Fatalf("%q %v", got, err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d connections for one request after the other", most.Load())
	}
}

func TestReusedConnectionThatIsGoneIsReplacedOnce(t *testing.T) {
	var requests, conns atomic.Int32
	e := plainEngine(t, "", scripted(t, func(n int, _ *http.Request, nc net.Conn) bool {
		conns.Store(int32(n))
		// As a server whose patience has just ended: the second request of each connection gets no byte.
		if requests.Add(1)%2 == 0 {
			return false
		}
		io.WriteString(nc, okHead)
		return true
	}))
	for i := range 10 {
		if got, err := do(t, e); err != nil || got != "{}" {
			t.Fatalf("request %d: %q %v", i, got, err)
		}
	}
	if n := conns.Load(); n != 10 {
		t.Errorf("%d connections", n)
	}
}

func TestFreshConnectionThatIsLostIsNotTriedAgain(t *testing.T) {
	var requests atomic.Int32
	e := plainEngine(t, "", scripted(t, func(int, *http.Request, net.Conn) bool {
		requests.Add(1)
		return false
	}))
	if _, err := do(t, e); !errors.Is(err, ErrDown) {
		t.Errorf("error %v", err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestRequestWithAByteOfResponseIsNotTriedAgain(t *testing.T) {
	var requests atomic.Int32
	e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
		if requests.Add(1) == 1 {
			io.WriteString(nc, okHead)
			return true
		}
		io.WriteString(nc, "HTTP/1.1 2")
		return false
	}))
	do(t, e)
	if _, err := do(t, e); !errors.Is(err, ErrDown) {
		t.Errorf("error %v", err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("sent %d times", n)
	}
}

// pitfalls 30
func TestStreamThatEndsWithoutDoneIsIncomplete(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         error
	}{
		{"whole", sseHead + aChunk + aDone + lastChunk, nil},
		{"the framing ends, no [DONE]", sseHead + aChunk + lastChunk, ErrIncomplete},
		{"killed between chunks", sseHead + aChunk, ErrIncomplete},
		{"killed in a chunk", sseHead + aChunk + "20\r\ndata: {", ErrIncomplete},
		{"[DONE], and then killed", sseHead + aChunk + aDone, nil},
		{"[DONE] only in a text", sseHead + chunk(`data: {"text":"data: [DONE]"}`+"\n\n") + lastChunk, ErrIncomplete},
		{"until the connection ends, with [DONE]", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n", nil},
		{"until the connection ends, without", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n", ErrIncomplete},
		{"plain, short of its length", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", ErrIncomplete},
		{"a stream of another kind", "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n" + aChunk + lastChunk, nil},
		{"garbage for framing", sseHead + "zz\r\n", ErrIncomplete},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
				io.WriteString(nc, c.answer)
				return false
			}))
			if got, err := do(t, e); !errors.Is(err, c.want) {
				t.Errorf("%q ends with %v, want %v", got, err, c.want)
			}
		})
	}
}

// pitfalls 36
func TestEngineThatGoesSilentInAStreamIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
			io.WriteString(nc, sseHead)
			for range 5 { // slow, but alive
				time.Sleep(50 * time.Second)
				io.WriteString(nc, aChunk)
			}
			io.Copy(io.Discard, nc)
			return false
		}))
		defer e.Close()
		r, err := e.Do(t.Context(), &Request{Path: "/v1/completions", Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b, err := io.ReadAll(r.Body)
		if !errors.Is(err, ErrSilent) || bytes.Count(b, []byte("data")) != 5 {
			t.Errorf("%q ends with %v", b, err)
		}
		if silent := time.Since(began) - 250*time.Second; silent < time.Minute || silent > 70*time.Second {
			t.Errorf("noticed after %v of silence", silent)
		}
		r.Body.Close()
	})
}

func TestEngineThatNeverAnswersIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
			if n.Add(1) == 1 { // a kept connection changes nothing
				io.WriteString(nc, okHead)
				return true
			}
			io.Copy(io.Discard, nc)
			return false
		}))
		defer e.Close()
		do(t, e)
		began := time.Now()
		if _, err := do(t, e); !errors.Is(err, ErrSilent) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != Defaults().FirstByte {
			t.Errorf("after %v", took)
		}
		if n.Load() != 2 {
			t.Errorf("sent %d times: an engine that is busy was asked again", n.Load())
		}
	})
}

func TestDoneEndsTheWaitForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
			io.WriteString(nc, sseHead+aChunk+aDone)
			io.Copy(io.Discard, nc) // and never the end of the framing
			return false
		}))
		defer e.Close()
		began := time.Now()
		if _, err := do(t, e); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("waited %v for the end of the framing", took)
		}
	})
}

// pitfalls 19
func TestCancelClosesTheConnectionAtOnce(t *testing.T) {
	for _, headSent := range []bool{false, true} {
		t.Run(fmt.Sprintf("head sent %v", headSent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := make(chan time.Time, 1)
				e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
					if headSent {
						io.WriteString(nc, sseHead+aChunk)
					}
					nc.Read(make([]byte, 1))
					closed <- time.Now()
					return false
				}))
				defer e.Close()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				want := time.Now().Add(time.Second)
				r, err := e.Do(ctx, &Request{Path: "/v1/completions", Stream: true})
				if err == nil {
					_, err = io.ReadAll(r.Body)
					r.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
				if at := <-closed; !at.Equal(want) {
					t.Errorf("closed %v after the cancel", at.Sub(want))
				}
			})
		})
	}
}

func TestCloseBeforeTheEndClosesTheConnection(t *testing.T) {
	gone := make(chan struct{})
	e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
		io.WriteString(nc, sseHead+aChunk)
		nc.Read(make([]byte, 1))
		close(gone)
		return false
	}))
	r, err := e.Do(t.Context(), &Request{Path: "/v1/completions", Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Read(make([]byte, 100))
	r.Body.Close()
	<-gone
	if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read after close: %d %v", n, err)
	}
	r.Body.Close()
}

func TestIdleConnectionsAreClosedBeforeTheEngineDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns atomic.Int32
		closed := make(chan time.Time, 9)
		serve := scripted(t, func(n int, _ *http.Request, nc net.Conn) bool {
			conns.Store(int32(n))
			io.WriteString(nc, okHead)
			return true
		})
		e := plainEngine(t, "", func(c *Config) {
			serve(c)
			dial := c.Dial
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				nc, err := dial(ctx, n, a)
				return closeTold{nc, closed}, err
			}
		})
		defer e.Close()
		do(t, e)
		time.Sleep(Defaults().IdleTimeout / 2)
		do(t, e)
		used := time.Now()
		if at := <-closed; at.Sub(used) != Defaults().IdleTimeout {
			t.Errorf("closed %v after its last use", at.Sub(used))
		}
		do(t, e)
		if conns.Load() != 2 {
			t.Errorf("%d connections", conns.Load())
		}
	})
}

type closeTold struct {
	net.Conn
	at chan<- time.Time
}

func (c closeTold) Close() error {
	select {
	case c.at <- time.Now():
	default:
	}
	return c.Conn.Close()
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	defer s.Close()
	e := plainEngine(t, s.URL, func(c *Config) { c.IdleConns = 3 })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { do(t, e) })
	}
	wg.Wait()
	cl := e.(*openai).cl
	if n := len(cl.idle); n == 0 || n > 3 {
		t.Errorf("%d idle connections", n)
	}
	e.Close()
	if _, err := do(t, e); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A connection that the engine has closed while it was idle is not used, even where nothing would be lost by trying.
func TestClosedIdleConnectionIsSeen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	defer s.Close()
	e := plainEngine(t, s.URL, nil)
	do(t, e)
	c := e.(*openai).cl.idle[0]
	if !c.alive() {
		t.Error("an open connection counts as closed")
	}
	s.CloseClientConnections()
	eventually(t, func() bool { return !c.alive() })
}

// pitfalls 29
func TestFieldsAndBodiesGoOnAsTheyAre(t *testing.T) {
	type seen struct {
		r    *http.Request
		body []byte
	}
	came := make(chan seen, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		came <- seen{r, b}
		w.Header()["X-Answer"] = []string{"1", "2"}
		w.Header().Set("Connection", "keep-alive, X-Private")
		w.Header().Set("X-Private", "y")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(418)
		io.WriteString(w, `{"unknown":1}`)
	}))
	defer s.Close()
	for _, size := range []int{0, 100, 10_000, 1_000_000} {
		e := plainEngine(t, s.URL+"/prefix/v1/", nil)
		sent := bytes.Repeat([]byte("x"), size)
		r, err := e.Do(t.Context(), &Request{Method: "PUT", Path: "/v1/any%2Fthing", Query: "a=b&c", Body: sent, Header: http.Header{
			"X-Session": {"s", "t"}, "Content-Type": {"application/json; x=y"}, "Authorization": {"Bearer client"}, "User-Agent": {"me"},
			"Connection": {"close, X-Mine"}, "X-Mine": {"1"}, "Te": {"trailers"}, "Host": {"other"}, "Accept-Encoding": {"gzip"},
			"Content-Length": {"7"}, "Transfer-Encoding": {"chunked"}, "Expect": {"100-continue"}, "Upgrade": {"h2c"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(r.Body)
		r.Body.Close()
		one := <-came
		got, body := one.r, one.body
		if err != nil || r.Status != 418 || string(answer) != `{"unknown":1}` {
			t.Errorf("%d %s %v", r.Status, answer, err)
		}
		if len(r.Header["X-Answer"]) != 2 || r.Header.Get("X-Private") != "" || r.Header.Get("Keep-Alive") != "" || r.Header.Get("Connection") != "" {
			t.Errorf("response header %v", r.Header)
		}
		if got.Method != "PUT" || got.RequestURI != "/prefix/v1/any%2Fthing?a=b&c" || !bytes.Equal(body, sent) || got.Host != strings.TrimPrefix(s.URL, "http://") {
			t.Errorf("%s %s %s, %d bytes", got.Method, got.RequestURI, got.Host, len(body))
		}
		for name, want := range map[string]string{"X-Session": "s", "Content-Type": "application/json; x=y", "Authorization": "Bearer client",
			"User-Agent": "me", "X-Mine": "", "Te": "", "Accept-Encoding": "", "Connection": "", "Expect": "", "Upgrade": ""} {
			if v := got.Header.Get(name); v != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
		if len(got.Header["X-Session"]) != 2 || got.ContentLength != int64(size) {
			t.Errorf("X-Session %q, length %d", got.Header["X-Session"], got.ContentLength)
		}
	}
}

func TestEnginesKeyReplacesTheClients(t *testing.T) {
	came := make(chan []string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { came <- r.Header["Authorization"] }))
	defer s.Close()
	e := plainEngine(t, s.URL, func(c *Config) { c.APIKey = "engine" })
	for _, h := range []http.Header{{"Authorization": {"Bearer client"}}, {}, nil} {
		r, err := e.Do(t.Context(), &Request{Path: "/v1/x", Header: h})
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := <-came; len(got) != 1 || got[0] != "Bearer engine" {
			t.Errorf("%q", got)
		}
	}
}

func TestWhatHTTPCannotCarryIsRefused(t *testing.T) {
	e := plainEngine(t, "http://127.0.0.1:1", nil)
	for _, r := range []*Request{
		{Path: "v1"}, {Path: "/v1 HTTP/1.1\r\nX: y"}, {Path: "/v1", Query: "a b"}, {Path: "/v1", Method: "GET /x"}, {Path: "/ü"},
		{Path: "/v1", Header: http.Header{"X": {"a\r\nContent-Length: 0"}}}, {Path: "/v1", Header: http.Header{"X: y\r\nZ": {"a"}}},
		{Path: "/v1", Header: http.Header{"": {"a"}}},
	} {
		if _, err := e.Do(t.Context(), r); !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestHeadsAreBounded(t *testing.T) {
	for name, head := range map[string]string{
		"long":               "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
		"no HTTP":            "SSH-2.0-OpenSSH_9.6\r\n\r\n\r\n",
		"too many interim":   strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20),
		"no colon":           "HTTP/1.1 200 OK\r\nBad\r\n\r\n",
		"an endless nothing": strings.Repeat("\r\n", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
				io.WriteString(nc, head)
				return false
			}))
			if _, err := do(t, e); !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestInterimResponsesArePassedOver(t *testing.T) {
	e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
		io.WriteString(nc, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+okHead)
		return true
	}))
	if got, err := do(t, e); err != nil || got != "{}" {
		t.Errorf("%q %v", got, err)
	}
}

func TestAnswerBeforeTheBodyWasReadIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(nc))
			io.WriteString(nc, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
			nc.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, nc)
			nc.Close()
		}
	}()
	e := plainEngine(t, "http://"+l.Addr().String(), nil)
	r, err := e.Do(t.Context(), &Request{Path: "/v1/x", Body: make([]byte, 20<<20)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); r.Status != 413 || string(b) != "{}" || err != nil {
		t.Errorf("%d %q %v", r.Status, b, err)
	}
}

// pitfalls 33
func TestErrorsForClientsNameNoInnerAddress(t *testing.T) {
	e := plainEngine(t, "http://127.0.0.1:1/inner", nil)
	_, err := do(t, e)
	if !errors.Is(err, ErrDown) || !Dead(err) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("for the log: %v", err)
	}
	var typed *Error
	if !errors.As(err, &typed) {
		t.Fatalf("%T", err)
	}
	for _, public := range []string{typed.Public(), Public(err), Public(io.ErrUnexpectedEOF)} {
		if strings.Contains(public, "127.0.0.1") || strings.Contains(public, "inner") || public == "" {
			t.Errorf("for clients: %s", public)
		}
	}
	seen := map[string]bool{}
	for _, kind := range []error{ErrDown, ErrSilent, ErrIncomplete, ErrTooLong, ErrProtocol, ErrKey, ErrRequest, ErrFull, ErrClosed} {
		seen[Public(failed(kind, nil))] = true
	}
	if len(seen) < 8 {
		t.Errorf("kinds of errors share their words: %v", seen)
	}
}

func TestTLSIsCheckedUnlessToldNotTo(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	s.Config.ErrorLog = quiet
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		tls  TLS
		ok   bool
	}{
		{"the system's authorities", TLS{}, false},
		{"its own authority", TLS{CAFile: ca}, true},
		{"another name", TLS{CAFile: ca, ServerName: "example.com"}, true},
		{"a wrong name", TLS{CAFile: ca, ServerName: "wrong.test"}, false},
		{"insecure", TLS{Insecure: true}, true},
	} {
		e := plainEngine(t, s.URL, func(cfg *Config) { cfg.TLS = c.tls })
		for range 2 { // and on a kept connection
			got, err := do(t, e)
			if c.ok && (err != nil || got != "{}") || !c.ok && !errors.Is(err, ErrDown) {
				t.Errorf("%s: %q %v", c.name, got, err)
			}
		}
		var unknown *tls.CertificateVerificationError
		if _, err := do(t, e); !c.ok && !errors.As(err, &unknown) {
			t.Errorf("%s: the error does not say why: %v", c.name, err)
		}
	}
	bad := Defaults()
	bad.URL, bad.TLS.CAFile = s.URL, filepath.Join(t.TempDir(), "none")
	if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Errorf("a missing CA file: %v", err)
	}
}

func TestStreamsCostNoGoroutineButTheCallers(t *testing.T) {
	const streams = 300
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	e := plainEngine(t, s.URL, nil)
	before := runtime.NumGoroutine()
	var open []*Response
	for range streams {
		r, err := e.Do(t.Context(), &Request{Path: "/v1/completions", Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	// The server has its own two a connection: serving it, and watching whether the client is still there.
	if n := runtime.NumGoroutine() - before; n > 2*streams+20 {
		t.Errorf("%d goroutines for %d streams", n, streams)
	}
	for _, r := range open {
		r.Body.Close()
	}
}

var quiet = log.New(io.Discard, "", 0)
