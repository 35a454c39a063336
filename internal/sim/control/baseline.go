package control

import (
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
	d := make([]float64, len(ids))
	limited := make([]bool, len(ids)) // by the receiver
	ends := func(i int) (src, dst int) {
		t := &r.res.Transfers[r.legs[ids[i]].job]
		return t.Src, t.Dst
	}
	for changed := true; changed; {
		changed = false
		for h := range r.hosts { // senders
			left, n := float64(net.Links[net.Up(h)].Rate), 0
			for i := range ids {
				if src, _ := ends(i); src == h {
					if limited[i] {
						left -= d[i]
					} else {
						n++
					}
				}
			}
			for i := range ids {
				if src, _ := ends(i); src == h && !limited[i] {
					d[i] = max(0, left) / float64(n)
				}
			}
		}
		for h := range r.hosts { // receivers
			rate := float64(net.Links[net.Down(h)].Rate)
			var mine []int
			sum := 0.0
			for i := range ids {
				if _, dst := ends(i); dst == h {
					mine = append(mine, i)
					sum += d[i]
				}
			}
			if sum <= rate*(1+1e-9) {
				continue
			}
			slices.SortStableFunc(mine, func(a, b int) int {
				switch {
				case d[a] < d[b]:
					return -1
				case d[a] > d[b]:
					return 1
				}
				return 0
			})
			for k, i := range mine { // those below the equal share keep what they have
				share := rate / float64(len(mine)-k)
				if d[i] > share {
					for _, j := range mine[k:] {
						if !limited[j] || d[j] != share {
							limited[j], changed = true, changed || d[j] > share*(1+1e-9)
							d[j] = share
						}
					}
					break
				}
				rate -= d[i]
			}
		}
	}
	return d
}
