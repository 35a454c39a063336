package fabric

import (
	"runtime"
	"testing"
	"unsafe"

	"shoal/internal/sim"
)

// TestBytesOfAPacket: what is said about it. A ring is at most half empty, but for the least size.
func TestBytesOfAPacket(t *testing.T) {
	if p, f := unsafe.Sizeof(packet{}), unsafe.Sizeof(flight{}); p != 16 || f != 32 {
		t.Errorf("a packet has %d bytes, one on a wire %d; want 16 and 32", p, f)
	}
	if l, f := unsafe.Sizeof(link{}), unsafe.Sizeof(flow{}); l%64 != 0 || f%64 != 0 {
		t.Errorf("a link has %d bytes and a flow %d, which are no whole cache lines", l, f)
	}
	if l, f := unsafe.Offsetof(link{}.delay), unsafe.Offsetof(flow{}.bytes); l != 64 || f != 64 {
		t.Errorf("the first line of a link has %d bytes, of a flow %d; want 64", l, f)
	}

	// Many packets that wait, measured: most of the windows of 140 flows are in queues.
	cfg := Defaults()
	cfg.PFC = false
	n := reference(t, cfg)
	before := heap()
	for _, f := range incast(140, 50_000_000) {
		n.Start(Flow{Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Paths: []int{0}})
	}
	n.Step(200 * sim.Microsecond)
	waiting := 0
	for i := range n.links {
		waiting += int(n.links[i].waiting)
	}
	if waiting < 10_000 {
		t.Fatalf("only %d packets wait", waiting)
	}
	each := float64(heap()-before) / float64(waiting)
	t.Logf("%d packets wait, %.1f bytes each, flows and wires included", waiting, each)
	if each > 50 {
		t.Errorf("a waiting packet costs %.1f bytes; want 16 to 32, and some for flows", each)
	}
	runtime.KeepAlive(n)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestNothingIsAllocated for packets, once rings have their size: memory is flat in simulated time.
func TestNothingIsAllocated(t *testing.T) {
	for _, transport := range []Transport{Window, DCQCN} {
		cfg := Defaults()
		cfg.Transport = transport
		n := reference(t, cfg)
		for i := range 40 {
			spread := First
			if transport == Window && i%4 == 0 {
				spread = Spray
			}
			n.Start(Flow{Src: i % 8, Dst: 8 + i%5, Bytes: 1 << 40, Paths: allPaths[i%4:], Spread: spread, Back: i % 4})
		}
		n.Step(sim.Millisecond)
		if got := testing.AllocsPerRun(5, func() { n.Step(n.Now() + 100*sim.Microsecond) }); got != 0 {
			t.Errorf("%d: %v allocations in 0.1 ms", transport, got)
		}
		if err := n.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestCheckSeesWhatIsWrong: each account, off by a little.
func TestCheckSeesWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(n *Packets){
		"a packet in a queue": func(n *Packets) { n.links[n.topology.Down(8)].queue[bulk].head++ },
		"a packet on a wire":  func(n *Packets) { n.links[n.topology.Down(8)].wire.head++ },
		"bytes of a link":     func(n *Packets) { n.links[n.topology.Down(8)].bytes++ },
		"bytes of a switch":   func(n *Packets) { n.buffers[n.links[n.topology.Down(8)].node].used-- },
		"a flow's packets":    func(n *Packets) { n.flows[0].inside++ },
		"an ack too far":      func(n *Packets) { n.flows[0].acked = n.flows[0].expected + 1 },
		"ingress":             func(n *Packets) { n.links[n.topology.Paths(0, 8)[0][1]].ingress.bytes++ },
		"delivered":           func(n *Packets) { n.stats.Delivered++ },
		"overtaking":          func(n *Packets) { n.flows[0].expected-- },
		"twice":               func(n *Packets) { n.flows[0].expected++ },
	} {
		cfg := checked(Window)
		cfg.Buffer = 4 << 20
		n := reference(t, cfg)
		for _, f := range incast(140, 500_000) {
			n.Start(Flow{Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Paths: []int{0}})
		}
		n.Step(300 * sim.Microsecond)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(n)
		if name == "overtaking" || name == "twice" {
			n.Step(n.Now() + 200*sim.Microsecond)
		}
		if n.Check() == nil {
			t.Errorf("%s: Check sees nothing", name)
		}
	}
}
