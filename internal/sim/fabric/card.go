package fabric

import "shoal/internal/sim"

// card is a host's network card: its queue pairs, of which one after the other sends a packet. Acks go first, then
// messages in the bulk queue, then the queue pair after the one served last. Its link has the queues and the transmitter.
type card struct {
	flows  []int32 // in the order in which they began
	last   int     // the place of the one served last
	paced  int     // flows below the line rate
	wakeAt sim.Time
}

// catchUpCard sends what a card has sent until now.
func (n *Packets) catchUpCard(l *link, id int32) {
	for !l.idle && n.free(l, id) {
		if !n.nextOfCard(l, id, l.freeAt) {
			l.idle = true
		}
	}
}

// wakeCard looks for something to send, where a card has nothing to do.
func (n *Packets) wakeCard(l *link, id int32) {
	if !l.idle {
		return
	}
	l.rank = n.newRank()
	if n.nextOfCard(l, id, n.now) {
		l.idle = false
	}
}

// nextOfCard sends the next packet at t, if there is one that may go.
func (n *Packets) nextOfCard(l *link, id int32, t sim.Time) bool {
	if l.down {
		return false
	}
	if l.waiting > 0 {
		q := &l.queue[strict]
		if q.empty() {
			q = &l.queue[bulk]
		}
		if !q.empty() && (q == &l.queue[strict] || !l.paused) {
			p := *q.front()
			q.head++
			l.waiting--
			if q == &l.queue[bulk] {
				l.bytes -= int64(p.size())
			}
			n.startOfCard(l, id, t, p)
			return true
		}
	}
	c := &n.cards[l.host]
	at := n.turnOf(c, t, l.paused)
	if at < 0 {
		n.pace(c, l.host, t)
		return false
	}
	c.last = at
	f := &n.flows[c.flows[at]]
	size, hop := n.fullSize, f.forth
	if f.next+1 == f.total {
		size = f.last
	}
	if f.spread != First {
		hop = n.wayOf(f, t)
	}
	if n.cfg.Transport == DCQCN {
		f.ready = t + n.cfg.transmission(int64(size), f.rate.now)
	}
	n.stats.Data++
	n.inject(data)
	p := newPacket(data, c.flows[at], hop, f.next, size)
	f.next++
	f.inside++
	n.startOfCard(l, id, t, p)
	return true
}

func (n *Packets) startOfCard(l *link, id int32, t sim.Time, p packet) {
	n.start(l, id, t, p)
	if l.eager {
		n.remind(l, id)
	}
}

// turnOf is the place of the flow that sends next, -1 where none may. Flows that are done are dropped on the way, when the
// search comes past one before it finds: the place of the one served last then points elsewhere. The ns-3 family does it
// so, and the order of packets depends on it.
func (n *Packets) turnOf(c *card, t sim.Time, paused bool) int {
	count := len(c.flows)
	if count == 0 {
		return -1
	}
	found, done := -1, count
	at := c.last
	if at >= count {
		at %= count
	}
	for range count {
		if at++; at == count {
			at = 0
		}
		f := &n.flows[c.flows[at]]
		if f.next < f.total && f.next-f.acked < f.window && !f.waits && !paused {
			if f.ready <= t && (f.ways == nil || n.mayRunAhead(f)) {
				found = at
				break
			}
		} else if !f.active {
			done = min(done, at)
		}
	}
	if done < count {
		return n.dropDone(c, found, done)
	}
	return found
}

// dropDone drops flows that are done, from a place on, and says where the one at found is then.
func (n *Packets) dropDone(c *card, found, from int) int {
	kept := from
	for i := from; i < len(c.flows); i++ {
		id := c.flows[i]
		if !n.flows[id].active {
			n.flows[id].listed = false
			n.forget(id)
			continue
		}
		if i == found {
			found = kept
		}
		c.flows[kept] = id
		kept++
	}
	c.flows = c.flows[:kept]
	return found
}

// pace wakes a card up when the rate of one of its flows allows the next packet. It does so as the ns-3 family does: by
// the earliest time of all flows, if that is not past.
func (n *Packets) pace(c *card, host int32, t sim.Time) {
	if n.cfg.Transport != DCQCN || c.wakeAt != 0 {
		return
	}
	at := sim.Never
	for _, id := range c.flows {
		at = min(at, n.flows[id].ready)
	}
	if at < sim.Never && at > t {
		c.wakeAt = at
		n.timers.push(at, phase(pacing, host))
	}
}

// reply sends an ack, or a message, from a host.
func (n *Packets) reply(p packet) {
	id := n.hops[p.hop()]
	l := &n.links[id]
	q := n.queueOf[p.kind()]
	if l.down {
		n.lose(p)
		return
	}
	if !l.idle {
		n.catchUpCard(l, id)
	}
	if l.idle && (q == strict && l.queue[strict].empty() || l.waiting == 0 && !l.paused) {
		l.idle = false
		l.rank = n.newRank()
		n.startOfCard(l, id, n.now, p)
		return
	}
	l.queue[q].push(p)
	l.waiting++
	if q == bulk {
		l.bytes += int64(p.size())
	}
	n.wakeCard(l, id)
}

// receive is the arrival of a data packet at its host.
func (n *Packets) receive(p packet) {
	f := &n.flows[p.flow()]
	n.stats.Delivered++
	kind := ack
	switch {
	case f.ways != nil && f.ways.anyOrder:
		n.collect(f, p.seq())
	case p.seq() == f.expected:
		f.expected++
	case p.seq() > f.expected:
		// A gap: one complaint about each, and again after a while.
		n.stats.OutOfOrder++
		if f.ways == nil && !f.loss.ever {
			n.fail("flow %d: packet %d arrived before packet %d, and nothing was lost", p.flow(), p.seq(), f.expected)
		}
		if n.now < f.nackAt && f.nacked == f.expected {
			f.inside--
			n.forget(p.flow())
			return
		}
		f.nackAt, f.nacked = n.now+n.cfg.NackEvery, f.expected
		kind = nack
	default:
		// Again: the ack may have been lost. The ns-3 family, which loses nothing, says nothing here.
		n.stats.Duplicates++
		if f.ways == nil && !f.loss.ever {
			n.fail("flow %d: packet %d arrived again, and nothing was lost", p.flow(), p.seq())
		}
	}
	n.inject(kind)
	n.reply(newPacket(kind, p.flow(), f.back, f.expected, AckBytes).withMark(p.marked()))
}

// acknowledge is the arrival of an ack at the sender. It says whether the flow is done.
func (n *Packets) acknowledge(p packet) (done bool) {
	f := &n.flows[p.flow()]
	f.inside--
	if !f.active {
		n.forget(p.flow())
		return false
	}
	up := n.hops[f.forth]
	l := &n.links[up]
	if !l.idle {
		n.catchUpCard(l, up)
	}
	if f.ways != nil {
		n.judge(f, p)
	}
	if f.ways != nil && f.ways.anyOrder {
		done = n.count(f, p)
	} else if p.seq() > f.acked {
		f.acked = p.seq()
		f.next = max(f.next, f.acked) // it may have gone back in vain
		done = f.acked == f.total
	}
	if done {
		n.finish(p.flow())
	}
	if f.armed {
		f.loss.progress = n.now
	}
	if p.kind() == nack {
		n.goBack(f)
	}
	if p.marked() && n.cfg.Transport == DCQCN && f.active {
		n.mark(p.flow())
	}
	if f.waits {
		n.turn(f)
	}
	if l.idle {
		n.wakeCard(l, up)
	}
	return done
}

// goBack sends again from the first unacknowledged packet.
func (n *Packets) goBack(f *flow) {
	if f.ways != nil && f.ways.anyOrder {
		f.acked = f.ways.inOrder
	}
	n.stats.Again += int64(f.next - f.acked)
	f.next = f.acked
}
