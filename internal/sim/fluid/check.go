package fluid

import "fmt"

// Check says what is wrong in the accounts, or with the rates as a whole.
func (f *Fluid) Check() error {
	left := f.work
	for id := range f.flows {
		fl := &f.flows[id]
		now := f.leftOf(fl)
		if fl.state != unused && (now < 0 || now > fl.total || fl.state == sent && now != 0) {
			return fmt.Errorf("fluid: flow %d has %d of %d left", id, now, fl.total)
		}
		if fl.state != unused {
			left -= uint64(now)
		}
	}
	var up, down uint64
	for h := range f.topo.Hosts() {
		up += uint64(f.crossed(&f.links[f.topo.Up(h)]))
		down += uint64(f.crossed(&f.links[f.topo.Down(h)]))
	}
	if up != left || down != left {
		return fmt.Errorf("fluid: flows have sent %d, links up have carried %d and links down %d (2^-%d bytes, headers included)", left, up, down, workBits)
	}
	if len(f.fill.seeds) > 0 {
		return nil // rates are due to change
	}
	return f.checkRates()
}

// checkRates looks at rates by their definition, not by how they came about.
func (f *Fluid) checkRates() error {
	full, most := make([]bool, len(f.links)), make([]int64, len(f.links))
	for i := range f.links {
		l := &f.links[i]
		room, weight := l.cap<<weightBits, int64(0)
		for _, o := range l.on {
			fl := &f.flows[o.flow]
			if fl.state != sending || fl.hops[o.hop] != (hop{int32(i), fl.hops[o.hop].at, o.weight}) || l.on[fl.hops[o.hop].at] != o || l.binds != (o.hop < fl.tight) {
				return fmt.Errorf("fluid: %s lists flow %d, which is elsewhere", f.linkName(i), o.flow)
			}
			room -= fl.rate * o.weight
			weight += o.weight
			most[i] = max(most[i], fl.rate)
		}
		if room < 0 || weight != l.load {
			return fmt.Errorf("fluid: %s gives more than its rate, by %d of %d", f.linkName(i), -room>>weightBits, l.cap)
		}
		if full[i] = room < weight; len(l.on) > 0 && !l.up {
			return fmt.Errorf("fluid: %s is down and carries %d flows", f.linkName(i), len(l.on))
		}
	}
	for id := range f.flows {
		fl := &f.flows[id]
		if fl.state != sending {
			continue
		}
		held := false
		for _, h := range fl.hops {
			held = held || full[h.link] && most[h.link] == fl.rate
		}
		if !held {
			return fmt.Errorf("fluid: flow %d sends at %d, and no link holds it back", id, fl.rate)
		}
	}
	return nil
}

func (f *Fluid) linkName(i int) string {
	if i < len(f.topo.Links) {
		return f.topo.Links[i].Name
	}
	return fmt.Sprintf("the window's link %d", i)
}
