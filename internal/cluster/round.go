package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/wire"
)

// minConcurrent is how many rounds may be under way at once, at least. Rounds with peers that have just come up wait for
// each other beyond it, so that a large shoal does not send a newcomer everything at the same time; it also keeps the
// regular rounds going while some peers are slow.
const minConcurrent = 16

// rounds drives anti-entropy: every interval a round with some random peers, and one at once with each new peer. There is
// never more than one at a time with one peer, so that a slow peer is left alone until it is done, and costs the others
// nothing. What is said in a round is the Handler's.
type rounds struct {
	c      *Cluster
	urgent chan peer.ID // peers to talk to as soon as may be
	done   chan peer.ID
}

func newRounds(c *Cluster) *rounds {
	return &rounds{c: c, urgent: make(chan peer.ID, 64), done: make(chan peer.ID)}
}

// now asks for a round with r. It does not wait long: the scheduler never does.
func (s *rounds) now(r *remote) {
	select {
	case s.urgent <- r.life.ID:
	case <-s.c.ctx.Done():
	}
}

// run is the scheduler.
func (s *rounds) run() {
	c := s.c
	defer c.wg.Done()
	limit := max(minConcurrent, 4*c.cfg.Fanout)
	busy := map[peer.ID]bool{}  // a round is under way
	queue := map[peer.ID]bool{} // one is wanted at once
	var order []peer.ID         // of queue
	timer := time.NewTimer(jitter(c.interval()))
	defer timer.Stop()
	start := func(r *remote) {
		busy[r.life.ID] = true
		c.wg.Add(1)
		go func() {
			defer c.wg.Done()
			c.round(r)
			select {
			case s.done <- r.life.ID:
			case <-c.ctx.Done():
			}
		}()
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case id := <-s.urgent:
			if !queue[id] {
				queue[id] = true
				order = append(order, id)
			}
		case id := <-s.done:
			delete(busy, id)
		case <-timer.C:
			for _, r := range c.pick(busy, min(c.cfg.Fanout, limit-len(busy))) {
				start(r)
			}
			timer.Reset(jitter(c.interval()))
		}
		var later []peer.ID
		for i, id := range order {
			if len(busy) >= limit {
				later = append(later, order[i:]...)
				break
			}
			if busy[id] {
				later = append(later, id)
				continue
			}
			delete(queue, id)
			if r := c.members.get(id); r != nil {
				start(r)
			}
		}
		order = later
	}
}

// pick chooses up to n random peers with whom no round is under way.
func (c *Cluster) pick(busy map[peer.ID]bool, n int) []*remote {
	all := c.members.all()
	var free []*remote
	for _, r := range all {
		if !busy[r.life.ID] {
			free = append(free, r)
		}
	}
	n = min(max(n, 0), len(free))
	for i := range n {
		j := i + rand.IntN(len(free)-i)
		free[i], free[j] = free[j], free[i]
	}
	return free[:n]
}

func (c *Cluster) interval() time.Duration {
	if c.cfg.Interval > 0 {
		return c.cfg.Interval
	}
	return c.t.round
}

// jitter spreads d by a tenth to either side, so that peers that were started together do not stay together.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// round talks with one peer until both have said all.
func (c *Cluster) round(r *remote) {
	begun := time.Now()
	err := c.talk(r)
	if err != nil {
		if c.ctx.Err() == nil {
			c.count.roundErrors.Add(1)
			c.log.Debug("cluster: anti-entropy round", "peer", r.life.ID, "err", err)
		}
		return
	}
	c.count.rounds.Add(1)
	c.count.roundNanos.Add(uint64(time.Since(begun)))
}

func (c *Cluster) talk(r *remote) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.t.roundLimit)
	defer cancel()
	out := c.h.Summary()
	if out == nil {
		return nil
	}
	l := r.takeRound()
	if l == nil {
		var err error
		if l, err = r.connect(ctx); err != nil {
			return err
		}
	}
	heard, err := c.converse(ctx, r, l, out)
	if err != nil && l.reused && !heard && ctx.Err() == nil {
		// The peer had closed the kept connection.
		l.close()
		c.count.redials.Add(1)
		if l, err = r.connect(ctx); err != nil {
			return err
		}
		_, err = c.converse(ctx, r, l, out)
	}
	if err != nil {
		l.close()
		return err
	}
	r.keepRound(l)
	return nil
}

// converse sends the first message of a round and answers what comes back, until nothing more is asked. heard is whether
// the peer said anything.
func (c *Cluster) converse(ctx context.Context, r *remote, l *link, out *wire.Exchange) (heard bool, err error) {
	limit, _ := ctx.Deadline()
	l.deadline = limit
	l.nc.SetDeadline(limit)
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	for range (replica.MaxRound + 1) / 2 {
		n, err := writeExchange(l, out)
		c.count.roundBytesOut.Add(uint64(n))
		if err != nil {
			return heard, err
		}
		if !out.Asks() {
			return heard, nil
		}
		t, p, err := l.frame()
		if err != nil {
			return heard, unexpected(err)
		}
		if t != wire.TypeExchange {
			return heard, fmt.Errorf("%w: %v in a round", errProtocol, t)
		}
		heard = true
		var in wire.Exchange
		n, err = readExchange(l, p, &in)
		c.count.roundBytesIn.Add(uint64(n))
		if err != nil {
			return heard, err
		}
		out = c.h.Exchange(r.life.ID, &in)
		if !in.Asks() {
			return heard, nil
		}
		if out == nil {
			out = &wire.Exchange{}
		}
	}
	return heard, fmt.Errorf("%w: a round without an end", errProtocol)
}

var errExchange = errors.New("cluster: a message of a round is over its limit")

// readExchange reads the rest of a message whose first frame is p, and gives its length in bytes.
func readExchange(l *link, p []byte, x *wire.Exchange) (n int, err error) {
	for {
		n += wire.HeaderLen + len(p)
		if n > wire.MaxExchange {
			return n, fmt.Errorf("%w: %w", errProtocol, errExchange)
		}
		more, err := wire.DecodeExchange(p, x)
		if err != nil {
			return n, fmt.Errorf("%w: %w", errProtocol, err)
		}
		if !more {
			return n, nil
		}
		var t wire.Type
		if t, p, err = l.frame(); err != nil {
			return n, unexpected(err)
		}
		if t != wire.TypeExchange {
			return n, fmt.Errorf("%w: %v within a message of a round", errProtocol, t)
		}
	}
}

// writeExchange writes a message in as many frames as it needs, and gives its length in bytes.
func writeExchange(l *link, x *wire.Exchange) (n int, err error) {
	err = wire.ExchangeFrames(x, nil, func(p []byte) error {
		n += wire.HeaderLen + len(p)
		return l.writeFrame(wire.TypeExchange, p)
	})
	return n, err
}

// takeRound gives the connection kept for rounds, nil where there is none.
func (r *remote) takeRound() *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.round
	r.round = nil
	return l
}

func (r *remote) keepRound(l *link) {
	l.reused = true
	l.tick.Store(r.c.tick.Load())
	r.mu.Lock()
	if r.down || r.round != nil {
		r.mu.Unlock()
		l.close()
		return
	}
	r.round = l
	r.mu.Unlock()
}
