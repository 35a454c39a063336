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
	if w := f.windowed(fl); w < fl.ceiling {
		fl.ceiling = w
		fl.private = f.privateLink(w)
		fl.hops = append(fl.hops, hop{link: fl.private, weight: one})
	}
	fl.tight = 0
	for i := range fl.hops {
		h := fl.hops[i]
		l := &f.links[h.link]
		fl.hops[i].at = int32(len(l.on))
		l.on = append(l.on, on{flow: id, hop: int32(i), weight: h.weight})
		l.load += h.weight
		l.potential += part(fl.ceiling, h.weight) + 1
		if l.binds {
			f.sort(id, int32(i), true)
		} else if l.potential > l.cap {
			l.binds = true
			for _, o := range l.on {
				f.sort(o.flow, o.hop, true)
			}
		}
		if l.binds {
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
		if l.binds {
			f.seed(h.link)
		}
		l.sent += part(fl.joined-fl.left, h.weight)
		last := l.on[len(l.on)-1]
		l.on[h.at] = last
		f.flows[last.flow].hops[last.hop].at = h.at
		l.on = l.on[:len(l.on)-1]
		l.load -= h.weight
		l.potential -= part(fl.ceiling, h.weight) + 1
		if l.binds && !l.nic && l.potential <= l.cap {
			l.binds = false
			for _, o := range l.on {
				f.sort(o.flow, o.hop, false)
			}
		}
	}
	if fl.private >= 0 {
		f.spare = append(f.spare, fl.private)
		fl.private = -1
	}
	f.due.remove(f.flows, id)
	fl.hops = fl.hops[:0]
	fl.state, fl.rate, fl.fresh = stalled, 0, false
}

// sort moves a hop to those whose links bind, or to the others. A flow over a thousand paths has few of the former, and
// refill looks at no others.
func (f *Fluid) sort(id, at int32, binds bool) {
	fl := &f.flows[id]
	to := fl.tight
	if binds {
		fl.tight++
	} else {
		fl.tight--
		to = fl.tight
	}
	fl.hops[at], fl.hops[to] = fl.hops[to], fl.hops[at]
	for _, i := range [2]int32{at, to} {
		h := fl.hops[i]
		f.links[h.link].on[h.at].hop = i
	}
}

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
	l.cap, l.nic, l.binds, l.up, l.sent = cap, true, true, true, 0
	return i
}

// window is what the packet model lets be under way, in packets; trip is the round trip of one packet on the empty path, and
// slowest its slowest link. A flow is held back by its window where delays are small, and acknowledgements not.
func (f *Fluid) window(fl *flow) (packets int64, trip sim.Time, slowest *link) {
	var base sim.Time
	slowest = &f.links[f.topo.Up(int(fl.src))]
	add := func(i fabric.LinkIndex) {
		l := &f.links[i]
		base += 2*l.delay + l.data
		trip += 2*l.delay + l.full + l.ack
		if l.rate < slowest.rate {
			slowest = l
		}
	}
	add(f.topo.Up(int(fl.src)))
	for _, i := range f.topo.Paths(int(fl.src), int(fl.dst))[fl.path] {
		add(i)
	}
	add(f.topo.Down(int(fl.dst)))
	return f.cfg.packets(max(1, share(int64(base), slowest.rate, 8*int64(sim.Second)))), trip, slowest
}

// windowed is the rate of a flow that waits for acknowledgements, more than it could have where it does not.
func (f *Fluid) windowed(fl *flow) int64 {
	n, trip, slowest := f.window(fl)
	if t := sim.Time(n) * slowest.full; t < trip {
		return share(slowest.cap, int64(t), int64(trip))
	}
	return 1<<63 - 1
}

// latency is the time from when the last byte has left at the flow's rate to the last acknowledgement: what the packet
// model needs on the empty path, less what the fluid needs there. Of several paths it is the first one's.
func (f *Fluid) latency(fl *flow) sim.Time {
	n := f.cfg.packets(fl.bytes)
	rest := fl.bytes - (n-1)*f.cfg.Payload + f.cfg.Header // the last packet
	var last, slowest, sum, way sim.Time
	// The last packet leaves a link when it is there, and the one before it has left.
	hop := func(l *link) {
		slowest = max(slowest, l.full)
		sum += l.full
		if n > 1 {
			last = max(last, sum+sim.Time(n-2)*slowest)
		}
		last += f.cfg.onWire(rest, l.rate)
		way += l.delay
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

	in, trip, narrow := f.window(fl)
	rate := narrow.cap
	if pause := trip - sim.Time(in)*narrow.full; pause > 0 { // after each window
		last += sim.Time((n-1)/in) * pause
		rate = f.windowed(fl)
	}
	return max(0, last+way-f.scale.takes(fl.total, rate))
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
