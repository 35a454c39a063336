package route

import (
	"github.com/zeebo/xxh3"

	"shoal/internal/peer"
)

// rank is the place of a peer for a key: of several peers the one with the greatest rank takes it. Every origin computes
// the same rank, so that equal prompts meet at one peer although no view has told of the first of them yet; and a peer
// that joins or leaves moves only its own share of the keys.
func rank(key uint64, id peer.ID) uint64 { return xxh3.HashStringSeed(string(id), key) }

// before reports whether a takes the key rather than b: by the greater rank, then by the lesser ID.
func before(key uint64, a, b peer.ID) bool {
	ra, rb := rank(key, a), rank(key, b)
	return ra > rb || ra == rb && a < b
}
