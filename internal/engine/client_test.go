package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// Other APIs end their streams in their own ways.
func TestStreamOfAnotherAPIEndsWithItsFraming(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   error
	}{{sseHead + aChunk + lastChunk, nil}, {sseHead + aChunk, ErrIncomplete}} {
		e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
			io.WriteString(nc, c.answer)
			return false
		}))
		r, err := e.Do(t.Context(), &Request{Path: "/v1/responses", Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r.Body); !errors.Is(err, c.want) {
			t.Errorf("%q ends with %v, want %v", c.answer, err, c.want)
		}
		r.Body.Close()
	}
}

// pitfalls 36
func TestEngineThatGoesSilentInAStreamIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := plainEngine(t, "", scripted(t, func(_ int, _ *http.Request, nc net.Conn) bool {
			io.WriteString(nc, sseHead)
			for range 5 { // slow, but alive
				pass(50 * time.Second)
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
		pass(Defaults().IdleTimeout / 2)
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

// pass lets time pass, in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }
