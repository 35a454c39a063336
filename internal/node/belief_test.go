package node

import (
	"testing"
	"time"

	"shoal/internal/peer"
)

// serveAs lets a's engine serve a prompt and report so many cached tokens.
func (s *shoalOf) serveAs(r *Request, prompt, cached int) {
	n := s.nodes["a"]
	sv, _ := n.Admit(s.now, r, Expect{})
	n.Started(s.now, sv)
	s.now += 100 * time.Millisecond
	n.FirstToken(s.now, sv)
	n.End(s.now, sv, Usage{Prompt: prompt, Cached: cached, Completion: 2}, true)
}

// The engine's own count corrects what is believed of its cache: with a prompt that has gone, those used before it are gone
// too, and those used after it are still there.
func TestTheEnginesCountCorrectsTheTree(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	for i := range 3 {
		s.serve("a", prompt(i, 30, 100+i, 32))
	}
	s.serveAs(prompt(1, 30, 9, 32), 32*64, 0) // predicted 30 blocks: the engine had none
	if n.count.Mispredicted != 1 {
		t.Fatalf("%d mispredictions were counted", n.count.Mispredicted)
	}
	for i, want := range []int{0, 32, 32} {
		r := prompt(i, 30, 100+i, 32)
		if i == 1 {
			r = prompt(1, 30, 9, 32) // computed just now
		}
		if got := n.tree.Match(r.Chain); got != want {
			t.Errorf("prompt %d: %d blocks are believed, not %d", i, got, want)
		}
	}
}

// Rounding to the engine's blocks, the last token that is always computed, and text that is denser or thinner than others
// are no evictions.
func TestSmallDifferencesAreNoEvictions(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, cached int
	}{
		{"rounded to the engine's blocks", 32 * 64, 30*64 - 40},
		{"a text of 2 bytes a token", 32 * 128, 30*128 - 64},
		{"a text of 8 bytes a token", 32 * 32, 30*32 - 20},
		{"more than predicted", 32 * 64, 32*64 - 1},
	} {
		s := newShoal(t, "a")
		n := s.nodes["a"]
		s.serve("a", prompt(0, 30, 1, 32))
		s.serve("a", prompt(1, 30, 2, 32))
		s.serveAs(prompt(1, 30, 3, 32), c.prompt, c.cached)
		if n.count.Mispredicted != 0 || n.tree.Match(prompt(0, 30, 1, 32).Chain) != 32 {
			t.Errorf("%s: taken for an eviction", c.name)
		}
	}
}

// A prompt whose prefix another one was still computing finds less than predicted: nothing was evicted.
func TestAPrefixThatIsStillBeingComputedIsNoEviction(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	s.serve("a", prompt(0, 30, 1, 32))
	first, _ := n.Admit(s.now, prompt(1, 30, 2, 32), Expect{})
	n.Started(s.now, first)
	s.serveAs(prompt(1, 30, 3, 32), 32*64, 0)
	if n.tree.Match(prompt(0, 30, 1, 32).Chain) != 32 {
		t.Error("what another prompt holds was forgotten")
	}
	n.End(s.now, first, Usage{Prompt: 2048, Cached: 0, Completion: 2}, true)
}

// An engine that is much slower than the prior teaches its rate, although its prefills are taken for over long before.
func TestASlowEngineTeachesItsRate(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	for i := range 40 {
		r := prompt(i, 0, i, 50)
		sv, _ := n.Admit(s.now, r, Expect{})
		n.Started(s.now, sv)
		for range 64 { // 3,200 tokens at 1 ms, with a tick every 50 ms
			s.now += 50 * time.Millisecond
			n.Tick(s.now)
		}
		n.FirstToken(s.now, sv)
		s.now += 100 * time.Millisecond
		n.End(s.now, sv, Usage{Prompt: 3200, Cached: 0, Completion: 4}, true)
	}
	if got := n.load().Prefill; got < 900*time.Microsecond || got > 1100*time.Microsecond {
		t.Fatalf("an engine of 1 ms a token is believed to take %v", got)
	}
}

// A decline's load must not pass for the next version of the document, which counts what was accepted before it.
func TestADeclineDoesNotHideTheReportThatFollows(t *testing.T) {
	s := newShoal(t, "a", "b")
	a, b := s.nodes["a"], s.nodes["b"]
	admit := func(i int, e Expect) *Decline {
		ticket := a.Dispatch(s.now, prompt(i, 0, i, 50), Leg{Peer: "b", Uncached: 3200})
		_, d := b.Admit(s.now, prompt(i, 0, i, 50), e)
		if d != nil {
			a.Settle(s.now, ticket, Outcome{Kind: Declined, Load: &d.Load, Stamp: d.Stamp, Match: d.Match})
			return d
		}
		a.Accepted(ticket, b.Stamp())
		return nil
	}
	admit(1, Expect{Hopped: true, ServeCost: time.Hour})
	if d := admit(2, Expect{Hopped: true}); d == nil {
		t.Fatal("not declined")
	}
	for i := range 4 {
		admit(3+i, Expect{Hopped: true, ServeCost: time.Hour})
	}
	if o := a.members["b"].overlay; o.open != 5 {
		t.Fatalf("%d of 5 accepted requests count before the report", o.open)
	}
	s.now += 100 * time.Millisecond
	b.Tick(s.now)
	s.round("a", "b")
	if m := a.members["b"]; m.overlay.open != 0 || m.load.InFlight != 5 {
		t.Fatalf("after the report %d are in the overlay, and the load says %d in flight", m.overlay.open, m.load.InFlight)
	}
}

func TestOneProbeWithoutAnEpochIsNoRestart(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	s.serve("a", prompt(1, 30, 2, 32))
	n.EngineUp(s.now, engineOf(peer.Epoch{}))
	n.EngineUp(s.now, engineOf(peer.Epoch{Start: 100}))
	if n.tree.Len() != 32 || n.count.EngineRestarts != 0 {
		t.Fatalf("%d blocks, %d restarts", n.tree.Len(), n.count.EngineRestarts)
	}
	n.EngineUp(s.now, engineOf(peer.Epoch{Start: 101}))
	if n.tree.Len() != 0 {
		t.Fatal("a real restart is not seen any more")
	}
}

func TestAPeerThatNeverToldAnythingIsForgotten(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	for i := range 100 {
		id := peer.ID(string(rune('b'+i%20)) + string(rune('a'+i/20)))
		n.PeerUp(s.now, id, 1)
		n.PeerDown(s.now, id)
	}
	if len(n.members) != 1 || len(n.order) != 1 {
		t.Fatalf("%d members are left", len(n.members))
	}
}
