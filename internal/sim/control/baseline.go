package control

import (
	"cmp"
	"slices"

	"shoal/internal/sim/fabric"
)

// The hedera baseline: a central scheduler that knows all flows and moves them now and then (Al-Fares et al., "Hedera:
// Dynamic Flow Scheduling for Data Center Networks", NSDI 2010).
//
//	Rules: 1. every flow begins on the path that its hash gives;
//	       2. each Config.Hedera the demand of every flow is what it would get if only the hosts' links were narrow: by
//	          turns the senders share their link equally among their flows, and the receivers cut down what is too much
//	          (the paper's estimator);
//	       3. flows with a demand of at least a tenth of the sender's link are placed in the order in which they began, each
//	          on the first path where all links have room for it beside those placed before (global first fit);
//	       4. one for which there is no room stays where it is.
//
// It is better off than the real one: its knowledge is complete and costs no time.
func (r *run) reassign() {
	var ids []fabric.ID
	for i := range r.legs {
		if l := &r.legs[i]; l.live && l.job >= 0 {
			ids = append(ids, fabric.ID(i))
		}
	}
	slices.SortFunc(ids, func(a, b fabric.ID) int { return r.legs[a].job - r.legs[b].job })
	net := r.net.Topology()
	demand := r.demands(ids)
	room := make([]float64, len(net.Links))
	for i := range net.Links {
		if !r.down[i] {
			room[i] = float64(net.Links[i].Rate)
		}
	}
	for i, id := range ids {
		l := &r.legs[id]
		t := &r.res.Transfers[l.job]
		if demand[i] < float64(net.Links[net.Up(t.Src)].Rate)/10 {
			continue
		}
		for p, links := range net.Paths(t.Src, t.Dst) {
			const slack = 1 + 1e-9 // sums of demands are rounded
			if slices.ContainsFunc(links, func(k fabric.LinkIndex) bool { return demand[i] > room[k]*slack }) {
				continue
			}
			for _, k := range links {
				room[k] -= demand[i]
			}
			if p != l.path {
				l.path = p
				r.net.Move(id, p, r.back(t.Src, t.Dst, l.port))
				t.Moves++
				r.res.Counts.Moves++
			}
			break
		}
	}
}

// demands are the flows' natural rates, in bit/s.
func (r *run) demands(ids []fabric.ID) []float64 {
	net := r.net.Topology()
	e := estimate{rate: make([]float64, len(ids)), limited: make([]bool, len(ids))}
	from, to := make([][]int, len(r.hosts)), make([][]int, len(r.hosts)) // by host: its places in ids
	for i, id := range ids {
		t := &r.res.Transfers[r.legs[id].job]
		from[t.Src], to[t.Dst] = append(from[t.Src], i), append(to[t.Dst], i)
	}
	for changed := true; changed; {
		changed = false
		for h := range r.hosts {
			e.send(from[h], float64(net.Links[net.Up(h)].Rate))
		}
		for h := range r.hosts {
			changed = e.receive(to[h], float64(net.Links[net.Down(h)].Rate)) || changed
		}
	}
	return e.rate
}

// estimate is that of each flow so far, and whether its receiver holds it down.
type estimate struct {
	rate    []float64
	limited []bool
}

// send shares a sender's link among its flows, those aside that get less than their share anyway.
func (e *estimate) send(flows []int, link float64) {
	n := 0
	for _, i := range flows {
		if e.limited[i] {
			link -= e.rate[i]
		} else {
			n++
		}
	}
	for _, i := range flows {
		if !e.limited[i] {
			e.rate[i] = max(0, link) / float64(n)
		}
	}
}

// receive cuts a receiver's flows down to its link; it says whether it cut any.
func (e *estimate) receive(flows []int, link float64) (changed bool) {
	sum := 0.0
	for _, i := range flows {
		sum += e.rate[i]
	}
	if sum <= link*(1+1e-9) {
		return false
	}
	slices.SortStableFunc(flows, func(a, b int) int { return cmp.Compare(e.rate[a], e.rate[b]) })
	for k, i := range flows { // those below the equal share keep what they have
		share := link / float64(len(flows)-k)
		if e.rate[i] <= share {
			link -= e.rate[i]
			continue
		}
		for _, j := range flows[k:] {
			changed = changed || e.rate[j] > share*(1+1e-9)
			e.limited[j], e.rate[j] = true, share
		}
		break
	}
	return changed
}
