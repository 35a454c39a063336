package cluster

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

func answering(f func(ctx context.Context, from peer.ID, m *wire.Ask) *wire.Reply) option {
	return handling(func(a *agent) { a.asked = f })
}

func TestAskIsAnsweredByThePeer(t *testing.T) {
	a, b := pair(t, answering(func(_ context.Context, from peer.ID, m *wire.Ask) *wire.Reply {
		return &wire.Reply{Ticket: []byte("for " + string(from) + " " + m.Name), Bytes: m.Bytes + 1}
	}))
	for range 3 { // the second time over a kept connection
		r, err := a.c.Ask(t.Context(), "b", &wire.Ask{What: wire.AskTicket, Bytes: 41, Name: "x"})
		if err != nil || string(r.Ticket) != "for a x" || r.Bytes != 42 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if _, err := a.c.Ask(t.Context(), "nobody", &wire.Ask{}); !errors.Is(err, ErrUnknownPeer) {
		t.Fatal(err)
	}
	if _, err := a.c.Ask(t.Context(), "b", &wire.Ask{Bytes: -1}); err == nil {
		t.Fatal("an Ask that cannot be is sent")
	}
	if got, typ, err := hop(a.c, "b", "still"); got != "still" || typ != wire.TypeEnd || err != nil {
		t.Fatalf("a hop after it: %q %v %v", got, typ, err)
	}
	_ = b
}

// Membership has lost the peer; its peer port answers all the same, over another network.
func TestAskReachesAPeerThatTheGossipHasLost(t *testing.T) {
	reply := answering(func(_ context.Context, from peer.ID, m *wire.Ask) *wire.Reply { return &wire.Reply{Addr: string(from)} })
	a := begin(t, "a", reply)
	b := begin(t, "b", reply) // has never met a
	r, err := a.c.AskAt(t.Context(), "b", b.c.Self().PeerAddr, &wire.Ask{})
	if err != nil || r.Addr != "a" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := a.c.AskAt(t.Context(), "c", b.c.Self().PeerAddr, &wire.Ask{}); err == nil {
		t.Fatal("b was taken for c")
	}
}

func TestAnAskEndsWithItsContext(t *testing.T) {
	asked, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	a, _ := pair(t, answering(func(ctx context.Context, _ peer.ID, _ *wire.Ask) *wire.Reply {
		asked <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return &wire.Reply{}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := a.c.Ask(ctx, "b", &wire.Ask{}); failed <- err }()
	within(t, "question", asked)
	cancel()
	if err := within(t, "end of the question", failed); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	within(t, "end of the answering", ended)
}

func TestAPanicWhileAnsweringEndsTheAnswerOnly(t *testing.T) {
	a, _ := pair(t, answering(func(_ context.Context, _ peer.ID, m *wire.Ask) *wire.Reply {
		if m.Name == "bug" {
			panic("a bug")
		}
		return &wire.Reply{Addr: "well"}
	}))
	if r, err := a.c.Ask(t.Context(), "b", &wire.Ask{Name: "bug"}); err != nil || r.Refused == "" {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := a.c.Ask(t.Context(), "b", &wire.Ask{}); err != nil || r.Addr != "well" {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := a.c.AskOnce(t.Context(), "b", &wire.Ask{}); err != nil || r.Addr != "well" {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestDatagramsGoOverTheControlNetwork(t *testing.T) {
	key := NewKey()
	for _, keys := range [][]Key{nil, {key}} {
		a, b := pair(t, with(func(c *Config) { c.ControlBind, c.Keys = "127.0.0.1:0", keys }))
		for _, x := range []*agent{a, b} {
			if x.c.Self().ControlAddr == "" {
				t.Fatal("no control address is told")
			}
		}
		if l := a.c.members.get("b").life; l.ControlAddr != b.c.Self().ControlAddr {
			t.Fatalf("b is known at %q, not %q", l.ControlAddr, b.c.Self().ControlAddr)
		}
		a.c.Broadcast([]byte("reserved"))
		until(t, "datagram", b.grams, func(g gram) bool { return g.from == "a" && g.b == "reserved" })
		if err := b.c.Send("a", []byte("released")); err != nil {
			t.Fatal(err)
		}
		until(t, "datagram", a.grams, func(g gram) bool { return g.from == "b" && g.b == "released" })
		if keys == nil {
			continue
		}
		a.c.control.udp.WriteToUDPAddrPort([]byte("this is not sealed, and long enough to be"), b.c.gossip.advertise) // to the gossip: not taken either
		k := &control{c: a.c, udp: a.c.control.udp}                                                                   // without a key
		k.send(b.c.Self().ControlAddr, append(appendSay(nil, sayDatagram, &a.c.self), "forged and of some length"...))
		b.refusedWith(t, "control: garbage")
	}
}

func TestAControlAddressHasToBeProtected(t *testing.T) {
	c := Defaults()
	for _, bad := range []string{"10.0.0.1:99999", "somewhere", "0.0.0.0:1"} {
		c.ControlBind = bad
		if err := c.Validate(); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
	c.ControlBind = "10.0.0.1:7000"
	if err := c.Validate(); err == nil {
		t.Error("beyond loopback without a key")
	}
	c.Insecure = true
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// A peer that was sealed out answers nothing; what comes is bounded.
func FuzzControl(f *testing.F) {
	key := NewKey()
	k, err := (&Cluster{cfg: Config{Keys: []Key{key}}}).newControl(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { k.udp.Close() })
	f.Add([]byte("0123456789ab0123456789abcdef"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if msg, ok := k.open(b); ok {
			t.Fatalf("%x opens to %x", b, msg)
		}
	})
}
