package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/wire"
)

const (
	// flushAfter is how long an acceptance, or the beginning of a plain answer, is held back for what may follow it in
	// the same write. Far below the silence limit, and above what an answer out of a cache takes.
	flushAfter = 10 * time.Millisecond
	// aliveAfter is how often a hop is looked at: where nothing was sent since the last time, Alive is. So the origin
	// hears something every second at the latest.
	aliveAfter = 500 * time.Millisecond
)

// inbound is one connection that a peer has opened to this one. It carries one thing at a time: a hop, or a message of
// an anti-entropy round.
//
// Serving costs no goroutine of its own: whoever reads the request from the connection serves it. Only when a hop has
// lasted for flushAfter does another one, the timer's, take over the reading, so that a cancel or the loss of the
// connection is seen at once; it is then the one that serves the next request, and the first one ends with its hop.
type inbound struct {
	c    *Cluster
	l    *link
	ctx  context.Context // ends with the connection
	stop context.CancelFunc
	busy atomic.Uint32 // Cluster.tick when it last began to read a request's body, or to write; 0: it does neither
	asks atomic.Bool   // a question is being answered

	wmu  sync.Mutex // held while writing
	out  []byte     // frames held back for the next write
	sent bool       // something was written since the timer looked

	mu    sync.Mutex
	cur   *HopStream  // the hop that is being served
	timer *time.Timer // runs look
}

// accept takes in connections to the peer port.
func (c *Cluster) accept(ln net.Listener) {
	defer c.wg.Done()
	var pause pause
	for {
		nc, err := ln.Accept()
		if err != nil {
			if c.ctx.Err() != nil || !pause.wait(c.ctx) {
				return
			}
			continue
		}
		pause.reset()
		host := remoteHost(nc)
		if err := c.guard.enter(host); err != nil {
			nc.Close()
			c.refusedAddr(nc.RemoteAddr().String(), err)
			continue
		}
		c.wg.Add(1)
		go c.meet(nc, host)
	}
}

func remoteHost(nc net.Conn) netip.Addr {
	ap, _ := netip.ParseAddrPort(nc.RemoteAddr().String())
	return ap.Addr().Unmap()
}

// meet does the handshake of a new connection and, where it is a peer's, serves it until it ends.
func (c *Cluster) meet(nc net.Conn, host netip.Addr) {
	defer c.wg.Done()
	setUserTimeout(nc, c.cfg.Limits.Stall)
	c.widen(nc)
	l := newLink(nc, c.tlsServer, true)
	nc.SetDeadline(time.Now().Add(c.cfg.Limits.Handshake))
	stop := context.AfterFunc(c.ctx, l.close)
	err := c.greet(l)
	stop()
	id := l.id
	if err != nil {
		id = ""
	}
	if full := c.guard.greeted(host, id); err == nil {
		err = full
	}
	if err != nil {
		l.close()
		if l.id != "" {
			c.refusedPeer(l.id, nc.RemoteAddr().String(), err)
		} else {
			c.refusedAddr(nc.RemoteAddr().String(), err)
		}
		return
	}
	if id == c.self.ID {
		l.close() // a twin, which now knows
		c.guard.leave(id)
		return
	}
	nc.SetDeadline(time.Time{})
	in := &inbound{c: c, l: l}
	in.ctx, in.stop = context.WithCancel(c.ctx)
	in.timer = time.AfterFunc(time.Hour, in.look)
	in.timer.Stop()
	if !c.enter(in) {
		l.close()
		c.guard.leave(id)
		return
	}
	in.serve()
}

// serve reads and serves what comes, until the connection ends or somebody else reads on.
func (in *inbound) serve() {
	for {
		mine, err := in.next()
		if err != nil {
			in.end(err)
			return
		}
		if !mine {
			return
		}
	}
}

// next reads one message and does what it asks. mine is false where another goroutine reads on.
func (in *inbound) next() (mine bool, err error) {
	t, p, err := in.l.frame()
	if err != nil {
		return false, err
	}
	in.l.tick.Store(in.c.tick.Load())
	switch {
	case t == wire.TypeForward:
		return in.hop(p)
	case t == wire.TypeExchange:
		return true, in.exchange(p)
	case t == wire.TypeAsk:
		return true, in.answer(p)
	case t == wire.TypeCancel:
		in.mu.Lock()
		cur := in.cur
		in.mu.Unlock()
		if cur != nil && cur.cancel() {
			in.c.count.cancels.Add(1)
		}
		return true, nil // the origin closes after it
	case t.Ignorable():
		return true, nil
	}
	return false, fmt.Errorf("%w: %v out of place", errProtocol, t)
}

// hop reads the rest of a request and serves it.
func (in *inbound) hop(p []byte) (mine bool, err error) {
	in.mu.Lock()
	clash := in.cur != nil && !in.cur.ended.Load()
	in.mu.Unlock()
	if clash {
		return false, fmt.Errorf("%w: a request before the end of the last one", errProtocol)
	}
	s := newHopStream(in)
	if err := wire.DecodeForward(p, &s.fwd); err != nil {
		return false, fmt.Errorf("%w: %w", errProtocol, err)
	}
	if n := s.fwd.BodyLen; n < 0 || n > int64(in.c.cfg.Limits.Body) {
		return false, fmt.Errorf("%w: a body of %d bytes; the limit is %d", errProtocol, n, in.c.cfg.Limits.Body)
	}
	if err := in.body(s); err != nil {
		return false, err
	}
	in.c.count.hopsServed.Add(1)
	in.c.count.hopsIn.Add(1)
	in.mu.Lock()
	in.cur = s
	in.timer.Reset(flushAfter)
	in.mu.Unlock()
	whole := in.run(s)
	s.finish()
	in.mu.Lock()
	if in.cur == s {
		in.cur = nil
		in.timer.Stop()
	}
	mine = !s.taken
	in.mu.Unlock()
	in.c.count.hopsIn.Add(-1)
	s.stop()
	if room := s.body; whole && cap(room) > 0 && cap(room) <= keepBody {
		s.body = nil
		room = room[:0]
		in.c.bodies.Put(&room)
	}
	return mine, nil
}

// run has the Handler serve a hop. A panic ends that hop alone, as net/http has it for the agent's own clients: one
// request that meets a bug does not take the others along.
func (in *inbound) run(s *HopStream) (whole bool) {
	defer func() {
		if p := recover(); p != nil {
			in.c.log.Error("cluster: panic while serving a hop", "peer", in.l.id, "request", s.fwd.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	in.c.h.ServeHop(s)
	return true
}

// keepBody is the largest body whose memory is used again, in bytes. Each is 100 kB and more to clear and to collect
// otherwise. What serves a hop is done with its body when ServeHop returns: the engine's client writes it in that call.
const keepBody = 1 << 20

// body reads the frames of a request's body.
func (in *inbound) body(s *HopStream) error {
	left := int(s.fwd.BodyLen)
	if left == 0 {
		return nil
	}
	in.begin()
	defer in.done()
	if room, ok := in.c.bodies.Get().(*[]byte); ok {
		s.body = *room
	}
	s.body = slices.Grow(s.body, min(left, growStep))
	for left > 0 {
		t, n, err := in.l.header()
		if err != nil {
			return unexpected(err)
		}
		if t != wire.TypeBody || n == 0 || n > left {
			return fmt.Errorf("%w: %v of %d bytes where %d bytes of body are missing", errProtocol, t, n, left)
		}
		if s.body, err = in.l.grow(s.body, n); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// exchange takes in one message of a round, and answers it where it asks.
func (in *inbound) exchange(p []byte) error {
	in.begin()
	defer in.done()
	var x wire.Exchange
	n, err := readExchange(in.l, p, &x)
	if err != nil {
		return err
	}
	in.c.count.roundBytesIn.Add(uint64(n))
	ans := in.c.h.Exchange(in.l.id, &x)
	if !x.Asks() {
		return nil
	}
	if ans == nil {
		ans = &wire.Exchange{}
	}
	in.wmu.Lock()
	defer in.wmu.Unlock()
	n, err = writeExchange(in.l, ans)
	in.c.count.roundBytesOut.Add(uint64(n))
	return err
}

// begin and done stand around what the other side can hold up: in between the janitor watches.
func (in *inbound) begin() { in.busy.Store(in.c.tick.Load()) }
func (in *inbound) done()  { in.busy.Store(0) }

// look is what the timer runs. It sends what was held back, shows that the hop is alive, and takes over the reading.
func (in *inbound) look() {
	in.mu.Lock()
	s := in.cur
	if s == nil || in.ctx.Err() != nil {
		in.mu.Unlock()
		return
	}
	take := !s.taken
	if take {
		s.taken = true
		in.c.wg.Add(1) // the one that serves s still counts, so that this is not after the last Done
	}
	in.timer.Reset(aliveAfter)
	in.mu.Unlock()
	if in.wmu.TryLock() { // else somebody writes just now, which is as good
		s.alive()
		in.wmu.Unlock()
	}
	if take {
		defer in.c.wg.Done()
		in.serve()
	}
}

// soon makes sure that what is held back from now on goes out after flushAfter. For the first frames of a hop the timer
// is set already.
func (in *inbound) soon(s *HopStream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s.taken && in.cur == s {
		in.timer.Reset(flushAfter)
	}
}

// write writes frames held back and p after them. in.wmu is held.
func (in *inbound) write(p []byte) error {
	in.begin()
	err := in.l.write(in.out, p)
	in.done()
	if cap(in.out) > keepBuf {
		in.out = nil
	}
	in.out, in.sent = in.out[:0], true
	if err != nil {
		in.stop()
		in.l.close()
	}
	return err
}

// end is for the one that reads, when the connection is over.
func (in *inbound) end(err error) {
	in.stop() // and with it the hop that is being served, if any
	in.l.close()
	in.c.guard.leave(in.l.id)
	switch known := in.c.exit(in); {
	case known && errors.Is(err, errProtocol):
		in.c.refusedPeer(in.l.id, in.l.nc.RemoteAddr().String(), err)
	case known && err != io.EOF:
		in.c.log.Debug("cluster: connection lost", "peer", in.l.id, "err", err)
	}
}
