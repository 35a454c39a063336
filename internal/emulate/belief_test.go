package emulate

import (
	"math/rand/v2"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// One request after the other, what an agent believes of the cache is what it is, to the block: package prefix's tree of
// the same size, told the same prompts, and written independently.
func TestBeliefIsTheTruthWhereNothingRunsBesides(t *testing.T) {
	const blocks = 60
	cfg := small()
	cfg.CacheTokens = blocks * cfg.BlockTokens
	e := mustNew(t, cfg)
	tree := prefix.NewTree(peer.Cache{Kind: peer.Paged, Tokens: int64(cfg.CacheTokens), BlockTokens: cfg.BlockTokens}, blocks, int64(1000*prefix.BlockBytes/cfg.BlockTokens))
	r := rand.New(rand.NewPCG(3, 4))
	reused := 0
	for i := range uint64(3000) {
		chain := append(chainOf(r.Uint64N(3), r.IntN(8)), chainOf(10+r.Uint64N(20), 1+r.IntN(12))...)
		prompt := len(chain)*cfg.BlockTokens + 1 // so that every block of it may be reused
		if got, want := tree.Match(chain), e.Match(chain, prompt)/cfg.BlockTokens; got != want {
			t.Fatalf("request %d: believed %d blocks, truth %d", i, got, want)
		} else if want > 0 {
			reused++
		}
		run(t, e, time.Duration(i)*time.Hour, Request{ID: i, Chain: chain, Prompt: prompt - 1, Output: 1})
		tree.Insert(chain, nil)
	}
	if s := e.Stats(); s.Evicted == 0 || reused < 500 || tree.Len() != s.Blocks {
		t.Errorf("%d of 3000 reused something, %d evicted, %d blocks believed and %d there", reused, s.Evicted, tree.Len(), s.Blocks)
	}
}
