package fabric

import (
	"fmt"
	"testing"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// times are the completion times of transfers that all start at 0, in ns, by their place in the list.
func times(t testing.TB, n *Packets, list []Transfer) []int64 {
	t.Helper()
	done, err := Replay(n, list)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
	out := make([]int64, len(list))
	for _, c := range done {
		out[c.Index] = int64(c.FCT / sim.Nanosecond)
	}
	return out
}

func expect(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("completion times are %v ns, want %v", got, want)
	}
}

// TestOneFlow: N packets over four hops take N x 83 ns, and 8,265 ns for the last one to get there and its ack to come back.
func TestOneFlow(t *testing.T) {
	for _, transport := range []Transport{Window, DCQCN} {
		for _, packets := range []int64{1, 2, 104, 105, 1000, 20_000} {
			got := times(t, reference(t, checked(transport)), []Transfer{{Src: 0, Dst: 8, Port: 10000, Bytes: packets * 1000}})
			expect(t, got, packets*83+8265)
		}
	}
}

// TestTwoHops: under one leaf a packet takes 83 + 1000 ns twice, its ack 4 + 1000 ns twice.
func TestTwoHops(t *testing.T) {
	got := times(t, reference(t, checked(Window)), []Transfer{{Src: 0, Dst: 1, Port: 10000, Bytes: 1_000_000}})
	expect(t, got, 999*83+2*1083+2*1004)
}

// TestSixHops is the same in three tiers.
func TestSixHops(t *testing.T) {
	top, err := NewTopology(FatTree(2, 2, 2, 2, 4, 100e9), 100e9, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewPackets(top, checked(Window))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, times(t, n, []Transfer{{Src: 0, Dst: 7, Port: 10000, Bytes: 1_000_000}}), 999*83+6*1083+6*1004)
}

// TestExactTimes: without a quantum, 1,036 bytes at 100 Gb/s take 82.88 ns, and an ack 3.84.
func TestExactTimes(t *testing.T) {
	cfg := checked(Window)
	cfg.Quantum = 0
	n := reference(t, cfg)
	done, err := Replay(n, []Transfer{{Src: 0, Dst: 8, Port: 10000, Bytes: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	if want := 999*82_880 + 4*(1_000_000+82_880) + 4*(1_000_000+3_840); done[0].FCT != sim.Time(want) {
		t.Errorf("it takes %d ps, want %d", done[0].FCT, want)
	}
}

// TestLastPacket: its size is what is left, and the header.
func TestLastPacket(t *testing.T) {
	// 65 and 36 bytes at 100 Gb/s are 8.08 ns. It waits for the packet before it at each hop.
	got := times(t, reference(t, checked(Window)), []Transfer{{Src: 0, Dst: 8, Port: 10000, Bytes: 10_065}})
	expect(t, got, (10+3)*83+8+4*1000+4*1004)
}

func TestTwoFlowsOfOneHost(t *testing.T) {
	for _, transport := range []Transport{Window, DCQCN} {
		got := times(t, reference(t, checked(transport)), []Transfer{
			{Src: 0, Dst: 8, Port: 10000, Bytes: 20_000_000}, {Src: 0, Dst: 9, Port: 10000, Bytes: 20_000_000},
		})
		expect(t, got, 3_328_182, 3_328_265)
	}
}

// TestEightFlows: four of them on one spine, two on another, one alone on each of the others.
func TestEightFlows(t *testing.T) {
	for _, transport := range []Transport{Window, DCQCN} {
		var list []Transfer
		for i := range 8 {
			list = append(list, Transfer{Src: i, Dst: 8 + i, Port: 10000, Bytes: 20_000_000})
		}
		got := times(t, reference(t, checked(transport)), list)
		expect(t, got, 6_648_016, 1_668_265, 1_668_273, 6_648_099, 3_328_186, 3_328_269, 6_648_182, 6_648_265)
	}
}

// onSpine is the first port from 10000 on that leads over a spine.
func onSpine(t testing.TB, top *Topology, src, dst, spine int, after uint16) uint16 {
	for port := after; port < 60000; port++ {
		if top.PathOf(src, dst, port) == spine {
			return port
		}
	}
	t.Fatalf("no port from host %d leads to host %d over spine %d", src, dst, spine)
	return 0
}

// TestEighteenFlowsOnOneSpine: the last one ends when 72 MB have gone over one link.
func TestEighteenFlowsOnOneSpine(t *testing.T) {
	n := reference(t, checked(Window))
	next := map[int]uint16{}
	var list []Transfer
	for i := range 18 {
		src := i % 8
		port := onSpine(t, n.Topology(), src, 8+src, 2, max(10000, next[src]))
		next[src] = port + 1
		list = append(list, Transfer{Src: src, Dst: 8 + src, Port: port, Bytes: 4_000_000})
	}
	got := times(t, n, list)
	last := int64(0)
	for _, x := range got {
		last = max(last, x)
	}
	if last != 5_984_265 {
		t.Errorf("the last one takes %d ns, want 5,984,265", last)
	}
}

// TestRates: the bottleneck decides, be it slow or fast, and with any payload.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		host, cable int64
		payload     int
		bytes       int64
	}{
		{100e9, 100e9, 4096, 10_000_000}, {400e9, 400e9, 9000, 40_000_000}, {400e9, 100e9, 1000, 10_000_000}, {100e9, 400e9, 1000, 10_000_000}, {50e6, 100e9, 1000, 100_000}, {50e6, 50e6, 1000, 100_000},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			net := LeafSpine(2, 2, 2, c.cable)
			for i := range net.Hosts {
				net.Hosts[i].Capacity = c.host
			}
			cfg := checked(Window)
			cfg.Payload = c.payload
			n := network(t, net, cfg)
			got := times(t, n, []Transfer{{Src: 0, Dst: 2, Port: 10000, Bytes: c.bytes}})[0]
			packets := (c.bytes + int64(c.payload) - 1) / int64(c.payload)
			ideal := float64(c.bytes+packets*HeaderBytes) * 8e9 / float64(min(c.host, c.cable))
			if f := float64(got); f < ideal*0.99 || f > ideal*1.05+60_000+float64(4*8e9*int64(c.payload))/float64(min(c.host, c.cable)) {
				t.Errorf("it takes %d ns, ideally %.0f", got, ideal)
			}
		})
	}
}

func network(t testing.TB, net ecmp.Config, cfg Config) *Packets {
	t.Helper()
	top, err := NewTopology(net, 100e9, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewPackets(top, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBothWays: hosts that send and receive; acks overtake data, so that each direction is as fast as alone, but for the
// acks' own bytes.
func TestBothWays(t *testing.T) {
	for _, with := range []bool{false, true} {
		cfg := checked(Window)
		cfg.AcksWithData = with
		n := reference(t, cfg)
		list := []Transfer{{Src: 0, Dst: 8, Port: 10000, Bytes: 5_000_000}, {Src: 8, Dst: 0, Port: 10000, Bytes: 5_000_000}}
		for _, got := range times(t, n, list) {
			if alone := int64(5000*83 + 8265); got < alone || got > alone+5000*4+10_000 {
				t.Errorf("acks with data %v: it takes %d ns, alone %d", with, got, alone)
			}
		}
	}
}
