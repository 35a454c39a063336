package lab

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// ways tells which spine a path takes, and which links lead up to which spine.
type ways struct {
	digest  string   // of all that the description says, rates and seeds too
	spines  []string // those that these leaves have links to, in the order of the description
	uplinks []string // names of links from leaves with sources to spines
	spine   []int    // by uplink: the index of its spine
	routes  map[[2]int][]int
}

// newWays looks at the uplinks that carry what these workloads send, not at those for its acknowledgements.
func newWays(c ecmp.Config, workloads []*sim.Workload) (*ways, error) {
	f, err := ecmp.New(c)
	if err != nil {
		return nil, fmt.Errorf("lab: the fabric's description: %w", err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("lab: the fabric's description: %w", err)
	}
	w := &ways{digest: fmt.Sprintf("%016x", xxh3.Hash(text)), routes: map[[2]int][]int{}}
	leaf, sends := map[string]bool{}, map[string]bool{}
	for _, h := range c.Hosts {
		leaf[h.Leaf] = true
	}
	for _, l := range workloads {
		for _, f := range l.Flows {
			sends[c.Hosts[f.Src].Leaf] = true
		}
	}
	for _, l := range c.Links {
		if sends[l.From] && !leaf[l.To] {
			k := slices.Index(w.spines, l.To)
			if k < 0 {
				k = len(w.spines)
				w.spines = append(w.spines, l.To)
			}
			w.uplinks = append(w.uplinks, linkName(l.From, l.To))
			w.spine = append(w.spine, k)
		}
	}
	for s := range c.Hosts { // all at once: later there are flows to look after
		for d := range c.Hosts {
			if s == d {
				continue
			}
			route, err := f.Route(c.Hosts[s].Name, c.Hosts[d].Name)
			if err != nil {
				return nil, fmt.Errorf("lab: the fabric's description: %w", err)
			}
			for _, p := range route.Paths() {
				k := -1
				if len(p.Via) > 1 {
					k = slices.Index(w.spines, p.Via[1])
				}
				w.routes[[2]int{s, d}] = append(w.routes[[2]int{s, d}], k)
			}
		}
	}
	return w, nil
}

// spinesOf are the spines that these paths of a pair of hosts take first.
func (w *ways) spinesOf(src, dst int, paths []int) []int {
	var out []int
	of := w.routes[[2]int{src, dst}]
	for _, p := range paths {
		if p >= 0 && p < len(of) && of[p] >= 0 && !slices.Contains(out, of[p]) {
			out = append(out, of[p])
		}
	}
	return out
}

// uplinkBytes is what every uplink has carried between two looks.
func (w *ways) uplinkBytes(before, after []Count) []int64 {
	out := make([]int64, len(w.uplinks))
	for _, c := range difference(before, after) {
		if k := slices.Index(w.uplinks, linkName(c.From, c.To)); k >= 0 {
			out[k] += int64(c.Bytes)
		}
	}
	return out
}

// difference is what was counted between two looks, which have the same links in the same order.
func difference(before, after []Count) []Count {
	out := slices.Clone(after)
	for i := range out {
		out[i].Bytes -= before[i].Bytes
		out[i].Packets -= before[i].Packets
	}
	return out
}
