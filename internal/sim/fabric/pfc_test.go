package fabric

import (
	"testing"

	"shoal/internal/sim"
)

// incast has many flows of each of seven hosts into one: far more than a port may hold. Two are on the receiver's leaf.
func incast(flows int, bytes int64) (list []Transfer) {
	for i := range flows {
		list = append(list, Transfer{Src: []int{0, 1, 2, 3, 4, 9, 10}[i%7], Dst: 8, Port: uint16(10000 + i), Bytes: bytes})
	}
	return list
}

// TestIncastPauses: ports that fill up are paused and go on, and nothing is lost.
func TestIncastPauses(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload int
		acks    bool
	}{{"1000 bytes", 1000, false}, {"4096 bytes", 4096, false}, {"acks with data", 1000, true}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := checked(Window)
			cfg.Buffer, cfg.Payload, cfg.AcksWithData = 4<<20, c.payload, c.acks
			n := reference(t, cfg)
			list := incast(140, 300_000)
			done, err := Replay(n, list)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Check(); err != nil {
				t.Fatal(err)
			}
			s := n.Stats()
			if s.Pauses == 0 || s.Resumes != s.Pauses {
				t.Errorf("%d pauses and %d resumes", s.Pauses, s.Resumes)
			}
			if s.Dropped != 0 || s.Lost != 0 || s.Again != 0 {
				t.Errorf("%d dropped, %d lost, %d again", s.Dropped, s.Lost, s.Again)
			}
			if len(done) != len(list) || s.FlowBytes != 140*300_000 {
				t.Errorf("%d of %d flows are done, with %d bytes", len(done), len(list), s.FlowBytes)
			}
			// The link to the receiver is never idle: it is as if nobody had been paused.
			packets := (int64(300_000) + int64(c.payload) - 1) / int64(c.payload) * 140
			ideal := (42_000_000 + float64(packets)*HeaderBytes) * 8 / 100
			if end := float64(n.Now()) / 1000; end > ideal*1.01+20_000 {
				t.Errorf("it takes %.0f ns, ideally %.0f", end, ideal)
			}
			for i := range n.buffers {
				if b := &n.buffers[i]; b.used != 0 || b.exact && (b.shared != 0 || b.headroom != 0 || b.pausing != 0) {
					t.Errorf("node %d is left with %+v", i, b)
				}
			}
			t.Logf("%d pauses, %d data packets, the last ends at %v", s.Pauses, s.Data, n.Now())
		})
	}
}

// TestPauseHoldsTheSender follows one pause: a switch with little memory pauses a host, whose queue pairs then stand still
// while its acks go on.
func TestPauseHoldsTheSender(t *testing.T) {
	cfg := checked(Window)
	cfg.Buffer = 4 << 20
	n := reference(t, cfg)
	for _, f := range incast(140, 300_000) {
		n.Start(Flow{Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Paths: []int{0}})
	}
	back := n.Start(Flow{Src: 8, Dst: 0, Bytes: 3_000_000, Paths: []int{0}})
	paused := -1
	for paused < 0 {
		if n.Step(n.Now() + sim.Microsecond); n.Now() > sim.Millisecond {
			t.Fatal("nobody is paused within a millisecond")
		}
		for h := range 5 {
			if n.links[n.topology.Up(h)].paused {
				paused = h
			}
		}
	}
	// What has begun may end; after that nothing but acks goes out.
	n.Step(n.Now() + 200*sim.Nanosecond)
	for range 20 {
		before, _ := n.Load(n.topology.Up(paused))
		sent := n.stats.Data
		n.Step(n.Now() + 100*sim.Nanosecond)
		if !n.links[n.topology.Up(paused)].paused {
			break
		}
		if after, _ := n.Load(n.topology.Up(paused)); after-before > 100*12/8+AckBytes {
			t.Fatalf("host %d sends %d bytes while it is paused (%d packets in all)", paused, after-before, n.stats.Data-sent)
		}
	}
	left := n.Left(back)
	n.Step(n.Now() + 20*sim.Microsecond)
	if n.Left(back) == left {
		t.Error("the flow the other way stands still, though acks are not paused")
	}
	for {
		if _, ok := n.Step(sim.Never); !ok {
			break
		}
	}
	if err := n.Check(); err != nil || n.active != 0 {
		t.Fatalf("%d flows are left: %v", n.active, err)
	}
}

// TestWithoutPFCPacketsAreLost, and sent again: the same incast.
func TestWithoutPFCPacketsAreLost(t *testing.T) {
	cfg := checked(Window)
	cfg.Buffer, cfg.PFC = 4<<20, false
	n := reference(t, cfg)
	done, err := Replay(n, incast(140, 300_000))
	if err != nil {
		t.Fatal(err)
	}
	s := n.Stats()
	if len(done) != 140 || s.Pauses != 0 || s.Dropped == 0 || s.Again == 0 || s.FlowBytes != 140*300_000 {
		t.Errorf("%d flows done; %+v", len(done), s)
	}
}

// TestLittleMemoryIsRefused: headrooms alone would fill it.
func TestLittleMemoryIsRefused(t *testing.T) {
	top, err := NewTopology(LeafSpine(2, 8, 4, 100e9), 100e9, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Defaults()
	cfg.Buffer = 400_000
	if _, err := NewPackets(top, cfg); err == nil {
		t.Error("a buffer below the headrooms is taken")
	}
}

// TestMarksBetweenThresholds: none below the lower, all above the upper, and in between as often as the line says.
func TestMarksBetweenThresholds(t *testing.T) {
	n := reference(t, checked(DCQCN))
	l := &n.links[0]
	for _, c := range []struct {
		bytes int64
		share float64
	}{{0, 0}, {400_000, 0}, {400_001, 0}, {1_000_000, 0.1}, {1_600_000, 0.2}, {1_600_001, 1}} {
		l.bytes = c.bytes
		marked := 0
		for range 100_000 {
			if n.congested(l, 0) {
				marked++
			}
		}
		if got := float64(marked) / 100_000; got < c.share-0.005 || got > c.share+0.005 {
			t.Errorf("with %d bytes %.3f are marked, want %.3f", c.bytes, got, c.share)
		}
	}
}

func TestECNThresholds(t *testing.T) {
	cfg := Defaults()
	for _, c := range []struct{ rate, from, all int64 }{
		{25e9, 100_000, 400_000}, {40e9, 200_000, 800_000}, {100e9, 400_000, 1_600_000}, {200e9, 600_000, 2_400_000}, {400e9, 800_000, 3_200_000},
		{800e9, 800_000, 3_200_000}, {10e9, 40_000, 160_000}, {50e6, 4144, 4144 + 3*4144},
	} {
		if from, all := cfg.ecnThresholds(c.rate); from != c.from || all != c.all {
			t.Errorf("at %d bit/s %d and %d, want %d and %d", c.rate, from, all, c.from, c.all)
		}
	}
}
