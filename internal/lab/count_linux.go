package lab

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Counters reads all cables, both directions, in the order of the plan: first those of the hosts.
func (f *Fabric) Counters() ([]Count, error) { return f.counters(func(*cable) bool { return true }) }

// SwitchCounters reads the cables between switches.
func (f *Fabric) SwitchCounters() ([]Count, error) {
	return f.counters(func(c *cable) bool { return f.plan.nodes[c.a.node].tier != hosts })
}

// counters reads the cables that want picks. All interfaces of a namespace come in one answer, at one moment.
func (f *Fabric) counters(want func(*cable) bool) ([]Count, error) {
	type place struct{ node, index int }
	statistics := map[place]*netlink.LinkStatistics{}
	seen := make([]bool, len(f.plan.nodes))
	var counts []Count
	for i := range f.plan.cables {
		c := &f.plan.cables[i]
		if !want(c) {
			continue
		}
		for _, e := range []*end{&c.a, &c.b} {
			if seen[e.node] {
				continue
			}
			seen[e.node] = true
			links, err := f.at(e.node).nl.LinkList()
			if err != nil {
				return nil, fmt.Errorf("lab: counters of %s: %w", f.at(e.node).name, err)
			}
			for _, l := range links {
				statistics[place{e.node, l.Attrs().Index}] = l.Attrs().Statistics
			}
		}
	}
	for i := range f.plan.cables {
		c := &f.plan.cables[i]
		if !want(c) {
			continue
		}
		for _, e := range [][2]*end{{&c.a, &c.b}, {&c.b, &c.a}} {
			own, other := e[0], e[1]
			n := Count{From: f.plan.nodes[own.node].name, To: f.plan.nodes[other.node].name}
			s := statistics[place{own.node, f.at(own.node).dev[own.dev]}]
			if s == nil {
				return nil, fmt.Errorf("lab: %s has no counters of its interface %s", f.at(own.node).name, own.dev)
			}
			n.Bytes, n.Packets = s.TxBytes, s.TxPackets
			counts = append(counts, n)
		}
	}
	return slices.Clip(counts), nil
}
