package agent

import (
	"context"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/reserve"
)

// The waiting of policy shoal. The table says whose turn it is (reserve.Table.Admit): it is asked after everything that is done
// under the agent's lock, and at the time that it names itself.

// turns are the own transfers that wait or are announced. The agent's lock guards them.
type turns struct {
	waiting map[uint64]*waitingTurn
	lapsed  uint64 // reservations, as the table counted them when all that wait were last looked through
	ids     []uint64
	timer   *time.Timer
	due     time.Duration             // for when the timer is set; 0: it is not
	closed  bool                      // the timer is not set any more
	paths   map[[2]string][]ecmp.Path // of the described network, from leaf to leaf
}

// waitingTurn is one.
type waitingTurn struct {
	granted chan *reserve.Grant // holds one; a nil grant: the reservation has ended. nil: the bytes are not there yet
	ready   time.Duration       // by the wall clock, as it was announced
	lapsed  bool                // of one that has ended: by itself, nobody has released it
}

// maxAdmits bounds how many rounds of admissions follow one another at once.
const maxAdmits = 2 * reserve.MaxPerOwner

// admit starts whose turn it is. The agent's lock is held.
func (p *paths) admit(n *node.Node, now time.Duration) {
	var next time.Duration
	n.Table(now, func(t *reserve.Table, now, wall time.Duration) {
		for range maxAdmits {
			p.turns.ids, next = t.Admit(now, wall, p.turns.ids[:0])
			if len(p.turns.ids) == 0 {
				break
			}
			for _, id := range p.turns.ids {
				p.turn(t, now, wall, id)
			}
		}
		p.lapse(t)
	})
	p.wake(now, next)
}

// lapse tells those of whose reservation the table holds nothing any more: this process has stood still, or the wall clock was
// set back, for so long that it lapsed before it could be given up.
func (p *paths) lapse(t *reserve.Table) {
	n := t.Stats().Lapsed
	if n == p.turns.lapsed {
		return
	}
	p.turns.lapsed = n
	for id, w := range p.turns.waiting {
		if t.Holds(id) {
			continue
		}
		delete(p.turns.waiting, id)
		if w.granted != nil {
			w.lapsed = true
			w.granted <- nil
		}
	}
}

// turn starts one, or puts it off where its bytes are not there yet.
func (p *paths) turn(t *reserve.Table, now, wall time.Duration, id uint64) {
	w := p.turns.waiting[id]
	switch {
	case w == nil:
		t.Release(now, wall, id) // nobody waits for it any more
	case w.granted == nil && wall-w.ready > p.cfg.Lease:
		t.Release(now, wall, id)
		delete(p.turns.waiting, id)
	case w.granted == nil:
		t.Ready(now, wall, id, (wall + max((wall-w.ready)/2, 5*time.Millisecond)).Microseconds())
	default:
		g := new(reserve.Grant)
		if !t.Start(now, wall, id, g) {
			g, w.lapsed = nil, true
		} else if g.Queued {
			return
		}
		delete(p.turns.waiting, id)
		w.granted <- g
	}
}

// wake has the agent look again at a local time; 0: it need not. The agent's lock is held.
func (p *paths) wake(now, next time.Duration) {
	if next == p.turns.due || p.turns.closed {
		return
	}
	p.turns.due = next
	if next == 0 {
		p.turns.timer.Stop()
		return
	}
	p.turns.timer.Reset(max(0, next-now))
}

// look is what the timer does: whatever is done under the lock ends with admit.
func (p *paths) look() {
	p.a.locked(func(*node.Node, time.Duration) { p.turns.due = 0 })
}

// await waits for the turn of a queued reservation; what it holds is given back when ctx ends first. The grant is nil where the
// reservation has ended.
func (p *paths) await(ctx context.Context, id uint64, w *waitingTurn) (*reserve.Grant, error) {
	select {
	case g := <-w.granted:
		return g, nil
	case <-ctx.Done():
	}
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		if p.turns.waiting[id] == w {
			delete(p.turns.waiting, id)
			t.Release(now, wall, id)
			return
		}
		select { // it was taken out to be told something, at the same moment
		case g := <-w.granted:
			if g != nil {
				for i := range g.Legs {
					t.Release(now, wall, g.Legs[i].ID)
				}
			}
		default:
		}
	})
	return nil, ctx.Err()
}

// reserve asks the node for paths to a target. Where they have to wait, w says for what to wait.
func (p *paths) reserve(to *ways, req reserve.Request) (g reserve.Grant, w *waitingTurn, err error) {
	p.count.reserved.Add(1)
	req.Set, req.Dst, req.Rate = to.set, to.target.peer, p.rate(to.target.peer)
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		if err = t.Reserve(now, wall, &req, &g); err != nil || !g.Queued || req.Policy != reserve.Shoal {
			return
		}
		w = &waitingTurn{granted: make(chan *reserve.Grant, 1)}
		if req.Phase == reserve.Intent {
			w = &waitingTurn{ready: time.Duration(req.Ready) * time.Microsecond}
		}
		p.turns.waiting[g.ID] = w
	})
	if g.Fallback {
		p.count.fallbacks.Add(1)
	}
	return g, w, err
}

// reserveAt reserves for bytes that are there at a time: they are announced, and asked for again then.
func (p *paths) reserveAt(ctx context.Context, to *ways, req reserve.Request, ready time.Time) (g reserve.Grant, w *waitingTurn, err error) {
	if time.Until(ready) <= 0 {
		return p.reserve(to, req)
	}
	announced := req
	announced.Phase, announced.Ready = reserve.Intent, ready.UnixMicro()
	if g, _, err = p.reserve(to, announced); err != nil {
		return g, nil, err
	}
	id := g.ID
	if err = pauseUntil(ctx, ready); err != nil {
		p.end(id)
		return g, nil, err
	}
	if !g.Queued { // a policy that announces nothing
		return g, nil, nil
	}
	var what started
	if g, w, what = p.start(id); what == ended {
		return p.reserve(to, req)
	}
	return g, w, nil
}

// started is what became of an Intent that was to begin.
type started uint8

const (
	begun  started = iota // it moves, or waits for its turn
	ended                 // the table does not hold it any more
	waited                // somebody waits for its turn already, who is the one to be told
)

// start begins an Intent, or has it wait: w says for what.
func (p *paths) start(id uint64) (g reserve.Grant, w *waitingTurn, what started) {
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		if x := p.turns.waiting[id]; x != nil && x.granted != nil {
			what = waited
			return
		}
		if !t.Start(now, wall, id, &g) {
			what = ended
		}
		if what == ended || !g.Queued {
			delete(p.turns.waiting, id)
			return
		}
		w = &waitingTurn{granted: make(chan *reserve.Grant, 1)}
		p.turns.waiting[id] = w
	})
	return g, w, what
}

// end releases a reservation, whoever waits for it.
func (p *paths) end(id uint64) {
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		t.Release(now, wall, id)
		if w := p.turns.waiting[id]; w != nil {
			delete(p.turns.waiting, id)
			if w.granted != nil {
				w.granted <- nil
			}
		}
	})
}

// rate is what the network cards at both ends allow, in bit/s; 0 where nobody says.
func (p *paths) rate(dst peer.ID) int64 {
	if p.fabric == nil {
		return 0
	}
	a, ok1 := p.fabric.Host(string(p.a.id))
	b, ok2 := p.fabric.Host(string(dst))
	if !ok1 || !ok2 || a.Capacity <= 0 || b.Capacity <= 0 {
		return 0
	}
	return min(a.Capacity, b.Capacity, reserve.MaxCapacity)
}

// openTurns prepares the waiting.
func (p *paths) openTurns(t *reserve.Table) {
	p.turns.waiting = map[uint64]*waitingTurn{}
	p.turns.timer = time.AfterFunc(time.Hour, p.look)
	p.turns.timer.Stop()
	if p.fabric != nil {
		p.turns.paths = map[[2]string][]ecmp.Path{}
		t.SetPaths(p.pathsBetween, p.capacity)
	}
}

// closeTurns has nobody looked after any more: what still waits ends by its context.
func (p *paths) closeTurns() {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.turns.closed = true
	p.turns.timer.Stop()
}

// maxLeafPairs bounds the pairs of leaves whose paths are kept.
const maxLeafPairs = 4096

// pathsBetween are the paths from one peer to another by the description of the network. The agent's lock is held.
func (p *paths) pathsBetween(src, dst peer.ID) []ecmp.Path {
	a, ok1 := p.fabric.Host(string(src))
	b, ok2 := p.fabric.Host(string(dst))
	if !ok1 || !ok2 {
		return nil
	}
	pair := [2]string{a.Leaf, b.Leaf}
	if list, ok := p.turns.paths[pair]; ok {
		return list
	}
	var list []ecmp.Path
	if r, err := p.fabric.Route(string(src), string(dst)); err == nil {
		list = r.Paths()
	}
	if len(p.turns.paths) >= maxLeafPairs {
		clear(p.turns.paths)
	}
	p.turns.paths[pair] = list
	return list
}

// capacity is that of a link in bit/s, 0 where nobody says.
func (p *paths) capacity(id ecmp.LinkID) int64 {
	if p.fabric != nil {
		if l, ok := p.fabric.Link(id); ok {
			return l.Capacity
		}
	}
	return 0
}

// minStale is for how long at least nothing may have been heard of a peer before what is known of it counts as stale.
const minStale = 3 * time.Second

// freshen tells the table whether what it knows of the others is too old to wait by: where of most live peers nothing was
// heard for several times as long as anti-entropy takes to come round to one of them.
func (p *paths) freshen() {
	p.a.locked(func(n *node.Node, now time.Duration) {
		views := n.Views(now, nil)
		limit := max(minStale, p.a.roundInterval()*time.Duration(10+2*len(views)))
		live, old := 0, 0
		for _, v := range views {
			if v.Alive && !v.Self {
				live++
				if v.Heard < 0 || now-v.Heard > limit {
					old++
				}
			}
		}
		n.Table(now, func(t *reserve.Table, _, _ time.Duration) { t.Stale(2*old > live) })
	})
}
