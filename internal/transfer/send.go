package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shoal/internal/peer"
)

// Leg is one connection's part of a transfer.
type Leg struct {
	ID int // of the path, for the account
	// Ports are the source ports that lead over the path, tried in order. Empty: any port does.
	Ports []uint16
	// Share bounds the bytes that go by this leg while another one may still take them; 0: as much as it carries.
	Share int64
	// Fresh asks for a new connection, even where a warm one is there, as plain ECMP hashes each flow anew.
	Fresh bool
}

// Route is how a transfer goes: 1 to MaxLegs legs at once. A chunk goes over whichever leg can take it first.
type Route struct{ Legs []Leg }

// Steer says which way a transfer goes. Its methods are called one at a time, from any goroutine, and may not block:
// the transfer waits for them. None is called after Send has returned.
type Steer interface {
	// Route is asked before each chunk. A leg (by its place in the list) whose ID has changed, or among whose ports the
	// present one is not any more, goes on over another connection, a warm one where there is one.
	Route() Route
	// Moved hears, about every chunk, how many bytes have arrived in all.
	Moved(bytes int64)
}

// PathBytes is what went by one path.
type PathBytes struct {
	ID    int   `json:"id"`
	Bytes int64 `json:"bytes"`
}

// Result is what came of a transfer; of one that failed as far as it went.
type Result struct {
	Bytes    int64         // arrived and acknowledged
	Had      int64         // of these, that were there before, by an older ticket
	Took     time.Duration // from the call of Send
	Paths    []PathBytes   // by ID
	Moves    int           // of a leg to another connection, by the Steer's will
	Resumes  int           // connections that broke, and whose chunks went by another
	Damaged  int           // chunks that arrived with a wrong sum and were sent again
	Unpinned int           // connections that left from a port of no path, since none of the leg's could be had
	Checksum uint32        // CRC32C of everything
}

// Send moves size bytes of the source to the peer, at its address, with its ticket. steer nil: one leg, by any port;
// progress nil: nobody hears it, else it is called like Steer.Moved. Send returns when the receiver has kept everything,
// or when nothing moves any more: a cut is mended for Config.Stall, a refusal is final. A cancelled context ends the
// transfer at the other side too.
func (m *Mover) Send(ctx context.Context, to peer.ID, addr string, t Ticket, src Source, size int64, steer Steer, progress func(moved int64)) (Result, error) {
	begin := time.Now()
	if err := to.Validate(); err != nil {
		return Result{}, fmt.Errorf("transfer: %w", err)
	}
	if have := src.Size(); size < 0 || size > have {
		return Result{}, fmt.Errorf("%w: %d bytes are to be sent of %d", ErrSource, size, have)
	}
	m.mu.Lock()
	if m.closed || m.sending >= m.cfg.MaxTransfers {
		err := ErrClosed
		if !m.closed {
			err = fmt.Errorf("%w: %d transfers are being sent", ErrBusy, m.sending)
		}
		m.mu.Unlock()
		return Result{}, err
	}
	m.sending++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.sending--
		m.mu.Unlock()
	}()
	x := &outgoing{m: m, to: target{to, addr}, ticket: t, src: src, size: size, steer: steer, progress: progress,
		ready: make(chan loaded), open: make(chan struct{}), stop: make(chan struct{}), poked: make(chan struct{}),
		lanes: map[*lane]struct{}{}, paths: map[int]int64{}, last: begin}
	x.more.L = &x.mu
	rand.Read(x.session[:])
	sum, err := x.run(ctx)
	x.hush()
	if err != nil {
		m.count.failed.Add(1)
	} else {
		m.count.sent.Add(1)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.result
	r.Checksum, r.Took = sum, time.Since(begin)
	for id, n := range x.paths {
		r.Paths = append(r.Paths, PathBytes{id, n})
	}
	slices.SortFunc(r.Paths, func(a, b PathBytes) int { return a.ID - b.ID })
	return r, err
}

// outgoing is one transfer as its sender sees it. Loaders read chunks and sum them; stripes, one a leg, put them on their
// connections; the connections' own goroutines hear what has arrived.
type outgoing struct {
	m       *Mover
	to      target
	ticket  Ticket
	session session
	src     Source
	size    int64

	calls    sync.Mutex // of steer and progress; it guards these four
	steer    Steer
	progress func(int64)
	told     int64
	silent   bool

	ready chan loaded   // from loaders to stripes
	open  chan struct{} // closed when the receiver has accepted, and the layout is known
	stop  chan struct{} // closed when everything has arrived, or nothing more will
	work  sync.WaitGroup

	mu      sync.Mutex
	more    sync.Cond // there may be something to load
	lay     layout
	state   []sendState
	sums    []uint32
	next    int   // the first chunk that was never loaded
	again   []int // chunks to be loaded once more
	left    int   // chunks that have not arrived
	tries   map[int]int
	via     map[int]int    // the path of a chunk whose connection was cut
	claims  map[int]uint32 // what the receiver had before this sender knew the sum
	stripes []*stripe
	loaders int
	lanes   map[*lane]struct{}
	paths   map[int]int64
	poked   chan struct{} // closed and made anew when a stripe that waits should look again
	last    time.Time     // when anything arrived
	cause   error         // of the last cut
	stopped bool
	err     error
	result  Result
}

// sendState is how far a chunk is.
type sendState uint8

const (
	unread  sendState = iota // its sum is not known
	known                    // it is
	arrived                  // and the receiver has it
)

func (x *outgoing) run(ctx context.Context) (uint32, error) {
	route := x.route()
	if len(route.Legs) == 0 || len(route.Legs) > MaxLegs {
		return 0, fmt.Errorf("transfer: a route of %d legs; give 1 to %d", len(route.Legs), MaxLegs)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	x.grow(inner, len(route.Legs))
	x.watch(ctx)
	cancel() // who is still connecting
	x.work.Wait()
	x.mu.Lock()
	err := x.err
	x.mu.Unlock()
	if err == nil {
		sum := combine(x.lay, x.sums)
		if err = x.finish(ctx, sum); err == nil {
			x.retireAll()
			return sum, nil
		}
	}
	x.abandon(err)
	return 0, err
}

// watch waits until everything has arrived or the transfer has failed.
func (x *outgoing) watch(ctx context.Context) {
	patience := x.m.cfg.Stall
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-x.stop:
			return
		case <-ctx.Done():
			x.fail(context.Cause(ctx))
		case <-x.m.end:
			x.fail(ErrClosed)
		case <-timer.C:
			x.mu.Lock()
			since, cause := time.Since(x.last), x.cause
			x.mu.Unlock()
			if since >= patience {
				x.fail(x.cutError(cause))
			}
			timer.Reset(max(patience-since, minTime))
		}
	}
}

func (x *outgoing) cutError(cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: nothing has moved to %s for %v", ErrCut, x.to.to, x.m.cfg.Stall)
	}
	return fmt.Errorf("%w: nothing has moved to %s for %v; the last that was heard: %w", ErrCut, x.to.to, x.m.cfg.Stall, cause)
}

// fail ends the transfer with an error; the first one counts.
func (x *outgoing) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken(err)
}

// broken is fail where x.mu is held.
func (x *outgoing) broken(err error) {
	if x.err == nil {
		x.err = err
	}
	x.halt()
	for l := range x.lanes { // who is writing may end its chunk, but not wait for ever
		l.c.nc.SetWriteDeadline(time.Now().Add(lastWrite))
	}
}

// lastWrite is how long a chunk that is being written may take after the transfer has failed, so that its connection can
// say so to the receiver.
const lastWrite = time.Second

// halt stops loaders and stripes. x.mu is held.
func (x *outgoing) halt() {
	if !x.stopped {
		x.stopped = true
		close(x.stop)
		x.more.Broadcast()
	}
}

// route asks where to go.
func (x *outgoing) route() Route {
	if x.steer == nil {
		return Route{Legs: []Leg{{}}}
	}
	x.calls.Lock()
	defer x.calls.Unlock()
	return x.steer.Route()
}

// tell reports progress.
func (x *outgoing) tell() {
	x.calls.Lock()
	defer x.calls.Unlock()
	x.mu.Lock()
	moved := x.result.Bytes
	x.mu.Unlock()
	if x.silent || moved == x.told {
		return
	}
	x.told = moved
	if x.steer != nil {
		x.steer.Moved(moved)
	}
	if x.progress != nil {
		x.progress(moved)
	}
}

// hush tells the last progress; afterwards nobody calls the caller any more.
func (x *outgoing) hush() {
	x.tell()
	x.calls.Lock()
	x.silent = true
	x.calls.Unlock()
}

// begin learns from the first answer how the transfer is cut, and from each one what has arrived.
func (x *outgoing) begin(l *lane, a *accept) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == nil {
		x.lay = l.layout
		x.left = x.lay.count()
		x.state, x.sums = make([]sendState, x.left), make([]uint32, x.left)
		x.tries, x.via, x.claims = map[int]int{}, map[int]int{}, map[int]uint32{}
		close(x.open)
	}
	if l.layout != x.lay || a.chunks != x.lay.count() {
		return errFrame
	}
	if a.finished { // its done was lost
		for i, s := range x.state {
			if s == unread {
				return errFrame
			}
			x.arriveLate(i)
		}
	}
	a.each(func(i int, sum uint32) {
		switch {
		case x.state[i] == unread:
			x.claims[i] = sum
		case x.state[i] == known && x.sums[i] == sum:
			x.arriveLate(i)
		}
	})
	x.last = time.Now()
	x.more.Broadcast()
	if x.left == 0 {
		x.halt()
	}
	return nil
}

// arriveLate accounts for a chunk whose acknowledgement was lost with its connection. x.mu is held.
func (x *outgoing) arriveLate(i int) {
	_, n := x.lay.extent(i)
	x.arrive(i, x.via[i], n)
}

// arrive accounts for a chunk that the receiver has, and for the bytes that were sent by a path. x.mu is held.
func (x *outgoing) arrive(i, path, sent int) {
	if x.state[i] == arrived {
		return
	}
	x.state[i] = arrived
	x.left--
	_, n := x.lay.extent(i)
	x.result.Bytes += int64(n)
	x.last = time.Now()
	if sent > 0 {
		x.paths[path] += int64(sent)
		x.m.count.bytesOut.Add(int64(sent))
	}
	if x.left == 0 {
		x.halt()
	}
}

// finish asks the receiver to keep everything, over whatever connection still lives.
func (x *outgoing) finish(ctx context.Context, sum uint32) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.m.cfg.Stall, x.cutError(nil))
	defer cancel()
	for try := 0; ; try++ {
		l := x.anyLane()
		if l == nil {
			var err error
			var leg Leg
			if legs := x.route().Legs; len(legs) > 0 {
				leg = legs[0]
			}
			if l, err = x.board(ctx, &leg, try); err != nil {
				if final(err) {
					return err
				}
				if !pause(ctx, nil, try) {
					return context.Cause(ctx)
				}
				continue
			}
		}
		if _, err := l.c.nc.Write(appendSum(nil, kindEnd, sum)); err != nil {
			l.c.nc.Close()
		}
		select {
		case got := <-l.done:
			if got != sum {
				return fmt.Errorf("%w: %s has %08x of %08x", ErrMismatch, x.to.to, got, sum)
			}
			return nil
		case <-l.c.gone:
			if err := l.failure(); final(err) {
				return err
			}
		case <-x.m.end:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// final says that trying again changes nothing.
func final(err error) bool {
	var r *RefusedError
	return errors.As(err, &r) && !r.passing() || errors.Is(err, ErrClosed)
}

// pause waits before the next try, longer each time; false where there is none.
func pause(ctx context.Context, stop <-chan struct{}, try int) bool {
	t := time.NewTimer(min(minTime<<min(try, 10), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}
