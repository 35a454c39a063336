package fabric

import (
	"slices"

	"shoal/internal/sim"
)

type oCard struct {
	flows  []int32
	last   int
	wakeAt sim.Time
}

type oFlow struct {
	id                           int32
	src, dst                     int
	forth, back                  []int32
	newForth, newBack            []int32
	waits, active                bool
	bytes                        int64
	next, acked, total, expected uint32
	full                         windowOf
	ready                        sim.Time
	rate, target                 int64
	alpha                        float64
	begun, alphaMark, cutMark    bool
	stage                        uint32
	increases                    int // timers set
	nackAt                       sim.Time
	nacked                       uint32
	armed                        bool
	upTo                         uint32
	progress                     sim.Time
}

func (o *oracle) route(src, dst, path int) []int32 {
	r := []int32{int32(o.top.Up(src))}
	for _, l := range o.top.Paths(src, dst)[path] {
		r = append(r, int32(l))
	}
	return append(r, int32(o.top.Down(dst)))
}

// start begins a flow. Its id is the one that Packets gave it.
func (o *oracle) start(id int32, f Flow) {
	q := &oFlow{id: id, src: f.Src, dst: f.Dst, bytes: f.Bytes, active: true, ready: o.now}
	q.forth, q.back = o.route(f.Src, f.Dst, f.Paths[0]), o.route(f.Dst, f.Src, f.Back)
	payload := int64(o.cfg.Payload)
	q.total = uint32((f.Bytes + payload - 1) / payload)
	var rtt sim.Time
	slowest := int64(1 << 62)
	for _, id := range q.forth {
		l := o.links[id]
		t := sim.Transmission(payload, l.Rate)
		if o.cfg.Quantum > 0 {
			t = t / o.cfg.Quantum * o.cfg.Quantum
		}
		rtt += 2*l.Delay + t
		slowest = min(slowest, l.Rate)
	}
	q.full = windowOf{bytes: max(1, int64(rtt)*slowest/8e12), line: o.links[q.forth[0]].Rate}
	q.rate, q.target = q.full.line, q.full.line
	o.flows[id] = q
	c := o.cards[f.Src]
	c.flows = append(c.flows, id)
	o.serve(o.links[q.forth[0]], true)
}

func (o *oracle) windowOf(f *oFlow) int64 {
	return max(1, f.full.bytes*f.rate/f.full.line)
}

// serveCard sends a packet of the flow after the one served last.
func (o *oracle) serveCard(l *oLink, begins bool) {
	c := o.cards[l.host]
	found, done := -1, -1
	for i := 1; i <= len(c.flows) && found < 0; i++ {
		at := (c.last + i) % len(c.flows)
		f := o.flows[c.flows[at]]
		under := int64(f.next-f.acked) * int64(o.cfg.Payload)
		if !l.paused && !f.waits && f.next < f.total && under < o.windowOf(f) {
			if f.ready <= o.now {
				found = at
			}
		} else if !f.active && (done < 0 || at < done) {
			done = at
		}
	}
	if done >= 0 {
		kept := slices.Clone(c.flows[:done])
		for i := done; i < len(c.flows); i++ {
			if !o.flows[c.flows[i]].active {
				continue
			}
			if i == found {
				found = len(kept)
			}
			kept = append(kept, c.flows[i])
		}
		c.flows = kept
	}
	if found >= 0 {
		c.last = found
		f := o.flows[c.flows[found]]
		size := min(int64(o.cfg.Payload), f.bytes-int64(f.next)*int64(o.cfg.Payload)) + HeaderBytes
		p := oPacket{kind: data, flow: f.id, route: f.forth, seq: f.next, size: size}
		f.next++
		o.stats.Data++
		if o.cfg.Transport == DCQCN {
			f.ready = o.now + o.cfg.transmission(size, f.rate)
		}
		o.transmit(l, p, begins)
		return
	}
	if c.wakeAt != 0 || o.cfg.Transport != DCQCN {
		return
	}
	at := sim.Never
	for _, id := range c.flows {
		at = min(at, o.flows[id].ready)
	}
	if at < sim.Never && at > o.now {
		c.wakeAt = at
		o.at(at, pacing, int64(l.host), 0, func() {
			c.wakeAt = 0
			o.serve(l, true)
		})
	}
}

func (o *oracle) send(m Message) {
	r := o.route(m.Src, m.Dst, m.Path)
	o.put(o.links[r[0]], oPacket{kind: message, route: r, size: m.Bytes, tag: m.Tag})
}

func (o *oracle) move(id int32, path, back int) {
	f := o.flows[id]
	if !f.active {
		return
	}
	if slices.Equal(o.route(f.src, f.dst, path), f.forth) && slices.Equal(o.route(f.dst, f.src, back), f.back) {
		f.waits = false
		o.serve(o.links[f.forth[0]], true)
		return
	}
	f.newForth, f.newBack, f.waits = o.route(f.src, f.dst, path), o.route(f.dst, f.src, back), true
	o.turn(f)
	o.serve(o.links[f.forth[0]], true)
}

func (o *oracle) turn(f *oFlow) {
	if f.waits && f.next == f.acked {
		f.forth, f.back, f.waits = f.newForth, f.newBack, false
	}
}

func (o *oracle) receive(p oPacket) {
	f := o.flows[p.flow]
	answer := oPacket{kind: ack, flow: p.flow, route: f.back, size: AckBytes, marked: p.marked}
	if p.seq == f.expected {
		f.expected++
	} else if p.seq > f.expected {
		if o.now < f.nackAt && f.nacked == f.expected {
			return
		}
		f.nackAt, f.nacked = o.now+o.cfg.NackEvery, f.expected
		answer.kind = nack
	}
	answer.seq = f.expected
	o.put(o.links[answer.route[0]], answer)
}

func (o *oracle) acknowledge(p oPacket) {
	f := o.flows[p.flow]
	if !f.active {
		return
	}
	if p.seq > f.acked {
		f.acked = p.seq
		f.next = max(f.next, f.acked)
		if f.acked == f.total {
			f.active = false
			o.out = append(o.out, Event{At: o.now, Kind: Done, ID: ID(f.id)})
		}
	}
	f.progress = o.now
	if p.kind == nack {
		o.goBack(f)
	}
	if p.marked && o.cfg.Transport == DCQCN && f.active {
		o.mark(f)
	}
	o.turn(f)
	o.serve(o.links[f.forth[0]], true)
}

func (o *oracle) goBack(f *oFlow) {
	o.stats.Again += int64(f.next - f.acked)
	f.next = f.acked
}

func (o *oracle) lose(p oPacket) {
	o.stats.Lost++
	o.gone(p)
}

func (o *oracle) gone(p oPacket) {
	if p.kind != data && p.kind != ack && p.kind != nack {
		return
	}
	f := o.flows[p.flow]
	if !f.active {
		return
	}
	if p.kind == data {
		p.seq++
	}
	f.upTo = max(f.upTo, p.seq)
	if !f.armed {
		f.armed, f.progress = true, o.now
		o.armTimeout(f, o.now+o.cfg.RTO)
	}
}

func (o *oracle) armTimeout(f *oFlow, at sim.Time) {
	o.at(at, timeout, int64(f.id), 0, func() {
		switch {
		case !f.active || f.acked >= f.upTo:
			f.armed = false
		case f.progress+o.cfg.RTO > at:
			o.armTimeout(f, f.progress+o.cfg.RTO)
		default:
			o.stats.Timeouts++
			f.progress = at
			o.armTimeout(f, at+o.cfg.RTO)
			o.goBack(f)
			o.turn(f)
			o.serve(o.links[f.forth[0]], true)
		}
	})
}

// mark begins the clocks of DCQCN with the first mark: all of them tick, whatever comes of it.
func (o *oracle) mark(f *oFlow) {
	o.stats.Marked++
	f.alphaMark, f.cutMark = true, true
	if f.begun {
		return
	}
	d := o.cfg.DCQCN
	f.begun, f.alpha, f.alphaMark, f.target = true, 1, false, f.rate
	var alpha, cut func()
	alpha = func() {
		f.alpha = float64((1 - d.Gain) * f.alpha)
		if f.alphaMark {
			f.alpha += d.Gain
		}
		f.alphaMark = false
		if f.active {
			o.at(o.now+d.AlphaEvery, decrease, int64(f.id), 0, alpha)
		}
	}
	cut = func() {
		if !f.active {
			return
		}
		o.at(o.now+d.DecreaseEvery, decrease, int64(f.id), 1, cut)
		if !f.cutMark {
			return
		}
		f.cutMark = false
		if f.stage != 0 {
			f.target = f.rate
		}
		f.stage = 0
		f.rate = max(d.MinRate, int64(float64(f.rate)*(1-f.alpha/2)))
		o.armIncrease(f)
	}
	o.at(o.now+d.AlphaEvery, decrease, int64(f.id), 0, alpha)
	o.at(o.now+d.DecreaseEvery+sim.Nanosecond, decrease, int64(f.id), 1, cut)
}

func (o *oracle) armIncrease(f *oFlow) {
	d := o.cfg.DCQCN
	f.increases++
	mine := f.increases
	o.at(o.now+d.IncreaseEvery, increase, int64(f.id), 0, func() {
		if !f.active || mine != f.increases {
			return
		}
		if f.stage == d.FastRecovery {
			f.target = min(f.target+d.Additive, f.full.line)
		} else if f.stage > d.FastRecovery {
			f.target = min(f.target+d.Hyper, f.full.line)
		}
		f.stage++
		f.rate = f.rate/2 + f.target/2
		o.armIncrease(f)
	})
}
