package fluid

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// endOf is when a flow that is alone ends.
func endOf(t *rapid.T, n fabric.Network, s fabric.Flow) sim.Time {
	n.Start(s)
	e, ok := n.Step(sim.Never)
	if !ok || e.Kind != fabric.Done {
		t.Fatalf("it never ends: %+v", e)
	}
	return e.At
}

// Alone, a flow ends when it does in the packet model, to within the time of a packet, for any payload, rates and number of
// hops.
func TestAFlowAloneIsAsInPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo := anyTopology(t)
		c := fabric.Defaults()
		c.Payload = rapid.SampledFrom([]int{256, 1000, 1024, 4096, 9000}).Draw(t, "payload")
		c.Quantum = rapid.SampledFrom([]sim.Time{0, sim.Nanosecond}).Draw(t, "quantum")
		src, dst := anyPair(t, topo)
		path := rapid.IntRange(0, len(topo.Paths(src, dst))-1).Draw(t, "path")
		s := fabric.Flow{Src: src, Dst: dst, Bytes: rapid.Int64Range(1, 500_000).Draw(t, "bytes"), Paths: []int{path}, Back: path}
		packets, err := fabric.NewPackets(topo, c)
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(topo, For(c))
		if err != nil {
			t.Fatal(err)
		}
		var packet sim.Time
		for _, h := range f.hopsOf(src, dst, path) {
			packet = max(packet, f.links[h].full)
		}
		want, got := endOf(t, packets, s), endOf(t, f, s)
		if d := got - want; d > packet+2*sim.Nanosecond || -d > packet+2*sim.Nanosecond {
			t.Fatalf("%d bytes over path %d: %d ps, and %d packet by packet; a packet takes %d", s.Bytes, path, got, want, packet)
		}
	})
}

func (f *Fluid) hopsOf(src, dst, path int) []fabric.LinkIndex {
	return append([]fabric.LinkIndex{f.topo.Up(src), f.topo.Down(dst)}, f.topo.Paths(src, dst)[path]...)
}

// comparison is how far completion times are from others.
type comparison struct {
	mean    float64 // of one mean by the other, less 1
	average float64 // of flows' errors without their signs
	largest float64
}

func compare(got, want []float64) (c comparison) {
	var g, w float64
	for i := range want {
		g, w = g+got[i], w+want[i]
		e := math.Abs(got[i]/want[i] - 1)
		c.average += e / float64(len(want))
		c.largest = max(c.largest, e)
	}
	c.mean = g/w - 1
	return c
}

func (c comparison) String() string {
	return fmt.Sprintf("mean FCT %+.2f %%, errors of flows %.2f %% in the mean, %.2f %% at most", 100*c.mean, 100*c.average, 100*c.largest)
}

func replay(t testing.TB, n fabric.Network, list []fabric.Transfer) []float64 {
	t.Helper()
	done, err := fabric.Replay(n, list)
	if err != nil {
		t.Fatal(err)
	}
	fct := make([]float64, len(list))
	for _, d := range done {
		fct[d.Index] = d.FCT.Seconds()
	}
	return fct
}

// The paper's workload, sizes and gaps by 400: packet by packet, and as a fluid.
func TestAWorkloadIsNearToPackets(t *testing.T) {
	cfg := sim.DefaultWorkload().On(8, 8, 100*gbit)
	cfg.Requests, cfg.Scale, cfg.QPS = 40, 400, 10_000
	w, err := sim.Generate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ports := sim.Stream(1, "ports")
	var list []fabric.Transfer
	for _, f := range w.Flows {
		list = append(list, fabric.Transfer{Src: f.Src, Dst: f.Dst, Port: uint16(10_000 + ports.IntN(50_000)), Bytes: f.Bytes, Start: sim.Of(f.At)})
	}
	topo := paper(t)
	packets, err := fabric.NewPackets(topo, fabric.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	c := compare(replay(t, newFluid(t, topo), list), replay(t, packets, list))
	t.Log(c)
	if math.Abs(c.mean) > 0.025 || c.average > 0.07 {
		t.Errorf("the fluid is too far from the packets: %v", c)
	}
}

// Reference completion times of the ns-3 family, where the files are at hand.
func TestReferenceFiles(t *testing.T) {
	dir := os.Getenv("SHOAL_FABRIC_DATA")
	if dir == "" {
		t.Skip("SHOAL_FABRIC_DATA is not set: the fluid is not compared with reference completion times")
	}
	for _, c := range []struct {
		name          string
		mean, average float64 // limits
	}{
		{"8x20MB", 0.001, 0.001}, {"2x20MB_samehost", 0.001, 0.001}, {"mix12", 0.003, 0.015},
		{"18on1", 0.01, 0.01}, {"incast8", 0.01, 0.01}, {"poisson100_s1", 0.01, 0.03},
	} {
		var list []fabric.Transfer
		for _, v := range numbers(t, filepath.Join(dir, c.name+".flows")) {
			list = append(list, fabric.Transfer{Src: int(v[0]), Dst: int(v[1]), Port: uint16(v[2]), Bytes: v[3], Start: sim.Time(v[4]) * sim.Nanosecond})
		}
		done := map[fabric.Transfer]float64{}
		for _, v := range numbers(t, filepath.Join(dir, "cc12."+c.name+".out")) {
			done[fabric.Transfer{Src: int(v[0]), Dst: int(v[1]), Port: uint16(v[2]), Bytes: v[4], Start: sim.Time(v[5]) * sim.Nanosecond}] = float64(v[6]) / 1e9
		}
		var want []float64
		for _, f := range list {
			want = append(want, done[f])
		}
		got := compare(replay(t, newFluid(t, paper(t)), list), want)
		t.Logf("%-16s %v", c.name, got)
		if math.Abs(got.mean) > c.mean || got.average > c.average {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// numbers reads whole numbers, line by line.
func numbers(t *testing.T, path string) (lines [][]int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var v []int64
		for _, word := range strings.Fields(strings.TrimPrefix(s.Text(), "FCT ")) {
			var n int64
			if _, err := fmt.Sscan(word, &n); err != nil {
				t.Fatalf("%s: %q: %v", path, s.Text(), err)
			}
			v = append(v, n)
		}
		lines = append(lines, v)
	}
	return lines
}
