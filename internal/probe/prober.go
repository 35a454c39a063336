package probe

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what all targets share.
type Config struct {
	// Rate is the most probes a second, over all targets (500). Every switch near this host sees most of them, and a switch
	// answers some hundred a second in all; more only get lost.
	Rate int
}

// Limits of a Prober.
const (
	MaxBatch       = 64 // probes of one target that wait for answers at once
	MaxConcurrent  = 16 // targets that are asked at once; others wait for their turn
	MaxOutstanding = MaxBatch * MaxConcurrent
	rateBurst      = 16 // probes of all targets that may leave at once
	maxReadErrors  = 16 // in a row, until the socket is given up
)

// ErrClosed says that the Prober is closed.
var ErrClosed = errors.New("probe: closed")

// Prober sends probes and hears their answers. Its methods may be called concurrently.
type Prober struct {
	wire  Wire
	start time.Time
	turns chan struct{} // one for each target that may be asked
	done  chan struct{} // closed when the reader has ended
	count counters

	mu      sync.Mutex
	bucket  bucket
	random  *rand.ChaCha8
	lastID  uint16
	flights map[uint16]flight
	err     error // why nothing can be asked any more
	ended   chan struct{}
}

// flight is a probe that waits for its answer.
type flight struct {
	probe Probe
	batch *batch
	shot  int // in the batch
}

// batch is what one call of ask waits for.
type batch struct {
	shots []shot
	left  int           // not answered yet
	all   chan struct{} // closed when nothing is left
}

// shot is one question: which router is ttl hops away for packets of this 5-tuple?
type shot struct {
	probe Probe // without ID and cookie
	from  netip.Addr
	kind  Kind // 0: no answer
}

// Start takes over a wire, and begins to read from it. Close ends that, and closes the wire.
func Start(w Wire, c Config) (*Prober, error) {
	if c.Rate == 0 {
		c.Rate = 500
	}
	if c.Rate < 1 || c.Rate > MaxRate {
		return nil, fmt.Errorf("probe: Rate is %d; it must be from 1 to %d", c.Rate, MaxRate)
	}
	var seed [32]byte
	crand.Read(seed[:])
	p := &Prober{wire: w, start: time.Now(), turns: make(chan struct{}, MaxConcurrent), done: make(chan struct{}), ended: make(chan struct{}),
		bucket: newBucket(c.Rate, rateBurst), random: rand.NewChaCha8(seed), flights: map[uint16]flight{}}
	go p.read()
	return p, nil
}

// Close ends every call that waits, and closes the wire.
func (p *Prober) Close() error {
	p.end(ErrClosed)
	err := p.wire.Close()
	<-p.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// end makes all calls fail, now and later.
func (p *Prober) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.ended)
	}
}

func (p *Prober) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Prober) now() time.Duration { return time.Since(p.start) }

// read hears answers until the wire is closed.
func (p *Prober) read() {
	defer close(p.done)
	b := make([]byte, maxAnswer)
	failed := 0
	for {
		n, from, err := p.wire.Receive(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			p.end(ErrClosed)
			return
		case err != nil:
			if failed++; failed >= maxReadErrors {
				p.end(fmt.Errorf("probe: nothing can be heard any more: %w", err))
				return
			}
			continue
		}
		failed = 0
		a, err := parseAnswer(from, b[:n])
		if err != nil {
			p.count.stray.Add(1)
			continue
		}
		p.hear(&a)
	}
}

// hear gives an answer to who waits for it.
func (p *Prober) hear(a *Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.flights[a.ID]
	if !ok || !a.answers(&f.probe) {
		p.count.stray.Add(1) // late, doubled, or of somebody else
		return
	}
	p.count.answered.Add(1)
	delete(p.flights, a.ID)
	s := &f.batch.shots[f.shot]
	s.from, s.kind = a.From, a.Kind
	if f.batch.left--; f.batch.left == 0 {
		close(f.batch.all)
	}
}

// ask sends the shots as fast as pace and the Prober's own rate allow, and waits for their answers until timeout after
// the last one.
func (p *Prober) ask(ctx context.Context, shots []shot, pace *pace, timeout time.Duration) error {
	if len(shots) == 0 {
		return ctx.Err()
	}
	if len(shots) > MaxBatch {
		panic(fmt.Sprintf("probe: a batch of %d", len(shots)))
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ended:
		return p.failure()
	}
	b := &batch{shots: shots, left: len(shots), all: make(chan struct{})}
	ids := make([]uint16, 0, len(shots))
	defer func() { p.recall(b, ids) }()
	var packet [MaxPacket]byte
	refused := 0
	for i := range shots {
		if err := p.wait(ctx, pace.bucket.take(p.now())); err != nil {
			return err
		}
		p.mu.Lock()
		turn := p.bucket.take(p.now())
		p.mu.Unlock()
		if err := p.wait(ctx, turn); err != nil {
			return err
		}
		probe := p.launch(b, i)
		ids = append(ids, probe.ID)
		if err := p.wire.Send(appendProbe(packet[:0], probe), probe.Tuple.Dst); err != nil {
			if err := p.failure(); err != nil {
				return err
			}
			p.count.refused.Add(1)
			if refused++; refused == len(shots) {
				return fmt.Errorf("probe: sending to %s: %w", probe.Tuple.Dst, err)
			}
			continue
		}
		p.count.sent.Add(1)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-b.all:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ended:
		return p.failure()
	}
	return nil
}

// launch registers a shot, so that its answer is awaited.
func (p *Prober) launch(b *batch, i int) Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.lastID++
		if _, taken := p.flights[p.lastID]; !taken && p.lastID != 0 {
			break // there are fewer flights than numbers
		}
	}
	probe := b.shots[i].probe
	probe.ID, probe.Cookie = p.lastID, uint32(p.random.Uint64())
	p.flights[probe.ID] = flight{probe, b, i}
	return probe
}

// recall forgets probes that were not answered; after it, nobody touches the batch.
func (p *Prober) recall(b *batch, ids []uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		// A number that was answered may be another batch's by now.
		if f, ok := p.flights[id]; ok && f.batch == b {
			delete(p.flights, id)
			p.count.unanswered.Add(1)
		}
	}
}

// wait waits, unless something ends.
func (p *Prober) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ended:
		return p.failure()
	}
}

// Stats count since the start.
type Stats struct {
	Sent       uint64
	Answered   uint64
	Unanswered uint64 // within their timeout
	Refused    uint64 // by the own kernel
	Stray      uint64 // messages that answered no probe which was waiting: late, doubled, about others, damaged
	Waiting    int    // probes now
}

type counters struct{ sent, answered, unanswered, refused, stray atomic.Uint64 }

// Stats are the counters so far.
func (p *Prober) Stats() Stats {
	p.mu.Lock()
	waiting := len(p.flights)
	p.mu.Unlock()
	c := &p.count
	return Stats{c.sent.Load(), c.answered.Load(), c.unanswered.Load(), c.refused.Load(), c.stray.Load(), waiting}
}
