package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"shoal/internal/peer"
)

// pool has the connections to other agents. One that is not in use waits, warm, until it has been idle for too long or
// its place is needed.
type pool struct {
	m *Mover

	mu     sync.Mutex
	closed bool
	groups map[target]*group
	total  int
	idle   int
	work   sync.WaitGroup // readers of connections
}

// target is who connections lead to.
type target struct {
	to   peer.ID
	addr string
}

// group is the connections to one target.
type group struct {
	conns map[*conn]struct{}
	ports map[uint16]struct{} // that are in use, or being tried
}

func newPool(m *Mover) *pool { return &pool{m: m, groups: map[target]*group{}} }

func (p *pool) open() (total, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, p.idle
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, g := range p.groups {
		for c := range g.conns {
			c.nc.Close()
		}
	}
	p.mu.Unlock()
	p.work.Wait()
}

// get gives a connection that leaves from one of the leg's ports: a warm one, or a new one. Where none of them can be
// had, or unpinned is set, it leaves from any port: any path carries any flow.
func (p *pool) get(ctx context.Context, to target, leg *Leg, unpinned bool) (*conn, error) {
	if c := p.warm(to, leg, unpinned); c != nil {
		return c, nil
	}
	return p.dial(ctx, to, leg, unpinned)
}

// warm takes an idle connection that suits, the one used last.
func (p *pool) warm(to target, leg *Leg, unpinned bool) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[to]
	if g == nil || leg.Fresh {
		return nil
	}
	var best *conn
	for c := range g.conns {
		if !c.idle.IsZero() && (unpinned || c.suits(leg)) && (best == nil || c.idle.After(best.idle)) {
			best = c
		}
	}
	if best != nil {
		best.idle = time.Time{}
		best.expiry.Stop()
		p.idle--
	}
	return best
}

// suits says whether the connection takes the leg's path, as far as its port says.
func (c *conn) suits(leg *Leg) bool {
	if len(leg.Ports) == 0 {
		return !c.pinned
	}
	return slices.Contains(leg.Ports, c.port)
}

// dial opens a connection, from the first of the leg's ports that can be had.
func (p *pool) dial(ctx context.Context, to target, leg *Leg, unpinned bool) (*conn, error) {
	if err := p.room(); err != nil {
		return nil, err
	}
	c, err := p.dialAny(ctx, to, leg, unpinned)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		c.nc.Close()
		err = ErrClosed
	}
	if err != nil {
		p.total--
		if c != nil {
			p.drop(to, c.port, nil)
		}
		return nil, err
	}
	g := p.group(to)
	g.conns[c] = struct{}{}
	g.ports[c.port] = struct{}{}
	p.work.Go(c.listen)
	return c, nil
}

// room makes place for one more connection, and counts it.
func (p *pool) room() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if p.total >= p.m.cfg.MaxConns {
		var oldest *conn
		for _, g := range p.groups {
			for c := range g.conns {
				if !c.idle.IsZero() && (oldest == nil || c.idle.Before(oldest.idle)) {
					oldest = c
				}
			}
		}
		if oldest == nil {
			return fmt.Errorf("%w: %d connections are in use", ErrBusy, p.total)
		}
		p.forget(oldest)
		oldest.nc.Close()
	}
	p.total++
	return nil
}

// group finds or makes a target's. p.mu is held.
func (p *pool) group(to target) *group {
	g := p.groups[to]
	if g == nil {
		g = &group{conns: map[*conn]struct{}{}, ports: map[uint16]struct{}{}}
		p.groups[to] = g
	}
	return g
}

// drop frees a port, and a connection where there is one. p.mu is held.
func (p *pool) drop(to target, port uint16, c *conn) {
	g := p.groups[to]
	if g == nil {
		return
	}
	delete(g.ports, port)
	delete(g.conns, c)
	if len(g.conns)+len(g.ports) == 0 {
		delete(p.groups, to)
	}
}

// forget takes a connection out. p.mu is held.
func (p *pool) forget(c *conn) {
	g := p.groups[c.to]
	if g == nil {
		return
	}
	if _, ok := g.conns[c]; !ok {
		return
	}
	p.total--
	if !c.idle.IsZero() {
		p.idle--
		c.expiry.Stop()
	}
	p.drop(c.to, c.port, c)
}

// put makes a connection warm again.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[c.to]; p.closed || g == nil {
		c.nc.Close()
	} else if _, ok := g.conns[c]; ok && c.idle.IsZero() {
		p.idle++
		p.rest(c)
	}
}

// rest begins the time for which an idle connection is kept. p.mu is held.
func (p *pool) rest(c *conn) {
	c.idle = time.Now()
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.expiry = time.AfterFunc(p.m.cfg.Idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !c.idle.IsZero() && time.Since(c.idle) >= p.m.cfg.Idle {
			p.forget(c)
			c.nc.Close()
		}
	})
}

// dialAny tries the leg's ports, then any. Where it fails the connection may be one of which only the port is known.
func (p *pool) dialAny(ctx context.Context, to target, leg *Leg, unpinned bool) (*conn, error) {
	if !unpinned {
		for _, port := range leg.Ports {
			if !p.takePort(to, port) {
				continue
			}
			c, err := p.dialFrom(ctx, to, port)
			if err == nil {
				return c, nil
			}
			// The same four numbers are a connection already, perhaps one that is ending; or another socket of this
			// machine has the port for itself.
			if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE) {
				p.m.count.portsTaken.Add(1)
				p.mu.Lock()
				p.drop(to, port, nil)
				p.mu.Unlock()
				continue
			}
			return &conn{port: port}, err
		}
		if len(leg.Ports) > 0 {
			p.m.log.Debug("no source port of a path can be had; going by any", "to", to.to, "path", leg.ID, "ports", len(leg.Ports))
		}
	}
	c, err := p.dialFrom(ctx, to, 0)
	if err == nil && len(leg.Ports) > 0 {
		p.m.count.unpinned.Add(1)
	}
	return c, err
}

// takePort reserves a port towards the target.
func (p *pool) takePort(to target, port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(to)
	if _, taken := g.ports[port]; taken || port == 0 {
		return false
	}
	g.ports[port] = struct{}{}
	return true
}

// dialFrom opens one connection and greets.
func (p *pool) dialFrom(ctx context.Context, to target, port uint16) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.m.cfg.Silence)
	defer cancel()
	d := net.Dialer{}
	if port != 0 || p.m.cfg.Source.IsValid() {
		local := &net.TCPAddr{Port: int(port)}
		if s := p.m.cfg.Source; s.IsValid() {
			local.IP, local.Zone = s.AsSlice(), s.Zone()
		}
		d.LocalAddr = local
	}
	if port != 0 {
		d.Control = reuse
	}
	nc, err := d.DialContext(ctx, "tcp", to.addr)
	if err != nil {
		return nil, fmt.Errorf("transfer: connecting to %s: %w", to.to, err)
	}
	c, err := p.m.greet(ctx, nc, to)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.pinned = port != 0
	return c, nil
}

// Warm opens a connection for each leg that has none, so that the next transfer finds it, and keeps those that are there
// for another Config.Idle.
func (m *Mover) Warm(ctx context.Context, to peer.ID, addr string, legs []Leg) error {
	if len(legs) > MaxLegs {
		return fmt.Errorf("transfer: %d legs; at most %d", len(legs), MaxLegs)
	}
	at := target{to, addr}
	errs := make([]error, len(legs))
	var work sync.WaitGroup
	for i := range legs {
		if m.pool.kept(at, &legs[i]) {
			continue
		}
		work.Go(func() {
			c, err := m.pool.dial(ctx, at, &legs[i], false)
			if err == nil {
				m.pool.put(c)
			}
			errs[i] = err
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// kept says whether there is a connection for the leg, in use or not, and lets an idle one rest anew.
func (p *pool) kept(to target, leg *Leg) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[to]
	if g == nil {
		return false
	}
	for c := range g.conns {
		if c.suits(leg) {
			if !c.idle.IsZero() {
				p.rest(c)
			}
			return true
		}
	}
	return false
}
