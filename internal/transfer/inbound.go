package transfer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"shoal/internal/peer"
	"shoal/internal/socket"
)

// inbound is a connection that another agent has opened. Its goroutine does everything in turn, so that what is not yet
// written stops the sender by TCP's own window.
type inbound struct {
	m     *Mover
	nc    net.Conn
	from  peer.ID
	nonce [nonceBytes]byte
	idle  time.Time // since when nothing is transferred; zero: something is. m.mu guards it
	seen  bool      // has proven a ticket; m.mu guards it

	t     *incoming // that it takes part in
	chunk *[]byte   // a chunk and the head of what follows
	ahead []byte    // read already, and not yet looked at; part of store
	store [chunkAhead]byte
	out   []byte
}

// chunkAhead is how much is read behind a chunk: the next one's head, so that it needs no call of its own.
const chunkAhead = headBytes + chunkHead

var (
	errEnded   = errors.New("transfer: the connection has ended")
	errGarbage = errors.New("transfer: not one of ours")
)

// enter begins to serve a connection. Where there are too many, the one that is idle for the longest makes room: first
// those that never showed a ticket.
func (m *Mover) enter(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		tune(tc, m.cfg.Silence, 0)
	}
	c := &inbound{m: m, nc: socket.Wrap(nc), idle: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		nc.Close()
		return
	}
	if len(m.inbound) >= m.cfg.MaxConns {
		var victim *inbound
		for o := range m.inbound {
			switch {
			case o.idle.IsZero():
			case victim == nil, !o.seen && victim.seen, o.seen == victim.seen && o.idle.Before(victim.idle):
				victim = o
			}
		}
		m.count.refused.Add(1)
		if victim == nil {
			nc.Close()
			return
		}
		victim.nc.Close()
		delete(m.inbound, victim)
	}
	m.inbound[c] = struct{}{}
	m.work.Go(func() {
		err := c.serve()
		nc.Close()
		m.release(c.chunk)
		m.mu.Lock()
		delete(m.inbound, c)
		m.mu.Unlock()
		if err != nil && !errors.Is(err, errEnded) {
			m.log.Debug("a connection ended", "from", c.from, "addr", nc.RemoteAddr().String(), "err", err)
		}
	})
}

func (c *inbound) serve() error {
	defer c.leave()
	c.nc.SetDeadline(time.Now().Add(handshakeTime))
	if err := c.greet(); err != nil {
		c.m.count.refused.Add(1)
		return err
	}
	for {
		wait := c.m.cfg.Idle
		if c.t != nil {
			wait = c.m.cfg.Stall
		}
		h, err := c.head(wait)
		if err != nil {
			return err
		}
		if r, err := c.handle(&h); err != nil {
			return err
		} else if r.why != 0 {
			return c.refuse(r)
		}
	}
}

// greet takes the hello and answers it.
func (c *inbound) greet() error {
	h, err := c.head(handshakeTime)
	if err != nil {
		return err
	}
	if h.kind != kindHello {
		return errGarbage
	}
	p, err := c.payload(&h)
	if err != nil {
		return err
	}
	hi, err := decodeHello(p)
	switch {
	case err != nil:
		return err
	case hi.version != version:
		return c.tell(refusal{BadVersion, fmt.Sprintf("this agent speaks version %d", version)})
	case hi.to != c.m.self:
		return c.tell(refusal{WrongPeer, fmt.Sprintf("%q was meant", hi.to)})
	}
	c.from = hi.from
	rand.Read(c.nonce[:])
	return c.send(appendWelcome(c.out[:0], &welcome{version: version, self: c.m.self, nonce: c.nonce, chunk: uint32(c.m.cfg.Chunk)}))
}

// handle answers one message. A refusal ends the connection, and the transfer where it was at fault.
func (c *inbound) handle(h *head) (refusal, error) {
	if h.kind == kindChunk {
		return c.take(h)
	}
	p, err := c.payload(h)
	if err != nil {
		return refusal{}, err
	}
	if h.kind == kindJoin {
		if c.t != nil {
			return refusal{Protocol, "a join within a transfer"}, nil
		}
		return c.join(p)
	}
	if c.t == nil {
		return refusal{Protocol, "this needs a ticket first"}, nil
	}
	switch h.kind {
	case kindEnd:
		sum, err := decodeSum(p)
		if err != nil {
			return refusal{}, err
		}
		sum, r := c.t.finish(sum)
		if r.why != 0 {
			return r, nil
		}
		c.m.bury(c.t)
		return refusal{}, c.send(appendSum(c.out[:0], kindDone, sum))
	case kindLeave:
		c.leave()
		return refusal{}, nil
	case kindCancel:
		c.t.fail(c, refusal{why: Cancelled})
		c.leave()
		return refusal{}, nil
	}
	return refusal{Protocol, fmt.Sprintf("message of kind %d", h.kind)}, nil
}

func (c *inbound) join(p []byte) (refusal, error) {
	j, err := decodeJoin(p)
	if err != nil {
		return refusal{}, err
	}
	t, r := c.m.claim(c.from, &j, p[:len(p)-macBytes], &c.nonce)
	if r.why != 0 {
		return r, nil
	}
	a, r := t.attach(c, &j)
	switch r.why {
	case 0:
	case WrongSize, SinkFailed: // who holds the ticket does not do what it is for, or it cannot be done
		t.fail(c, r)
		return r, nil
	default:
		return r, nil
	}
	c.t = t
	c.m.mu.Lock()
	c.idle, c.seen = time.Time{}, true
	c.m.mu.Unlock()
	c.chunk = c.m.buffer(int(j.layout.chunk) + chunkAhead)
	return refusal{}, c.send(appendAccept(c.out[:0], &a))
}

// leave ends the part in a transfer; the connection is free for another.
func (c *inbound) leave() {
	if c.t == nil {
		return
	}
	c.t.detach(c)
	c.t = nil
	c.m.release(c.chunk)
	c.chunk = nil
	c.m.mu.Lock()
	c.idle = time.Now()
	c.m.mu.Unlock()
}

// take reads one chunk, verifies it, and has it written.
func (c *inbound) take(h *head) (refusal, error) {
	var front [chunkHead]byte
	if err := c.read(front[:]); err != nil {
		return refusal{}, err
	}
	if err := h.verify(front[:]); err != nil {
		return refusal{}, err
	}
	number, sum, err := decodeChunk(front[:])
	if err != nil {
		return refusal{}, err
	}
	if c.t == nil {
		return refusal{Protocol, "a chunk without a ticket"}, nil
	}
	n := h.length - chunkHead
	if r := c.t.place(number, n); r.why != 0 {
		return r, nil
	}
	data := (*c.chunk)[:n+chunkAhead]
	got := copy(data, c.ahead)
	c.ahead = nil
	own, summed := uint32(0), 0
	for got < n {
		// The deadline is for each piece: a slow path is not a stalled one.
		c.nc.SetReadDeadline(time.Now().Add(c.m.cfg.Stall))
		k, err := c.nc.Read(data[got:min(got+maxPiece, len(data))])
		got += k
		if to := min(got, n); to > summed { // while it is in the nearest cache
			own = update(own, data[summed:to])
			summed = to
		}
		if err != nil && got < n {
			return refusal{}, err
		}
	}
	if summed < n {
		own = update(own, data[summed:n])
	}
	c.ahead = c.store[:copy(c.store[:], data[n:got])]
	if own != sum {
		c.m.count.damaged.Add(1)
		return refusal{}, c.send(appendAck(c.out[:0], ack{number: number, damaged: true}))
	}
	if r := c.t.write(int(number), data[:n], sum); r.why != 0 {
		return r, nil
	}
	return refusal{}, c.send(appendAck(c.out[:0], ack{number: number}))
}

// refuse ends the transfer that the connection is of, and says why.
func (c *inbound) refuse(r refusal) error {
	c.m.count.refused.Add(1)
	if c.t != nil {
		c.t.fail(c, r)
	}
	return c.tell(r)
}

// tell sends a refusal and lets it arrive: what the sender still has under way would else reset the connection first.
func (c *inbound) tell(r refusal) error {
	if err := c.send(appendRefuse(c.out[:0], r.why, r.said)); err != nil {
		return err
	}
	if cw, ok := c.nc.(interface{ CloseWrite() error }); ok {
		cw.CloseWrite()
		c.nc.SetReadDeadline(time.Now().Add(handshakeTime))
		io.Copy(io.Discard, io.LimitReader(c.nc, 2*maxChunk))
	}
	return fmt.Errorf("%w: %s %s", errEnded, r.why, r.said)
}

func (c *inbound) send(b []byte) error {
	c.out = b
	c.nc.SetWriteDeadline(time.Now().Add(c.m.cfg.Stall))
	_, err := c.nc.Write(b)
	return err
}

// head reads the next message's head, for which the other side has so long.
func (c *inbound) head(wait time.Duration) (head, error) {
	var b [headBytes]byte
	c.nc.SetReadDeadline(time.Now().Add(wait))
	if err := c.read(b[:]); err != nil {
		return head{}, err
	}
	return decodeHead(&b)
}

// payload reads and verifies what follows a head. Of what a sender says, only chunks are long.
func (c *inbound) payload(h *head) ([]byte, error) {
	if h.length > maxSaid {
		return nil, errFrame
	}
	p := make([]byte, h.length)
	if err := c.read(p); err != nil {
		return nil, err
	}
	return p, h.verify(p)
}

// maxSaid is the longest message of a sender but for chunks.
const maxSaid = 256

func (c *inbound) read(p []byte) error {
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	if n == len(p) {
		return nil
	}
	_, err := io.ReadFull(c.nc, p[n:])
	return err
}
