package cluster

import (
	"net"
	"strings"
	"testing"

	"shoal/internal/peer"
)

// Garbage on the gossip port, on both protocols: refused, counted, logged once an address, and nothing else happens.
func TestGarbageOnTheGossipPort(t *testing.T) {
	label := string([]byte{hasLabel, byte(len("shoal shoal"))}) + "shoal shoal"
	for _, keys := range [][]Key{nil, {{1}}} {
		keyed := with(func(c *Config) { c.Keys = keys })
		a := begin(t, "a", keyed)
		for _, network := range []string{"udp", "tcp"} {
			for _, junk := range []string{
				"GET / HTTP/1.1\r\n\r\n", "\x00", "\xf4", "\xf4\x00", "\xf4\xff", label, label + "\x09garbage", label + "\x00\xff\xff",
				label + "\x0e\x81\xa5Nodes\xd2\x7f\xff\xff\xff", label + "\x0a\xff\xff\xff\xff", label + "\x0c\x00\x00\x00\x00\x01",
				label + strings.Repeat("\x07\x01\x00\x04", 200), label + "\x03\xff", strings.Repeat("z", 1400), strings.Repeat("z", 3000),
			} {
				before := a.c.Stats().Refused
				nc, err := net.Dial(network, a.c.GossipAddr())
				if err != nil {
					t.Fatal(err)
				}
				nc.Write([]byte(junk))
				if network == "tcp" {
					nc.(*net.TCPConn).CloseWrite()
				}
				// A label alone is a peer that hangs up; compounds are taken apart; a bad checksum is memberlist's to drop, and it
				// does not say whose it was.
				quiet := junk == label && network == "tcp" || strings.HasPrefix(junk, label+"\x07") || strings.HasPrefix(junk, label+"\x0c")
				if !quiet {
					eventually(t, "refusal of "+network+" "+junk, func() bool { return a.c.Stats().Refused > before })
				}
				nc.Close()
			}
		}
		if n := a.log.count("level=WARN", "refused"); n != 1 {
			t.Errorf("%d lines for one address", n)
		}
		b := begin(t, "b", joining(a), keyed)
		a.up(t, "b")
		b.up(t, "a")
	}
}

func TestGossipStreamsAreBounded(t *testing.T) {
	a := begin(t, "a", patient)
	for range maxStreams {
		nc, err := net.Dial("tcp", a.c.GossipAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	eventually(t, "all of them to be open", func() bool {
		a.c.gossip.mu.Lock()
		defer a.c.gossip.mu.Unlock()
		return len(a.c.gossip.open) == maxStreams
	})
	nc, err := net.Dial("tcp", a.c.GossipAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	a.refusedWith(t, "too many connections at once")
}

func TestLogLinesOfIntrusions(t *testing.T) {
	for _, tc := range []struct{ line, msg, addr string }{
		{"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=1.2.3.4:5", "Decrypt packet failed: no installed keys could decrypt the message", "1.2.3.4:5"},
		{"[ERR] memberlist: failed to receive: EOF from=[::1]:5", "failed to receive: EOF", "[::1]:5"},
		{"[DEBUG] memberlist: Stream connection from=1.2.3.4:5", "", ""},
		{"[WARN] memberlist: Got ping for unexpected node 'a@1' from=1.2.3.4:5", "", ""},
		{"[ERR] memberlist: Decrypt packet failed", "", ""},
		{"nothing", "", ""},
	} {
		msg, addr, ok := intrusion(tc.line)
		if ok != (tc.msg != "") || ok && (msg != tc.msg || addr != tc.addr) {
			t.Errorf("%s: %q %q %v", tc.line, msg, addr, ok)
		}
	}
}

// What is no packet of the gossip does not reach the Handler, and what names somebody unknown neither.
func TestDatagramsOfStrangersAreDropped(t *testing.T) {
	a, b := pair(t)
	for _, m := range []Member{{ID: "nobody", Incarnation: 1}, {ID: "b", Incarnation: 99}} {
		b.c.ml.SendBestEffort(&b.c.members.get("a").life.node, append(appendSay(nil, sayDatagram, &m), "spoof"...))
	}
	b.c.ml.SendBestEffort(&b.c.members.get("a").life.node, append(appendSay(nil, 99, &Member{ID: "b", Incarnation: 1}), "later"...))
	b.c.ml.SendBestEffort(&b.c.members.get("a").life.node, []byte{sayDatagram, 1})
	a.refusedWith(t, "datagram cut off")
	b.c.Send("a", []byte("last"))
	if g := until(t, "datagram", a.grams, func(gram) bool { return true }); g != (gram{peer.ID("b"), "last"}) {
		t.Errorf("%+v came through", g)
	}
}
