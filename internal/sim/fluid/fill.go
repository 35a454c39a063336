package fluid

import (
	"fmt"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// filling is what refill works with. Between two refills it collects what has changed.
type filling struct {
	seeds []int32 // links that flows came onto, or left
	fresh []int32 // flows that came
	level int64   // the lowest rate of flows that left
	order uint64  // counts arrivals on paths

	round uint32
	links []int32 // that take part
	flows []int32 // that take part
	tight []candidate
}

// candidate is a link with the rate at which it would be full, or less: the rate only rises while others fill up.
type candidate struct {
	rate  int64
	order int32
	link  int32
}

func (a *candidate) before(b *candidate) bool {
	return a.rate < b.rate || a.rate == b.rate && a.order < b.order
}

func (f *Fluid) seed(i int32) {
	if l := &f.links[i]; !l.seeded {
		l.seeded = true
		f.fill.seeds = append(f.fill.seeds, i)
	}
}

// refill finds the rates after changes: all rates rise together until a link is full, its flows keep what they have, and so
// on with the others.
//
// Only a part of the network takes part. A flow that comes or goes with rate r fills links at r or above, so that whoever
// has less than r keeps it: lower rates are found first, and without looking at it. And of the others, only those that share
// a link with it, or with one that does, and so on.
func (f *Fluid) refill() {
	if len(f.fill.seeds) == 0 {
		return
	}
	f.collect(f.lowest())
	f.pour()
	for _, id := range f.fill.flows {
		fl := &f.flows[id]
		if fl.next != fl.rate || fl.fresh {
			f.settle(fl)
			fl.rate, fl.fresh = fl.next, false
			fl.finish = sim.Never
			if d := f.scale.takes(fl.left, fl.rate); d < sim.Never-f.now {
				fl.finish = f.now + d
			}
			f.watch(fl)
			f.due.fix(f.flows, id)
		} else if fl.spread == fabric.PLB {
			f.watch(fl)
			f.due.fix(f.flows, id)
		}
	}
}

// lowest is the rate below which nothing changes. A flow that came has at least an equal share of each of its links.
func (f *Fluid) lowest() int64 {
	level := f.fill.level
	for _, id := range f.fill.fresh {
		fl := &f.flows[id]
		if !fl.fresh {
			continue // gone again
		}
		for _, h := range fl.hops[:fl.tight] {
			l := &f.links[h.link]
			level = min(level, l.cap<<weightBits/l.load)
		}
	}
	f.fill.fresh = f.fill.fresh[:0]
	f.fill.level = 1<<63 - 1
	return level
}

// collect finds the links and flows that take part, and what the others leave of the links.
func (f *Fluid) collect(level int64) {
	c := &f.fill
	c.round++
	round := c.round
	c.links = append(c.links[:0], c.seeds...)
	for _, i := range c.seeds {
		f.links[i].seeded = false
		f.links[i].mark = round
	}
	c.seeds, c.flows, c.tight = c.seeds[:0], c.flows[:0], c.tight[:0]
	for k := 0; k < len(c.links); k++ {
		l := &f.links[c.links[k]]
		l.room, l.weight = l.cap<<weightBits, 0
		for _, o := range l.on {
			fl := &f.flows[o.flow]
			if fl.rate < level && !fl.fresh {
				l.room -= fl.rate * o.weight
				continue
			}
			l.weight += o.weight
			if fl.mark == round {
				continue
			}
			fl.mark = round
			c.flows = append(c.flows, o.flow)
			for _, h := range fl.hops[:fl.tight] {
				if hl := &f.links[h.link]; hl.mark != round {
					hl.mark = round
					c.links = append(c.links, h.link)
				}
			}
		}
		if l.weight > 0 && l.binds { // some no longer do, and their flows had to be found
			c.tight = append(c.tight, candidate{l.room / l.weight, l.order, c.links[k]})
		}
	}
}

// pour fills the links that take part.
func (f *Fluid) pour() {
	c := &f.fill
	t := c.tight
	for i := (len(t) - 2) / 2; i >= 0; i-- {
		sift(t, i)
	}
	for open := len(c.flows); open > 0; {
		if len(t) == 0 {
			panic(fmt.Sprintf("fluid: %d flows have no link that holds them back", open))
		}
		l := &f.links[t[0].link]
		if l.weight > 0 {
			if rate := l.room / l.weight; rate > t[0].rate {
				t[0].rate = rate
				sift(t, 0)
				continue
			}
			open -= f.freeze(l, t[0].link, t[0].rate)
		}
		t[0] = t[len(t)-1]
		t = t[:len(t)-1]
		sift(t, 0)
	}
}

// freeze gives the open flows of a full link their rate.
func (f *Fluid) freeze(full *link, index int32, rate int64) (flows int) {
	round := f.fill.round
	for _, o := range full.on {
		fl := &f.flows[o.flow]
		if fl.mark != round || fl.frozen == round {
			continue
		}
		fl.frozen = round
		fl.next, fl.bottle = rate, index
		flows++
		for _, h := range fl.hops[:fl.tight] {
			l := &f.links[h.link]
			l.room -= rate * h.weight
			l.weight -= h.weight
		}
	}
	return flows
}

func sift(t []candidate, i int) {
	if len(t) == 0 {
		return
	}
	it := t[i]
	for {
		best := 2*i + 1
		if best >= len(t) {
			break
		}
		if r := best + 1; r < len(t) && t[r].before(&t[best]) {
			best = r
		}
		if !t[best].before(&it) {
			break
		}
		t[i] = t[best]
		i = best
	}
	t[i] = it
}
