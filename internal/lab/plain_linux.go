package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// PlainPolicy is the only policy of Plain: the kernels choose source ports, and so paths.
const PlainPolicy = "ecmp"

const (
	plainPort  = 7000
	plainChunk = 64 << 10 // bytes written at once
)

// Plain is a Sender without agents: one TCP connection for each flow, to a sink at its destination. It shows what the fabric
// does by itself, and is what the tests of the lab use.
type Plain struct {
	f         *Fabric
	routes    *ecmp.Fabric
	listeners []net.Listener
	zeros     []byte
	wg        sync.WaitGroup
	mu        sync.Mutex
	open      map[net.Conn]bool // at the sinks
	closed    bool
}

// NewPlain starts a sink in every host. Close ends them.
func NewPlain(f *Fabric) (*Plain, error) {
	routes, err := ecmp.New(f.Describe())
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	p := &Plain{f: f, routes: routes, zeros: make([]byte, plainChunk), open: map[net.Conn]bool{}}
	for _, h := range f.plan.hosts {
		err := f.Do(h.Name, func() error {
			l, err := net.Listen("tcp4", netip.AddrPortFrom(h.Addr, plainPort).String())
			if err == nil {
				p.listeners = append(p.listeners, l)
			}
			return err
		})
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("lab: a sink in %s: %w", h.Name, err)
		}
		l := p.listeners[len(p.listeners)-1]
		p.wg.Go(func() { p.accept(l) })
	}
	return p, nil
}

// Close ends the sinks, and whatever they receive.
func (p *Plain) Close() error {
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	for _, l := range p.listeners {
		l.Close()
	}
	p.wg.Wait()
	return nil
}

func (p *Plain) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed || len(p.open) >= sim.MaxFlows {
			c.Close()
		} else {
			p.open[c] = true
			p.wg.Go(func() { p.receive(c) })
		}
		p.mu.Unlock()
	}
}

// receive takes the announced bytes, and confirms them with one.
func (p *Plain) receive(c net.Conn) {
	defer func() {
		c.Close()
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
	}()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	n := binary.BigEndian.Uint64(head[:])
	if n > sim.MaxFlowBytes {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(n)); err == nil {
		c.Write([]byte{1})
	}
}

// Reset checks the policy; there is nothing to forget.
func (p *Plain) Reset(_ context.Context, policy string) error {
	if policy != PlainPolicy {
		return fmt.Errorf("lab: plain TCP has the policy %s only, not %q", PlainPolicy, policy)
	}
	return nil
}

// Counts are none: there is nothing to conflict.
func (p *Plain) Counts(context.Context) (Counts, error) { return Counts{}, nil }

// Send carries a flow over a connection of its own, from the flow's source port where it names one.
func (p *Plain) Send(ctx context.Context, _ string, f sim.Flow, at func(paths ...int)) (sent Sent, err error) {
	src, dst := p.f.plan.hosts[f.Src], p.f.plan.hosts[f.Dst]
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(src.Addr, f.Port)), Control: reuse}
	var c net.Conn
	err = p.f.Do(src.Name, func() (err error) {
		c, err = dialer.DialContext(ctx, "tcp4", netip.AddrPortFrom(dst.Addr, plainPort).String())
		return err
	})
	if err != nil {
		return Sent{}, fmt.Errorf("lab: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return Sent{}, errors.New("lab: a connection without a local address")
	}
	sent.Port = uint16(local.Port)
	if route, err := p.routes.Route(src.Name, dst.Name); err == nil {
		at(route.PathOf(ecmp.Tuple{Src: src.Addr, Dst: dst.Addr, SrcPort: sent.Port, DstPort: plainPort, Proto: ecmp.TCP}))
	}
	if err := p.write(c, f.Bytes); err != nil {
		return sent, fmt.Errorf("lab: %w", err)
	}
	return sent, nil
}

func (p *Plain) write(c net.Conn, n int64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	if _, err := c.Write(b[:]); err != nil {
		return err
	}
	for n > 0 {
		k, err := c.Write(p.zeros[:min(n, plainChunk)])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	_, err := io.ReadFull(c, b[:1])
	return err
}

// reuse lets connections to several hosts share a source port.
func reuse(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
		return e
	}
	return err
}
