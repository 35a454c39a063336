package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

func TestPeersFindEachOther(t *testing.T) {
	a, b := pair(t)
	c := begin(t, "c", joining(b))
	a.up(t, "c")
	c.up(t, "a")
	c.up(t, "b")
	ms := c.c.Members()
	if len(ms) != 2 || ms[0] != a.c.Self() || ms[1] != b.c.Self() {
		t.Fatalf("c knows %+v", ms)
	}
	until(t, "round-trip time", a.rtts, func(id peer.ID) bool { return id == "b" })
	until(t, "round-trip time", a.rtts, func(id peer.ID) bool { return id == "c" })
}

func TestPeersOnIPv6FindEachOther(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	ln.Close()
	a, b := pair(t, with(func(c *Config) { c.GossipBind, c.PeerBind, c.Keys = "[::1]:0", "[::1]:0", []Key{{1}} }))
	for _, h := range []struct {
		from *agent
		to   peer.ID
	}{{a, "b"}, {b, "a"}} {
		if got, _, err := hop(h.from.c, h.to, "x"); got != "x" || err != nil {
			t.Errorf("hop to %s: %v", h.to, err)
		}
	}
	if err := a.c.Send("b", []byte("hi")); err != nil {
		t.Error(err)
	}
	until(t, "datagram", b.grams, func(g gram) bool { return g.b == "hi" })
}

func TestDeadPeerIsNoticed(t *testing.T) {
	a, b := pair(t, mortal)
	b.c.Close()
	if d := a.down(t, "b"); d.left {
		t.Error("a crash passes for a farewell")
	}
	if _, _, err := hop(a.c, "b", "x"); err == nil {
		t.Error("hop to a dead peer")
	}
	if n := len(a.c.Members()); n != 0 {
		t.Errorf("%d members", n)
	}
}

func TestLeavingPeerSaysSo(t *testing.T) {
	// Without tuning a crash would take seconds to be noticed.
	a, b := pair(t, patient)
	if err := b.c.Leave(wait); err != nil {
		t.Fatal(err)
	}
	if d := a.down(t, "b"); !d.left {
		t.Error("a farewell passes for a crash")
	}
	if err := b.c.Leave(wait); err != ErrClosed {
		t.Errorf("second Leave: %v", err)
	}
}

// An agent that was killed is back before the gossip has found it dead: it is taken in at once, wherever it is now.
func TestReturningAgentIsAcceptedAtOnce(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprintf("same address %v", same), func(t *testing.T) {
			a, b := pair(t, patient)
			if _, _, err := hop(b.c, "a", "x"); err != nil { // b keeps a connection to the old life
				t.Fatal(err)
			}
			a.c.Close()
			opts := []option{patient, incarnation(2), joining(b)}
			if same {
				opts = append(opts, with(func(c *Config) { c.GossipBind, c.PeerBind = a.c.GossipAddr(), a.c.Self().PeerAddr }))
			}
			a2 := begin(t, "a", opts...)
			if m := b.up(t, "a"); m != a2.c.Self() {
				t.Fatalf("b has %+v, not %+v", m, a2.c.Self())
			}
			if d, ok := b.downs.take(func(down) bool { return true }); ok {
				t.Fatalf("went down in between: %v", d)
			}
			a2.up(t, "b")
			for _, c := range []struct {
				from *agent
				to   peer.ID
			}{{a2, "b"}, {b, "a"}} {
				if got, _, err := hop(c.from.c, c.to, "hello"); err != nil || got != "hello" {
					t.Fatalf("hop to %s: %q, %v", c.to, got, err)
				}
			}
			select {
			case err := <-a2.c.Failed():
				t.Fatal(err)
			default:
			}
		})
	}
}

// Two agents with one ID: the second one is refused by everybody and told to give up; the first one does not notice.
func TestSecondAgentOfAnIDIsRefused(t *testing.T) {
	for _, keys := range [][]Key{nil, {{1}}} {
		t.Run(fmt.Sprintf("%d keys", len(keys)), func(t *testing.T) {
			keyed := with(func(c *Config) { c.Keys = keys })
			a, b := pair(t, keyed, incarnation(5))
			twin := begin(t, "a", keyed, incarnation(6), joining(b))
			err := within(t, "failure", twin.c.Failed())
			for _, addr := range []string{a.c.GossipAddr(), a.c.Self().PeerAddr, twin.c.GossipAddr(), twin.c.Self().PeerAddr} {
				if !strings.Contains(err.Error(), addr) {
					t.Errorf("%s is not in: %v", addr, err)
				}
			}
			b.refusedWith(t, "two agents have one ID")
			a.refusedWith(t, "two agents have one ID")
			eventually(t, "b to have refused the twin's rounds", func() bool { return twin.c.Stats().RoundErrors > 0 })
			if _, _, err := hop(twin.c, "b", "x"); err == nil || !strings.Contains(err.Error(), "two agents") {
				t.Errorf("the twin's hop: %v", err)
			}
			if ms := b.c.Members(); len(ms) != 1 || ms[0] != a.c.Self() {
				t.Errorf("b knows %+v", ms)
			}
			if got, _, err := hop(b.c, "a", "x"); err != nil || got != "x" {
				t.Errorf("hop to the first: %v", err)
			}
			select {
			case err := <-a.c.Failed():
				t.Error(err)
			default:
			}
		})
	}
}

// The second agent of an ID stays; when the first one is gone it is the peer.
func TestTwinInheritsTheID(t *testing.T) {
	a, b := pair(t, mortal, incarnation(5))
	twin := begin(t, "a", mortal, incarnation(6), joining(b))
	b.refusedWith(t, "two agents have one ID")
	a.c.Close()
	if m := b.up(t, "a"); m != twin.c.Self() {
		t.Fatalf("b has %+v", m)
	}
}

func TestPeersWithoutACommonVersionRefuseEachOther(t *testing.T) {
	a := begin(t, "a")
	late := func(_ *agent, m *Member, _ *hooks) { m.MinVersion, m.MaxVersion = wire.MaxVersion+1, wire.MaxVersion+2 }
	b := begin(t, "b", late, joining(a))
	r := a.refusedWith(t, "no version in common")
	if !strings.Contains(r.err.Error(), fmt.Sprintf("b speaks %d to %d", wire.MaxVersion+1, wire.MaxVersion+2)) && !strings.Contains(r.err.Error(), "speaks 2 to 3") {
		t.Errorf("%v", r.err)
	}
	// b, which looks at what a speaks with this program's eyes, tries, and is told why not.
	b.up(t, "a")
	if _, _, err := hop(b.c, "a", "x"); err == nil || !strings.Contains(err.Error(), "refuses us: cluster: no version in common") {
		t.Errorf("hop: %v", err)
	}
	eventually(t, "two refusals", func() bool { return a.c.Stats().Refused >= 2 })
	if n := a.log.count("level=WARN", "no version in common"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if ms := a.c.Members(); len(ms) != 0 {
		t.Errorf("a knows %+v", ms)
	}
}

func TestPeersOfAnotherShoalAreRefused(t *testing.T) {
	a := begin(t, "a")
	b := begin(t, "b", joining(a), with(func(c *Config) { c.Shoal = "other" }))
	a.refusedWith(t, "another shoal")
	if len(b.c.Members()) != 0 {
		t.Error("joined")
	}
	// The same on the peer port, which has a handshake of its own.
	l := dialPeer(t, a, nil)
	defer l.close()
	r := hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: "b", Shoal: "other"})
	if !strings.Contains(r, `a peer of the shoal "other"`) {
		t.Errorf("refused with %q", r)
	}
}

func TestMembersAreBounded(t *testing.T) {
	a := begin(t, "a", with(func(c *Config) { c.Limits.Members = 2 }))
	for _, id := range []peer.ID{"b", "c"} {
		begin(t, id, joining(a))
		a.up(t, id)
	}
	begin(t, "d", joining(a))
	a.refusedWith(t, "2 members, the limit")
	if n := len(a.c.Members()); n != 2 {
		t.Errorf("%d members", n)
	}
}

func TestWrongKeyDoesNotJoin(t *testing.T) {
	for _, tc := range []struct {
		a, b []Key
		want string
	}{
		{[]Key{{1}}, []Key{{2}}, "Decrypt packet failed"},
		{[]Key{{1}}, []Key{{2}}, "failed to receive"},
		{[]Key{{1}}, nil, "not encrypted"},
		{nil, []Key{{1}}, "encryption is not configured"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			a := begin(t, "a", with(func(c *Config) { c.Keys = tc.a }))
			b := begin(t, "b", joining(a), with(func(c *Config) { c.Keys = tc.b }))
			if tc.want == "Decrypt packet failed" {
				// Whoever is not let in sends no packets; a ping stands for somebody who lost its key while it was a member.
				b.c.ml.Ping("a@1", a.c.gossip.udp.LocalAddr())
			}
			a.refusedWith(t, tc.want)
			if len(a.c.Members())+len(b.c.Members()) != 0 {
				t.Error("joined")
			}
			eventually(t, "b to say that it is alone", func() bool { return b.log.count("level=WARN", "do not answer") == 1 })
		})
	}
}

// Keys are rotated one agent at a time: add the new one, make it the first, remove the old one.
func TestKeysAreRotatedOneAgentAtATime(t *testing.T) {
	old, new := Key{1}, Key{2}
	for _, tc := range [][2][]Key{{{old}, {old, new}}, {{old, new}, {new, old}}, {{new, old}, {new}}} {
		t.Run(fmt.Sprintf("%d and %d", len(tc[0]), len(tc[1])), func(t *testing.T) {
			a := begin(t, "a", with(func(c *Config) { c.Keys = tc[0] }))
			b := begin(t, "b", joining(a), with(func(c *Config) { c.Keys = tc[1] }))
			a.up(t, "b")
			b.up(t, "a")
			for _, from := range []*agent{a, b} {
				to := peer.ID("a")
				if from == a {
					to = "b"
				}
				if got, _, err := hop(from.c, to, "x"); err != nil || got != "x" {
					t.Errorf("hop to %s: %v", to, err)
				}
				if err := from.c.Send(to, []byte("hi")); err != nil {
					t.Error(err)
				}
			}
			until(t, "datagram", a.grams, func(g gram) bool { return g == gram{"b", "hi"} })
			until(t, "datagram", b.grams, func(g gram) bool { return g == gram{"a", "hi"} })
		})
	}
}

func TestDatagrams(t *testing.T) {
	a, b := pair(t)
	c := begin(t, "c", joining(a))
	c.up(t, "a")
	c.up(t, "b")
	a.up(t, "c")
	b.up(t, "c")
	full := strings.Repeat("x", MaxDatagram)
	c.c.Broadcast([]byte(full))
	until(t, "datagram", a.grams, func(g gram) bool { return g == gram{"c", full} })
	until(t, "datagram", b.grams, func(g gram) bool { return g == gram{"c", full} })
	if err := c.c.Send("a", make([]byte, MaxDatagram+1)); err == nil {
		t.Error("too long a datagram")
	}
	if err := c.c.Send("nobody", nil); err == nil {
		t.Error("datagram to nobody")
	}
	c.c.Broadcast(make([]byte, MaxDatagram+1))
	if s := c.c.Stats(); s.DatagramsOut != 2 || s.DatagramsLost != 1 {
		t.Errorf("%+v", s)
	}
}
