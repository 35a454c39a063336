package control

import (
	"fmt"
	"slices"

	"shoal/internal/ecmp"
	"shoal/internal/sim/fabric"
	"shoal/internal/sim/fluid"
)

// without is the network that is left when the switch has gone.
func (r *run) without(name string) ecmp.Config {
	var c ecmp.Config
	net := r.net.Topology()
	for i := range net.Hosts() {
		c.Hosts = append(c.Hosts, net.Host(i))
	}
	whole := net.Config()
	for _, s := range whole.Switches {
		if s.Name != name {
			c.Switches = append(c.Switches, s)
		}
	}
	for _, l := range whole.Links {
		if l.From != name && l.To != name {
			c.Links = append(c.Links, l)
		}
	}
	return c
}

func (r *run) checkFailure() error {
	name := r.cfg.Failure.Switch
	net := r.net.Topology()
	if !slices.ContainsFunc(net.Config().Switches, func(s ecmp.Switch) bool { return s.Name == name }) {
		return fmt.Errorf("control: failure.switch: there is no switch %.40q; use one of the network's, like spine0", name)
	}
	left, err := fabric.NewTopology(r.without(name), net.Links[0].Rate, net.Links[0].Delay)
	if err != nil {
		return fmt.Errorf("control: failure.switch %s: %w", name, err)
	}
	for i := range r.w.Flows {
		if f := &r.w.Flows[i]; !left.Connected(f.Src, f.Dst) {
			return fmt.Errorf("control: failure.switch: without %s there is no way from host %d to host %d", name, f.Src, f.Dst)
		}
	}
	return nil
}

// takeDown cuts every link of the switch.
func (r *run) takeDown() {
	net := r.net.Topology()
	at := slices.IndexFunc(net.Config().Switches, func(s ecmp.Switch) bool { return s.Name == r.cfg.Failure.Switch })
	node := int32(net.Hosts() + at)
	for i, l := range net.Links {
		if l.From == node || l.To == node {
			r.down[i] = true
			r.net.SetLink(fabric.LinkIndex(i), false)
		}
	}
}

// converge has the switches hash over the paths that are left. The hash of a flow is what it was; the number that it is
// taken modulo is another, so that most flows move.
func (r *run) converge() {
	net := r.net.Topology()
	left, err := fabric.NewTopology(r.without(r.cfg.Failure.Switch), net.Links[0].Rate, net.Links[0].Delay)
	if err != nil {
		panic(err) // checkFailure has tried
	}
	r.truth = left
	type pair struct{ src, dst int }
	known := map[pair][]int{}
	r.pathOf = func(src, dst, path int) int {
		key := pair{int(left.Links[left.Up(src)].To), int(left.Links[left.Up(dst)].To)}
		if known[key] == nil {
			for _, p := range left.Route(src, dst).Paths() {
				known[key] = append(known[key], slices.IndexFunc(net.Route(src, dst).Paths(), func(q ecmp.Path) bool { return slices.Equal(p.Links, q.Links) }))
			}
		}
		return known[key][path]
	}
	// A fluid lays a sprayed flow over the paths that are up. Packets of a flow that is spread go on to dead paths: from now on
	// it has one, by its hash.
	_, skips := r.net.(*fluid.Fluid)
	for i := range r.legs {
		if l := &r.legs[i]; l.live && !(skips && l.spread == fabric.Spray) {
			r.move(fabric.ID(i), l.src, l.dst, l.port)
		}
	}
}

// learn tells the hosts what the network is like now.
func (r *run) learn() {
	for i := range r.hosts {
		if h := &r.hosts[i]; h.table != nil {
			h.believe(r.truth)
		}
	}
}
