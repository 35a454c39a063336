package fabric

import (
	"shoal/internal/sim"
)

// Kinds of packets.
const (
	data uint8 = iota
	ack
	nack
	message
	pause
	resume
	kinds
)

// packet is 16 bytes, and that is what a waiting packet costs. One that is on a wire costs 32 (flight).
type packet struct {
	flow   int32  // the flow, or the message
	hop    int32  // place in Packets.hops of the link that it is on
	seq    uint32 // of data: which packet; of acks: how many the receiver has in order
	size   uint16 // bytes on the wire
	kind   uint8
	marked bool // ECN, or its echo
}

// flight is a packet that has left the queue.
type flight struct {
	at   sim.Time // when it arrives
	rank uint64   // of the busy period in which it left
	packet
}

// ring is a queue that grows and never shrinks.
type ring[T any] struct {
	items      []T // a power of two
	head, tail uint32
}

func (r *ring[T]) len() int    { return int(r.tail - r.head) }
func (r *ring[T]) empty() bool { return r.head == r.tail }
func (r *ring[T]) front() *T   { return &r.items[r.head&uint32(len(r.items)-1)] }

// at is the i-th, from the front.
func (r *ring[T]) at(i int) *T { return &r.items[(r.head+uint32(i))&uint32(len(r.items)-1)] }

// push makes room for one at the end.
func (r *ring[T]) push() *T {
	if int(r.tail-r.head) == len(r.items) {
		r.grow()
	}
	p := &r.items[r.tail&uint32(len(r.items)-1)]
	r.tail++
	return p
}

func (r *ring[T]) grow() {
	items := make([]T, max(16, 2*len(r.items)))
	n := r.len()
	for i := range n {
		items[i] = *r.at(i)
	}
	r.items, r.head, r.tail = items, 0, uint32(n)
}

// Queues of a link.
const (
	strict = iota // acks and pauses: always first, never paused
	bulk          // data
	queues
)

// link is the sending end of a link: its queues, the transmitter, and the wire. A link is served lazily: what waits has
// no event of its own. It leaves the queue when somebody looks (catchUp): the wire is empty, or something is put in. That
// is the same as serving it in time, as long as nobody could have seen or changed it in between; where somebody can (eager),
// the end of each transmission is an event as well.
type link struct {
	freeAt  sim.Time // when the last packet that was started has left
	rank    uint64   // of this busy period
	delay   sim.Time
	full    sim.Time // transmission of a packet with a full payload
	ackTime sim.Time // and of an ack
	waiting int32    // packets in the queues
	node    int32    // the sender
	to      int32
	reverse int32 // the other direction of the cable, or nobody
	host    int32 // that it is the network card of, or nobody
	slow    bool  // eager, paused or down: the short ways do not do
	eager   bool
	paused  bool // the bulk queue, by the other end
	down    bool
	idle    bool // a network card that has looked and found nothing to send, since freeAt
	wire    ring[flight]
	queue   [queues]ring[packet]
	bytes   int64 // in the bulk queue
	sent    int64 // bytes on the wire, since the start
	rate    int64
	timerAt sim.Time // of the event at the end of a transmission
	flaps   uint32   // how often the cable went down or up
	ecn     ecn
	ingress ingress // what the node at its other end holds of it
}

// time is how long a transmission takes.
func (n *Packets) time(l *link, size uint16) sim.Time {
	switch {
	case int(size) == n.fullSize:
		return l.full
	case size == AckBytes:
		return l.ackTime
	}
	return n.cfg.transmission(int64(size), l.rate)
}

// transmission rounds to the quantum.
func (c *Config) transmission(bytes, rate int64) sim.Time {
	t := sim.Transmission(bytes, rate)
	if q := c.Quantum; q > 0 {
		t = max(q, (t+q/2)/q*q)
	}
	return t
}

// start puts a packet on the wire; t may be past, where nothing has arrived yet.
func (n *Packets) start(l *link, id int32, t sim.Time, p packet) {
	l.freeAt = t + n.time(l, p.size)
	l.sent += int64(p.size)
	at := l.freeAt + l.delay
	if l.wire.empty() {
		n.wheel.insert(n.now, id, at, l.rank)
	}
	f := l.wire.push()
	f.at, f.rank, f.packet = at, l.rank, p
}

// enqueue gives a packet to a switch's link.
func (n *Packets) enqueue(l *link, id int32, p packet) {
	if l.slow {
		n.enqueueSlowly(l, id, p)
		return
	}
	if l.freeAt < n.now {
		if l.waiting > 0 {
			n.catchUp(l, id)
		}
		if l.freeAt < n.now { // then nothing waits
			l.rank = n.rank()
			n.start(l, id, n.now, p)
			return
		}
	}
	l.waiting++
	q := n.queueOf[p.kind]
	*l.queue[q].push() = p
	if q == bulk {
		l.bytes += int64(p.size)
		if b := &n.buffers[l.node]; b.add(int64(p.size)) {
			n.crowded(l.node)
		}
	}
}

// enqueueSlowly is enqueue where the link is not simply free or busy.
func (n *Packets) enqueueSlowly(l *link, id int32, p packet) {
	if l.down {
		n.lose(p)
		return
	}
	n.catchUp(l, id)
	q, full := n.queueOf[p.kind], false
	if q == bulk {
		b := &n.buffers[l.node]
		if b.exact && !n.admit(b, p) {
			n.drop(p)
			return
		}
		l.bytes += int64(p.size)
		full = b.add(int64(p.size))
	}
	*l.queue[q].push() = p
	l.waiting++
	n.wake(l, id)
	if full {
		n.crowded(l.node)
	}
}

// wake starts the first packet of a switch's link that has nothing to do, or sees to it that it leaves in time.
func (n *Packets) wake(l *link, id int32) {
	if n.free(l, id) {
		l.rank = n.rank()
		n.next(l, id, n.now)
		return
	}
	n.remind(l, id)
}

// free says whether the last transmission is over. One that ends now ends after the arrivals of this time.
func (n *Packets) free(l *link, id int32) bool {
	return l.freeAt < n.now || l.freeAt == n.now && n.phase > phase(completion, id)
}

// remind makes the end of the transmission an event, where it has to be one.
func (n *Packets) remind(l *link, id int32) {
	if l.eager && l.timerAt != l.freeAt {
		l.timerAt = l.freeAt
		n.timers.push(l.freeAt, phase(completion, id))
	}
}

// catchUp starts what has begun until now.
func (n *Packets) catchUp(l *link, id int32) {
	for l.waiting > 0 && n.free(l, id) && n.next(l, id, l.freeAt) {
	}
}

// next starts the first waiting packet of a switch's link at t, if there is one that may go.
func (n *Packets) next(l *link, id int32, t sim.Time) bool {
	q := &l.queue[strict]
	if q.empty() {
		q = &l.queue[bulk]
		if q.empty() || l.paused {
			return false
		}
	}
	p := *q.front()
	q.head++
	l.waiting--
	if q == &l.queue[bulk] {
		n.leave(l, id, &p)
	}
	n.start(l, id, t, p)
	if l.eager && l.waiting > 0 {
		n.remind(l, id)
	}
	return true
}
