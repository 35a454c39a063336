package transfer

import "hash/crc32"

// castagnoli is the polynomial of CRC32C, which processors compute themselves.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(p []byte) uint32 { return crc32.Update(0, castagnoli, p) }

// reversed is CRC32C's polynomial with the coefficient of x^0 in the highest bit.
const reversed = 0x82f63b78

// times multiplies two polynomials over GF(2) modulo CRC32C's, in reversed bit order.
func times(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ reversed
		} else {
			b >>= 1
		}
	}
	return p
}

// shift is x^(8n): what a checksum is multiplied with when n bytes follow.
func shift(n int64) uint32 {
	result, square := uint32(1)<<31, uint32(1)<<23 // x^0, x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = times(square, result)
		}
		square = times(square, square)
	}
	return result
}

// combine gives the checksum of everything from those of its chunks, in order.
func combine(l layout, sums []uint32) uint32 {
	if len(sums) == 0 {
		return 0
	}
	all := sums[0]
	whole := shift(l.chunk)
	for i := 1; i < len(sums); i++ {
		by := whole
		if i == len(sums)-1 {
			_, n := l.extent(i)
			by = shift(int64(n))
		}
		all = times(by, all) ^ sums[i]
	}
	return all
}

// checksumOf is the checksum of two pieces, one after the other.
func checksumOf(p, q []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, p), castagnoli, q)
}

func update(sum uint32, p []byte) uint32 { return crc32.Update(sum, castagnoli, p) }

// maxPiece is how much of a chunk is moved at once where it is then summed, in bytes: it stays in the processor's
// nearest cache.
const maxPiece = 256 << 10
