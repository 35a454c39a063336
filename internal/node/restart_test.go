package node

import (
	"math/rand/v2"
	"testing"
	"time"

	"shoal/internal/peer"
)

func TestADeadPeerIsNotRoutedToAndItsDocumentIsKept(t *testing.T) {
	s := newShoal(t, "a", "b")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	a := s.nodes["a"]
	a.PeerDown(s.now, "b")
	if d := s.route("a", prompt(1, 40, 3, 42)); d.Legs[0].Peer != "a" {
		t.Fatal("routed to a dead peer")
	}
	s.now += 9 * time.Minute
	a.Tick(s.now)
	if a.holders(prompt(1, 40, 3, 42).Chain)["b"] != 40 {
		t.Fatal("the document is gone before its time")
	}
	s.now += 2 * time.Minute
	a.Tick(s.now)
	if a.holders(prompt(1, 40, 3, 42).Chain)["b"] != 0 || a.members["b"] != nil {
		t.Fatal("the document is kept for ever")
	}
}

// pitfalls 16: the agent restarts beside a warm engine.
func TestARestartedAgentTakesItsBlocksOverFromItsPeers(t *testing.T) {
	s := newShoal(t, "a", "b", "c")
	for i := range 30 {
		s.serve("b", prompt(i, 20, 1000+i, 22))
	}
	s.settle()
	before := s.nodes["b"].index.Len(s.nodes["b"].me.slot)
	for _, id := range []peer.ID{"a", "c"} {
		s.nodes[id].PeerDown(s.now, "b")
	}
	b := s.start("b", 2, peer.Epoch{Start: 100})
	s.round("b", "a")
	s.round("b", "c")
	if got := b.tree.Len(); got != before || b.count.Adopted != int64(before) {
		t.Fatalf("%d blocks after two rounds, %d before", got, before)
	}
	s.settle()
	if d := s.route("a", prompt(3, 20, 5000, 22)); d.Legs[0].Peer != "b" || d.MatchBlocks != 20 {
		t.Fatalf("to %s with %d blocks", d.Legs[0].Peer, d.MatchBlocks)
	}
}

// pitfalls 11: with the engine restarted too, nothing stale is kept, by either way.
func TestARestartedEngineLeavesNothingStale(t *testing.T) {
	s := newShoal(t, "a", "b")
	s.serve("b", prompt(1, 20, 2, 22))
	s.settle()
	_, blocks, ok := s.nodes["b"].State()
	if !ok || len(blocks) != 22 {
		t.Fatalf("state: %d blocks", len(blocks))
	}
	b := s.start("b", 2, peer.Epoch{Start: 101}) // agent and engine
	s.settle()
	if b.tree.Len() != 0 || b.count.AdoptRefused != 1 {
		t.Fatalf("%d stale blocks were taken over from the peers", b.tree.Len())
	}
	b = s.start("b", 3, peer.Epoch{Start: 102})
	b.Restore(peer.Epoch{Start: 100}, blocks)
	b.EngineUp(s.now, engineOf(peer.Epoch{Start: 102}))
	if b.tree.Len() != 0 {
		t.Fatalf("%d stale blocks were taken over from the state file", b.tree.Len())
	}
	s.serve("b", prompt(1, 20, 2, 22))
	b.EngineUp(s.now, engineOf(peer.Epoch{Start: 103})) // engine alone
	s.settle()
	if b.tree.Len() != 0 || s.nodes["a"].holders(prompt(1, 20, 2, 22).Chain)["b"] != 0 {
		t.Fatal("blocks of the engine's former life are still believed")
	}
}

func TestARestartedAgentTakesItsBlocksOverFromItsStateFile(t *testing.T) {
	s := newShoal(t, "b")
	s.serve("b", prompt(1, 20, 2, 22))
	e, blocks, _ := s.nodes["b"].State()
	n, err := New(s.now, Defaults(), "b", 2, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	n.Restore(e, blocks)
	n.EngineUp(s.now, engineOf(e))
	if n.tree.Match(prompt(1, 20, 2, 22).Chain) != 22 {
		t.Fatal("not taken over")
	}
}

func TestEnginesThatTellNoEpochAreNotBelievedAfterTheyWereDown(t *testing.T) {
	s := newShoal(t)
	n := s.start("a", 1, peer.Epoch{})
	s.serve("a", prompt(1, 20, 2, 22))
	n.EngineUp(s.now, engineOf(peer.Epoch{}))
	if n.tree.Len() != 22 {
		t.Fatal("forgotten while the engine was up all the time")
	}
	n.EngineDown(s.now)
	n.EngineUp(s.now, engineOf(peer.Epoch{}))
	if n.tree.Len() != 0 {
		t.Fatal("believed although nothing says that it is still the same engine")
	}
}
