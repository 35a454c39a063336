package fluid

import (
	"fmt"
	"testing"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

const gbit = int64(1_000_000_000)

// paper is the paper's network: 16 hosts, two leaves, four spines, 100 Gb/s, 1 us.
func paper(t testing.TB) *fabric.Topology {
	return leafSpine(t, 2, 8, 4, 100*gbit, sim.Microsecond)
}

func leafSpine(t testing.TB, leaves, perLeaf, spines int, rate int64, delay sim.Time) *fabric.Topology {
	t.Helper()
	topo, err := fabric.NewTopology(fabric.LeafSpine(leaves, perLeaf, spines, rate), rate, delay)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func newFluid(t testing.TB, topo *fabric.Topology) *Fluid {
	t.Helper()
	f, err := New(topo, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// hashed is a flow whose source port decides its ways.
func hashed(t *fabric.Topology, src, dst int, port uint16, bytes int64) fabric.Flow {
	return fabric.Flow{Src: src, Dst: dst, Bytes: bytes, Paths: []int{t.PathOf(src, dst, port)}, Back: t.BackOf(src, dst, port)}
}

// play runs a workload whose flows have ports, and returns their completion times in nanoseconds.
func play(t testing.TB, f *Fluid, flows []sim.Flow) []int64 {
	t.Helper()
	fct := make([]int64, len(flows))
	of := map[fabric.ID]int{}
	for next, done := 0, 0; done < len(flows); {
		until := sim.Never
		if next < len(flows) {
			until = sim.Of(flows[next].At)
		}
		e, ok := f.Step(until)
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if !ok {
			if next == len(flows) {
				t.Fatal("flows that never end")
			}
			w := flows[next]
			of[f.Start(hashed(f.Topology(), w.Src, w.Dst, w.Port, w.Bytes))] = next
			next++
			continue
		}
		i := of[e.ID]
		fct[i] = int64((e.At - sim.Of(flows[i].At)) / sim.Nanosecond)
		done++
	}
	return fct
}

func TestFlowsTakeWhatTheyTakeInPackets(t *testing.T) {
	var eight []sim.Flow
	for i := range 8 {
		eight = append(eight, sim.Flow{ID: i, Src: i, Dst: 8 + i, Port: 10000, Bytes: 20_000_000})
	}
	for _, c := range []struct {
		name  string
		flows []sim.Flow
		want  []int64
	}{
		{"20 MB alone", []sim.Flow{{Src: 0, Dst: 8, Port: 10000, Bytes: 20_000_000}}, []int64{1_668_265}},
		{"100 MB alone", []sim.Flow{{Src: 0, Dst: 8, Port: 10000, Bytes: 100_000_000}}, []int64{8_308_265}},
		{"two of one host", []sim.Flow{{Src: 0, Dst: 8, Port: 10000, Bytes: 20_000_000}, {ID: 1, Src: 0, Dst: 9, Port: 10000, Bytes: 20_000_000}},
			[]int64{3_328_265, 3_328_265}},
		// Four on spine 0, two on spine 3.
		{"eight", eight, []int64{6_648_265, 1_668_265, 1_668_265, 6_648_265, 3_328_265, 3_328_265, 6_648_265, 6_648_265}},
	} {
		got := play(t, newFluid(t, paper(t)), c.flows)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
