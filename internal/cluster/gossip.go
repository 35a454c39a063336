package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxPacket bounds a gossip packet, in bytes. memberlist fills packets up to 1400 bytes.
	maxPacket = 2048
	// maxStreams bounds the gossip's open TCP connections: exchanges of member lists, joins and fallback pings are short.
	maxStreams = 128
	// hasLabel is the first byte of packets and streams that carry a label (memberlist's label.go).
	hasLabel = 244
)

// gossip is memberlist's transport: UDP and TCP on one port. It is our own so that what does not belong to this shoal is
// refused, counted and named by address before memberlist looks at it, so that a packet costs its own bytes and not a
// buffer of 64 kB, and so that tests can cut the network in parts. It implements memberlist.NodeAwareTransport.
type gossip struct {
	udp       *net.UDPConn
	tcp       *net.TCPListener
	advertise netip.AddrPort
	header    []byte // the label as it stands before every packet and stream
	refused   func(addr string, err error)
	cut       func(addr string) bool // nil; in tests: this address is unreachable
	lose      func(addr string) bool // nil; in tests: packets to this address are lost

	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	open map[*stream]struct{} // both directions
}

// newGossip listens. Port 0 takes one that is free for both protocols.
func newGossip(bind netip.AddrPort, advertise netip.Addr, label string, refused func(string, error)) (*gossip, error) {
	if len(label) == 0 || len(label) > memberlist.LabelMaxSize {
		return nil, fmt.Errorf("cluster: gossip label of %d bytes", len(label))
	}
	ip, err := advertised(bind.Addr(), advertise)
	if err != nil {
		return nil, err
	}
	g := &gossip{refused: refused, header: append([]byte{hasLabel, byte(len(label))}, label...),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), open: map[*stream]struct{}{}}
	for try := 1; ; try++ {
		g.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(bind))
		if err != nil {
			return nil, fmt.Errorf("cluster: gossip port: %w", err)
		}
		port := uint16(g.tcp.Addr().(*net.TCPAddr).Port)
		g.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(bind.Addr(), port)))
		if err == nil {
			g.advertise = netip.AddrPortFrom(ip, port)
			break
		}
		g.tcp.Close()
		if bind.Port() != 0 || try == 10 {
			return nil, fmt.Errorf("cluster: gossip port: %w", err)
		}
	}
	g.udp.SetReadBuffer(2 << 20) // bursts of gossip after a join; the kernel gives less where it must
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.wg.Add(2)
	go g.readPackets()
	go g.accept()
	return g, nil
}

// FinalAdvertiseAddr ignores memberlist's own configuration: newGossip knows better.
func (g *gossip) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return g.advertise.Addr().AsSlice(), int(g.advertise.Port()), nil
}

func (g *gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *gossip) StreamCh() <-chan net.Conn           { return g.streams }

func (g *gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("cluster: gossip to %q: %w", addr, err)
	}
	if g.cut != nil && g.cut(addr) || g.lose != nil && g.lose(addr) {
		return time.Now(), nil
	}
	_, err = g.udp.WriteToUDPAddrPort(b, to)
	return time.Now(), err
}

func (g *gossip) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return g.WriteTo(b, a.Addr)
}

func (g *gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if g.cut != nil && g.cut(addr) {
		return nil, fmt.Errorf("cluster: gossip to %s: cut", addr)
	}
	d := net.Dialer{Timeout: timeout}
	nc, err := d.DialContext(g.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &stream{Conn: nc, g: g, checked: len(g.header)}
	if !g.track(s) {
		nc.Close()
		return nil, ErrClosed
	}
	return s, nil
}

func (g *gossip) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.DialTimeout(a.Addr, timeout)
}

// Shutdown ends all sockets and waits for the loops.
func (g *gossip) Shutdown() error {
	g.stop()
	g.tcp.Close()
	g.udp.Close()
	g.mu.Lock()
	open := g.open
	g.open = nil
	g.mu.Unlock()
	for s := range open {
		s.Conn.Close()
	}
	g.wg.Wait()
	return nil
}

func (g *gossip) readPackets() {
	defer g.wg.Done()
	buf := make([]byte, maxPacket+1)
	for {
		n, from, err := g.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if g.ctx.Err() != nil {
				return
			}
			// An ICMP "port unreachable" of an earlier write, for instance: the socket itself is well.
			continue
		}
		now := time.Now()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if n > maxPacket || !bytes.HasPrefix(buf[:n], g.header) {
			g.refused(from.String(), errNoLabel)
			continue
		}
		p := &memberlist.Packet{Buf: bytes.Clone(buf[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case g.packets <- p:
		case <-g.ctx.Done():
			return
		}
	}
}

var errNoLabel = errors.New("cluster: gossip: garbage, or a peer of another shoal")

func (g *gossip) accept() {
	defer g.wg.Done()
	var pause pause
	for {
		nc, err := g.tcp.Accept()
		if err != nil {
			if g.ctx.Err() != nil || !pause.wait(g.ctx) {
				return
			}
			continue
		}
		pause.reset()
		s := &stream{Conn: nc, g: g}
		if !g.track(s) {
			g.refused(nc.RemoteAddr().String(), errors.New("cluster: gossip: too many connections at once"))
			nc.Close()
			continue
		}
		select {
		case g.streams <- s:
		case <-g.ctx.Done():
			s.Close()
			return
		}
	}
}

// track enters s among the open streams, where there is room.
func (g *gossip) track(s *stream) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil || len(g.open) >= maxStreams {
		return false
	}
	g.open[s] = struct{}{}
	return true
}

// stream is one TCP connection of the gossip; an accepted one must begin with the label. Who says nothing at all is not
// refused: it may be a peer that was too slow for its own patience.
type stream struct {
	net.Conn
	g       *gossip
	checked int // bytes of the label that were there
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	want := s.g.header[s.checked:]
	got := p[:min(n, len(want))]
	if !bytes.Equal(got, want[:len(got)]) {
		s.g.refused(s.RemoteAddr().String(), errNoLabel)
		s.Conn.Close()
		return 0, errNoLabel
	}
	s.checked += len(got)
	if err != nil && s.checked > 0 && s.checked < len(s.g.header) && s.g.ctx.Err() == nil {
		s.g.refused(s.RemoteAddr().String(), errNoLabel)
	}
	return n, err
}

func (s *stream) Close() error {
	s.g.mu.Lock()
	delete(s.g.open, s)
	s.g.mu.Unlock()
	return s.Conn.Close()
}

// pause spaces the tries of a loop whose system call fails, such as accept without file descriptors: 5 ms to 1 s.
type pause time.Duration

func (p *pause) wait(ctx context.Context) bool {
	*p = min(max(2**p, pause(5*time.Millisecond)), pause(time.Second))
	t := time.NewTimer(time.Duration(*p))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *pause) reset() { *p = 0 }
