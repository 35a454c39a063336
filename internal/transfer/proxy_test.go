package transfer

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// act is what the proxy does with a frame.
type act uint8

const (
	pass   act = iota
	flip       // a bit of its last byte
	cut        // both sides, before it
	split2     // cut in the middle of it
)

// proxy stands before a receiver and looks at every frame. It is asked by one goroutine at a time.
type proxy struct {
	addr string
	mu   sync.Mutex
	look func(fromSender bool, k kind, conn int) act
	n    int // connections
	open map[net.Conn]struct{}
	work sync.WaitGroup
	l    net.Listener
}

func newProxy(tb testing.TB, to string, look func(fromSender bool, k kind, conn int) act) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), look: look, open: map[net.Conn]struct{}{}, l: l}
	p.work.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			p.mu.Lock()
			n := p.n
			p.n++
			p.open[a], p.open[b] = struct{}{}, struct{}{}
			p.mu.Unlock()
			p.work.Go(func() { p.copy(b, a, true, n) })
			p.work.Go(func() { p.copy(a, b, false, n) })
		}
	})
	tb.Cleanup(p.stop)
	return p
}

func (p *proxy) stop() {
	p.l.Close()
	p.mu.Lock()
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *proxy) copy(to, from net.Conn, fromSender bool, n int) error {
	defer to.Close()
	defer from.Close()
	for {
		var b [headBytes]byte
		if _, err := io.ReadFull(from, b[:]); err != nil {
			return err
		}
		h, err := decodeHead(&b)
		if err != nil {
			return err
		}
		frame := append(b[:], make([]byte, h.length)...)
		if _, err := io.ReadFull(from, frame[headBytes:]); err != nil {
			return err
		}
		p.mu.Lock()
		what := p.look(fromSender, h.kind, n)
		p.mu.Unlock()
		switch what {
		case flip:
			frame[len(frame)-1] ^= 1
		case cut:
			return errors.New("cut")
		case split2:
			to.Write(frame[:len(frame)/2])
			return errors.New("cut")
		}
		if _, err := to.Write(frame); err != nil {
			return err
		}
	}
}
