package agent

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/reserve"
	"shoal/internal/transfer"
	"shoal/internal/wire"
)

// held is the paths of one transfer, as they are now: what the mover asks at each chunk boundary. A reservation that lost a
// conflict moves then, and one whose lease has ended (no bytes for one lease) is made anew.
type held struct {
	p      *paths
	ways   *ways
	policy reserve.Policy
	bytes  int64

	mu       sync.Mutex
	legs     []reserve.Leg
	left     int64
	fallback bool
	moves    int
	now      []int       // the paths that Route gave last
	changed  func([]int) // hears of other ones; nil: nobody does
}

// hold takes paths for a transfer whose bytes are there at ready, when it is its turn. Where none is known the transfer goes
// where ECMP sends it.
func (p *paths) hold(ctx context.Context, w *ways, policy reserve.Policy, bytes int64, ready time.Time) (*held, error) {
	h := &held{p: p, ways: w, policy: policy, bytes: bytes, left: bytes}
	if !w.usable() {
		p.count.aside.Add(1)
		h.fallback = true
		return h, pauseUntil(ctx, ready)
	}
	req := reserve.Request{Bytes: bytes, Policy: policy}
	g, turn, err := p.reserveAt(ctx, w, req, ready)
	if turn != nil {
		granted, err := p.await(ctx, g.ID, turn)
		if err != nil {
			return h, err
		}
		if granted != nil {
			g = *granted
		} else { // it has lapsed, so it has waited for longer than anybody has to
			req.Policy = reserve.Least
			if g, _, err = p.reserve(w, req); err != nil {
				return h, err
			}
		}
	}
	h.legs, h.fallback = g.Legs, g.Fallback
	return h, err
}

// Route is where the next chunks go.
func (h *held) Route() transfer.Route {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.legs) == 0 {
		return transfer.Route{Legs: []transfer.Leg{{ID: anyPath, Fresh: true}}} // one port for all flows of a pair would be worse than ECMP
	}
	var r transfer.Route
	h.p.a.locked(func(n *node.Node, now time.Duration) {
		n.Table(now, func(t *reserve.Table, now, wall time.Duration) {
			for i := range h.legs {
				l := &h.legs[i]
				if l.ID == 0 {
					continue
				}
				if to, moved := t.Move(now, wall, l.ID); moved {
					l.Path = to.Path
					h.moves++
				}
			}
		})
	})
	now := make([]int, 0, len(h.legs))
	for _, l := range h.legs {
		r.Legs = append(r.Legs, transfer.Leg{ID: l.Path, Ports: h.ways.ports.Ports(l.Path), Share: l.Share})
		now = append(now, l.Path)
	}
	if h.changed != nil && !slices.Equal(now, h.now) {
		h.changed(now)
	}
	h.now = now
	return r
}

// anyPath is the leg that goes where ECMP sends it.
const anyPath = -1

// Moved says how many bytes have moved in all.
func (h *held) Moved(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = max(0, h.bytes-bytes)
	h.p.a.locked(func(n *node.Node, now time.Duration) {
		n.Table(now, func(t *reserve.Table, now, wall time.Duration) {
			for i := range h.legs {
				l := &h.legs[i]
				if l.ID == 0 {
					continue
				}
				left := l.Share
				if h.bytes > 0 {
					hi, lo := bits.Mul64(uint64(l.Share), uint64(h.left))
					share, _ := bits.Div64(hi, lo, uint64(h.bytes)) // at most l.Share, since left is at most bytes
					left = int64(share)
				}
				if t.Renew(now, wall, l.ID, left) {
					continue
				}
				// Its lease has ended: bytes have moved again.
				t.Resume(now, wall, &reserve.Request{Dst: h.ways.target.peer, Bytes: left, Set: h.ways.set, Policy: h.policy}, l)
			}
		})
	})
}

// release ends what is held.
func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p.a.locked(func(n *node.Node, now time.Duration) {
		n.Table(now, func(t *reserve.Table, now, wall time.Duration) {
			for _, l := range h.legs {
				if l.ID != 0 {
					t.Release(now, wall, l.ID)
				}
			}
		})
	})
	h.legs = nil
}

// moved is how a transfer went.
type moved struct {
	transfer.Result
	fallback bool
	took     time.Duration // from the first question to the receiver's last word
}

// pauseUntil waits for a time.
func pauseUntil(ctx context.Context, when time.Time) error {
	d := time.Until(when)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// errRefused: the other side does not want the transfer.
var errRefused = errors.New("agent: refused")

// move sends a file, or bytes of nothing, to a peer.
// ready is in how long the bytes are there. progress hears how many bytes have arrived, and changed which paths carry them; either may be nil, and neither may wait.
func (p *paths) move(ctx context.Context, to peer.ID, file, as string, bytes int64, policy reserve.Policy, ready time.Duration, progress func(int64), changed func([]int)) (m moved, err error) {
	start := time.Now().Add(ready)
	defer func() {
		m.took = time.Since(start)
		if err != nil {
			p.count.failed.Add(1)
		} else {
			p.count.sent.Add(1)
		}
	}()
	src, done, err := p.source(file, bytes)
	if err != nil {
		return m, err
	}
	defer done()
	w, err := p.to(target{peer: to, proto: ecmp.TCP})
	if err != nil {
		return m, err
	}
	ticket, addr, err := p.askTicket(ctx, w, as, src.Size())
	if err != nil {
		return m, err
	}
	if addr != w.addr.String() { // it has moved, and its document has not said so yet
		w = w.without(aside, string(w.target.peer)+" is at another address now")
	}
	h, err := p.hold(ctx, w, policy, src.Size(), start)
	if err != nil {
		return m, err
	}
	defer h.release()
	h.changed = changed
	m.Result, err = p.mover.Send(ctx, to, addr, ticket, src, src.Size(), h, progress)
	h.mu.Lock()
	m.fallback, m.Moves = h.fallback, h.moves
	h.mu.Unlock()
	return m, err
}

// source opens what is sent.
func (p *paths) source(file string, bytes int64) (transfer.Source, func() error, error) {
	if file == "" {
		return transfer.Zeros(bytes), func() error { return nil }, nil
	}
	if p.cfg.Dir == "" {
		return nil, nil, errors.New("agent: files are sent from paths.dir, which is not configured")
	}
	f, err := transfer.FileIn(p.cfg.Dir, file)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

// askTicket asks the peer for the right to write.
func (p *paths) askTicket(ctx context.Context, w *ways, name string, bytes int64) (t transfer.Ticket, addr string, err error) {
	r, err := p.ask(ctx, w, &wire.Ask{What: wire.AskTicket, Bytes: bytes, Name: name})
	if err != nil {
		return t, "", err
	}
	if _, err := netip.ParseAddrPort(r.Addr); err != nil {
		return t, "", fmt.Errorf("agent: %s gives a ticket for %q, which is no IP:port", w.target.peer, r.Addr)
	}
	return t, r.Addr, t.UnmarshalText(r.Ticket)
}

// How long a peer has to answer over the network that membership uses, and how long that is not tried again where it has not.
const (
	askWithin = time.Second
	cutOffFor = 5 * time.Second
)

// ask asks the target's peer, over the peers' network, and where that is cut off over the data network. A pull is answered
// when it has ended, and must not be asked twice: whether the peer is there is asked before.
func (p *paths) ask(ctx context.Context, w *ways, m *wire.Ask) (*wire.Reply, error) {
	c := p.a.cluster.Load()
	if c == nil {
		return nil, errors.New("agent: not started")
	}
	to, first := w.target.peer, m
	if m.What == wire.AskPull {
		first = &wire.Ask{What: wire.AskThere}
	}
	p.mu.Lock()
	cut := time.Now().Before(p.cut[to])
	p.mu.Unlock()
	var err error
	if !cut {
		short, cancel := context.WithTimeout(ctx, askWithin)
		var r *wire.Reply
		r, err = c.Ask(short, to, first)
		cancel()
		switch {
		case err == nil && first != m:
			return granted(to)(c.AskOnce(ctx, to, m))
		case err == nil || ctx.Err() != nil:
			return granted(to)(r, err)
		}
		p.mu.Lock()
		if len(p.cut) >= MaxWays {
			clear(p.cut)
		}
		p.cut[to] = time.Now().Add(cutOffFor)
		p.mu.Unlock()
	}
	addr := p.dataPeerAddr(w)
	if addr == "" {
		return nil, errors.Join(err, fmt.Errorf("agent: the peer port of %s on the data network is not known", to))
	}
	r, aerr := c.AskAt(ctx, to, addr, m)
	if aerr != nil {
		return nil, errors.Join(err, aerr)
	}
	return granted(to)(r, nil)
}

// granted makes an error of a peer's refusal.
func granted(by peer.ID) func(*wire.Reply, error) (*wire.Reply, error) {
	return func(r *wire.Reply, err error) (*wire.Reply, error) {
		if err == nil && r.Refused != "" {
			return nil, fmt.Errorf("%w by %s: %s", errRefused, by, r.Refused)
		}
		return r, err
	}
}

// dataPeerAddr is where the peer port of a target may be on the data network; empty where its port was never known.
func (p *paths) dataPeerAddr(w *ways) string {
	p.a.mu.Lock()
	known := p.a.lastAddr[w.target.peer]
	p.a.mu.Unlock()
	ap, err := netip.ParseAddrPort(known)
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(w.addr.Addr(), ap.Port()).String()
}

// ticket gives a peer the right to write once.
func (p *paths) ticket(from peer.ID, m *wire.Ask) *wire.Reply {
	var sink transfer.Sink = transfer.Discard()
	if m.Name != "" {
		if p.cfg.Dir == "" {
			return &wire.Reply{Refused: "files are taken in below paths.dir, which is not configured here"}
		}
		var err error
		if sink, err = transfer.FileSink(p.cfg.Dir, m.Name); err != nil {
			return &wire.Reply{Refused: err.Error()}
		}
	}
	t, err := p.mover.Ticket(from, m.Bytes, sink)
	if err != nil {
		return &wire.Reply{Refused: err.Error()}
	}
	text, err := t.MarshalText()
	if err != nil {
		return &wire.Reply{Refused: err.Error()}
	}
	p.count.received.Add(1)
	return &wire.Reply{Ticket: text, Addr: p.self.String()}
}

// pulled sends what a peer has asked for: whoever sends the bytes chooses the port, so whoever sends reserves.
func (p *paths) pulled(ctx context.Context, from peer.ID, m *wire.Ask) *wire.Reply {
	policy := p.policy
	if m.Policy != "" {
		if err := policy.UnmarshalText([]byte(m.Policy)); err != nil {
			return &wire.Reply{Refused: err.Error()}
		}
	}
	r, err := p.move(ctx, from, m.Name, m.To, m.Bytes, policy, 0, nil, nil)
	if err != nil {
		return &wire.Reply{Refused: err.Error()}
	}
	return &wire.Reply{Bytes: r.Bytes, TookNS: int64(r.took)}
}

// pull has a peer send.
func (p *paths) pull(ctx context.Context, from peer.ID, file, as string, bytes int64, policy string) (*wire.Reply, error) {
	w, err := p.to(target{peer: from, proto: ecmp.TCP})
	if err != nil {
		return nil, err
	}
	return p.ask(ctx, w, &wire.Ask{What: wire.AskPull, Bytes: bytes, Name: file, To: as, Policy: policy})
}
