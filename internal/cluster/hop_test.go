package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/wire"
)

func isSilent(err error) bool { return errors.Is(err, ErrSilent) }

func TestHopCarriesRequestAndAnswer(t *testing.T) {
	for name, opts := range map[string][]option{"clear": nil, "tls": {with(func(c *Config) { c.Keys = []Key{{1}} })}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, opts...)
			n := 0
			for _, size := range []int{0, 1, 500, linkBuf - 100, linkBuf, linkBuf + 1, 100_000, wire.MaxFrame, wire.MaxFrame + 1, 3<<20 + 17} {
				body := make([]byte, size)
				for i := range body {
					body[i] = byte(rand.Uint32())
				}
				for range 2 {
					got, last, err := hop(a.c, "b", string(body))
					if err != nil || got != string(body) || last != wire.TypeEnd {
						t.Fatalf("%d bytes of %d, last %v, %v", len(got), size, last, err)
					}
					n++
				}
			}
			if s := b.c.Stats(); s.HopsServed != uint64(n) || s.HopsIn != 0 {
				t.Fatalf("%+v", s)
			}
			if s := a.c.Stats(); s.HopsOpened != uint64(n) || s.HopsOut != 0 || s.IdleConns != 1 || s.Redials != 0 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestServingPeerSeesTheWholeRequest(t *testing.T) {
	seen := make(chan *wire.Forward, 1)
	a, _ := pair(t, serving(func(s *HopStream) {
		f := *s.Forward()
		if s.From() != "a" && s.From() != "b" {
			t.Errorf("from %s", s.From())
		}
		seen <- &f
		s.Decline(&wire.Decline{Reason: 1, Match: 7})
	}))
	f := benchForward(10_000, true)
	_, last, err := hopWith(context.Background(), a.c, "b", f, make([]byte, 10_000))
	if last != wire.TypeDecline || err != nil {
		t.Fatalf("%v, %v", last, err)
	}
	got := within(t, "request", seen)
	f.Expect.Hopped = true // always, on the other side
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", f) {
		t.Errorf("got  %+v\nsent %+v", got, f)
	}
	if s := a.c.Stats(); s.IdleConns != 1 {
		t.Errorf("%d connections kept after a decline", s.IdleConns)
	}
}

// Many hops at once, of all sizes: nobody gets another one's bytes.
func TestConcurrentHopsDoNotMix(t *testing.T) {
	for name, opts := range map[string][]option{"clear": nil, "tls": {with(func(c *Config) { c.Keys = []Key{{1}} })}} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t, append(opts, patient)...)
			var wg sync.WaitGroup
			for g := range 16 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					rnd := rand.New(rand.NewPCG(1, uint64(g)))
					for range 10 {
						body := bytes.Repeat([]byte{byte(g), byte(rnd.Uint32())}, rnd.IntN(40_000))
						if got, _, err := hop(a.c, "b", string(body)); err != nil || got != string(body) {
							t.Errorf("%d bytes of %d: %v", len(got), len(body), err)
						}
					}
				}()
			}
			wg.Wait()
			if s := a.c.Stats(); s.HopsOut != 0 || s.IdleConns > 16 || s.IdleConns == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// holding serves hops that accept, and then wait for their context to end.
func holding() (serve func(*HopStream), begun chan *HopStream, ended chan error) {
	begun, ended = make(chan *HopStream, 4096), make(chan error, 4096)
	return func(s *HopStream) {
		s.Accept(&wire.Accept{})
		s.Head(&wire.Head{Status: 200})
		s.Data([]byte("first"))
		begun <- s
		<-s.Context().Done()
		ended <- s.Data([]byte("more"))
	}, begun, ended
}

// Whatever way the origin gives up, the serving peer knows at once.
func TestCancelReachesTheServingPeer(t *testing.T) {
	for name, giveUp := range map[string]func(h *Hop, cancel func()){
		"close":   func(h *Hop, _ func()) { h.Close() },
		"context": func(_ *Hop, cancel func()) { cancel() },
		"cut":     func(h *Hop, _ func()) { h.l.close() },
	} {
		t.Run(name, func(t *testing.T) {
			serve, begun, ended := holding()
			a, b := pair(t, serving(serve))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			h, err := a.c.OpenHop(ctx, "b", &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			within(t, "start", begun)
			giveUp(h, cancel)
			if err := within(t, "end", ended); err == nil {
				t.Error("the serving peer may still send")
			}
			eventually(t, "counts to be 0", func() bool { return b.c.Stats().HopsIn == 0 && b.c.Stats().Conns <= 1 })
			h.Close()
			if s := a.c.Stats(); s.HopsOut != 0 || s.IdleConns != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A Recv that waits ends with Close, and with the context.
func TestWaitingRecvEnds(t *testing.T) {
	serve, begun, _ := holding()
	a, _ := pair(t, serving(serve))
	for name, tc := range map[string]struct {
		giveUp func(h *Hop, cancel func())
		want   error
	}{
		"close":   {func(h *Hop, _ func()) { h.Close() }, ErrClosed},
		"context": {func(_ *Hop, cancel func()) { cancel() }, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		h, err := a.c.OpenHop(ctx, "b", &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			for {
				if _, _, err := h.Recv(); err != nil {
					got <- err
					return
				}
			}
		}()
		within(t, "start", begun)
		tc.giveUp(h, cancel)
		if err := within(t, "end", got); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		h.Close()
		h.Close()
		cancel()
	}
	if n := a.c.Stats().HopsOut; n != 0 {
		t.Errorf("%d hops open", n)
	}
}

// pitfalls 18, 19
func TestThousandAbortedHopsLeaveNothing(t *testing.T) {
	serve, begun, ended := holding()
	a, b := pair(t, serving(serve), patient)
	for range 10 {
		var wg sync.WaitGroup
		for range 100 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				h, err := a.c.OpenHop(context.Background(), "b", &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if typ, _, err := h.Recv(); typ != wire.TypeAccept || err != nil {
					t.Errorf("%v, %v", typ, err)
				}
				h.Close()
			}()
		}
		wg.Wait()
	}
	for range 1000 {
		within(t, "start", begun)
		within(t, "end", ended)
	}
	eventually(t, "all counts to be 0", func() bool {
		in, out := b.c.Stats(), a.c.Stats()
		return in.HopsIn == 0 && out.HopsOut == 0 && in.Conns <= 1 && in.HopsServed == 1000
	})
}

// A serving peer that dies takes its hops with it, and they say so.
func TestHopOfADyingPeerFails(t *testing.T) {
	serve, begun, _ := holding()
	a, b := pair(t, serving(serve), with(func(c *Config) { c.Interval = time.Hour }))
	h, err := a.c.OpenHop(context.Background(), "b", &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	within(t, "start", begun)
	b.c.Close()
	for {
		_, _, err := h.Recv()
		if err == nil {
			continue
		}
		if err == io.EOF || isSilent(err) {
			t.Errorf("%v", err)
		}
		break
	}
	if s := a.c.Stats(); s.Redials != 0 {
		t.Error("sent again after an answer had begun")
	}
}

// A kept connection that the peer has closed is dialled again, once, with the whole request.
func TestStaleConnectionIsRedialledOnce(t *testing.T) {
	for _, size := range []int{0, 10, 100_000, 2 << 20} {
		a, b := pair(t)
		body := strings.Repeat("y", size)
		for range 2 {
			if got, _, err := hop(a.c, "b", body); err != nil || got != body {
				t.Fatal(err)
			}
			b.c.mu.Lock()
			for in := range b.c.inbound {
				in.l.close()
			}
			b.c.mu.Unlock()
		}
		if got, _, err := hop(a.c, "b", body); err != nil || got != body {
			t.Errorf("%d of %d bytes: %v", len(got), size, err)
		}
		if s := a.c.Stats(); s.Redials < 2 {
			t.Errorf("%d redials", s.Redials)
		}
		b.c.Close()
		if _, _, err := hop(a.c, "b", body); err == nil {
			t.Error("an answer of nobody")
		}
	}
}

// A new connection that fails is not tried again, nor a kept one on which something came back.
func TestOnlyStaleConnectionsAreRedialled(t *testing.T) {
	var served atomic.Int64
	a, b := pair(t, serving(func(s *HopStream) {
		if served.Add(1) > 1 {
			s.Accept(&wire.Accept{})
			s.in.wmu.Lock()
			s.in.write(nil)
			s.in.wmu.Unlock()
			s.in.l.close()
			return
		}
		s.End(&wire.End{})
	}))
	if _, _, err := hop(a.c, "b", "x"); err != nil {
		t.Fatal(err)
	}
	if _, last, err := hop(a.c, "b", "x"); last != wire.TypeAccept || err == nil {
		t.Errorf("%v, %v", last, err)
	}
	if n := served.Load(); n != 2 {
		t.Errorf("served %d times", n)
	}
	b.serve = func(s *HopStream) { served.Add(1); s.in.l.close() }
	if _, _, err := hop(a.c, "b", "x"); err == nil {
		t.Error("an answer of nobody")
	}
	if n := served.Load(); n != 3 {
		t.Errorf("served %d times", n)
	}
}

func TestEveryHopHasOneEnd(t *testing.T) {
	a, b := pair(t)
	for name, tc := range map[string]struct {
		serve func(*HopStream)
		last  wire.Type
	}{
		"no answer":   {func(*HopStream) {}, wire.TypeFail},
		"only a head": {func(s *HopStream) { s.Accept(&wire.Accept{}); s.Head(&wire.Head{Status: 200}) }, wire.TypeFail},
		"fail":        {func(s *HopStream) { s.Fail(&wire.Fail{Code: "x"}) }, wire.TypeFail},
		"two ends":    {func(s *HopStream) { s.End(&wire.End{}); s.End(&wire.End{}) }, wire.TypeEnd},
		"end and more": {func(s *HopStream) {
			s.End(&wire.End{})
			s.Data([]byte("x"))
			s.Head(&wire.Head{})
			s.Fail(&wire.Fail{})
		}, wire.TypeEnd},
		"bad head": {func(s *HopStream) {
			if s.Head(&wire.Head{Header: make([]wire.Pair, wire.MaxPairs+1)}) == nil {
				t.Error("too large a head passes")
			}
			s.End(&wire.End{})
		}, wire.TypeEnd},
	} {
		b.serve = tc.serve
		got, last, err := hop(a.c, "b", "x")
		if last != tc.last || err != nil || got != "" {
			t.Errorf("%s: %q, %v, %v", name, got, last, err)
		}
	}
	b.serve = nil
	if got, _, err := hop(a.c, "b", "x"); got != "x" || err != nil {
		t.Errorf("the connection afterwards: %q, %v", got, err)
	}
	if s := a.c.Stats(); s.Redials != 0 {
		t.Errorf("%+v", s)
	}
}

// That the gossip has lost a peer does not cut a stream that flows.
func TestHopOutlivesALostMember(t *testing.T) {
	p := &partition{}
	release := make(chan struct{})
	gossipOnly := func(a *agent, m *Member, h *hooks) { h.dial = nil }
	a := p.add(0, begin(t, "a", mortal, p.of(0), gossipOnly))
	b := p.add(1, begin(t, "b", mortal, p.of(1), gossipOnly, joining(a), serving(func(s *HopStream) {
		s.Accept(&wire.Accept{})
		<-release
		echo(s)
	})))
	a.up(t, "b")
	b.up(t, "a")
	type result struct {
		got string
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, _, err := hop(a.c, "b", "x")
		done <- result{got, err}
	}()
	eventually(t, "the hop", func() bool { return b.c.Stats().HopsIn == 1 })
	p.set(true)
	a.down(t, "b")
	close(release)
	if r := within(t, "answer", done); r.got != "x" || r.err != nil {
		t.Errorf("%+v", r)
	}
	if n := a.c.Stats().IdleConns; n != 0 {
		t.Errorf("%d connections kept to a lost peer", n)
	}
}
