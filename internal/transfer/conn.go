package transfer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"shoal/internal/socket"
)

// conn is a connection to another agent. Whoever got it from the pool is the only one who writes; its own goroutine
// reads what the receiver answers.
type conn struct {
	m      *Mover
	to     target
	nc     net.Conn
	tcp    *net.TCPConn
	port   uint16 // that it leaves from
	pinned bool   // the port was asked for
	nonce  [nonceBytes]byte
	limit  int64 // the largest chunk that the receiver takes
	gone   chan struct{}

	idle   time.Time // since when; zero: in use. pool.mu guards it, and expiry
	expiry *time.Timer

	mu    sync.Mutex
	lane  *lane // who hears the answers; nil: nobody, as there are none
	ended bool
}

// greet says who this is and learns who is there.
func (m *Mover) greet(ctx context.Context, nc net.Conn, to target) (*conn, error) {
	defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })()
	local, ok := nc.LocalAddr().(*net.TCPAddr)
	tc, ok2 := nc.(*net.TCPConn)
	if !ok || !ok2 {
		return nil, fmt.Errorf("transfer: %T is not TCP", nc)
	}
	tune(tc, m.cfg.Silence, m.cfg.Unsent)
	c := &conn{m: m, to: to, nc: socket.Wrap(nc), tcp: tc, port: uint16(local.Port), gone: make(chan struct{})}
	if _, err := nc.Write(appendHello(nil, hello{version: version, from: m.self, to: to.to})); err != nil {
		return nil, fmt.Errorf("transfer: greeting %s: %w", to.to, err)
	}
	h, p, err := receive(nc)
	if err != nil {
		return nil, fmt.Errorf("transfer: greeting %s: %w", to.to, err)
	}
	switch h.kind {
	case kindWelcome:
	case kindRefuse:
		return nil, refused(to, p)
	default:
		return nil, fmt.Errorf("transfer: greeting %s: %w", to.to, errFrame)
	}
	w, err := decodeWelcome(p)
	if err != nil {
		return nil, fmt.Errorf("transfer: greeting %s: %w", to.to, err)
	}
	if w.self != to.to || w.version != version {
		return nil, &RefusedError{Peer: to.to, Reason: WrongPeer, Text: fmt.Sprintf("%s is %s, version %d", to.addr, w.self, w.version)}
	}
	c.nonce, c.limit = w.nonce, int64(w.chunk)
	return c, nil
}

// refused is the error that a refuse message makes.
func refused(to target, p []byte) error {
	r, text, err := decodeRefuse(p)
	if err != nil {
		return err
	}
	return &RefusedError{Peer: to.to, Reason: r, Text: text}
}

// receive reads one message of a receiver, none of which is a chunk.
func receive(r io.Reader) (head, []byte, error) {
	var b [headBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return head{}, nil, err
	}
	h, err := decodeHead(&b)
	if err != nil {
		return head{}, nil, err
	}
	if h.kind == kindChunk {
		return head{}, nil, errFrame
	}
	p := make([]byte, h.length)
	if _, err := io.ReadFull(r, p); err != nil {
		return head{}, nil, err
	}
	return h, p, h.verify(p)
}

// listen reads answers until the connection ends, which it may do at any time.
func (c *conn) listen() {
	r := bufio.NewReaderSize(c.nc, 4<<10)
	var err error
	for err == nil {
		var h head
		var p []byte
		if h, p, err = receive(r); err != nil {
			break
		}
		c.mu.Lock()
		l := c.lane
		c.mu.Unlock()
		if l == nil {
			err = errFrame // nobody has asked anything
		} else {
			err = l.hear(&h, p)
		}
	}
	c.nc.Close()
	c.m.pool.mu.Lock()
	c.m.pool.forget(c)
	c.m.pool.mu.Unlock()
	c.mu.Lock()
	l := c.lane
	c.lane, c.ended = nil, true
	c.mu.Unlock()
	if l != nil {
		l.cut(err)
	}
	close(c.gone)
}

// hand gives the connection's answers to a lane, or to nobody; false where it has ended.
func (c *conn) hand(l *lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lane = l
	return !c.ended
}
