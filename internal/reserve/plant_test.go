package reserve

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// plant is a leaf-spine fabric on which transfers really take their time: every flow gets its max-min share of its two NICs
// and its links. The hosts hear of each other by messages that are late, or lost and repaired by sections.
type plant struct {
	failer
	plantConfig
	rng     *rand.Rand
	hosts   []*host
	events  events
	seq     int
	now     time.Duration
	moving  []*flowing
	settled time.Duration // up to when moving has moved
	pairs   map[[2]int][]ecmp.Path
	all     []*transfer
	rest    time.Duration // until when the hosts look after what is over
	shared  int           // times that a scheduled transfer shared a NIC or a link with another one
}

type plantConfig struct {
	leaves, spines, perLeaf int
	rate                    int64 // bit/s of NICs and links
	delay                   time.Duration
	jitter                  time.Duration // messages take up to so much longer
	lose                    float64
	skew                    time.Duration // clocks differ by at most this
	announce                time.Duration // how long before it is ready a transfer is known
	policy                  Policy
	blind                   bool    // paths are not what the hosts take them for
	efficiency              float64 // of the rate, what bytes get
	change                  func(*Config)
}

type host struct {
	name  peer.ID
	table *Table
	skew  time.Duration
	timer time.Duration // for which Admit is planned; 0: none
	mine  map[uint64]*transfer
}

// transfer is one, and what became of it.
type transfer struct {
	src, dst               int
	bytes                  int64
	ready, began, finished time.Duration
	started, done          bool
	scheduled              bool
	id                     uint64
	legs                   []*flowing
}

// flowing is one leg that moves.
type flowing struct {
	of    *transfer
	leg   Leg
	links []ecmp.LinkID
	left  float64 // bytes
	rate  float64 // bytes/s
}

func newPlant(f failer, seed uint64, c plantConfig) *plant {
	p := &plant{failer: f, plantConfig: c, rng: rand.New(rand.NewPCG(seed, 77)), pairs: map[[2]int][]ecmp.Path{}}
	if p.efficiency == 0 {
		p.efficiency = 1
	}
	for i := range c.leaves * c.perLeaf {
		cfg := Defaults()
		if c.change != nil {
			c.change(&cfg)
		}
		t, err := New(cfg, peer.ID(fmt.Sprintf("h%02d", i)), 1, rand.New(rand.NewPCG(seed, uint64(i))))
		if err != nil {
			f.Fatalf("%v", err)
		}
		h := &host{name: peer.ID(fmt.Sprintf("h%02d", i)), table: t, mine: map[uint64]*transfer{}}
		if c.skew > 0 {
			h.skew = time.Duration(p.rng.Int64N(int64(c.skew))) - c.skew/2
		}
		t.SetPaths(func(src, dst peer.ID) []ecmp.Path { return p.paths(p.host(src), p.host(dst)) }, func(ecmp.LinkID) int64 { return c.rate })
		p.hosts = append(p.hosts, h)
	}
	for i := range p.hosts {
		p.at(time.Duration(i)*time.Millisecond, func() { p.tick(i) })
	}
	return p
}

func (p *plant) host(id peer.ID) int {
	return slices.IndexFunc(p.hosts, func(h *host) bool { return h.name == id })
}

func (p *plant) paths(src, dst int) []ecmp.Path {
	a, b := src/p.perLeaf, dst/p.perLeaf
	k := [2]int{a, b}
	if p.pairs[k] == nil {
		if a == b {
			p.pairs[k] = []ecmp.Path{{}}
		} else {
			p.pairs[k] = spread(p.spines, a, b)
		}
	}
	return p.pairs[k]
}

func (p *plant) at(when time.Duration, do func()) {
	p.seq++
	heap.Push(&p.events, event{when, p.seq, do})
}

// run goes on until nothing happens any more, or the time is over.
func (p *plant) run(until time.Duration) {
	for {
		ends, first := p.nextEnd()
		if len(p.events) == 0 && ends < 0 {
			return
		}
		if ends >= 0 && (len(p.events) == 0 || first <= p.events[0].at) {
			p.flow(first)
			p.finish(p.moving[ends])
			continue
		}
		e := heap.Pop(&p.events).(event)
		if e.at > until {
			return
		}
		p.flow(e.at)
		e.do()
	}
}

// flow moves the bytes up to a time.
func (p *plant) flow(to time.Duration) {
	for _, f := range p.moving {
		f.left -= f.rate * (to - p.settled).Seconds()
	}
	p.settled, p.now = to, to
}

func (p *plant) nextEnd() (which int, at time.Duration) {
	which = -1
	for i, f := range p.moving {
		if e := p.settled + time.Duration(max(0, f.left)/f.rate*1e9); which < 0 || e < at {
			which, at = i, e
		}
	}
	return which, at
}

// pipes are what a flow goes through: two NICs, and links.
func (f *flowing) pipes() []uint64 {
	names := append(make([]uint64, 0, 4), 1<<40|uint64(f.of.src), 1<<41|uint64(f.of.dst))
	for _, l := range f.links {
		names = append(names, uint64(l))
	}
	return names
}

// share gives every flow its max-min share.
func (p *plant) share() {
	type pipe struct {
		free float64
		n    int
	}
	pipes := map[uint64]*pipe{}
	of := map[*flowing][]*pipe{}
	for _, f := range p.moving {
		for _, name := range f.pipes() {
			x := pipes[name]
			if x == nil {
				x = &pipe{free: float64(p.rate) / 8 * p.efficiency}
				pipes[name] = x
			}
			x.n++
			of[f] = append(of[f], x)
		}
	}
	open := slices.Clone(p.moving)
	for len(open) > 0 {
		least := -1.0
		for _, f := range open {
			for _, x := range of[f] {
				if r := x.free / float64(x.n); least < 0 || r < least {
					least = r
				}
			}
		}
		var rest, now []*flowing
		for _, f := range open {
			if slices.ContainsFunc(of[f], func(x *pipe) bool { return x.free/float64(x.n) <= least*(1+1e-9) }) {
				now = append(now, f)
			} else {
				rest = append(rest, f)
			}
		}
		for _, f := range now {
			f.rate = least
			for _, x := range of[f] {
				x.free -= least
				x.n--
			}
		}
		open = rest
	}
	p.check()
}

// check counts scheduled transfers that are not alone on their NICs and links.
func (p *plant) check() {
	on := map[uint64]*transfer{}
	for _, f := range p.moving {
		for _, n := range f.pipes() {
			if o := on[n]; o != nil && o != f.of && o.scheduled && f.of.scheduled {
				p.shared++
			}
			on[n] = f.of
		}
	}
}

func (p *plant) wall(h *host) time.Duration { return noon + p.now + h.skew }

// arrive makes a transfer that is ready at a time.
func (p *plant) arrive(ready time.Duration, src, dst int, bytes int64) {
	x := &transfer{src: src, dst: dst, bytes: bytes, ready: ready}
	p.all = append(p.all, x)
	known := ready
	if p.policy == Shoal {
		known = max(0, ready-p.announce)
	}
	p.at(known, func() {
		h := p.hosts[src]
		s, err := h.table.Paths(p.paths(src, dst), gigabits(p.rate/1e9))
		if err != nil {
			p.Fatalf("%v", err)
		}
		req := Request{Dst: p.hosts[dst].name, Bytes: bytes, Set: s, Policy: p.policy, Rate: p.rate}
		if p.policy == Shoal && p.announce > 0 {
			req.Phase, req.Ready = Intent, (noon + ready + h.skew).Microseconds()
		}
		var g Grant
		if err := h.table.Reserve(p.now, p.wall(h), &req, &g); err != nil {
			p.Fatalf("%v", err)
		}
		if g.Queued {
			x.id = g.ID
			h.mine[g.ID] = x
		} else {
			p.start(x, &g)
		}
		p.after(src)
	})
}

// start puts the legs on the fabric.
func (p *plant) start(x *transfer, g *Grant) {
	if x.started || len(g.Legs) == 0 {
		p.Fatalf("%+v starts with %+v", x, g)
	}
	x.started, x.began = true, p.now
	h := p.hosts[x.src]
	paths := p.paths(x.src, x.dst)
	for _, l := range g.Legs {
		f := &flowing{of: x, leg: l, links: paths[l.Path].Links, left: float64(l.Share)}
		if p.blind {
			f.links = paths[p.rng.IntN(len(paths))].Links
		}
		if o := h.table.find(l.ID); o != nil && o.length > 0 {
			x.scheduled = true
		}
		x.legs = append(x.legs, f)
		p.moving = append(p.moving, f)
		p.chunk(f)
	}
	p.share()
}

// chunk is a boundary at which a flow says how far it is, and may move.
func (p *plant) chunk(f *flowing) {
	if f.leg.ID == 0 {
		return
	}
	p.at(p.now+5*time.Millisecond, func() {
		if !slices.Contains(p.moving, f) {
			return
		}
		h := p.hosts[f.of.src]
		if !h.table.Renew(p.now, p.wall(h), f.leg.ID, int64(max(0, f.left))) {
			p.Fatalf("the reservation of a flow that moves has ended")
		}
		if l, moved := h.table.Move(p.now, p.wall(h), f.leg.ID); moved {
			f.links = p.paths(f.of.src, f.of.dst)[l.Path].Links
			if p.blind {
				f.links = p.paths(f.of.src, f.of.dst)[p.rng.IntN(p.spines)].Links
			}
			p.share()
		}
		p.after(f.of.src)
		p.chunk(f)
	})
}

func (p *plant) finish(f *flowing) {
	p.moving = slices.DeleteFunc(p.moving, func(x *flowing) bool { return x == f })
	x := f.of
	if !slices.ContainsFunc(p.moving, func(o *flowing) bool { return o.of == x }) {
		x.done, x.finished = true, p.now
	}
	p.share()
	h := p.hosts[x.src]
	if f.leg.ID != 0 && !h.table.Release(p.now, p.wall(h), f.leg.ID) {
		p.Fatalf("the reservation of a flow has ended before it")
	}
	p.after(x.src)
}

// after sends what a host has to say, and starts whose turn it is.
func (p *plant) after(i int) {
	p.send(i)
	p.admit(i)
}

func (p *plant) send(i int) {
	for _, m := range p.hosts[i].table.Take(nil) {
		for to, h := range p.hosts {
			if to == i || p.lose > 0 && p.rng.Float64() < p.lose {
				continue
			}
			d := p.delay
			if p.jitter > 0 {
				d += time.Duration(p.rng.Int64N(int64(p.jitter)))
			}
			p.at(p.now+d, func() {
				h.table.Heard(p.now, p.wall(h), m.Owner, &m)
				p.admit(to)
			})
		}
	}
}

var ids []uint64

func (p *plant) admit(i int) {
	h := p.hosts[i]
	for range 100 {
		var next time.Duration
		ids, next = h.table.Admit(p.now, p.wall(h), ids[:0])
		if len(ids) == 0 {
			if next > 0 && next != h.timer {
				h.timer = next
				p.at(next, func() {
					if h.timer == next {
						h.timer = 0
						p.admit(i)
					}
				})
			}
			return
		}
		for _, id := range slices.Clone(ids) {
			var g Grant
			if !h.table.Start(p.now, p.wall(h), id, &g) || g.Queued {
				p.Fatalf("%d was admitted and does not start: %+v", id, g)
			}
			x := h.mine[id]
			delete(h.mine, id)
			p.start(x, &g)
		}
		p.send(i)
	}
	p.Fatalf("admission does not end")
}

// tick is a host's housekeeping, and a round of anti-entropy with another one.
func (p *plant) tick(i int) {
	h := p.hosts[i]
	h.table.Tick(p.now, p.wall(h))
	o := p.rng.IntN(len(p.hosts))
	if o != i {
		p.hosts[o].table.Merge(p.now, p.wall(p.hosts[o]), h.name, 1, h.table.Section())
		p.admit(o)
	}
	p.after(i)
	if slices.ContainsFunc(p.all, func(x *transfer) bool { return !x.done }) || p.now < time.Second {
		p.rest = p.now + 2*Defaults().Lease
	}
	if p.now < p.rest {
		p.at(p.now+50*time.Millisecond, func() { p.tick(i) })
	}
}

// fct is the mean and a percentile of the completion times, from when the bytes were ready.
func (p *plant) fct(percentile int) (mean, at time.Duration) {
	var times []time.Duration
	var sum time.Duration
	for _, x := range p.all {
		times = append(times, x.finished-x.ready)
		sum += x.finished - x.ready
	}
	slices.Sort(times)
	return sum / time.Duration(len(times)), times[(len(times)-1)*percentile/100]
}
