package cluster

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

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
