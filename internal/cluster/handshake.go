package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"shoal/internal/wire"
)

// A connection to the peer port begins with TLS where the shoal has a key, then Hello from the side that dialled, then
// Welcome or Refuse. Both say their ID; over TLS each must be the one in the certificate.

// keepAlive finds connections whose other end is gone without a word, while nothing is being sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// refusal is what the other side said to our Hello.
type refusal struct{ wire.Refuse }

func (r *refusal) Error() string {
	return fmt.Sprintf("cluster: the peer refuses us: %s (it speaks versions %d to %d)", r.Reason, r.Min, r.Max)
}

// dial connects to a peer port and introduces this peer. The whole takes at most the preset's dial time.
func (c *Cluster) dial(ctx context.Context, addr string) (*link, error) {
	c.count.dials.Add(1)
	l, err := c.dialOnce(ctx, addr)
	if err != nil {
		c.count.dialErrors.Add(1)
		return nil, fmt.Errorf("cluster: peer port %s: %w", addr, err)
	}
	return l, nil
}

func (c *Cluster) dialOnce(ctx context.Context, addr string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.t.dial)
	defer cancel()
	dial := c.hooks.dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", addr)
		}
	}
	nc, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	// Whoever gives up on the dial, or closes the cluster, ends the handshake too.
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	setUserTimeout(nc, c.cfg.Limits.Stall)
	c.widen(nc)
	l := newLink(nc, c.tlsClient, false)
	if err = c.introduce(l); err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, err
	}
	return l, nil
}

// introduce is the dialling side of the handshake.
func (c *Cluster) introduce(l *link) error {
	if err := l.secure(); err != nil {
		return err
	}
	b := wire.BeginFrame(nil, wire.TypeHello)
	b, err := wire.AppendHello(b, &wire.Hello{Min: c.self.MinVersion, Max: c.self.MaxVersion, ID: c.self.ID,
		Incarnation: c.self.Incarnation, Shoal: c.cfg.Shoal})
	if err != nil {
		return err
	}
	if b, err = wire.EndFrame(b, 0); err != nil {
		return err
	}
	if err := l.write(b, nil); err != nil {
		return err
	}
	t, p, err := l.frame()
	if err != nil {
		return unexpected(err)
	}
	switch t {
	case wire.TypeWelcome:
		var w wire.Welcome
		if err := wire.DecodeWelcome(p, &w); err != nil {
			return err
		}
		if w.Version < c.self.MinVersion || w.Version > c.self.MaxVersion {
			return fmt.Errorf("%w: it chose version %d", errProtocol, w.Version)
		}
		l.id, l.incarnation, l.version = w.ID, w.Incarnation, w.Version
		return c.sameID(l)
	case wire.TypeRefuse:
		var r refusal
		if err := wire.DecodeRefuse(p, &r.Refuse); err != nil {
			return err
		}
		return &r
	}
	return fmt.Errorf("%w: %v in answer to a hello", errProtocol, t)
}

// greet is the listening side of the handshake. Where the other side is to be turned away it says so, if it got so far
// as to be understood.
func (c *Cluster) greet(l *link) error {
	if err := l.secure(); err != nil {
		return err
	}
	t, p, err := l.frame()
	if err != nil {
		return err
	}
	if t != wire.TypeHello {
		return fmt.Errorf("%w: it begins with %v", errProtocol, t)
	}
	var h wire.Hello
	if err := wire.DecodeHello(p, &h); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	l.id, l.incarnation = h.ID, h.Incarnation
	v, ok := wire.Negotiate(h.Min, h.Max)
	switch {
	case h.Shoal != c.cfg.Shoal:
		err = fmt.Errorf("cluster: a peer of the shoal %.70q, not %q", h.Shoal, c.cfg.Shoal)
	case !ok:
		err = fmt.Errorf("cluster: no version in common: %s speaks %d to %d, %s %d to %d", h.ID, h.Min, h.Max,
			c.self.ID, c.self.MinVersion, c.self.MaxVersion)
	default:
		if err = c.sameID(l); err == nil {
			err = c.admit(&h)
		}
	}
	if err != nil {
		r := wire.AppendRefuse(nil, &wire.Refuse{Reason: clip(err.Error(), wire.MaxReason), Min: c.self.MinVersion, Max: c.self.MaxVersion})
		l.writeFrame(wire.TypeRefuse, r)
		return err
	}
	l.version = v
	return l.writeFrame(wire.TypeWelcome, wire.AppendWelcome(nil, &wire.Welcome{Version: v, ID: c.self.ID, Incarnation: c.self.Incarnation}))
}

// sameID checks that the other side is who it says.
func (c *Cluster) sameID(l *link) error {
	if err := l.id.Validate(); err != nil {
		return err
	}
	conn, ok := l.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	id, err := certID(conn.ConnectionState().PeerCertificates, c.roots)
	if err == nil && id != l.id {
		err = fmt.Errorf("cluster: the peer says that it is %s, but has the certificate of %s", l.id, id)
	}
	return err
}

// admit decides about a peer that is who it says: of the lives of one ID only one may talk to us.
func (c *Cluster) admit(h *wire.Hello) error {
	if h.ID == c.self.ID {
		if h.Incarnation == c.self.Incarnation {
			return errors.New("cluster: this is yourself")
		}
		// Another agent with our ID asks whether we are there (see twins): it gets its answer, and nothing after it.
		return nil
	}
	r := c.members.get(h.ID)
	if r == nil || r.life.Incarnation == h.Incarnation {
		return nil // one that the gossip has not told of yet is welcome
	}
	if h.Incarnation < r.life.Incarnation {
		return fmt.Errorf("cluster: two agents have one ID: %v is known, you are incarnation %x", r.life, h.Incarnation)
	}
	// It is back, and its connection was faster than the gossip; or it is a twin.
	if c.answers(r.life) {
		return twinError(r.life.String(), fmt.Sprintf("incarnation %x", h.Incarnation))
	}
	m := c.members
	m.mu.Lock()
	r.life.gone = true
	m.mark(h.ID)
	m.mu.Unlock()
	return nil
}

// answers reports whether the agent of this life is still there: its peer port answers, by that ID and incarnation. Who
// is only slow gets a second chance.
func (c *Cluster) answers(l *life) bool {
	return c.asked.ask(l.name, func() bool {
		for range 2 {
			k, err := c.dial(c.ctx, l.PeerAddr)
			if err == nil {
				defer k.close()
				return k.id == l.ID && k.incarnation == l.Incarnation
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return false
			}
		}
		return false
	})
}

// twins looks at a life that has our own ID: an earlier start of this agent, or another agent with the same ID. Of two
// the younger is told to give up while it is young: whoever has served for a while goes on, and the others decide which of
// the two they talk to. As long as the gossip holds the life for alive it is asked again: it may just have been busy.
func (c *Cluster) twins(l *life) {
	defer c.wg.Done()
	if l.PeerAddr == c.self.PeerAddr {
		return
	}
	for !c.answers(l) {
		t := time.NewTimer(askAgain)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return
		}
		c.members.mu.Lock()
		over := c.members.find(l.name) == nil
		c.members.mu.Unlock()
		if over {
			return
		}
	}
	mine := &life{Member: c.self, node: *c.ml.LocalNode()}
	if l.Incarnation < c.self.Incarnation && time.Since(c.started) < youth {
		err := twinError(l.String(), mine.String())
		c.log.Error(err.Error())
		select {
		case c.failed <- err:
		default:
		}
		return
	}
	c.refusedPeer(l.ID, l.node.Address(), twinError(mine.String(), l.String()))
}

// youth is how long after its start an agent takes the presence of an elder one with its ID as its own mistake.
const youth = 30 * time.Second

// clip cuts s to at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}
