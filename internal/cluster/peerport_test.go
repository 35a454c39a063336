package cluster

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// dialPeer connects to an agent's peer port as a stranger.
func dialPeer(t *testing.T, a *agent, conf *tls.Config) *link {
	t.Helper()
	nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(wait))
	t.Cleanup(func() { nc.Close() })
	l := newLink(nc, conf, false)
	if err := l.secure(); err != nil {
		t.Fatal(err)
	}
	return l
}

// hello introduces somebody, and gives the reason for which it is refused; empty: it is welcome.
func hello(t *testing.T, l *link, h *wire.Hello) string {
	t.Helper()
	p, err := wire.AppendHello(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.writeFrame(wire.TypeHello, p); err != nil {
		t.Fatal(err)
	}
	typ, p, err := l.frame()
	if err != nil {
		t.Fatal(err)
	}
	switch typ {
	case wire.TypeWelcome:
		return ""
	case wire.TypeRefuse:
		var r wire.Refuse
		if err := wire.DecodeRefuse(p, &r); err != nil {
			t.Fatal(err)
		}
		return r.Reason
	}
	t.Fatalf("%v in answer to a hello", typ)
	return ""
}

// Garbage on the peer port: refused, counted, logged once an address, whatever it is.
func TestGarbageOnThePeerPort(t *testing.T) {
	wirehello, _ := wire.AppendHello(nil, &wire.Hello{Min: 1, Max: 1, ID: "x", Shoal: "shoal"})
	cut := wire.AppendFrame(nil, wire.TypeHello, wirehello)
	for _, keys := range [][]Key{nil, {{1}}} {
		a := begin(t, "a", with(func(c *Config) { c.Keys = keys }))
		junk := []string{"", "\x00", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x05hello", string(cut[:len(cut)-1]),
			"\xff\xff\xff\xff\x01", "\x00\x00\x00\x00\x07", "\x00\x00\x00\x00\xff", "\x00\x00\x10\x00\x10"}
		for i, j := range junk {
			nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
			if err != nil {
				t.Fatal(err)
			}
			nc.Write([]byte(j))
			nc.(*net.TCPConn).CloseWrite()
			eventually(t, "refusal", func() bool { return a.c.Stats().Refused == uint64(i+1) })
			nc.Close()
		}
		if n := a.log.count("level=WARN", "refused"); n != 1 {
			t.Errorf("%d lines for one address", n)
		}
		eventually(t, "all connections to be gone", func() bool { return a.c.Stats().Conns == 0 })
	}
}

func TestSlowHandshakesAreCutOff(t *testing.T) {
	a := begin(t, "a", with(func(c *Config) { c.Limits.Handshake = 50 * time.Millisecond }), hooked(func(h *hooks) {
		h.tune = func(t *timing) { fast(t); t.dial = 50 * time.Millisecond }
	}))
	nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.Write([]byte{1})
	a.refusedWith(t, "i/o timeout")
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("still open")
	}
}

func TestHandshakesAtOnceAreBounded(t *testing.T) {
	a := begin(t, "a", with(func(c *Config) { c.Limits.Handshakes = 3 }))
	var open []net.Conn
	for range 3 {
		nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		open = append(open, nc)
	}
	eventually(t, "three handshakes", func() bool { return a.c.Stats().Conns == 3 })
	nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	a.refusedWith(t, errHandshakes.Error())
	open[0].Close()
	eventually(t, "room", func() bool { return a.c.Stats().Conns == 2 })
	if r := hello(t, dialPeer(t, a, nil), &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"}); r != "" {
		t.Errorf("refused: %s", r)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	a := begin(t, "a", with(func(c *Config) { c.Limits.Conns, c.Limits.ConnsPerPeer = 5, 2 }))
	meet := func(id string) (string, *link) {
		l := dialPeer(t, a, nil)
		return hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: peer.ID(id), Incarnation: 1, Shoal: "shoal"}), l
	}
	for _, id := range []string{"b", "b", "c"} {
		if r, _ := meet(id); r != "" {
			t.Fatalf("refused: %s", r)
		}
	}
	_, l := meet("b") // the third of b
	if _, _, err := l.frame(); err == nil {
		t.Error("a third connection")
	}
	a.refusedWith(t, errPeerConns.Error())
	for _, id := range []string{"d", "e"} {
		if r, _ := meet(id); r != "" {
			t.Fatalf("refused: %s", r)
		}
	}
	nc, err := net.Dial("tcp", a.c.Self().PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	a.refusedWith(t, errConns.Error())
}

// Beyond loopback an address that sends only garbage is soon not listened to, and after a while again.
func TestGarbageOfOneAddressIsRateLimited(t *testing.T) {
	lim := Limits{}.orDefault(&timing{})
	g := newGuard(&lim)
	bad, good := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range badBurst {
		if err := g.enter(bad); err != nil {
			t.Fatal(err)
		}
		g.greeted(bad, "")
	}
	if err := g.enter(bad); err != errBad {
		t.Errorf("%v", err)
	}
	if err := g.enter(good); err != nil {
		t.Errorf("another address: %v", err)
	}
	g.greeted(good, "p")
	g.second()
	if err := g.enter(bad); err != nil {
		t.Errorf("a second later: %v", err)
	}
	g.greeted(bad, "q")
	for range badBurst {
		g.second()
	}
	if len(g.hosts) != 0 {
		t.Errorf("%d addresses remembered", len(g.hosts))
	}
	g.leave("p")
	g.leave("q")
	if g.open() != 0 || g.greeting != 0 || len(g.peers) != 0 {
		t.Errorf("%+v", g)
	}
	for i := range maxHosts + 10 {
		a := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
		g.enter(a)
		g.greeted(a, "")
	}
	if len(g.hosts) > maxHosts+1 {
		t.Errorf("%d addresses remembered", len(g.hosts))
	}
	for range lim.Handshakes / 4 {
		if err := g.enter(good); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.enter(good); err != errHandshakes {
		t.Errorf("too many handshakes of one address: %v", err)
	}
}

func TestRefusalsAreLoggedOnceAnAddress(t *testing.T) {
	var r refusals
	if !r.first("a") || r.first("a") || !r.first("b") {
		t.Error("not once")
	}
	for i := range 2 * maxHosts {
		r.first(string(rune(i)))
	}
	if len(r.seen) > maxHosts {
		t.Errorf("%d remembered", len(r.seen))
	}
}

// Over TLS nobody can say that it is somebody else.
func TestPeerWithAnothersIDIsRefused(t *testing.T) {
	keyed := with(func(c *Config) { c.Keys = []Key{{1}} })
	a := begin(t, "a", keyed)
	_, client, _, err := tlsConfigs("mallory", []Key{{1}})
	if err != nil {
		t.Fatal(err)
	}
	r := hello(t, dialPeer(t, a, client), &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"})
	if !strings.Contains(r, "says that it is b, but has the certificate of mallory") {
		t.Errorf("refused with %q", r)
	}
	a.refusedWith(t, "certificate of mallory")
	// Nor who has another key, or none.
	for _, keys := range [][]Key{{{2}}, nil} {
		conf := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if keys != nil {
			if _, conf, _, err = tlsConfigs("b", keys); err != nil {
				t.Fatal(err)
			}
			conf.VerifyConnection = nil
		}
		l := dialPeer(t, a, conf)
		if _, _, err := l.frame(); err == nil {
			t.Error("a frame without a certificate")
		}
		a.refusedWith(t, "certificate")
	}
}

// A peer port that turns out to be another peer's is not used.
func TestHopToAnotherPeersPortFails(t *testing.T) {
	a := begin(t, "a")
	c := begin(t, "c")
	begin(t, "b", joining(a), func(_ *agent, m *Member, _ *hooks) { m.PeerAddr = c.c.Self().PeerAddr })
	a.up(t, "b")
	if _, _, err := hop(a.c, "b", "x"); err == nil || !strings.Contains(err.Error(), "the peer port of b is c's") {
		t.Errorf("%v", err)
	}
}

// What is out of place on a connection of a peer ends it.
func TestBrokenProtocolEndsTheConnection(t *testing.T) {
	fwd := func(f wire.Forward) []byte {
		b, err := wire.AppendForward(nil, &f)
		if err != nil {
			t.Fatal(err)
		}
		return wire.AppendFrame(nil, wire.TypeForward, b)
	}
	f := wire.Forward{ID: "1", Method: "POST", Path: "/v1/x", Model: "m", BodyLen: 4}
	big := f
	big.BodyLen = 2000
	a := begin(t, "a", with(func(c *Config) { c.Limits.Body = 1000 }), serving(func(s *HopStream) { <-s.Context().Done() }))
	for name, b := range map[string][]byte{
		"data":          wire.AppendFrame(nil, wire.TypeData, []byte("x")),
		"hello again":   wire.AppendFrame(nil, wire.TypeHello, nil),
		"bad forward":   wire.AppendFrame(nil, wire.TypeForward, []byte{1, 2, 3}),
		"bad exchange":  wire.AppendFrame(nil, wire.TypeExchange, []byte{0, 1, 2}),
		"no body":       append(fwd(f), wire.AppendFrame(nil, wire.TypeCancel, nil)...),
		"empty body":    append(fwd(f), wire.AppendFrame(nil, wire.TypeBody, nil)...),
		"long body":     append(fwd(f), wire.AppendFrame(nil, wire.TypeBody, []byte("12345"))...),
		"body too long": fwd(big),
		"unknown":       {0, 0, 0, 0, 99},
		"two at once": append(append(fwd(f), wire.AppendFrame(nil, wire.TypeBody, []byte("1234"))...),
			append(fwd(f), wire.AppendFrame(nil, wire.TypeBody, []byte("1234"))...)...),
	} {
		t.Run(name, func(t *testing.T) {
			l := dialPeer(t, a, nil)
			if r := hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"}); r != "" {
				t.Fatal(r)
			}
			if err := l.write(b, nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := l.frame(); err == nil {
				t.Error("an answer")
			}
			a.refusedWith(t, errProtocol.Error())
		})
	}
	eventually(t, "all connections to be gone", func() bool { return a.c.Stats().Conns == 0 })
}

// Frames that a later version may send, and this one need not know, are skipped.
func TestIgnorableFramesAreSkipped(t *testing.T) {
	a := begin(t, "a")
	l := dialPeer(t, a, nil)
	if r := hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"}); r != "" {
		t.Fatal(r)
	}
	if err := l.writeFrame(200, []byte("later")); err != nil {
		t.Fatal(err)
	}
	if _, err := writeExchange(l, &wire.Exchange{Begin: true}); err != nil {
		t.Fatal(err)
	}
	if typ, _, err := l.frame(); err != nil || typ != wire.TypeExchange {
		t.Errorf("%v, %v", typ, err)
	}
}

func TestFrameHeaderIsWires(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 70000, wire.MaxFrame} {
		p := make([]byte, n)
		if got, want := append(frameHeader(nil, wire.TypeData, n), p...), wire.AppendFrame(nil, wire.TypeData, p); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %x, not %x", n, got[:5], want[:5])
		}
	}
}

// Whatever a connection brings, it ends without a panic.
func FuzzConnection(f *testing.F) {
	h, _ := wire.AppendHello(nil, &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"})
	start := wire.AppendFrame(nil, wire.TypeHello, h)
	fw, _ := wire.AppendForward(nil, &wire.Forward{ID: "1", Method: "POST", Path: "/v1/x", Model: "m", BodyLen: 1})
	f.Add(start)
	f.Add(append(append(bytes.Clone(start), wire.AppendFrame(nil, wire.TypeForward, fw)...), wire.AppendFrame(nil, wire.TypeBody, []byte("x"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newAgent(t)
		c, _, err := newCluster(a.cfg, Member{ID: "a", PeerAddr: "127.0.0.1:1"}, a, slog.New(slog.DiscardHandler), hooks{})
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		c.guard.enter(netip.Addr{})
		c.wg.Add(1)
		go c.meet(here, netip.Addr{})
		go io.Copy(io.Discard, there)
		there.Write(b)
		there.Close()
		c.wg.Wait()
		if n := c.guard.open(); n != 0 {
			t.Fatalf("%d connections", n)
		}
		c.stop()
	})
}
