package ecmp

import "math/bits"

// MurmurHash3_x86_32 (Appleby, public domain) over a key of three little-endian words: source address, destination address,
// and source port | destination port << 16. A field that is left out is 0. There is no protocol in the key.

const (
	murmurC1 = 0xcc9e2d51
	murmurC2 = 0x1b873593
)

// murmurMix takes in one word.
func murmurMix(h, k uint32) uint32 {
	h ^= bits.RotateLeft32(k*murmurC1, 15) * murmurC2
	return bits.RotateLeft32(h, 13)*5 + 0xe6546b64
}

// murmurEnd takes in the length in bytes, and mixes.
func murmurEnd(h, length uint32) uint32 {
	h ^= length
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

const murmurKeyBytes = 12

// murmurState is a key but for the source port.
type murmurState struct {
	h    uint32 // with both addresses
	high uint32 // the destination port, in its place
}

func (s *murmurState) prepare(m Model, t *Tuple) {
	f := m.fields()
	s.h = m.Seed
	for _, a := range [2]struct {
		field Fields
		addr  uint32
	}{{SrcIP, v4(t.Src)}, {DstIP, v4(t.Dst)}} {
		if f&a.field == 0 {
			a.addr = 0
		}
		s.h = murmurMix(s.h, a.addr)
	}
	if f&DstPort != 0 {
		s.high = uint32(t.DstPort) << 16
	}
}

func (s *murmurState) at(port uint16) uint32 {
	return murmurEnd(murmurMix(s.h, uint32(port)|s.high), murmurKeyBytes)
}

func (s *murmurState) each(ports []uint16, mask uint16, rotate uint8, out []uint32) {
	h, high, r := s.h, s.high, -int(rotate)
	out = out[:len(ports)]
	for i, p := range ports {
		out[i] = bits.RotateLeft32(murmurEnd(murmurMix(h, uint32(p&mask)|high), murmurKeyBytes), r)
	}
}

func (m Model) murmur(t *Tuple) uint32 {
	var s murmurState
	s.prepare(m, t)
	port := t.SrcPort
	if m.fields()&SrcPort == 0 {
		port = 0
	}
	return m.rotate(s.at(port))
}
