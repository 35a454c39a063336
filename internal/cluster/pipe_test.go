package cluster

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/wire"
)

// rig is two clusters without gossip, joined by pipes instead of sockets, so that testing/synctest owns the time.
type rig struct {
	a, b   *agent
	writes atomic.Int64 // of b to a
	dials  atomic.Int64
}

// counted counts writes.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

func newRig(t *testing.T, serve func(*HopStream), opts ...option) *rig {
	r := &rig{a: newAgent(t), b: newAgent(t)}
	r.b.serve = serve
	for _, x := range []struct {
		a    *agent
		self Member
	}{{r.a, Member{ID: "a", Incarnation: 1, PeerAddr: "127.0.0.1:1"}}, {r.b, Member{ID: "b", Incarnation: 1, PeerAddr: "127.0.0.1:2"}}} {
		hk := hooks{}
		for _, o := range opts {
			o(x.a, &x.self, &hk)
		}
		c, _, err := newCluster(x.a.cfg, x.self, x.a, slog.New(slog.DiscardHandler), hk)
		if err != nil {
			t.Fatal(err)
		}
		x.a.c = c
	}
	r.a.c.hooks.dial = func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		r.dials.Add(1)
		r.serve(counted{there, &r.writes})
		return here, nil
	}
	r.a.c.members.peers["b"] = newRemote(r.a.c, &life{Member: r.b.c.self})
	return r
}

// serve lets b serve a connection.
func (r *rig) serve(nc net.Conn) {
	r.b.c.guard.enter(netip.Addr{})
	r.b.c.wg.Add(1)
	go r.b.c.meet(nc, netip.Addr{})
}

// raw is a connection to b without the machinery of an origin.
func (r *rig) raw(t *testing.T) *link {
	here, there := net.Pipe()
	r.serve(there)
	l := newLink(here, nil, false)
	if reason := hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: "a", Incarnation: 1, Shoal: "shoal"}); reason != "" {
		t.Fatal(reason)
	}
	return l
}

func (r *rig) close() {
	for _, c := range []*Cluster{r.a.c, r.b.c} {
		c.mu.Lock()
		c.closing = true
		all := c.inbound
		c.inbound = nil
		c.mu.Unlock()
		c.stop()
		for in := range all {
			in.l.close()
		}
		for _, r := range c.members.all() {
			r.shut()
		}
		c.wg.Wait()
	}
}

func (r *rig) hop(t *testing.T, f wire.Forward, body string) (string, wire.Type, error) {
	t.Helper()
	f.Method, f.Path, f.BodyLen = "POST", "/v1/x", int64(len(body))
	return hopWith(context.Background(), r.a.c, "b", &f, []byte(body))
}

func TestSilentPeerIsFoundOut(t *testing.T) {
	for name, serve := range map[string]func(*HopStream){
		"before it accepts": func(s *HopStream) { <-s.Context().Done() },
		"hung after it": func(s *HopStream) {
			s.Accept(&wire.Accept{})
			s.in.wmu.Lock() // nothing goes out any more, not even that it is alive
			defer s.in.wmu.Unlock()
			<-s.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, serve)
				defer r.close()
				begun := time.Now()
				_, last, err := r.hop(t, wire.Forward{}, "x")
				if took := time.Since(begun); !isSilent(err) || took < 3*time.Second || took > 4*time.Second {
					t.Errorf("%v after %v, the last frame was %v", err, took, last)
				}
				if s := r.a.c.Stats(); s.Silent != 1 || s.HopsOut != 0 || s.IdleConns != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// The engine thinks for ten minutes: the origin hears every second that the peer is there, and nothing else.
func TestLongPrefillIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := func(s *HopStream) {
			s.Accept(&wire.Accept{})
			pass(10 * time.Minute)
			s.Head(&wire.Head{Status: 200})
			s.Data([]byte("late"))
			pass(2 * time.Second) // and within the answer
			s.End(&wire.End{})
		}
		r := newRig(t, serve)
		defer r.close()
		if got, last, err := r.hop(t, wire.Forward{Stream: true}, "x"); got != "late" || last != wire.TypeEnd || err != nil {
			t.Errorf("%q, %v, %v", got, last, err)
		}
		if s := r.a.c.Stats(); s.Silent != 0 || s.IdleConns != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

func TestServingPeerShowsEverySecondThatItIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *HopStream) {
			s.Accept(&wire.Accept{})
			pass(10 * time.Second)
			s.End(&wire.End{})
		})
		defer r.close()
		l := r.raw(t)
		defer l.close()
		sendForward(t, l, wire.Forward{}, "")
		begun := time.Now()
		var alive int
		for last := begun; ; {
			typ, _, err := l.frame()
			if err != nil {
				t.Fatal(err)
			}
			gap := time.Since(last)
			last = time.Now()
			if typ == wire.TypeAccept && gap > 2*flushAfter {
				t.Errorf("accepted after %v", gap)
			}
			if gap > time.Second {
				t.Errorf("nothing for %v", gap)
			}
			if typ == wire.TypeAlive {
				alive++
			}
			if typ == wire.TypeEnd {
				break
			}
		}
		if alive < 9 || alive > 11 {
			t.Errorf("%d signs of life in 10 s", alive)
		}
	})
}

// Nothing is said about a hop that the serving peer has not accepted.
func TestNoSignOfLifeBeforeAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *HopStream) {
			pass(2 * time.Second)
			s.Decline(&wire.Decline{Reason: 1})
		})
		defer r.close()
		l := r.raw(t)
		defer l.close()
		sendForward(t, l, wire.Forward{}, "")
		if typ, _, err := l.frame(); typ != wire.TypeDecline || err != nil {
			t.Errorf("%v, %v", typ, err)
		}
	})
}

func sendForward(t *testing.T, l *link, f wire.Forward, body string) {
	t.Helper()
	f.Method, f.Path, f.BodyLen = "POST", "/v1/x", int64(len(body))
	b, err := wire.AppendForward(nil, &f)
	if err != nil {
		t.Fatal(err)
	}
	b = wire.AppendFrame(nil, wire.TypeForward, b)
	if body != "" {
		b = wire.AppendFrame(b, wire.TypeBody, []byte(body))
	}
	if err := l.write(b, nil); err != nil {
		t.Fatal(err)
	}
}

// An answer that comes at once is one write; a stream is one write a chunk, at once.
func TestAnswersTakeFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *HopStream) {
			s.Accept(&wire.Accept{})
			s.Head(&wire.Head{Status: 200})
			for range 16 {
				s.Data([]byte("chunk"))
			}
			s.End(&wire.End{})
		})
		defer r.close()
		for _, tc := range []struct {
			stream bool
			writes int64
		}{{false, 1}, {true, 17}} {
			r.hop(t, wire.Forward{Stream: tc.stream}, "x") // the first one has a handshake
			before := r.writes.Load()
			if got, _, err := r.hop(t, wire.Forward{Stream: tc.stream}, "x"); len(got) != 16*len("chunk") || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if n := r.writes.Load() - before; n != tc.writes {
				t.Errorf("stream %v: %d writes, not %d", tc.stream, n, tc.writes)
			}
		}
		if n := r.dials.Load(); n != 1 {
			t.Errorf("%d dials", n)
		}
	})
}

// A plain answer that comes bit by bit, which may be a stream that nobody announced, is held back only for a moment.
func TestPlainAnswerTrickles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *HopStream) {
			s.Accept(&wire.Accept{})
			s.Head(&wire.Head{Status: 200})
			for range 5 {
				s.Data([]byte("bit"))
				pass(300 * time.Millisecond)
			}
			s.End(&wire.End{})
		})
		defer r.close()
		l := r.raw(t)
		defer l.close()
		sendForward(t, l, wire.Forward{}, "")
		begun := time.Now()
		for n := 0; ; {
			typ, _, err := l.frame()
			if err != nil {
				t.Fatal(err)
			}
			if typ == wire.TypeEnd {
				break
			}
			if typ != wire.TypeData {
				continue
			}
			if late := time.Since(begun) - time.Duration(n)*300*time.Millisecond; late > 2*flushAfter {
				t.Errorf("bit %d is %v late", n, late)
			}
			n++
		}
	})
}

// Whoever reads on after a long hop serves the next one, and so on, on one connection.
func TestConnectionOutlivesLongHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := make(chan time.Duration, 1)
		r := newRig(t, func(s *HopStream) {
			s.Accept(&wire.Accept{})
			pass(<-d)
			s.Data(s.Body())
			s.End(&wire.End{})
			pass(<-d) // what is done after the end holds nobody up
		})
		defer r.close()
		l := r.raw(t)
		defer l.close()
		for i, w := range [][2]time.Duration{{0, 0}, {time.Second, 0}, {0, time.Second}, {0, 0}, {2 * time.Second, time.Minute}, {0, 0}} {
			sendForward(t, l, wire.Forward{}, "hello")
			d <- w[0]
			begun := time.Now()
			for typ := wire.TypeAccept; typ != wire.TypeEnd; {
				var err error
				if typ, _, err = l.frame(); err != nil {
					t.Fatalf("hop %d: %v", i, err)
				}
			}
			if took := time.Since(begun); took > w[0]+2*flushAfter {
				t.Errorf("hop %d: %v", i, took)
			}
			go func() { d <- w[1] }()
			synctest.Wait()
		}
		pass(2 * time.Minute)
		if n := r.b.c.Stats(); n.HopsIn != 0 || n.HopsServed != 6 || n.Conns != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// An origin that takes nothing for a minute, and says nothing, is given up.
func TestStalledOriginIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		r := newRig(t, func(s *HopStream) {
			s.Accept(&wire.Accept{})
			begun := time.Now()
			err := s.Data([]byte("x"))
			if took := time.Since(begun); took < time.Minute || took > 65*time.Second {
				t.Errorf("given up after %v", took)
			}
			<-s.Context().Done()
			ended <- err
		})
		defer r.close()
		r.b.c.wg.Add(1)
		go r.b.c.sweep()
		l := r.raw(t)
		defer l.close()
		sendForward(t, l, wire.Forward{Stream: true}, "")
		if err := <-ended; err == nil {
			t.Error("taken by nobody")
		}
	})
}

// A connection on which nobody asks for anything is closed, by the one that opened it first.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, echo)
		defer r.close()
		for _, c := range []*Cluster{r.a.c, r.b.c} {
			c.wg.Add(1)
			go c.sweep()
		}
		r.hop(t, wire.Forward{}, "x")
		l := r.raw(t)
		defer l.close()
		pass(29 * time.Second)
		if s := r.a.c.Stats(); s.IdleConns != 1 {
			t.Errorf("%d kept after 29 s", s.IdleConns)
		}
		pass(5 * time.Second)
		if s := r.a.c.Stats(); s.IdleConns != 0 {
			t.Errorf("%d kept after 34 s", s.IdleConns)
		}
		if n := r.b.c.Stats().Conns; n != 1 {
			t.Errorf("%d connections", n)
		}
		begun := time.Now()
		if _, _, err := l.frame(); err != io.EOF && err != io.ErrClosedPipe {
			t.Error(err)
		}
		if took := 34*time.Second + time.Since(begun); took < 2*time.Minute || took > 125*time.Second {
			t.Errorf("the other kind after %v", took)
		}
	})
}

// A body that does not come is not waited for, for ever.
func TestStalledBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, echo)
		defer r.close()
		r.b.c.wg.Add(1)
		go r.b.c.sweep()
		l := r.raw(t)
		defer l.close()
		b, _ := wire.AppendForward(nil, &wire.Forward{Method: "POST", Path: "/", BodyLen: 10})
		l.write(wire.AppendFrame(nil, wire.TypeForward, b), nil)
		begun := time.Now()
		if _, _, err := l.frame(); err == nil {
			t.Error("an answer")
		}
		if took := time.Since(begun); took < time.Minute || took > 65*time.Second {
			t.Errorf("after %v", took)
		}
	})
}
