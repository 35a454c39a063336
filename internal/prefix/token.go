package prefix

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// MaxBlockTokens bounds the tokens of one token block.
const MaxBlockTokens = 4096

// TokenBlocks appends the chained hashes of the full blocks of blockTokens tokens, at most MaxBlocks of them:
//
//	local[i] = XXH3(the block's tokens, four bytes each, little-endian)
//	h[i] = XXH3(le64(h[i-1]) || le64(local[i])), h[-1] = root
//
// This is the form of Mooncake's RFC 1403, with the domain's root before the first block. Blocks of different sizes have
// nothing in common, and neither have those of different tokenisers: a section names both. A size out of [1,
// MaxBlockTokens] gives no blocks.
func TokenBlocks(dst []Hash, root Hash, tokens []uint32, blockTokens int) []Hash {
	if blockTokens < 1 || blockTokens > MaxBlockTokens {
		return dst
	}
	var link [16]byte // what the last hash is made of
	binary.LittleEndian.PutUint64(link[:8], uint64(root))
	for n := 0; n < MaxBlocks && len(tokens) >= blockTokens; n++ {
		local := xxh3.Hash(littleEndian(tokens[:blockTokens]))
		tokens = tokens[blockTokens:]
		binary.LittleEndian.PutUint64(link[8:], local)
		h := xxh3.Hash(link[:])
		binary.LittleEndian.PutUint64(link[:8], h)
		dst = append(dst, Hash(h))
	}
	return dst
}

// littleEndian is the bytes of tokens, which are not empty: on most machines they are in memory as they have to be, and
// a copy would take longer than the hash.
func littleEndian(tokens []uint32) []byte {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return unsafe.Slice((*byte)(unsafe.Pointer(&tokens[0])), 4*len(tokens))
	}
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return b
}
