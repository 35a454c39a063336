package transfer

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/peer"
)

// Mover moves bytes to other agents and takes theirs. All methods may be called at any time, from any goroutine.
type Mover struct {
	cfg  Config
	self peer.ID
	log  *slog.Logger
	pool *pool
	end  chan struct{} // closed by Close

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	inbound   map[*inbound]struct{}
	incoming  map[ticketID]*incoming // with tombstones
	keys      map[string]*incoming   // of those alive, by what they write
	alive     int
	alivePeer map[peer.ID]int
	dead      []ticketID // tombstones, the oldest first
	receiving int        // tickets in use
	sending   int

	work    sync.WaitGroup // goroutines of listeners and inbound connections
	count   counters
	buffers sync.Pool // of *[]byte, for chunks
}

// counters are what Stats tells beside the present state.
type counters struct {
	bytesIn, bytesOut, sent, received, failed, refused, damaged, duplicates, resumes, moves, unpinned, portsTaken atomic.Int64
}

// Stats is what a mover is doing, and what it has done since its start.
type Stats struct {
	Sending, Receiving  int // transfers at this moment
	Tickets             int // given out and not ended, those in use among them
	ConnsIn, ConnsOut   int
	ConnsIdle           int   // of ConnsOut, warm
	BytesIn, BytesOut   int64 // verified and written; acknowledged
	Received, Sent      int64 // transfers that ended well
	Failed              int64 // transfers that this side sent, and that did not
	Refused             int64 // connections and messages that were refused here
	Damaged, Duplicates int64 // chunks that arrived with a wrong sum, or once more
	Resumes, Moves      int64 // stripes that went on after a cut; by the Steer's will
	Unpinned            int64 // connections that left from any port, since none of their path could be had
	PortsTaken          int64 // source ports that could not be used, of a path that had others
}

// New makes a mover and empties its directory of what an earlier life has not finished. log nil: silence.
func New(cfg Config, self peer.ID, log *slog.Logger) (*Mover, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := self.Validate(); err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Dir != "" {
		n, err := sweep(cfg.Dir)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			log.Info("unfinished files of an earlier life are removed", "files", n, "dir", cfg.Dir)
		}
	}
	m := &Mover{cfg: cfg, self: self, log: log, end: make(chan struct{}), listeners: map[net.Listener]struct{}{}, inbound: map[*inbound]struct{}{},
		incoming: map[ticketID]*incoming{}, keys: map[string]*incoming{}, alivePeer: map[peer.ID]int{}}
	m.pool = newPool(m)
	return m, nil
}

// Serve takes connections from other agents until the listener or the mover is closed, then returns nil; ErrClosed where
// the mover was closed before.
func (m *Mover) Serve(l net.Listener) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		l.Close()
		return ErrClosed
	}
	m.listeners[l] = struct{}{}
	m.work.Add(1)
	m.mu.Unlock()
	defer m.work.Done()
	defer func() {
		l.Close()
		m.mu.Lock()
		delete(m.listeners, l)
		m.mu.Unlock()
	}()
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // no file descriptors, say: it passes
			select {
			case <-m.end:
				return nil
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		m.enter(nc)
	}
}

// Close cuts everything: what is being received is aborted, what is being sent fails with ErrClosed. It returns when
// nothing of the mover is running but Sends that are about to return.
func (m *Mover) Close() {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.work.Wait()
		return
	}
	m.closed = true
	close(m.end)
	for l := range m.listeners {
		l.Close()
	}
	for c := range m.inbound {
		c.nc.Close()
	}
	var open []*incoming
	for _, t := range m.incoming {
		open = append(open, t)
	}
	m.mu.Unlock()
	m.pool.close()
	for _, t := range open {
		t.fail(nil, refusal{why: Closing})
	}
	m.work.Wait()
}

// Stats counts.
func (m *Mover) Stats() Stats {
	out, idle := m.pool.open()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.count
	return Stats{Sending: m.sending, Receiving: m.receiving, Tickets: m.alive, ConnsIn: len(m.inbound), ConnsOut: out, ConnsIdle: idle,
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Received: c.received.Load(), Sent: c.sent.Load(), Failed: c.failed.Load(),
		Refused: c.refused.Load(), Damaged: c.damaged.Load(), Duplicates: c.duplicates.Load(), Resumes: c.resumes.Load(),
		Moves: c.moves.Load(), Unpinned: c.unpinned.Load(), PortsTaken: c.portsTaken.Load()}
}

// buffer gives n bytes to work with, to be given back to release.
func (m *Mover) buffer(n int) *[]byte {
	if b, ok := m.buffers.Get().(*[]byte); ok && cap(*b) >= n {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, max(n, m.cfg.Chunk+chunkAhead)) // good for both sides
	return &b
}

func (m *Mover) release(b *[]byte) {
	if b != nil {
		m.buffers.Put(b)
	}
}
