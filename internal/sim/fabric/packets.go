package fabric

import (
	"fmt"

	"shoal/internal/sim"
)

// nowhere is the place in hops of a packet that goes over one link only.
const nowhere int32 = 0

// Packets is a Network, packet by packet. NewPackets makes one.
//
// What happens at one time has this order: what the owner does; arrivals; ends of transmissions; timers. Of arrivals, first
// comes the one whose link became busy later, and of those, the one whose link was made busy by what happened earlier: rank.
// It is the order in which a simulator that has an event for everything comes to the ends of their transmissions.
//
// It has one event for each hop of a packet, and none for what a queue does (see link). Nothing is allocated for a
// packet; memory grows with what is in the network at one time, and with the pairs of hosts that talk, not with time.
type Packets struct {
	now   sim.Time
	phase uint64 // of the timer that is being served; 0 for arrivals
	era   uint64 // falls with every new time: the upper part of ranks
	order uint64 // rises within a time: the lower part
	wheel wheel
	links []link
	hops  []int32 // links of all routes that were used
	flows []flow
	cards []card // by host

	timers   timers
	buffers  []buffer // by node
	queueOf  [kinds]uint8
	marks    bool // somebody looks at marks
	fullSize uint16

	cfg      Config
	topology *Topology
	routes   map[routeKey]int32
	unused   []int32 // flows
	active   int
	serial   uint64
	messages []Message
	vacant   []int32 // messages
	out      []Event
	told     int // of out
	digest   sim.Digest
	stats    Stats
	census   [kinds]int64 // packets that have come in, less those that have gone
	lostData int64
	nextLook int64 // events until the next Check
	err      error
}

type routeKey struct{ src, dst, path int32 }

// Stats counts what has happened.
type Stats struct {
	Events     int64 // arrivals and timers
	Data       int64 // data packets sent
	Delivered  int64 // data packets that have arrived
	Marked     int64 // acks that echoed a mark
	Pauses     int64
	Resumes    int64
	Lost       int64 // packets lost on links that were down
	Dropped    int64 // packets that found no room; 0 with PFC
	Again      int64 // data packets that went out a second time
	OutOfOrder int64 // data packets that arrived before earlier ones
	Duplicates int64
	Timeouts   int64
	Moves      int64 // of flows by Flowlet and PLB
	FlowBytes  int64 // of flows that are done
}

// NewPackets makes a network without traffic.
func NewPackets(t *Topology, cfg Config) (*Packets, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(t.Links) > maxLinks {
		return nil, fmt.Errorf("fabric: %d links; %d are the limit", len(t.Links), maxLinks)
	}
	n := &Packets{
		cfg: cfg, topology: t, era: 1 << 63, fullSize: uint16(cfg.Payload + HeaderBytes), links: make([]link, len(t.Links)),
		cards: make([]card, t.Hosts()), routes: map[routeKey]int32{}, hops: []int32{nobody, nobody}, nextLook: lookEvery, marks: cfg.Transport == DCQCN,
	}
	for k := range n.queueOf {
		n.queueOf[k] = strict
	}
	n.queueOf[data] = bulk
	if cfg.AcksWithData {
		n.queueOf[ack], n.queueOf[nack] = bulk, bulk
	}
	if cfg.MessagesWithData {
		n.queueOf[message] = bulk
	}
	horizon := sim.Time(0)
	pairs := map[[2]int32][]int32{}
	for i, of := range t.Links {
		l := &n.links[i]
		l.rate, l.delay, l.node, l.to = of.Rate, of.Delay, of.From, of.To
		l.full = cfg.transmission(int64(n.fullSize), l.rate)
		l.ackTime = cfg.transmission(AckBytes, l.rate)
		l.freeAt, l.timerAt, l.host, l.reverse = -1, -1, nobody, nobody
		l.eager = l.delay == 0
		l.slow = l.eager
		horizon = max(horizon, l.delay+cfg.transmission(MaxMessage, l.rate))
		// The n-th cable from a to b is the n-th from b to a.
		back := [2]int32{of.To, of.From}
		if others := pairs[back]; len(others) > 0 {
			l.reverse, pairs[back] = others[0], others[1:]
			n.links[l.reverse].reverse = int32(i)
		} else {
			pairs[[2]int32{of.From, of.To}] = append(pairs[[2]int32{of.From, of.To}], int32(i))
		}
	}
	for h := range t.Hosts() {
		l := &n.links[t.Up(h)]
		l.host, l.idle = int32(h), true
	}
	n.wheel.init(len(n.links), horizon)
	if err := n.newBuffers(); err != nil {
		return nil, err
	}
	return n, nil
}

// Topology is the truth about the network.
func (n *Packets) Topology() *Topology { return n.topology }

// Now is where the simulation stands.
func (n *Packets) Now() sim.Time { return n.now }

// Digest is of all events and times so far.
func (n *Packets) Digest() sim.Digest { return n.digest }

// Stats counts what has happened so far.
func (n *Packets) Stats() Stats { return n.stats }

// newRank is that of a link that becomes busy now.
func (n *Packets) newRank() uint64 {
	n.order = (n.order + 1) % maxLinks
	return n.era | n.order
}

// Step goes on until something happens, but no further than until. Where nothing is left to happen and until is sim.Never,
// Now stays where it is.
func (n *Packets) Step(until sim.Time) (Event, bool) {
	for n.told == len(n.out) {
		if !n.run(until) {
			return Event{}, false
		}
	}
	e := n.out[n.told]
	if n.told++; n.told == len(n.out) {
		n.out, n.told = n.out[:0], 0
	}
	return e, true
}

// run serves events until there may be something to tell; false means that until has come.
func (n *Packets) run(until sim.Time) bool {
	w := &n.wheel
	for n.stats.Events < n.nextLook {
		slot := w.first(n.now)
		id := w.slots[slot%wheelSlots]
		at := n.timers.next()
		if id == nobody || w.events[id].at > at {
			if at >= until {
				n.pass(until)
				return false
			}
			n.advance(at)
			n.stats.Events++
			n.serve(n.timers.pop())
			return true
		}
		e := &w.events[id]
		if at = e.at; at >= until {
			n.pass(until)
			return false
		}
		n.stats.Events++
		if at != n.now {
			n.now, n.phase, n.order = at, 0, 0
			n.era -= maxLinks
		}
		w.pop(slot, e)
		l := &n.links[id]
		p := l.wire.front().packet
		if l.wire.head++; !l.wire.empty() {
			f := l.wire.front()
			w.insert(at, id, f.at, f.rank)
		} else if l.host == nobody {
			if l.waiting > 0 {
				n.catchUp(l, id)
			}
		} else if !l.idle {
			n.catchUpCard(l, id)
		}
		if next := n.hops[p.hop()+1]; next != nobody {
			n.enqueue(&n.links[next], next, p.nextHop())
			continue
		}
		n.census[p.kind()]--
		switch p.kind() {
		case data:
			n.receive(p)
		case ack, nack:
			if n.acknowledge(p) {
				return true
			}
		case message:
			n.deliver(p)
			return true
		default:
			n.obey(id, p)
		}
	}
	n.lookAround()
	return true
}

// pass is a step that ends with nothing.
func (n *Packets) pass(until sim.Time) {
	if until != sim.Never {
		n.advance(until)
	}
}

// advance moves time.
func (n *Packets) advance(to sim.Time) {
	if to > n.now {
		n.now, n.phase, n.order = to, 0, 0
		n.era -= maxLinks
	}
}

// serve is a timer's end.
func (n *Packets) serve(t timer) {
	n.phase = t.phase
	id := int32(uint32(t.phase))
	switch t.phase >> 32 {
	case completion:
		l := &n.links[id]
		if l.timerAt != t.at {
			return
		}
		l.timerAt = -1
		if l.freeAt > t.at {
			n.remind(l, id)
			return
		}
		n.phase++ // from here on this transmission is over
		n.settle(l, id)
	case pacing:
		n.cards[id].wakeAt = 0
		up := int32(n.topology.Up(int(id)))
		l := &n.links[up]
		n.catchUpCard(l, up)
		n.wakeCard(l, up)
	case decrease:
		n.decrease(id, t.at)
	case increase:
		n.increase(id, t.at)
	case timeout:
		n.timeout(id, t.at)
	}
}

// inject counts a packet that comes into the network.
func (n *Packets) inject(kind uint8) { n.census[kind]++ }

// Send lets a message go, at Now. It goes before the data of its host. One that gets lost has no event.
func (n *Packets) Send(m Message) {
	if m.Bytes <= 0 || m.Bytes > MaxMessage || m.Src == m.Dst {
		panic(fmt.Sprintf("fabric: a message of %d bytes from host %d to host %d; give 1 to %d bytes, and two hosts", m.Bytes, m.Src, m.Dst, MaxMessage))
	}
	hop := n.route(m.Src, m.Dst, m.Path)
	id := int32(len(n.messages))
	if i := len(n.vacant) - 1; i >= 0 {
		id = n.vacant[i]
		n.vacant = n.vacant[:i]
		n.messages[id] = m
	} else {
		n.messages = append(n.messages, m)
	}
	n.digest.Add(int64(n.now), -3, m.Tag)
	n.inject(message)
	n.reply(newPacket(message, id, hop, 0, uint16(m.Bytes)))
}

// deliver is the arrival of a message.
func (n *Packets) deliver(p packet) {
	tag := n.messages[p.flow()].Tag
	n.vacant = append(n.vacant, p.flow())
	n.digest.Add(int64(n.now), int64(Arrived), tag)
	n.out = append(n.out, Event{At: n.now, Kind: Arrived, Tag: tag})
}

// Load is what a link carries: bytes that have left it since the start, and bytes in its queues. What a host has not sent
// yet is in no queue.
func (n *Packets) Load(l LinkIndex) (sent, queued int64) {
	k := &n.links[l]
	n.settle(k, int32(l))
	queued = k.bytes
	for i := range k.queue[strict].len() {
		queued += int64(k.queue[strict].at(i).size())
	}
	return k.sent, queued
}
