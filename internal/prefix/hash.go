// Package prefix holds what Shoal knows about prompt prefixes: which blocks a prompt consists of, which peer holds which
// block, and what one engine's cache holds.
//
// A text block is 256 bytes of a prompt's canonical rendering, named by a chained 64-bit hash, so that one hash stands for
// the block and for everything before it. All peers share these names, whatever their tokenisers. There are three types:
//
//   - Chain renders a prompt as it streams by and gives its block hashes. Two prompts have one rendering only where they
//     are the same prompt, and a conversation that grows keeps the blocks it had.
//   - Index is who holds which block: the only copy of every peer's block set. One Match gives every peer's longest match.
//     It holds, like Tree, thinned chains (Thin): fewer blocks deep in a prompt.
//   - Tree is the exact account of one engine's cache by the cache model that its adapter declares: leaf by leaf, least
//     recently used first (vLLM, SGLang), or whole sequences (llama.cpp).
//
// It decides nothing: where a request goes is package route's affair, and how block sets travel is package replica's. The
// package is pure: no clock, no lock, no goroutine; nothing in it is safe for concurrent use. Given the same seed and the
// same calls it does the same, to the order of its logs.
//
// Sources: "Towards Distributed Inference of LLMs on a P2P Network" (arXiv 2606.17059) for the exact local tree and the
// estimates of peers' trees; Mooncake RFC 1403 for the chain over tokens; F14's counts of overflowing entries for the
// index's table.
package prefix

// BlockBytes is the size of a text block, in bytes of canonical rendering.
const BlockBytes = 256

// MaxBlocks bounds the blocks of one prompt, 2 MiB of its rendering. What follows takes no part in routing.
const MaxBlocks = 8192

// Hash identifies a block and all that came before it in its prompt, under its prompt's Domain.
type Hash uint64

// Slot is one section of one peer's document, as the index knows it.
type Slot uint16

// Element is one cached block: its hash, and its place in its prompt's thinned chain, from 0 on. The hash determines the
// depth; a block's ancestors have lesser depths.
type Element struct {
	Hash  Hash
	Depth uint16
}

// Change is one element that came into a set of blocks, or left it.
type Change struct {
	Element
	Removed bool
}
