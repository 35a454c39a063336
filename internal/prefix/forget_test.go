package prefix

import (
	"testing"

	"shoal/internal/peer"
)

// An aborted prompt takes back what it brought, and nothing else: taking it for an eviction would empty the tree.
func TestForgettingAPromptTakesOnlyWhatItBrought(t *testing.T) {
	tree := NewTree(peer.Cache{Kind: peer.Paged, Tokens: 1 << 20}, 1000, 4000)
	old := []Hash{1, 2, 3}
	tree.Insert(old, nil)
	aborted := []Hash{1, 2, 30, 31, 32}
	tree.Insert(aborted, nil)
	log := tree.Forget(aborted, 2, nil)
	if len(log) != 3 || log[0].Hash != 32 || !log[0].Removed || tree.Match(aborted) != 2 || tree.Match(old) != 3 || tree.Len() != 3 {
		t.Fatalf("log %v, %d of the aborted prompt and %d of the old one are left", log, tree.Match(aborted), tree.Match(old))
	}

	tree.Insert(aborted, nil)
	tree.Insert([]Hash{1, 2, 30, 31, 40}, nil) // another prompt builds on it
	tree.Forget(aborted, 2, nil)
	if tree.Match(aborted) != 4 || tree.Match([]Hash{1, 2, 30, 31, 40}) != 5 {
		t.Fatalf("what another prompt uses is gone: %d and %d blocks", tree.Match(aborted), tree.Match([]Hash{1, 2, 30, 31, 40}))
	}
	if log := tree.Forget(aborted, 9, nil); log != nil {
		t.Fatalf("nothing was to be forgotten: %v", log)
	}
}
