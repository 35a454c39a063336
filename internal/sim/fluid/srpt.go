package fluid

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// Job is a transfer without a path.
type Job struct {
	Src, Dst int
	Bytes    int64
	At       sim.Time
}

// Completion is how a Job ended.
type Completion struct {
	Dst int // that of the job, or where its last bytes went
	At  sim.Time
}

// PooledSRPT is what jobs, sorted by At, could hope for if paths and coordination were no concern: near the limit of what
// the cables can do, and no network of hosts and switches. All links from a leaf to switches are one pipe, and so are all
// links to it; flows between two leaves pass through one of each, those of one leaf through none. At every change the jobs
// in order of the bytes that they have left (shortest remaining processing time; then by their place) take the most that
// their source, the two pipes and their destination leave.
//
// With anyDestination the destinations of all jobs are one set, and at every change each job in that order sends to the one
// that leaves it the most (the one that it sent to before where that is as good, else the first): bytes may go to several
// hosts, one after the other. That is more than a host that has to choose before the first byte can do, by about 3 points
// of the mean at the paper's load.
//
// Greedy SRPT is the best order for one link, and not always for several, so that it is a yardstick and no theorem.
//
// goOn is told after some changes how many jobs are done, and returns false to end it all: the error is ErrStopped then. nil
// is nobody.
func PooledSRPT(t *fabric.Topology, cfg Config, jobs []Job, anyDestination bool, goOn func(done int) bool) ([]Completion, error) {
	f, err := New(t, cfg)
	if err != nil {
		return nil, err
	}
	p := pooled{f: f, jobs: jobs, done: make([]Completion, len(jobs))}
	seen := make([]bool, t.Hosts())
	for i, j := range jobs {
		if min(j.Src, j.Dst) < 0 || max(j.Src, j.Dst) >= t.Hosts() || !t.Connected(j.Src, j.Dst) || j.Bytes < 1 || j.Bytes > sim.MaxFlowBytes || i > 0 && j.At < jobs[i-1].At {
			return nil, fmt.Errorf("fluid: job %d, %d bytes from host %d to host %d at %v, is out of range or before the one above it", i, j.Bytes, j.Src, j.Dst, j.At)
		}
		seen[j.Dst] = true
	}
	for h, ok := range seen {
		if ok && anyDestination {
			p.sinks = append(p.sinks, h)
		}
	}
	p.measure()
	if !p.run(goOn) {
		return nil, ErrStopped
	}
	return p.done, nil
}

// ErrStopped is what PooledSRPT returns where it was told to end.
var ErrStopped = errors.New("fluid: stopped")

// askEvery is how many changes come between two calls of goOn.
const askEvery = 64

type pooled struct {
	f     *Fluid
	jobs  []Job
	done  []Completion
	sinks []int // those that a job may choose from; none: it has its own
	open  []running

	leaf                []int32 // by host
	outOf, into         []int64 // the pools, by node
	up, down            []int64 // by host, what is left at present
	outOfLeft, intoLeft []int64
}

type running struct {
	job, dst          int
	total, left, rate int64
}

// measure adds up the pools.
func (p *pooled) measure() {
	t := p.f.topo
	p.leaf = make([]int32, t.Hosts())
	p.up, p.down = make([]int64, t.Hosts()), make([]int64, t.Hosts())
	p.outOf, p.into = make([]int64, t.Nodes()), make([]int64, t.Nodes())
	p.outOfLeft, p.intoLeft = make([]int64, t.Nodes()), make([]int64, t.Nodes())
	for h := range p.leaf {
		p.leaf[h] = t.Links[t.Up(h)].To
	}
	hosts := int32(t.Hosts())
	for i, l := range t.Links {
		if l.From >= hosts && l.To >= hosts {
			p.outOf[l.From] += p.f.links[i].cap
			p.into[l.To] += p.f.links[i].cap
		}
	}
}

func (p *pooled) run(goOn func(done int) bool) bool {
	next := 0
	for step := 0; next < len(p.jobs) || len(p.open) > 0; step++ {
		if step%askEvery == 0 && goOn != nil && !goOn(next-len(p.open)) {
			return false
		}
		at := sim.Never
		for i := range p.open {
			o := &p.open[i]
			if d := p.f.scale.takes(o.left, o.rate); d < at-p.f.now {
				at = p.f.now + d
			}
		}
		if next < len(p.jobs) {
			at = min(at, p.jobs[next].At)
		}
		p.advance(at)
		for ; next < len(p.jobs) && p.jobs[next].At == at; next++ {
			j := p.jobs[next]
			total := p.f.cfg.work(j.Bytes)
			p.open = append(p.open, running{job: next, dst: j.Dst, total: total, left: total})
		}
		slices.SortFunc(p.open, func(a, b running) int { return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.job, b.job)) })
		p.allot()
	}
	return true
}

// advance sends until at, and lets go of those that have nothing left.
func (p *pooled) advance(at sim.Time) {
	kept := p.open[:0]
	for _, o := range p.open {
		o.left -= min(o.left, p.f.scale.done(o.rate, at-p.f.now))
		if o.left > 0 {
			kept = append(kept, o)
			continue
		}
		j := p.jobs[o.job]
		end := flow{src: int32(j.Src), dst: int32(o.dst), bytes: j.Bytes, total: o.total}
		p.done[o.job] = Completion{o.dst, at + p.f.latency(&end)}
	}
	p.open = kept
	p.f.now = at
}

// allot gives out the rates.
func (p *pooled) allot() {
	t := p.f.topo
	for h := range p.up {
		p.up[h], p.down[h] = p.f.links[t.Up(h)].cap, p.f.links[t.Down(h)].cap
	}
	copy(p.outOfLeft, p.outOf)
	copy(p.intoLeft, p.into)
	for i := range p.open {
		o := &p.open[i]
		src := p.jobs[o.job].Src
		if o.rate = 0; p.up[src] == 0 {
			continue
		}
		best := p.room(src, o.dst)
		for _, d := range p.sinks {
			if best == p.up[src] {
				break
			}
			if r := p.room(src, d); r > best {
				best, o.dst = r, d
			}
		}
		o.rate = best
		p.up[src] -= best
		p.down[o.dst] -= best
		if a, b := p.leaf[src], p.leaf[o.dst]; a != b {
			p.outOfLeft[a] -= best
			p.intoLeft[b] -= best
		}
	}
}

// room is what a job could get from one host to another.
func (p *pooled) room(src, dst int) int64 {
	if src == dst || !p.f.topo.Connected(src, dst) {
		return 0
	}
	r := min(p.up[src], p.down[dst])
	if a, b := p.leaf[src], p.leaf[dst]; a != b {
		r = min(r, p.outOfLeft[a], p.intoLeft[b])
	}
	return r
}
