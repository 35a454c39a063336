package fabric

import (
	"fmt"
	"slices"

	"shoal/internal/sim"
)

// Transfer is a flow of a list that is replayed: its path is what the switches make of its source port.
type Transfer struct {
	Src, Dst int
	Port     uint16 // of the source
	Bytes    int64
	Start    sim.Time
}

// Completion is the end of a transfer: the last acknowledgement has arrived.
type Completion struct {
	Index int // of the list
	Transfer
	FCT sim.Time
}

// Replay starts the transfers at their times, those of one time in the order of the list, and returns their completions
// in the order in which they happen.
func Replay(n Network, list []Transfer) ([]Completion, error) {
	t := n.Topology()
	for i, f := range list {
		if f.Src < 0 || f.Dst < 0 || f.Src >= t.Hosts() || f.Dst >= t.Hosts() || !t.Connected(f.Src, f.Dst) || !t.Connected(f.Dst, f.Src) {
			return nil, fmt.Errorf("fabric: transfer %d goes from host %d to host %d; give two different hosts below %d that are connected", i, f.Src, f.Dst, t.Hosts())
		}
		if f.Bytes <= 0 || f.Bytes > maxFlowBytes || f.Start < n.Now() {
			return nil, fmt.Errorf("fabric: transfer %d has %d bytes and starts at %v; give 1 to %d bytes, and a start from %v on", i, f.Bytes, f.Start, int64(maxFlowBytes), n.Now())
		}
	}
	if p, ok := n.(*Packets); ok {
		for i, f := range list {
			if err := p.fits(f.Bytes); err != nil {
				return nil, fmt.Errorf("fabric: transfer %d: %w", i, err)
			}
		}
	}
	for i, f := range list {
		if t.PathOf(f.Src, f.Dst, f.Port) < 0 || t.BackOf(f.Src, f.Dst, f.Port) < 0 {
			return nil, fmt.Errorf("fabric: transfer %d goes from host %d to host %d over a switch whose hash is not known; describe it", i, f.Src, f.Dst)
		}
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(list[a].Start-list[b].Start, -1), 1)) })
	done := make([]Completion, 0, len(list))
	running := map[ID]int{}
	for len(order) > 0 || len(running) > 0 {
		until := sim.Never
		if len(order) > 0 {
			until = list[order[0]].Start
		}
		if e, ok := n.Step(until); ok {
			if i, ours := running[e.ID]; e.Kind == Done && ours {
				delete(running, e.ID)
				done = append(done, Completion{Index: i, Transfer: list[i], FCT: e.At - list[i].Start})
			}
			continue
		}
		if len(order) == 0 {
			return done, fmt.Errorf("fabric: %d transfers never end: nothing moves any more at %v", len(running), n.Now())
		}
		f := list[order[0]]
		id := n.Start(Flow{Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Paths: []int{t.PathOf(f.Src, f.Dst, f.Port)}, Back: t.BackOf(f.Src, f.Dst, f.Port)})
		running[id] = order[0]
		order = order[1:]
	}
	return done, n.Check()
}
