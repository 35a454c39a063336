package node

import (
	"testing"
	"time"
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
