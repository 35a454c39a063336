package fabric

import "shoal/internal/sim"

// loss is what a sender does about packets that never arrive: go back when nothing has been acknowledged for a while. A
// real card has a timer for every queue pair at all times; here only what has lost something has one, since the others'
// would end in nothing.
type loss struct {
	ever     bool
	upTo     uint32 // acknowledged up to here, nothing is missing any more
	at       sim.Time
	progress sim.Time // the last ack
}

// lose ends a packet on a link that is down.
func (n *Packets) lose(p packet) {
	n.stats.Lost++
	n.gone(p)
}

// drop ends a packet that found no room. Where the sender of a link can be paused, that must not happen.
func (n *Packets) drop(p packet) {
	n.stats.Dropped++
	if back := n.links[n.hops[p.hop()-1]].reverse; n.cfg.PFC && back != nobody && !n.links[back].down {
		n.fail("a packet of kind %d found no room in spite of PFC", p.kind())
	}
	n.gone(p)
}

func (n *Packets) gone(p packet) {
	n.census[p.kind()]--
	switch p.kind() {
	case data:
		n.lostData++
	case message:
		n.vacant = append(n.vacant, p.flow())
		return
	case pause, resume:
		return
	}
	f := &n.flows[p.flow()]
	f.inside--
	if !f.active {
		n.forget(p.flow())
		return
	}
	l := &f.loss
	l.ever = true
	upTo := p.seq()
	if p.kind() == data {
		upTo++
	}
	l.upTo = max(l.upTo, upTo)
	if !f.armed {
		f.armed, l.progress = true, n.now
		n.setTimeout(p.flow(), n.now+n.cfg.RTO)
	}
}

func (n *Packets) setTimeout(id int32, at sim.Time) {
	n.flows[id].loss.at = at
	n.timers.push(at, phase(timeout, id))
}

// timeout is the end of a flow's timer.
func (n *Packets) timeout(id int32, at sim.Time) {
	f := &n.flows[id]
	l := &f.loss
	if !f.armed || l.at != at {
		return
	}
	if !f.active || f.acked >= l.upTo && (f.ways == nil || !f.ways.anyOrder) {
		f.armed = false
		return
	}
	// A sprayed flow goes back in any case: it cannot tell an ack that was lost from a packet that is late.
	if later := l.progress + n.cfg.RTO; later > at && (f.ways == nil || !f.ways.anyOrder) {
		n.setTimeout(id, later)
		return
	}
	n.stats.Timeouts++
	l.progress = at
	if f.armed = f.ways == nil || !f.ways.anyOrder; f.armed {
		n.setTimeout(id, at+n.cfg.RTO)
	}
	up := n.hops[f.forth]
	card := &n.links[up]
	n.catchUpCard(card, up)
	n.goBack(f)
	n.turn(f)
	n.wakeCard(card, up)
}

// SetLink takes a link down, with everything that is on it, or up again. Pauses on both directions of the cable are void.
func (n *Packets) SetLink(index LinkIndex, up bool) {
	id := int32(index)
	l := &n.links[id]
	if l.down == !up {
		return
	}
	n.digest.Add(int64(n.now), -4, int64(index))
	n.settle(l, id)
	if !up {
		n.cut(l, id)
	}
	l.down = !up
	n.unpause(l, id)
	if l.reverse != nobody {
		r := &n.links[l.reverse]
		n.settle(r, l.reverse)
		n.unpause(r, l.reverse)
	}
}

// settle catches up with now.
func (n *Packets) settle(l *link, id int32) {
	if l.host != nobody {
		n.catchUpCard(l, id)
	} else {
		n.catchUp(l, id)
	}
}

// cut loses all packets of a link.
func (n *Packets) cut(l *link, id int32) {
	if !l.wire.empty() {
		n.wheel.remove(id)
	}
	for ; !l.wire.empty(); l.wire.head++ {
		n.lose(l.wire.front().packet)
	}
	for q := range l.queue {
		for !l.queue[q].empty() {
			p := *l.queue[q].front()
			l.queue[q].head++
			l.waiting--
			if q == bulk {
				l.bytes -= int64(p.size())
				if b := &n.buffers[l.node]; l.host == nobody {
					b.used -= int64(p.size())
					if b.exact {
						n.release(b, p)
					}
				}
			}
			n.lose(p)
		}
	}
	l.freeAt = min(l.freeAt, n.now-1)
	l.idle = l.host != nobody
}

// unpause forgets a pause of a link, at both ends.
func (n *Packets) unpause(l *link, id int32) {
	l.flaps++
	if l.ingress.pausing {
		l.ingress.pausing = false
		n.buffers[l.to].pausing--
	}
	l.paused = false
	l.slow = l.eager || l.down
	if l.host != nobody {
		n.wakeCard(l, id)
	} else if l.waiting > 0 {
		n.wake(l, id)
	}
}
