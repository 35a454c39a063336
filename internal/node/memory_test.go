package node

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// pitfalls 17, 35: distinct prompts of 10 kB cost little memory each, and no more of it once the tree is full; a burst does
// not grow it, and what a peer held comes back when the peer is forgotten.
func TestMemoryOfDistinctPromptsIsBounded(t *testing.T) {
	s := &shoalOf{t: t, nodes: make(map[peer.ID]*Node)}
	n := s.start("a", 1, peer.Epoch{Start: 1})
	rng := rand.New(rand.NewPCG(1, 1))
	send := func(prompts int) {
		for range prompts {
			r := &Request{Model: model, Chain: make([]prefix.Hash, 40), Bytes: 40 * prefix.BlockBytes, MaxTokens: peer.Unknown}
			for i := range r.Chain {
				r.Chain[i] = prefix.Hash(rng.Uint64())
			}
			sv, d := n.Admit(s.now, r, Expect{})
			if d != nil {
				t.Fatal(d.Reason)
			}
			n.End(s.now, sv, Usage{Prompt: 2560, Cached: 0, Completion: 1}, true)
			s.now += time.Millisecond
		}
		n.Tick(s.now)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	send(10_000)
	first := heap()
	if each := (first - before) / 10_000; each > 4096 {
		t.Errorf("%d bytes for each of the first 10,000 prompts; at most 4,096", each)
	}
	send(10_000)
	if grown := heap() - first; grown > 2<<20 {
		t.Errorf("another 10,000 prompts grew it by %d bytes", grown)
	}
	if got := n.tree.Len(); got > n.cfg.MaxBlocks {
		t.Errorf("%d blocks are remembered; at most %d", got, n.cfg.MaxBlocks)
	}
	n.EngineUp(s.now, engineOf(peer.Epoch{Start: 2})) // the engine has started anew: all of it goes
	for range 2000 {
		s.now += 100 * time.Millisecond
		n.Tick(s.now)
	}
	if left := heap() - before; left > 4<<20 {
		t.Errorf("%d bytes are left of what is forgotten", left)
	}
	runtime.KeepAlive(n)
}
