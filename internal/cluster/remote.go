package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// rttWindow is how many round-trip times the median is of: few enough to follow a change of route within a dozen probes, and
// enough that a scheduler's hiccup does not show.
const rttWindow = 7

// remote is one live peer: the connections that this peer keeps to it, and how far away it is.
type remote struct {
	c    *Cluster
	life *life

	mu    sync.Mutex
	idle  []*link // the last one used is last: under little load the others grow old and go
	hops  int
	down  bool
	round *link // kept for anti-entropy, so that a round never waits for hops; nil while a round has it
	rtt   [rttWindow]time.Duration
	rtts  int // samples so far
}

func newRemote(c *Cluster, l *life) *remote { return &remote{c: c, life: l} }

// acquire counts a hop.
func (r *remote) acquire() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hops >= r.c.cfg.Limits.Hops {
		return ErrBusy
	}
	r.hops++
	r.c.count.hopsOut.Add(1)
	return nil
}

func (r *remote) release() {
	r.mu.Lock()
	r.hops--
	r.mu.Unlock()
	r.c.count.hopsOut.Add(-1)
}

// kept gives a kept connection, nil where there is none.
func (r *remote) kept() *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.idle)
	if n == 0 {
		return nil
	}
	l := r.idle[n-1]
	r.idle[n-1] = nil
	r.idle = r.idle[:n-1]
	return l
}

// connect dials the peer, and makes sure that it is the peer.
func (r *remote) connect(ctx context.Context) (*link, error) {
	l, err := r.c.dial(ctx, r.life.PeerAddr)
	if err != nil {
		return nil, err
	}
	if l.id != r.life.ID {
		l.close()
		return nil, errors.New("cluster: the peer port of " + string(r.life.ID) + " is " + string(l.id) + "'s")
	}
	return l, nil
}

// keep takes a connection back.
func (r *remote) keep(l *link) {
	l.reused = true
	l.tick.Store(r.c.tick.Load())
	if cap(l.out) > keepBuf {
		l.out = nil
	}
	r.mu.Lock()
	if r.down || len(r.idle) >= r.c.cfg.Limits.Idle {
		r.mu.Unlock()
		l.close()
		return
	}
	r.idle = append(r.idle, l)
	r.mu.Unlock()
}

// shut closes what is kept. Hops go on until they end by themselves: that the gossip lost a peer does not mean that its
// connections are dead.
func (r *remote) shut() {
	r.mu.Lock()
	r.down = true
	idle := r.idle
	if r.round != nil {
		idle = append(idle, r.round)
	}
	r.idle, r.round = nil, nil
	r.mu.Unlock()
	for _, l := range idle {
		l.close()
	}
}

// expire closes kept connections that were last used before the given number of ticks. In a large shoal that is most of
// those for rounds: with one of a thousand peers there is a round every few minutes.
func (r *remote) expire(age uint32) {
	now := r.c.tick.Load()
	r.mu.Lock()
	old := 0 // the eldest are first
	for old < len(r.idle) && now-r.idle[old].tick.Load() > age {
		old++
	}
	gone := slices.Clone(r.idle[:old])
	r.idle = slices.Delete(r.idle, 0, old)
	if r.round != nil && now-r.round.tick.Load() > age {
		gone = append(gone, r.round)
		r.round = nil
	}
	r.mu.Unlock()
	for _, l := range gone {
		l.close()
	}
}

// sample takes in one round-trip time and gives the median of the last few.
func (r *remote) sample(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rtt[r.rtts%rttWindow] = d
	r.rtts++
	w := r.rtt
	n := min(r.rtts, rttWindow)
	slices.Sort(w[:n])
	return w[n/2]
}

// pings is memberlist's view of round-trip times. It measures with every probe that is answered directly.
type pings struct{ c *Cluster }

func (pings) AckPayload() []byte { return nil }

func (p pings) NotifyPingComplete(n *memberlist.Node, d time.Duration, _ []byte) {
	p.c.measured(n.Name, d)
}

// measured takes in one round-trip time.
func (c *Cluster) measured(name string, d time.Duration) {
	m := c.members
	m.mu.Lock()
	var r *remote
	if l := m.find(name); l != nil {
		if r = m.peers[l.ID]; r != nil && r.life != l {
			r = nil
		}
	}
	m.mu.Unlock()
	if r != nil && d > 0 && c.ctx.Err() == nil {
		c.tell(func(h Handler) { h.RTT(r.life.ID, r.sample(d)) })
	}
}

// firstRTT measures a new peer at once: its turn in the probing may come much later.
func (c *Cluster) firstRTT(r *remote) {
	defer c.wg.Done()
	select {
	case c.pinging <- struct{}{}:
		defer func() { <-c.pinging }()
	case <-c.ctx.Done():
		return
	}
	if d, err := c.ml.Ping(r.life.name, r.life.udpAddr()); err == nil {
		c.measured(r.life.name, d)
	}
}
