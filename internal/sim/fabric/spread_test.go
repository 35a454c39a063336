package fabric

import (
	"testing"

	"shoal/internal/sim"
)

// run goes on to the end, and returns all events.
func run(t testing.TB, n *Packets) (all []Event) {
	t.Helper()
	for {
		e, ok := n.Step(sim.Never)
		if !ok {
			break
		}
		all = append(all, e)
	}
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
	if n.active != 0 {
		t.Fatalf("%d flows never end; %v, %+v", n.active, n.Now(), n.Stats())
	}
	return all
}

var allPaths = []int{0, 1, 2, 3}

// uplinks are the bytes that each spine got from leaf 0.
func uplinks(n *Packets) (bytes [4]int64) {
	for s, p := range n.Topology().Paths(0, 8) {
		bytes[s], _ = n.Load(p[0])
	}
	return bytes
}

// TestSprayUsesAllPaths: four hosts at full rate need all four spines; packets arrive in any order and nothing goes twice.
func TestSprayUsesAllPaths(t *testing.T) {
	n := reference(t, checked(Window))
	for h := range 4 {
		n.Start(Flow{Src: h, Dst: 8 + h, Bytes: 10_000_000, Paths: allPaths, Spread: Spray, Back: h})
	}
	run(t, n)
	s := n.Stats()
	if s.OutOfOrder == 0 || s.Again != 0 || s.Duplicates != 0 || s.Data != 40_000 {
		t.Errorf("%+v", s)
	}
	for spine, b := range uplinks(n) {
		if b < 9_900_000 || b > 10_900_000 {
			t.Errorf("spine %d gets %d of 41.4 MB", spine, b)
		}
	}
	// A path per packet at random is no perfect balance: queues come and go, within a tenth of the time.
	if alone := 10_000*83 + 8265; n.Now() < sim.Time(alone)*sim.Nanosecond || n.Now() > sim.Time(alone)*1100 {
		t.Errorf("it takes %v, a flow alone %d ns", n.Now(), alone)
	}
}

// TestSprayRecoversFromLoss, of data and of acks.
func TestSprayRecoversFromLoss(t *testing.T) {
	for _, direction := range []string{"data", "acks"} {
		n := reference(t, checked(Window))
		id := n.Start(Flow{Src: 0, Dst: 8, Bytes: 10_000_000, Paths: allPaths, Spread: Spray, Back: 1})
		l := n.Topology().Paths(0, 8)[2][0]
		if direction == "acks" {
			l = n.Topology().Paths(8, 0)[1][1]
		}
		n.Step(100 * sim.Microsecond)
		n.SetLink(l, false)
		n.Step(120 * sim.Microsecond)
		n.SetLink(l, true)
		run(t, n)
		if s := n.Stats(); s.Lost == 0 || s.Timeouts == 0 || n.Left(id) != 0 || s.FlowBytes != 10_000_000 {
			t.Errorf("%s: %+v", direction, s)
		}
	}
}

// TestFlowletMovesAfterGaps: two flows that share a host's card have gaps only when the window closes. With a gap of one
// packet each packet is a flowlet, with a long one none is.
func TestFlowletMovesAfterGaps(t *testing.T) {
	for _, c := range []struct {
		gap   sim.Time
		moves bool
	}{{100 * sim.Nanosecond, true}, {sim.Millisecond, false}} {
		cfg := checked(Window)
		cfg.FlowletGap = c.gap
		n := reference(t, cfg)
		for i := range 2 {
			n.Start(Flow{Src: 0, Dst: 8 + i, Bytes: 2_000_000, Paths: allPaths, Spread: Flowlet})
		}
		run(t, n)
		if s := n.Stats(); s.Moves > 0 != c.moves || s.FlowBytes != 4_000_000 || !c.moves && s.OutOfOrder > 0 {
			t.Errorf("gap %v: %+v", c.gap, s)
		}
	}
}

// TestPLBLeavesACongestedPath: eight flows begin on random spines; those that are marked move, and none is reordered.
func TestPLBLeavesACongestedPath(t *testing.T) {
	took := map[Spread]sim.Time{}
	for _, spread := range []Spread{First, PLB} {
		cfg := checked(Window)
		cfg.ECNMin, cfg.ECNMax = 50_000, 100_000
		n := reference(t, cfg)
		for h := range 8 {
			paths := []int{0}
			if spread == PLB {
				paths = allPaths
			}
			n.Start(Flow{Src: h, Dst: 8 + h, Bytes: 8_000_000, Paths: paths, Spread: spread})
		}
		run(t, n)
		s := n.Stats()
		if s.OutOfOrder > 0 || s.Again > 0 || (s.Moves > 0) != (spread == PLB) {
			t.Errorf("%d: %+v", spread, s)
		}
		took[spread] = n.Now()
	}
	if took[PLB] > took[First]/2 {
		t.Errorf("with PLB it takes %v, with all flows on one spine %v", took[PLB], took[First])
	}
}

// TestMoveEndsSpreading: from then on all packets take one path.
func TestMoveEndsSpreading(t *testing.T) {
	n := reference(t, checked(Window))
	id := n.Start(Flow{Src: 0, Dst: 8, Bytes: 10_000_000, Paths: allPaths, Spread: Spray})
	n.Step(100 * sim.Microsecond)
	n.Move(id, 3, 0)
	n.Step(120 * sim.Microsecond)
	before := uplinks(n)
	run(t, n)
	after := uplinks(n)
	for spine := range 3 {
		if after[spine] != before[spine] {
			t.Errorf("spine %d still gets packets", spine)
		}
	}
	if s := n.Stats(); s.FlowBytes != 10_000_000 || s.Again != 0 {
		t.Errorf("%+v", s)
	}
}
