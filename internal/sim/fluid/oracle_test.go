package fluid

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// naive is the textbook's filling over the whole network, from nothing but paths: in each round the link that is full first
// stops its flows.
func naive(f *Fluid) map[int32]int64 {
	type pipe struct {
		room int64
		on   map[int32]int64 // weights
	}
	pipes := map[int32]*pipe{}
	lay := func(id, l int32, cap, weight int64) {
		if pipes[l] == nil {
			pipes[l] = &pipe{cap << weightBits, map[int32]int64{}}
		}
		pipes[l].on[id] += weight
	}
	rates, open := map[int32]int64{}, map[int32]bool{}
	for i := range f.flows {
		id, fl := int32(i), &f.flows[i]
		if fl.state != sending && fl.state != stalled {
			continue
		}
		ways, live := f.topo.Paths(int(fl.src), int(fl.dst)), []int{}
		ends := f.links[f.topo.Up(int(fl.src))].up && f.links[f.topo.Down(int(fl.dst))].up
		candidates := []int{int(fl.path)}
		if fl.spread == fabric.Spray {
			candidates = fl.paths
		}
		for _, p := range candidates {
			ok := ends
			for _, l := range ways[p] {
				ok = ok && f.links[l].up
			}
			if ok {
				live = append(live, p)
			}
		}
		if len(live) == 0 {
			rates[id] = 0
			continue
		}
		open[id] = true
		for _, l := range []fabric.LinkIndex{f.topo.Up(int(fl.src)), f.topo.Down(int(fl.dst))} {
			lay(id, int32(l), f.links[l].cap, one)
		}
		count := map[fabric.LinkIndex]int64{}
		for _, p := range live {
			for _, l := range ways[p] {
				count[l]++
			}
		}
		for l, n := range count {
			lay(id, int32(l), f.links[l].cap, int64(math.Round(float64(n)*float64(one)/float64(len(live)))))
		}
		if w := f.windowed(fl); w < min(f.links[f.topo.Up(int(fl.src))].cap, f.links[f.topo.Down(int(fl.dst))].cap) {
			lay(id, fl.private, w, one) // the place of a private link decides ties only
		}
	}
	for len(open) > 0 {
		best, first := int64(math.MaxInt64), int32(0)
		for l, p := range pipes {
			var weight int64
			for id, w := range p.on {
				if open[id] {
					weight += w
				}
			}
			if weight > 0 && (p.room/weight < best || p.room/weight == best && f.links[l].order < f.links[first].order) {
				best, first = p.room/weight, l
			}
		}
		for id := range pipes[first].on {
			if !open[id] {
				continue
			}
			delete(open, id)
			rates[id] = best
			for _, p := range pipes {
				p.room -= best * p.on[id]
			}
		}
	}
	return rates
}

// anyTopology has two or three tiers, and links of several rates.
func anyTopology(t *rapid.T) *fabric.Topology {
	var c ecmp.Config
	rate := func() int64 { return rapid.SampledFrom([]int64{10, 25, 40, 100, 100, 100}).Draw(t, "Gb/s") * gbit }
	if rapid.Bool().Draw(t, "three tiers") {
		c = fabric.FatTree(2, 2, 2, 2, 4, rate())
	} else {
		c = fabric.LeafSpine(rapid.IntRange(2, 3).Draw(t, "leaves"), rapid.IntRange(1, 4).Draw(t, "hosts a leaf"), rapid.IntRange(1, 5).Draw(t, "spines"), rate())
	}
	for i := range c.Hosts {
		if c.Hosts[i].Capacity = rate(); i > 0 && rapid.Bool().Draw(t, "same") {
			c.Hosts[i].Capacity = c.Hosts[0].Capacity
		}
	}
	for i := range c.Links {
		if rapid.IntRange(0, 3).Draw(t, "odd link") == 0 {
			c.Links[i].Capacity = rate()
		}
	}
	topo, err := fabric.NewTopology(c, 100*gbit, rapid.SampledFrom([]sim.Time{0, 50 * sim.Nanosecond, sim.Microsecond}).Draw(t, "delay"))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func anyPair(t *rapid.T, topo *fabric.Topology) (src, dst int) {
	src = rapid.IntRange(0, topo.Hosts()-1).Draw(t, "src")
	dst = rapid.IntRange(0, topo.Hosts()-2).Draw(t, "dst")
	if dst >= src {
		dst++
	}
	return src, dst
}

// Whatever happens, all rates are those of the textbook to the last bit, accounts are right, and flows end when their bytes
// have left.
func TestRatesAreThoseOfTheWholeNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo := anyTopology(t)
		f, err := New(topo, DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		left := map[int32]float64{} // work, by floats
		now := sim.Time(0)
		advance := func(rates map[int32]int64) {
			for id, r := range rates {
				left[id] -= float64(r) * float64(f.Now()-now) / math.Exp2(float64(f.scale.shift))
			}
			now = f.Now()
		}
		var rates map[int32]int64
		pick := func() (fabric.ID, *flow, bool) {
			for range 8 {
				if len(f.flows) == 0 {
					break
				}
				id := rapid.IntRange(0, len(f.flows)-1).Draw(t, "flow")
				if f.flows[id].state != unused {
					return fabric.ID(id), &f.flows[id], true
				}
			}
			return 0, nil, false
		}
		for range rapid.IntRange(5, 40).Draw(t, "changes") {
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0, 1, 2:
				src, dst := anyPair(t, topo)
				n := len(topo.Paths(src, dst))
				s := fabric.Flow{Src: src, Dst: dst, Bytes: rapid.Int64Range(1, 50_000_000).Draw(t, "bytes"), Spread: fabric.Spread(rapid.IntRange(0, 3).Draw(t, "spread"))}
				for range rapid.IntRange(1, n+1).Draw(t, "paths") {
					s.Paths = append(s.Paths, rapid.IntRange(0, n-1).Draw(t, "path"))
				}
				id := f.Start(s)
				left[int32(id)] = float64(f.flows[id].total)
			case 3:
				if id, fl, ok := pick(); ok {
					f.Move(id, rapid.IntRange(0, len(topo.Paths(int(fl.src), int(fl.dst)))-1).Draw(t, "path"), 0)
				}
			case 4:
				f.SetLink(fabric.LinkIndex(rapid.IntRange(0, len(topo.Links)-1).Draw(t, "link")), rapid.IntRange(0, 2).Draw(t, "up") > 0)
			default:
				until := f.Now() + sim.Time(rapid.Int64Range(0, 3_000).Draw(t, "us"))*sim.Microsecond
				for {
					// What changes on the way is noticed by the twin at each event only: so events are taken one by one.
					f.refill()
					rates = naive(f)
					for id, r := range rates {
						if f.flows[id].rate != r {
							t.Fatalf("flow %d sends at %d, and alone in the whole network it were %d", id, f.flows[id].rate, r)
						}
					}
					stop := min(until, min(f.due.next(), until)+1)
					_, ok := f.Step(stop)
					advance(rates)
					f.refill()
					if err := f.Check(); err != nil {
						t.Fatal(err)
					}
					for id := range f.flows {
						if fl := &f.flows[id]; fl.state != unused && math.Abs(float64(f.leftOf(fl))-left[int32(id)]) > 4000+1e-9*float64(fl.total) { // 4,000: some picoseconds
							t.Fatalf("flow %d has %d left, and %g by the twin", id, f.leftOf(fl), left[int32(id)])
						}
					}
					if !ok && stop == until {
						break
					}
				}
			}
		}
	})
}
