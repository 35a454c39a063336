package node

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/peer"
)

// crowd is one node that knows many peers, each with prompts of its own.
func crowd(tb testing.TB, peers int) (*shoalOf, *Node) {
	s := &shoalOf{t: tb, nodes: make(map[peer.ID]*Node)}
	n := s.start("me", 1, peer.Epoch{Start: 1})
	for i := range peers {
		id := peer.ID(fmt.Sprintf("p%04d", i))
		delete(s.nodes, "other")
		o := s.start(id, 1, peer.Epoch{Start: 1})
		s.serve(id, prompt(i%50, 20, 1000+i, 30))
		s.now += 3 * time.Second
		o.Tick(s.now)
		s.round("me", id)
		s.round(id, "me")
		delete(s.nodes, id)
	}
	s.now += time.Second
	return s, n
}

func BenchmarkRoute(b *testing.B) {
	for _, peers := range []int{4, 16, 200} {
		b.Run(fmt.Sprint(peers), func(b *testing.B) {
			s, n := crowd(b, peers)
			r := prompt(1, 20, 9, 40)
			var d Decision
			b.ReportAllocs()
			for b.Loop() {
				n.Route(s.now, r, &d)
			}
		})
	}
}

// BenchmarkFigure_decision_allocs_per_peer is how many allocations a decision makes for each candidate.
func BenchmarkFigure_decision_allocs_per_peer(b *testing.B) {
	const peers = 64
	s, n := crowd(b, peers)
	r := prompt(1, 20, 9, 40)
	var d Decision
	n.Route(s.now, r, &d)
	for b.Loop() {
		n.Route(s.now, r, &d)
	}
	b.ReportMetric(testing.AllocsPerRun(1000, func() { n.Route(s.now, r, &d) })/(peers+1), "allocs")
}
