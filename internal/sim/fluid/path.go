package fluid

import (
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// attach lays a flow over the links of its path, or of all of its paths. Its rate is found by the next refill.
func (f *Fluid) attach(id int32) {
	fl := &f.flows[id]
	fl.state, fl.partial, fl.rate, fl.bottle = stalled, false, 0, -1
	up, down := int32(f.topo.Up(int(fl.src))), int32(f.topo.Down(int(fl.dst)))
	if !f.links[up].up || !f.links[down].up {
		return
	}
	ways := f.topo.Paths(int(fl.src), int(fl.dst))
	fl.hops = append(fl.hops[:0], hop{link: up, weight: one}, hop{link: down, weight: one})
	if fl.spread == fabric.Spray {
		f.spray(fl, ways)
	} else {
		for _, l := range ways[fl.path] {
			if !f.links[l].up {
				fl.hops = fl.hops[:0]
				return
			}
			fl.hops = append(fl.hops, hop{link: int32(l), weight: one})
		}
	}
	if len(fl.hops) == 0 {
		return
	}
	fl.ceiling = min(f.links[up].cap, f.links[down].cap)
	if w := f.windowed(fl, ways[fl.path]); w < fl.ceiling {
		fl.ceiling = w
		fl.private = f.privateLink(w)
		fl.hops = append(fl.hops, hop{link: fl.private, weight: one})
	}
	for i := range fl.hops {
		h := &fl.hops[i]
		l := &f.links[h.link]
		h.at = int32(len(l.on))
		l.on = append(l.on, on{flow: id, hop: int32(i), weight: h.weight})
		l.load += h.weight
		l.potential += part(fl.ceiling, h.weight) + 1
		if l.binds() {
			f.seed(h.link)
		}
	}
	fl.state, fl.fresh = sending, true
	fl.joined, fl.since = fl.left, f.now
	fl.finish, fl.look = sim.Never, sim.Never
	f.fill.order++
	fl.order = f.fill.order
	f.due.push(f.flows, id)
	f.fill.fresh = append(f.fill.fresh, id)
}

// spray adds the links of all paths that are up, each with its part of the flow; none when no path is up.
func (f *Fluid) spray(fl *flow, ways [][]fabric.LinkIndex) {
	paths := int64(0)
	first := len(fl.hops)
next:
	for _, p := range fl.paths {
		for _, l := range ways[p] {
			if !f.links[l].up {
				fl.partial = true
				continue next
			}
		}
		paths++
		for _, i := range ways[p] {
			l := &f.links[i]
			if l.count == 0 {
				fl.hops = append(fl.hops, hop{link: int32(i)})
			}
			l.count++
		}
	}
	for i := first; i < len(fl.hops); i++ {
		l := &f.links[fl.hops[i].link]
		fl.hops[i].weight = (int64(l.count)*one + paths/2) / paths
		l.count = 0
	}
	if paths == 0 {
		fl.hops = fl.hops[:0]
	}
}

// detach takes a flow off its links, which keep count of what has crossed them.
func (f *Fluid) detach(id int32) {
	fl := &f.flows[id]
	if fl.state != sending {
		return
	}
	f.settle(fl)
	if !fl.fresh {
		f.fill.level = min(f.fill.level, fl.rate)
	}
	for _, h := range fl.hops {
		l := &f.links[h.link]
		if l.binds() {
			f.seed(h.link)
		}
		l.sent += part(fl.joined-fl.left, h.weight)
		l.load -= h.weight
		l.potential -= part(fl.ceiling, h.weight) + 1
		last := l.on[len(l.on)-1]
		l.on[h.at] = last
		f.flows[last.flow].hops[last.hop].at = h.at
		l.on = l.on[:len(l.on)-1]
	}
	if fl.private >= 0 {
		f.spare = append(f.spare, fl.private)
		fl.private = -1
	}
	f.due.remove(f.flows, id)
	fl.hops = fl.hops[:0]
	fl.state, fl.rate, fl.fresh = stalled, 0, false
}

// binds says whether the link could hold a flow back at all: not when its flows could not fill it whatever the others do.
func (l *link) binds() bool { return l.nic || l.potential > l.cap }

func (f *Fluid) privateLink(cap int64) int32 {
	var i int32
	if n := len(f.spare); n > 0 {
		i = f.spare[n-1]
		f.spare = f.spare[:n-1]
	} else {
		i = int32(len(f.links))
		f.links = append(f.links, link{order: i})
	}
	l := &f.links[i]
	l.cap, l.nic, l.up, l.sent = cap, true, true, 0
	return i
}

// windowed is the rate that the packet model's window lets through: as many packets as it has room for in the round trip of
// one packet on an empty path. It is below the links' rate only where delays are small, and acknowledgements not.
func (f *Fluid) windowed(fl *flow, way []fabric.LinkIndex) int64 {
	nic := &f.links[f.topo.Up(int(fl.src))]
	var base, trip sim.Time
	add := func(l *link) {
		base += 2*l.delay + sim.Transmission(f.cfg.Payload, l.rate)
		trip += l.full + l.ack + 2*l.delay
	}
	add(nic)
	for _, i := range way {
		add(&f.links[i])
	}
	add(&f.links[f.topo.Down(int(fl.dst))])
	// What the NIC sends in the base time, in payload.
	window := share(int64(base), nic.rate, 8*int64(sim.Second))
	if inFlight := f.cfg.packets(window); sim.Time(inFlight)*nic.full < trip {
		return share(nic.cap, inFlight*int64(nic.full), int64(trip))
	}
	return nic.cap
}

// latency is the time from when the last byte has left at the flow's rate to the last acknowledgement: what the packet
// model needs on the empty path, less what the fluid needs there. Of several paths it is the first one's.
func (f *Fluid) latency(fl *flow) sim.Time {
	n := f.cfg.packets(fl.bytes)
	rest := fl.bytes - (n-1)*f.cfg.Payload + f.cfg.Header // the last packet
	var before, last, slowest, sum, way sim.Time
	narrow := int64(1 << 62)
	// The last packet leaves a link when it is there, and the one before it has left.
	hop := func(l *link) {
		slowest = max(slowest, l.full)
		sum += l.full
		before = 0
		if n > 1 {
			before = sum + sim.Time(n-2)*slowest
		}
		last = max(last, before) + onWire(rest, l.rate)
		way += l.delay
		narrow = min(narrow, l.cap)
	}
	hop(&f.links[f.topo.Up(int(fl.src))])
	for _, i := range f.topo.Paths(int(fl.src), int(fl.dst))[fl.path] {
		hop(&f.links[i])
	}
	hop(&f.links[f.topo.Down(int(fl.dst))])
	ack := func(l *link) { way += l.ack + l.delay }
	ack(&f.links[f.topo.Up(int(fl.dst))])
	for _, i := range f.topo.Paths(int(fl.dst), int(fl.src))[fl.back] {
		ack(&f.links[i])
	}
	ack(&f.links[f.topo.Down(int(fl.src))])
	return max(0, last+way-f.scale.takes(fl.total, narrow))
}

// SetLink takes a link down or up. Flows on it stand still; a Spray flow goes on over those of its paths that are up.
func (f *Fluid) SetLink(i fabric.LinkIndex, up bool) {
	l := &f.links[i]
	if l.up == up {
		return
	}
	l.up = up
	f.ids = f.ids[:0]
	if !up {
		for _, o := range l.on {
			f.ids = append(f.ids, o.flow)
		}
	} else {
		for id := range f.flows {
			if fl := &f.flows[id]; fl.state == stalled || fl.state == sending && fl.partial {
				f.ids = append(f.ids, int32(id))
			}
		}
	}
	for _, id := range f.ids {
		f.detach(id)
		f.attach(id)
	}
}
