package transfer

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"

	"shoal/internal/socket"
)

// stripe carries chunks for one leg, on one connection at a time.
type stripe struct {
	failing bool  // it could not connect when it last tried
	given   int64 // bytes that it was given to carry
}

// loaded is a chunk that is ready to be sent.
type loaded struct {
	number int
	sum    uint32
	data   []byte
	buf    *[]byte // that data lies in, where it is ours
}

// grow makes as many stripes as there are legs, and a loader beside each as far as there are processors.
func (x *outgoing) grow(ctx context.Context, legs int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.stripes) < min(legs, MaxLegs) && !x.stopped {
		n, s := len(x.stripes), &stripe{}
		x.stripes = append(x.stripes, s)
		x.work.Go(func() { x.carry(ctx, n, s) })
		if x.loaders < runtime.GOMAXPROCS(0) {
			x.loaders++
			x.work.Go(x.load)
		}
	}
}

// carry is a stripe's life: before every chunk it asks for the way.
func (x *outgoing) carry(ctx context.Context, n int, s *stripe) {
	var l *lane
	head := make([]byte, 0, headBytes+chunkHead)
	for try := 0; ; {
		if n > 0 { // the first one opens the transfer
			select {
			case <-x.open:
			case <-x.stop:
				return
			}
		}
		legs := x.route().Legs
		x.grow(ctx, len(legs))
		if l != nil && l.isCut() {
			l = nil
		}
		if n >= len(legs) && n > 0 { // not needed any more; the way may widen again
			if l != nil {
				x.retire(l)
				l = nil
			}
			if !x.await() {
				return
			}
			continue
		}
		var leg Leg
		if len(legs) > 0 {
			leg = legs[n]
		}
		if l != nil && !l.suits(&leg) {
			x.retire(l)
			l = nil
			x.moved()
		}
		if l == nil {
			l = x.regain(&leg)
		}
		if l == nil {
			var err error
			if l, err = x.board(ctx, &leg, try); err != nil {
				if final(err) {
					x.fail(err)
					return
				}
				x.failing(s, true)
				if try++; !pause(ctx, x.stop, try) {
					return
				}
				continue
			}
			try = 0
			x.failing(s, false)
		}
		ready, poked := x.ready, x.full(n, legs)
		if poked != nil {
			ready = nil
		}
		select {
		case <-x.stop:
			return
		case <-l.c.gone:
		case <-poked:
		case c := <-ready:
			x.put(l, s, &c, head)
		}
	}
}

// failing says whether a stripe can connect; those that hold back for it look again.
func (x *outgoing) failing(s *stripe, is bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.failing != is {
		s.failing = is
		x.poke()
	}
}

// poke makes stripes that wait look again. x.mu is held.
func (x *outgoing) poke() {
	close(x.poked)
	x.poked = make(chan struct{})
}

// full says whether a stripe has its share while another may still carry the rest: then it gives what to wait for.
func (x *outgoing) full(n int, legs []Leg) <-chan struct{} {
	within := func(i int) bool { return legs[i].Share <= 0 || x.stripes[i].given < legs[i].Share }
	x.mu.Lock()
	defer x.mu.Unlock()
	if n >= len(legs) || within(n) {
		return nil
	}
	for i := range min(len(legs), len(x.stripes)) {
		if i != n && !x.stripes[i].failing && within(i) {
			return x.poked
		}
	}
	return nil
}

// await lets a stripe without a leg wait until the way is asked for the next time.
func (x *outgoing) await() bool {
	x.mu.Lock()
	poked := x.poked
	x.mu.Unlock()
	select {
	case <-x.stop:
		return false
	case <-poked:
		return true
	}
}

func (x *outgoing) moved() {
	x.m.count.moves.Add(1)
	x.mu.Lock()
	x.result.Moves++
	x.mu.Unlock()
}

// put sends one chunk on the stripe's lane.
func (x *outgoing) put(l *lane, s *stripe, c *loaded, head []byte) {
	x.mu.Lock()
	if x.stopped || x.state[c.number] == arrived { // on another way meanwhile
		x.mu.Unlock()
		x.m.release(c.buf)
		return
	}
	if l.isGone { // what is put on it now, nobody would put back
		x.again = append(x.again, c.number)
		x.more.Signal()
		x.mu.Unlock()
		x.m.release(c.buf)
		return
	}
	l.out[c.number] = struct{}{}
	s.given += int64(len(c.data))
	x.poke()
	x.mu.Unlock()
	head = appendChunk(head[:0], c.number, c.sum, len(c.data))
	err := socket.Gather(l.c.nc, head, c.data)
	x.m.release(c.buf)
	if err != nil {
		l.c.nc.Close()
		<-l.c.gone // whose end puts the chunk back
		x.mu.Lock()
		s.given -= int64(len(c.data))
		x.mu.Unlock()
	}
}

// load reads chunks and sums them, ahead of the stripes.
func (x *outgoing) load() {
	select {
	case <-x.open:
	case <-x.stop:
		return
	}
	for {
		i, ok := x.take()
		if !ok {
			return
		}
		c, err := x.read(i)
		if err != nil {
			x.fail(fmt.Errorf("%w: %w", ErrSource, err))
			return
		}
		if x.there(&c) {
			x.m.release(c.buf)
			x.tell()
			continue
		}
		select {
		case x.ready <- c:
		case <-x.stop:
			x.m.release(c.buf)
			return
		}
	}
}

// take gives the next chunk to load, and waits for one; false at the end.
func (x *outgoing) take() (int, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.stopped {
			return 0, false
		}
		var i int
		switch {
		case len(x.again) > 0:
			i, x.again = x.again[0], x.again[1:]
		case x.next < len(x.state):
			i = x.next
			x.next++
		default:
			x.more.Wait()
			continue
		}
		if x.state[i] != arrived {
			return i, true
		}
	}
}

// read gets a chunk's bytes and their sum.
func (x *outgoing) read(i int) (loaded, error) {
	off, n := x.lay.extent(i)
	c := loaded{number: i}
	if s, ok := x.src.(slicer); ok {
		c.data = s.Slice(off, n)
	}
	if c.data == nil {
		c.buf = x.m.buffer(n)
		c.data = *c.buf
		for at := 0; at < n; { // summed while it is in the nearest cache
			p := c.data[at:min(at+maxPiece, n)]
			got, err := x.src.ReadAt(p, off+int64(at))
			if got < len(p) {
				x.m.release(c.buf)
				return c, fmt.Errorf("%d bytes at %d: %w", len(p), off+int64(at), err)
			}
			c.sum = update(c.sum, p)
			at += len(p)
		}
	} else {
		c.sum = checksum(c.data)
	}
	return c, nil
}

// there notes the sum, and says whether the receiver has the chunk already.
func (x *outgoing) there(c *loaded) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state[c.number] == arrived {
		return true
	}
	x.state[c.number], x.sums[c.number] = known, c.sum
	sum, ok := x.claims[c.number]
	delete(x.claims, c.number)
	if !ok || sum != c.sum {
		return false
	}
	x.arrive(c.number, 0, 0)
	x.result.Had += int64(len(c.data))
	return true
}

// suits says whether the lane is still where the leg leads.
func (l *lane) suits(leg *Leg) bool {
	return l.leg == leg.ID && (len(leg.Ports) == 0 || l.unpinned || slices.Contains(leg.Ports, l.c.port))
}

// unpinnedTry is the try from which on a leg that cannot connect goes by any port: its path may be broken, and any path
// carries any flow.
const unpinnedTry = 2

// board gets a connection for the leg and joins the transfer on it.
func (x *outgoing) board(ctx context.Context, leg *Leg, try int) (*lane, error) {
	l, err := x.tryBoard(ctx, leg, try)
	if err != nil {
		x.mu.Lock()
		x.cause = err
		x.mu.Unlock()
	}
	return l, err
}

func (x *outgoing) tryBoard(ctx context.Context, leg *Leg, try int) (*lane, error) {
	c, err := x.m.pool.get(ctx, x.to, leg, try >= unpinnedTry && try%2 == 0)
	if err != nil {
		return nil, err
	}
	l := &lane{x: x, c: c, leg: leg.ID, out: map[int]struct{}{}, accepted: make(chan error, 1), done: make(chan uint32, 1),
		layout: layout{x.size, min(int64(x.m.cfg.Chunk), c.limit)}, unpinned: len(leg.Ports) > 0 && !slices.Contains(leg.Ports, c.port)}
	if !l.layout.fits() {
		x.m.pool.put(c)
		return nil, &RefusedError{Peer: x.m.self, Reason: WrongSize, Text: fmt.Sprintf("%d bytes in chunks of %d; at most %d chunks", x.size, l.layout.chunk, MaxChunks)}
	}
	if !c.hand(l) {
		return nil, fmt.Errorf("transfer: %w", net.ErrClosed)
	}
	x.mu.Lock()
	if l.unpinned {
		x.result.Unpinned++
	}
	list := x.state == nil || x.result.Resumes > 0
	x.mu.Unlock()
	b := appendJoin(nil, &join{ticket: x.ticket.id, session: x.session, layout: l.layout, list: list}, &x.ticket.secret, &c.nonce)
	if _, err := c.nc.Write(b); err != nil {
		c.nc.Close()
		<-c.gone
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.m.cfg.Silence)
	defer cancel()
	select {
	case err := <-l.accepted:
		if err != nil {
			c.nc.Close()
			return nil, err
		}
		return l, nil
	case <-c.gone:
		return nil, l.failure()
	case <-ctx.Done():
		c.nc.Close()
		return nil, ctx.Err()
	}
}
