package engine

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

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

var quiet = log.New(io.Discard, "", 0)

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
