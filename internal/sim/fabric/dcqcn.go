package fabric

import "shoal/internal/sim"

// rate is what DCQCN knows about a flow. Alpha and the looks for marks run by their intervals from the first mark on; those
// that change nothing have no event.
type rate struct {
	now, target int64 // bit/s
	alpha       float64
	begun       bool     // there was a mark
	alphaMarked bool     // since alpha's last update
	cutMarked   bool     // since the last look
	alphaAt     sim.Time // the next update of alpha
	cutFrom     sim.Time // the first look
	cutAt       sim.Time // the next one that finds a mark
	stage       uint32   // increases since the last decrease
	increaseAt  sim.Time
}

// mark is the echo of an ECN mark at the sender.
func (n *Packets) mark(id int32) {
	n.stats.Marked++
	c, r := &n.cfg.DCQCN, &n.flows[id].rate
	if !r.begun {
		// The looks are 1 ns after updates of alpha, so that they see the new one.
		r.begun, r.alpha, r.target = true, 1, r.now
		r.alphaAt = n.now + c.AlphaEvery
		r.cutFrom = n.now + c.DecreaseEvery + sim.Nanosecond
		r.cutMarked, r.cutAt = true, r.cutFrom
		n.timers.push(r.cutAt, phase(decrease, id))
		return
	}
	n.updateAlpha(r, n.now)
	r.alphaMarked = true
	if !r.cutMarked {
		r.cutMarked = true
		looks := (max(n.now, r.cutAt+1) - r.cutFrom + c.DecreaseEvery - 1) / c.DecreaseEvery
		r.cutAt = r.cutFrom + looks*c.DecreaseEvery
		n.timers.push(r.cutAt, phase(decrease, id))
	}
}

// updateAlpha makes all updates of alpha that are due before a time.
func (n *Packets) updateAlpha(r *rate, before sim.Time) {
	g := n.cfg.DCQCN.Gain
	for ; r.alphaAt < before; r.alphaAt += n.cfg.DCQCN.AlphaEvery {
		r.alpha = float64((1 - g) * r.alpha) // the conversion keeps it from being fused with the addition
		if r.alphaMarked {
			r.alpha += g
			r.alphaMarked = false
		}
	}
}

// decrease is a look that finds a mark.
func (n *Packets) decrease(id int32, at sim.Time) {
	f := &n.flows[id]
	r := &f.rate
	if !f.active || !r.cutMarked || r.cutAt != at {
		return
	}
	n.updateAlpha(r, at+1)
	r.cutMarked = false
	if r.stage != 0 {
		r.target = r.now
	}
	r.stage = 0
	r.increaseAt = at + n.cfg.DCQCN.IncreaseEvery
	n.timers.push(r.increaseAt, phase(increase, id))
	n.setRate(id, max(n.cfg.DCQCN.MinRate, int64(float64(r.now)*(1-r.alpha/2))))
}

// increase is the timer: first back half the way to the target, then with higher targets.
func (n *Packets) increase(id int32, at sim.Time) {
	f := &n.flows[id]
	r := &f.rate
	if !f.active || r.increaseAt != at {
		return
	}
	c := &n.cfg.DCQCN
	r.increaseAt = at + c.IncreaseEvery
	n.timers.push(r.increaseAt, phase(increase, id))
	switch {
	case r.stage == c.FastRecovery:
		r.target = min(r.target+c.Additive, f.rtt.line)
	case r.stage > c.FastRecovery:
		r.target = min(r.target+c.Hyper, f.rtt.line)
	}
	r.stage++
	n.setRate(id, r.now/2+r.target/2)
}

// setRate changes the pace and the window. It has no effect on a packet that waits for its time already.
func (n *Packets) setRate(id int32, to int64) {
	f := &n.flows[id]
	up := n.hops[f.forth]
	n.catchUpCard(&n.links[up], up)
	f.rate.now = to
	f.window = n.packets(max(1, mulDiv(f.rtt.bytes, to, f.rtt.line)))
	n.setPaced(f, to < f.rtt.line)
}

// setPaced makes the ends of a card's transmissions events while one of its flows is below the line rate: then it is not
// always the next packet's time when the last one has left.
func (n *Packets) setPaced(f *flow, paced bool) {
	if f.paced == paced {
		return
	}
	f.paced = paced
	c := &n.cards[f.src]
	if paced {
		c.paced++
	} else {
		c.paced--
	}
	up := n.hops[f.forth]
	n.setEager(&n.links[up], up, c.paced > 0)
}
