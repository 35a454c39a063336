package ecmp

import "math/bits"

// The linear hashes: CRCs and XOR over the bytes of the chosen fields, in the order source address, destination address,
// protocol, source port, destination port, each in network order; a field that is left out takes no bytes. The seed is the
// initial value. A CRC32's register is complemented before and after, as in zlib, so that seed 0 gives the CRC that
// everybody means. XOR16 takes the fields as 16-bit words, the protocol being one.
//
// CRC16-BISYNC is the reflected form, as IBM's protocol sent it, and as Broadcom's SDK computes a CRC of 16 bits. Whether a
// given switch hashes these fields in this order is for a probe to say (FitModel).
//
// Linear means hash(a ^ b) = hash(a) ^ hash(b) but for a constant: one hash and what each bit of the source port changes
// give the hashes of all ports.

// crcTable is what eight bits of a register become.
type crcTable [256]uint32

var (
	tableCCITT  = forwardTable(0x1021)
	tableBisync = reflectedTable(0xA001)     // 0x8005, bits reversed
	tableCRC32  = reflectedTable(0xEDB88320) // 0x04C11DB7, bits reversed
)

// reflectedTable is for CRCs that take the lowest bit first.
func reflectedTable(poly uint32) *crcTable {
	var t crcTable
	for i := range t {
		c := uint32(i)
		for range 8 {
			c = c>>1 ^ poly&-(c&1)
		}
		t[i] = c
	}
	return &t
}

// forwardTable is for CRCs of 16 bits that take the highest bit first.
func forwardTable(poly uint32) *crcTable {
	var t crcTable
	for i := range t {
		c := uint32(i) << 8
		for range 8 {
			c = c<<1 ^ poly&-(c>>15&1)
		}
		t[i] = c & 0xFFFF
	}
	return &t
}

func crcReflected(t *crcTable, c uint32, b []byte) uint32 {
	for _, x := range b {
		c = t[byte(c)^x] ^ c>>8
	}
	return c
}

func crcForward(t *crcTable, c uint32, b []byte) uint32 {
	for _, x := range b {
		c = t[byte(c>>8)^x] ^ c<<8&0xFFFF
	}
	return c
}

// linearKey is the bytes that are hashed.
type linearKey struct {
	b [14]byte
	n int
}

func (k *linearKey) add(b ...byte) { k.n += copy(k.b[k.n:], b) }

// fill writes the fields of t that are in f. wide gives the protocol 16 bits.
func (k *linearKey) fill(t *Tuple, f Fields, wide bool) {
	k.n = 0
	if f&SrcIP != 0 {
		a := v4(t.Src)
		k.add(byte(a>>24), byte(a>>16), byte(a>>8), byte(a))
	}
	if f&DstIP != 0 {
		a := v4(t.Dst)
		k.add(byte(a>>24), byte(a>>16), byte(a>>8), byte(a))
	}
	if f&Proto != 0 {
		if wide {
			k.add(0)
		}
		k.add(t.Proto)
	}
	if f&SrcPort != 0 {
		k.add(byte(t.SrcPort>>8), byte(t.SrcPort))
	}
	if f&DstPort != 0 {
		k.add(byte(t.DstPort>>8), byte(t.DstPort))
	}
}

// sum is the hash of a key before rotation.
func (k Kind) sum(seed uint32, b []byte) uint32 {
	switch k {
	case CRC16CCITT:
		return crcForward(tableCCITT, seed, b)
	case CRC16Bisync:
		return crcReflected(tableBisync, seed, b)
	case XOR16:
		for i := 0; i+1 < len(b); i += 2 {
			seed ^= uint32(b[i])<<8 | uint32(b[i+1])
		}
		return seed
	}
	c := ^crcReflected(tableCRC32, ^seed, b)
	switch k {
	case CRC32Low:
		return c & 0xFFFF
	case CRC32High:
		return c >> 16
	}
	return c
}

func (m Model) linear(t *Tuple) uint32 {
	var k linearKey
	k.fill(t, m.fields(), m.Kind == XOR16)
	return m.rotate(m.Kind.sum(m.Seed, k.b[:k.n]))
}

// linearState is what four bits of the source port each add; the first four hold the hash of port 0 as well.
type linearState struct {
	nibble [4][16]uint32
}

func (s *linearState) prepare(m Model, t *Tuple) {
	base := m.linear(t)
	var bit [16]uint32
	if f := m.fields(); f&SrcPort != 0 {
		// What stands before the ports changes nothing in a difference, so the key here is only the ports.
		var ports linearKey
		of := func(port uint16) uint32 {
			ports.fill(&Tuple{SrcPort: port}, f&(SrcPort|DstPort), false)
			return m.rotate(m.Kind.sum(0, ports.b[:ports.n]))
		}
		zero := of(0)
		for i := range bit {
			bit[i] = of(1<<i) ^ zero
		}
	}
	for q := range s.nibble {
		for v := 1; v < 16; v++ {
			lowest := bits.TrailingZeros(uint(v))
			s.nibble[q][v] = s.nibble[q][v&(v-1)] ^ bit[4*q+lowest]
		}
	}
	for v := range s.nibble[0] {
		s.nibble[0][v] ^= base
	}
}

func (s *linearState) at(port uint16) uint32 {
	return s.nibble[0][port&15] ^ s.nibble[1][port>>4&15] ^ s.nibble[2][port>>8&15] ^ s.nibble[3][port>>12]
}

func (s *linearState) each(ports []uint16, out []uint32) {
	out = out[:len(ports)]
	for i, p := range ports {
		out[i] = s.at(p)
	}
}

// fill takes sixteen ports at a time, which differ in their lowest four bits only.
func (s *linearState) fill(from uint16, out []uint32) {
	for len(out) > 0 {
		if from&15 != 0 || len(out) < 16 {
			out[0] = s.at(from)
			from, out = from+1, out[1:]
			continue
		}
		high := s.nibble[1][from>>4&15] ^ s.nibble[2][from>>8&15] ^ s.nibble[3][from>>12]
		block := (*[16]uint32)(out)
		for i, low := range &s.nibble[0] {
			block[i] = high ^ low
		}
		from, out = from+16, out[16:]
	}
}
