package fabric

import (
	"math/bits"

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

// packet is 16 bytes, and that is what a waiting packet costs. One that is on a wire costs 32 (flight). It is packed by hand
// so that it travels in two registers: written field by field and read as a whole, it would stall the processor at each hop.
type packet struct{ a, b uint64 }

// newPacket: flow is the flow, or the message; hop the place in Packets.hops of the link that it is on; seq, of data, which
// packet it is, and of acks, how many the receiver has in order; size its bytes on the wire.
func newPacket(kind uint8, flow, hop int32, seq uint32, size uint16) packet {
	return packet{uint64(uint32(flow)) | uint64(uint32(hop))<<32, uint64(seq) | uint64(size)<<32 | uint64(kind)<<48}
}

func (p packet) flow() int32  { return int32(p.a) }
func (p packet) hop() int32   { return int32(p.a >> 32) }
func (p packet) seq() uint32  { return uint32(p.b) }
func (p packet) size() uint16 { return uint16(p.b >> 32) }
func (p packet) kind() uint8  { return uint8(p.b >> 48) }

// marked is ECN, or its echo.
func (p packet) marked() bool { return p.b>>56 != 0 }

// nextHop is the packet on the next link of its route.
func (p packet) nextHop() packet { return packet{p.a + 1<<32, p.b} }

// withMark is the packet, marked where yes.
func (p packet) withMark(yes bool) packet {
	if yes {
		p.b |= 1 << 56
	}
	return p
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

// push adds one at the end.
func (r *ring[T]) push(v T) {
	if int(r.tail-r.head) == len(r.items) {
		r.items, r.head, r.tail = r.grown(), 0, uint32(r.len())
	}
	r.items[r.tail&uint32(len(r.items)-1)] = v
	r.tail++
}

func (r *ring[T]) grown() []T {
	items := make([]T, max(16, 2*len(r.items)))
	for i := range r.len() {
		items[i] = *r.at(i)
	}
	return items
}

// Queues of a link.
const (
	bulk   = iota // data
	strict        // acks and pauses: always first, never paused
	queues
)

// link is the sending end of a link: its queues, the transmitter, and the wire. A link is served lazily: what waits has
// no event of its own. It leaves the queue when somebody looks (catchUp): the wire is empty, or something is put in. That
// is the same as serving it in time, as long as nobody could have seen or changed it in between; where somebody can (eager),
// the end of each transmission is an event as well.
type link struct {
	// What an arrival touches: one cache line.
	freeAt  sim.Time // when the last packet that was started has left
	rank    uint64   // of this busy period
	wire    ring[flight]
	waiting int32 // packets in the queues
	host    int32 // that it is the network card of, or nobody
	slow    bool  // eager, paused or down: the short ways do not do
	idle    bool  // a network card that has looked and found nothing to send, since freeAt
	eager   bool
	paused  bool // the bulk queue, by the other end
	down    bool

	// What a departure touches as well.
	delay   sim.Time
	full    sim.Time // transmission of a packet with a full payload
	ackTime sim.Time // and of an ack
	sent    int64    // bytes on the wire, since the start
	queue   [queues]ring[packet]
	bytes   int64 // in the bulk queue
	ecn     ecn

	rate    int64
	timerAt sim.Time // of the event at the end of a transmission
	node    int32    // the sender
	to      int32
	reverse int32   // the other direction of the cable, or nobody
	flaps   uint32  // how often the cable went down or up
	ingress ingress // what the node at its other end holds of it
}

// transmission rounds to the quantum.
func (c *Config) transmission(bytes, rate int64) sim.Time {
	t := sim.Transmission(bytes, rate)
	if q := c.Quantum; q > 0 {
		t = max(q, (t+q/2)/q*q)
	}
	return t
}

// mulDiv is a x b / c, rounded down, where the result has 63 bits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// start puts a packet on the wire; t may be past, where nothing has arrived yet.
func (n *Packets) start(l *link, id int32, t sim.Time, p packet) {
	switch p.size() {
	case n.fullSize:
		t += l.full
	case AckBytes:
		t += l.ackTime
	default:
		t += n.cfg.transmission(int64(p.size()), l.rate)
	}
	l.freeAt = t
	l.sent += int64(p.size())
	t += l.delay
	w := &l.wire
	if w.empty() {
		n.wheel.insert(n.now, id, t, l.rank)
	}
	if w.len() == len(w.items) {
		w.items, w.head, w.tail = w.grown(), 0, uint32(w.len())
	}
	f := &w.items[w.tail&uint32(len(w.items)-1)]
	w.tail++
	f.at, f.rank, f.a, f.b = t, l.rank, p.a, p.b
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
			l.rank = n.newRank()
			n.start(l, id, n.now, p)
			return
		}
	}
	l.waiting++
	if n.queueOf[p.kind()] == strict {
		l.queue[strict].push(p)
		return
	}
	l.queue[bulk].push(p)
	l.bytes += int64(p.size())
	b := &n.buffers[l.node]
	b.used += int64(p.size())
	if b.used > b.calm && !b.exact {
		n.crowded(l.node)
	}
}

// enqueueSlowly is enqueue where the link is not simply free or busy.
func (n *Packets) enqueueSlowly(l *link, id int32, p packet) {
	if l.down {
		n.lose(p)
		return
	}
	n.catchUp(l, id)
	q, full := n.queueOf[p.kind()], false
	if q == bulk {
		b := &n.buffers[l.node]
		if b.exact && !n.admit(b, p) {
			n.drop(p)
			return
		}
		l.bytes += int64(p.size())
		b.used += int64(p.size())
		full = b.used > b.calm && !b.exact
	}
	l.queue[q].push(p)
	l.waiting++
	n.wake(l, id)
	if full {
		n.crowded(l.node)
	}
}

// wake starts the first packet of a switch's link that has nothing to do, or sees to it that it leaves in time.
func (n *Packets) wake(l *link, id int32) {
	if n.free(l, id) {
		l.rank = n.newRank()
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
	if q := &l.queue[strict]; !q.empty() {
		l.waiting--
		p := *q.front()
		q.head++
		n.start(l, id, t, p)
	} else {
		q = &l.queue[bulk]
		if q.empty() || l.paused {
			return false
		}
		p := *q.front()
		q.head++
		l.waiting--
		l.bytes -= int64(p.size())
		if l.bytes > l.ecn.min && p.kind() == data && n.marks && n.congested(l, id) {
			p = p.withMark(true)
		}
		b := &n.buffers[l.node]
		b.used -= int64(p.size())
		n.start(l, id, t, p)
		if b.exact {
			n.release(b, p)
		}
	}
	if l.eager && l.waiting > 0 {
		n.remind(l, id)
	}
	return true
}
