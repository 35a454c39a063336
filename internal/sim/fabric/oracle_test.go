package fabric

import (
	"cmp"
	"slices"

	"shoal/internal/sim"
)

// oracle is the same network, told plainly: an event for everything, queues that are slices, counts that are always exact.
// It follows the words of the model, one after the other; Packets has to agree with it to the picosecond. It knows no
// Spread but First.
type oracle struct {
	cfg      Config
	top      *Topology
	now      sim.Time
	events   []oEvent
	links    []*oLink
	flows    map[int32]*oFlow
	cards    []*oCard
	switches map[int32]*oSwitch
	out      []Event
	busy     int // busy periods begun
	stats    Stats
}

// oEvent is one thing to come. At one time: arrivals, of links that became busy later first; then the timers by kind.
type oEvent struct {
	at   sim.Time
	kind uint64 // 0: arrival
	tie  [2]int64
	do   func()
}

func (a oEvent) compare(b oEvent) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.tie[0], b.tie[0]), cmp.Compare(a.tie[1], b.tie[1]))
}

type oPacket struct {
	kind   uint8
	flow   int32
	route  []int32
	hop    int
	seq    uint32
	size   int64
	marked bool
	tag    int64
	cable  int // flaps of the cable that a pause is about
}

type oLink struct {
	Link
	id, reverse        int32
	host               int // whose card it is of, or -1
	busy, down, paused bool
	since              [2]int64 // of the busy period: its begin, negative, and its number
	sending            int      // transmissions begun
	wire               []oPacket
	strict, bulk       []oPacket
	bytes, sent        int64 // that wait in bulk; that have left
	draws              uint64
	epoch, cable       int // how often it, and its cable, went down or up

	// What the switch at its other end counts.
	share              uint
	limit, held, extra int64
	pausing            bool
}

type oSwitch struct {
	space, shared int64
}

func newOracle(top *Topology, cfg Config) *oracle {
	o := &oracle{cfg: cfg, top: top, flows: map[int32]*oFlow{}, switches: map[int32]*oSwitch{}}
	slowest := top.Links[top.Up(0)].Rate
	for h := range top.Hosts() {
		o.cards = append(o.cards, &oCard{})
		slowest = min(slowest, top.Links[top.Up(h)].Rate)
	}
	for i, l := range top.Links {
		k := &oLink{Link: l, id: int32(i), reverse: int32(i ^ 1), host: -1, share: cfg.Share} // cables are added both ways in turn
		if cfg.PFC {
			k.limit = cfg.headroom(l.Rate, l.Delay)
		}
		for r := l.Rate; r > slowest && k.share > 0; r /= 2 {
			k.share--
		}
		o.links = append(o.links, k)
		s := o.switches[l.To]
		if s == nil {
			s = &oSwitch{space: cfg.Buffer}
			o.switches[l.To] = s
		}
		s.space -= k.limit + cfg.Reserve
	}
	for h := range top.Hosts() {
		o.links[top.Up(h)].host = h
	}
	return o
}

func (o *oracle) at(t sim.Time, kind uint64, a, b int64, do func()) {
	o.events = append(o.events, oEvent{t, kind, [2]int64{a, b}, do})
}

func (o *oracle) step(until sim.Time) (Event, bool) {
	for len(o.out) == 0 && len(o.events) > 0 {
		first := 0
		for i := range o.events {
			if o.events[i].compare(o.events[first]) < 0 {
				first = i
			}
		}
		e := o.events[first]
		if e.at >= until {
			break
		}
		o.events = slices.Delete(o.events, first, first+1)
		o.now = e.at
		e.do()
	}
	if len(o.out) > 0 {
		e := o.out[0]
		o.out = o.out[1:]
		return e, true
	}
	if until != sim.Never {
		o.now = until
	}
	return Event{}, false
}

func (o *oracle) isBulk(kind uint8) bool {
	switch kind {
	case data:
		return true
	case ack, nack:
		return o.cfg.AcksWithData
	case message:
		return o.cfg.MessagesWithData
	}
	return false
}

// transmit begins a transmission.
func (o *oracle) transmit(l *oLink, p oPacket, begins bool) {
	if begins {
		o.busy++
		l.since = [2]int64{-int64(o.now), int64(o.busy)}
	}
	l.busy = true
	l.sending++
	l.sent += p.size
	l.wire = append(l.wire, p)
	t := o.cfg.transmission(p.size, l.Rate)
	epoch := l.epoch
	o.at(o.now+t, completion, int64(l.id), int64(l.sending), func() {
		if l.epoch == epoch {
			l.busy = false
			o.serve(l, false)
		}
	})
	o.at(o.now+t+l.Delay, 0, l.since[0], l.since[1], func() {
		if l.epoch == epoch {
			p := l.wire[0]
			l.wire = l.wire[1:]
			o.arrive(l, p)
		}
	})
}

// serve sends the next packet of a link, if it may.
func (o *oracle) serve(l *oLink, begins bool) {
	switch {
	case l.busy || l.down:
	case len(l.strict) > 0:
		p := l.strict[0]
		l.strict = l.strict[1:]
		o.transmit(l, p, begins)
	case len(l.bulk) > 0 && !l.paused:
		p := l.bulk[0]
		l.bulk = l.bulk[1:]
		l.bytes -= p.size
		if l.host < 0 && p.kind == data && o.cfg.Transport == DCQCN && o.congested(l) {
			p.marked = true
		}
		o.transmit(l, p, begins)
		if l.host < 0 {
			o.release(l, p)
		}
	case l.host >= 0:
		o.serveCard(l, begins)
	}
}

func (o *oracle) congested(l *oLink) bool {
	from, all := o.cfg.ecnThresholds(l.Rate)
	if l.bytes <= from || l.bytes > all {
		return l.bytes > all
	}
	l.draws++
	return unit(o.cfg.Seed, uint64(l.id), l.draws) < o.cfg.ECNProbability*float64(l.bytes-from)/float64(all-from)
}

// put gives a packet to a link.
func (o *oracle) put(l *oLink, p oPacket) {
	if l.down {
		o.lose(p)
		return
	}
	if o.isBulk(p.kind) {
		if l.host < 0 && !o.admit(p) {
			o.stats.Dropped++
			o.gone(p)
			return
		}
		l.bulk = append(l.bulk, p)
		l.bytes += p.size
	} else {
		l.strict = append(l.strict, p)
	}
	o.serve(l, true)
}

func (o *oracle) beyond(l *oLink) int64 { return max(0, l.held-o.cfg.Reserve) }

func (o *oracle) threshold(l *oLink) int64 {
	s := o.switches[l.To]
	return (s.space - s.shared) >> l.share
}

func (o *oracle) admit(p oPacket) bool {
	in := o.links[p.route[p.hop-1]]
	if p.size+in.extra > in.limit && p.size+o.beyond(in) > o.threshold(in) {
		return false
	}
	if over := in.held + p.size - o.cfg.Reserve; over > 0 && over > o.threshold(in) {
		in.extra += p.size
	} else {
		in.held += p.size
		o.switches[in.To].shared += min(p.size, max(0, over))
	}
	if o.cfg.PFC && !in.pausing && (in.extra > 0 || o.beyond(in) >= o.threshold(in)) {
		o.tell(in, pause)
	}
	return true
}

// release is a packet's farewell to the switch that link l leaves.
func (o *oracle) release(l *oLink, p oPacket) {
	in := o.links[p.route[p.hop-1]]
	extra := min(in.extra, p.size)
	shared := min(p.size-extra, o.beyond(in))
	in.extra -= extra
	in.held -= p.size - extra
	o.switches[l.From].shared -= shared
	if in.pausing && in.extra == 0 && (o.beyond(in) == 0 || o.beyond(in)+o.cfg.ResumeBelow <= o.threshold(in)) {
		o.tell(in, resume)
	}
}

func (o *oracle) tell(in *oLink, kind uint8) {
	back := o.links[in.reverse]
	if back.down {
		return
	}
	in.pausing = kind == pause
	if in.pausing {
		o.stats.Pauses++
	} else {
		o.stats.Resumes++
	}
	o.put(back, oPacket{kind: kind, route: []int32{back.id}, size: PauseBytes, cable: in.cable})
}

func (o *oracle) arrive(l *oLink, p oPacket) {
	if p.hop++; p.hop < len(p.route) {
		o.put(o.links[p.route[p.hop]], p)
		return
	}
	switch p.kind {
	case data:
		o.receive(p)
	case ack, nack:
		o.acknowledge(p)
	case message:
		o.out = append(o.out, Event{At: o.now, Kind: Arrived, Tag: p.tag})
	default:
		back := o.links[l.reverse]
		if p.cable == back.cable {
			back.paused = p.kind == pause
			o.serve(back, true)
		}
	}
}

func (o *oracle) setLink(id LinkIndex, up bool) {
	l := o.links[id]
	if l.down == !up {
		return
	}
	if l.down = !up; l.down {
		l.epoch++
		l.busy = false
		lost := append(append(slices.Clone(l.wire), l.bulk...), l.strict...)
		if l.host < 0 {
			for _, p := range l.bulk {
				o.release(l, p)
			}
		}
		l.wire, l.bulk, l.strict, l.bytes = nil, nil, nil, 0
		for _, p := range lost {
			o.lose(p)
		}
	}
	for _, k := range []*oLink{l, o.links[l.reverse]} {
		k.cable++
		k.pausing, k.paused = false, false
		o.serve(k, true)
	}
}

func (o *oracle) load(id LinkIndex) (sent, queued int64) {
	l := o.links[id]
	queued = l.bytes
	for _, p := range l.strict {
		queued += p.size
	}
	return l.sent, queued
}
