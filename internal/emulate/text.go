package emulate

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"shoal/internal/prefix"
)

// Says begins every answer.
const Says = "[emulated] "

// Text appends n bytes of an answer to dst, from its byte `from` on. The same seed always gives the same text: Says, and
// then words that are none.
func Text(dst []byte, seed uint64, from, n int) []byte {
	for i := from; i < from+n; i++ {
		dst = append(dst, letter(seed, i))
	}
	return dst
}

// letter is one byte of an answer: words of two or three syllables, told apart by the place alone, so that any piece can
// be made without what comes before.
func letter(seed uint64, i int) byte {
	if i < len(Says) {
		return Says[i]
	}
	i -= len(Says)
	word, at := i/wordBytes, i%wordBytes
	if at == wordBytes-1 {
		return ' '
	}
	h := mix(seed + uint64(word)*0x9E3779B97F4A7C15)
	if at == wordBytes-2 && h>>60 < 4 {
		return '.'
	}
	h >>= uint(5 * at)
	if at%2 == 0 {
		return "bdfgklmnprstvzhj"[h&15]
	}
	return "aeiou"[h&31%5]
}

const wordBytes = 8 // with the space

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Blocks appends the chained hashes of the full blocks of blockBytes of a rendered sequence: what this engine knows its
// blocks by. They have nothing to do with the text blocks that peers share.
func Blocks(dst []prefix.Hash, root prefix.Hash, rendered []byte, blockBytes int) []prefix.Hash {
	link := make([]byte, 8+blockBytes)
	for len(rendered) >= blockBytes {
		binary.LittleEndian.PutUint64(link, uint64(root))
		copy(link[8:], rendered[:blockBytes])
		root = prefix.Hash(xxh3.Hash(link))
		dst = append(dst, root)
		rendered = rendered[blockBytes:]
	}
	return dst
}
