package fluid

import (
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// Protective Load Balancing (Qureshi et al., SIGCOMM 2022), as a rule for fluids. There a sender counts rounds, each a
// round-trip time, in which half or more of its packets came back with ECN marks. After some such rounds in a row it draws
// another flow label, and with it a random path: after a few when it is idle, after PLBRounds in any case. A transfer of a
// KV cache is never idle.
//
// Here a round is congested when what holds the flow back is a switch's link, to a spine or down to a host: there a queue
// grows and marks are given, whatever other path would do. A flow that its sender's own link holds back sees none. When all
// rounds of PLBRounds*PLBRound were congested, the flow moves to a random one of its other paths, at once.
//
// Left out: congestion in bursts that the mean rate does not show, the marks at a link that is nearly full, rounds that get
// longer with queues, and the pause in which PLB leaves paths alone after a timeout.

// watch begins or ends the count of congested rounds.
func (f *Fluid) watch(fl *flow) {
	if fl.spread != fabric.PLB {
		return
	}
	if fl.bottle == int32(f.topo.Up(int(fl.src))) || fl.bottle == fl.private {
		fl.look = sim.Never
	} else if fl.look == sim.Never {
		fl.look = f.now + f.cfg.PLBRound*sim.Time(f.cfg.PLBRounds)
	}
}

// rehash moves a flow to another of its paths.
func (f *Fluid) rehash(id int32) {
	fl := &f.flows[id]
	others := len(fl.paths)
	for _, p := range fl.paths {
		if int32(p) == fl.path {
			others--
		}
	}
	fl.look = sim.Never
	if others == 0 {
		f.due.fix(f.flows, id)
		return
	}
	n := f.plb.IntN(others)
	for _, p := range fl.paths {
		if int32(p) == fl.path {
			continue
		}
		if n == 0 {
			f.detach(id)
			fl.path = int32(p)
			f.attach(id)
			return
		}
		n--
	}
}
