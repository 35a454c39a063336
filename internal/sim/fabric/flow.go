package fabric

import (
	"fmt"

	"shoal/internal/sim"
)

// flow is a queue pair: both ends of it. Everything is counted in packets. What every packet needs comes first, and is one
// cache line.
type flow struct {
	next     uint32 // to be sent
	acked    uint32 // all before it are acknowledged
	total    uint32
	window   uint32 // packets under way, at most
	expected uint32 // by the receiver
	forth    int32  // its way in Packets.hops
	back     int32  // and that of its acks
	inside   int32  // packets of it in the network, of all kinds
	ways     *ways  // of a spread flow
	ready    sim.Time
	last     uint16 // size of its last packet, on the wire
	spread   Spread
	active   bool // begun and not done
	listed   bool // its card knows it
	waits    bool // for what is under way, before it takes a new way
	paced    bool // its rate is below that of its card: ready is when the rate allows the next packet
	armed    bool // loss

	src, dst int32
	bytes    int64
	serial   uint64
	newForth int32 // after waits
	newBack  int32
	rtt      windowOf
	rate     rate
	loss     loss
	nackAt   sim.Time
	nacked   uint32 // the gap that the last complaint was about
	_        [flowPad]byte
}

// flowPad makes a flow whole cache lines.
const flowPad = 40

// windowOf is what the window is made of.
type windowOf struct {
	bytes int64
	line  int64 // the card's rate, bit/s
}

// route is the place in hops of the links of a path, made when it is first used. A route is a sequence of links: of the
// sender's card, of the path, and to the receiver; nobody ends it.
func (n *Packets) route(src, dst, path int) int32 {
	key := routeKey{int32(src), int32(dst), int32(path)}
	if at, ok := n.routes[key]; ok {
		return at
	}
	paths := n.topology.Paths(src, dst)
	if path < 0 || path >= len(paths) {
		panic(fmt.Sprintf("fabric: path %d from host %d to host %d, which have %d", path, src, dst, len(paths)))
	}
	at := int32(len(n.hops))
	n.hops = append(n.hops, int32(n.topology.Up(src)))
	for _, l := range paths[path] {
		n.hops = append(n.hops, int32(l))
	}
	n.hops = append(n.hops, int32(n.topology.Down(dst)), nobody)
	n.routes[key] = at
	return at
}

// windowFor is one bandwidth-delay product of a route: the rate of its slowest link, for twice the delays, and once the
// time of a payload on each. Longer and shorter routes have longer and shorter windows, as in the ns-3 family, which takes
// them by pairs of hosts.
func (n *Packets) windowFor(route int32) windowOf {
	var rtt sim.Time
	slowest := int64(0)
	for i := route; n.hops[i] != nobody; i++ {
		l := &n.links[n.hops[i]]
		t := sim.Transmission(int64(n.cfg.Payload), l.rate)
		if q := n.cfg.Quantum; q > 0 {
			t -= t % q // whole nanoseconds, rounded down
		}
		rtt += 2*l.delay + t
		if slowest == 0 || l.rate < slowest {
			slowest = l.rate
		}
	}
	w := mulDiv(int64(rtt), slowest, bitTime)
	return windowOf{bytes: max(w, 1), line: n.links[n.hops[route]].rate}
}

// packets is how many may be under way: one more may be sent while fewer bytes than the window are.
func (n *Packets) packets(window int64) uint32 {
	p := int64(n.cfg.Payload)
	return uint32(max(1, (window+p-1)/p))
}

// take is a flow that can be used again, or a new one.
func (n *Packets) take() int32 {
	if i := len(n.unused) - 1; i >= 0 {
		id := n.unused[i]
		n.unused = n.unused[:i]
		return id
	}
	n.flows = append(n.flows, flow{})
	return int32(len(n.flows) - 1)
}

// fits says what is wrong with a flow of so many bytes: its packets are counted in 32 bits.
func (n *Packets) fits(bytes int64) error {
	if total := bytes / int64(n.cfg.Payload); total >= maxPackets {
		return fmt.Errorf("a flow of %d bytes has %d packets of %d; fewer than %d are possible: give a larger payload", bytes, total, n.cfg.Payload, int64(maxPackets))
	}
	return nil
}

// Start begins a flow, at Now.
func (n *Packets) Start(f Flow) ID {
	if f.Bytes <= 0 || f.Bytes > maxFlowBytes || f.Src == f.Dst {
		panic(fmt.Sprintf("fabric: a flow of %d bytes from host %d to host %d; give 1 to %d bytes, and two hosts", f.Bytes, f.Src, f.Dst, int64(maxFlowBytes)))
	}
	if f.Spread > PLB {
		panic(fmt.Sprintf("fabric: Flow.Spread is %d; give one of First, Spray, Flowlet, PLB", f.Spread))
	}
	if len(f.Paths) == 0 {
		panic("fabric: Flow.Paths is empty; give an index into Topology.Paths")
	}
	if err := n.fits(f.Bytes); err != nil {
		panic("fabric: " + err.Error())
	}
	payload := int64(n.cfg.Payload)
	total := (f.Bytes + payload - 1) / payload
	id := n.take()
	n.serial++
	n.active++
	n.flows[id] = flow{
		total: uint32(total), last: uint16(f.Bytes - (total-1)*payload + HeaderBytes), bytes: f.Bytes, spread: f.Spread,
		forth: n.route(f.Src, f.Dst, f.Paths[0]), back: n.route(f.Dst, f.Src, f.Back), src: int32(f.Src), dst: int32(f.Dst),
		serial: n.serial, active: true, listed: true, ready: n.now,
	}
	q := &n.flows[id]
	q.rtt = n.windowFor(q.forth)
	q.window = n.packets(q.rtt.bytes)
	q.rate.now, q.rate.target = q.rtt.line, q.rtt.line
	if f.Spread != First {
		q.ways = n.newWays(q, f)
	}
	n.digest.Add(int64(n.now), -1, int64(id), f.Bytes, int64(f.Src), int64(f.Dst))

	up := n.hops[q.forth]
	l := &n.links[up]
	n.catchUpCard(l, up)
	c := &n.cards[f.Src]
	c.flows = append(c.flows, id)
	n.wakeCard(l, up)
	return ID(id)
}

// Move sends what has not been sent yet over another path, once everything on the old one is acknowledged. A flow that was
// spread stays on that path from then on. A move to where a flow is ends one that has not happened yet.
func (n *Packets) Move(id ID, path, back int) {
	f := &n.flows[id]
	if !f.active {
		return
	}
	n.digest.Add(int64(n.now), -2, int64(id), int64(path), int64(back))
	forth, backTo := n.route(int(f.src), int(f.dst), path), n.route(int(f.dst), int(f.src), back)
	f = &n.flows[id]
	up := n.hops[f.forth]
	l := &n.links[up]
	n.catchUpCard(l, up)
	if f.spread == First && forth == f.forth && backTo == f.back {
		f.waits = false // it is there
		n.wakeCard(l, up)
		return
	}
	n.gather(f)
	f.newForth, f.newBack, f.waits = forth, backTo, true
	n.turn(f)
	n.wakeCard(l, up)
}

// turn takes the new way, if nothing is under way any more.
func (n *Packets) turn(f *flow) {
	if f.waits && f.next == f.acked {
		f.forth, f.back, f.waits = f.newForth, f.newBack, false
	}
}

// Left is how many bytes of a flow have not been acknowledged.
func (n *Packets) Left(id ID) int64 {
	f := &n.flows[id]
	if !f.active {
		return 0
	}
	return f.bytes - int64(f.acked)*int64(n.cfg.Payload)
}

// finish is the last acknowledgement.
func (n *Packets) finish(id int32) {
	f := &n.flows[id]
	f.active = false
	n.active--
	if f.expected != f.total {
		n.fail("flow %d of %d bytes is done, and its receiver has %d of %d packets", id, f.bytes, f.expected, f.total)
	}
	n.stats.FlowBytes += f.bytes
	if f.paced {
		n.setPaced(f, false)
	}
	n.digest.Add(int64(n.now), int64(Done), int64(id))
	n.out = append(n.out, Event{At: n.now, Kind: Done, ID: ID(id)})
}

// forget makes a flow's place free, when nothing knows it any more.
func (n *Packets) forget(id int32) {
	if f := &n.flows[id]; !f.active && !f.listed && f.inside == 0 {
		f.ways = nil
		n.unused = append(n.unused, id)
	}
}
