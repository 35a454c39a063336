package ecmp

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// The hashes once more, slowly: from bytes, bit by bit, as their definitions read.

// slowHash is what Model.Hash must be.
func slowHash(m Model, t Tuple) uint32 {
	f := m.Fields
	if f == 0 {
		f = AllFields
	}
	var src, dst [4]byte
	var sport, dport uint16
	var proto byte
	for _, field := range []struct {
		field Fields
		take  func()
	}{
		{SrcIP, func() { src = t.Src.As4() }}, {DstIP, func() { dst = t.Dst.As4() }}, {Proto, func() { proto = t.Proto }},
		{SrcPort, func() { sport = t.SrcPort }}, {DstPort, func() { dport = t.DstPort }},
	} {
		if f&field.field != 0 {
			field.take()
		}
	}
	var key []byte
	switch m.Kind {
	case Murmur3:
		key = binary.LittleEndian.AppendUint32(key, binary.BigEndian.Uint32(src[:]))
		key = binary.LittleEndian.AppendUint32(key, binary.BigEndian.Uint32(dst[:]))
		key = binary.LittleEndian.AppendUint32(key, uint32(sport)|uint32(dport)<<16)
		return slowRotate(slowMurmur(key, m.Seed), m.Offset, 32)
	case Linux:
		return slowLinux(m, src, dst, sport, dport, proto)
	}
	if f&SrcIP != 0 {
		key = append(key, src[:]...)
	}
	if f&DstIP != 0 {
		key = append(key, dst[:]...)
	}
	if f&Proto != 0 {
		if m.Kind == XOR16 {
			key = append(key, 0)
		}
		key = append(key, proto)
	}
	if f&SrcPort != 0 {
		key = binary.BigEndian.AppendUint16(key, sport)
	}
	if f&DstPort != 0 {
		key = binary.BigEndian.AppendUint16(key, dport)
	}
	h, width := slowSum(m.Kind, m.Seed, key)
	return slowRotate(h, m.Offset, width)
}

func slowRotate(h uint32, by uint8, width int) uint32 {
	for range by {
		h = h>>1 | h&1<<(width-1)
	}
	return h
}

// slowSum is a linear hash and its width.
func slowSum(k Kind, seed uint32, b []byte) (uint32, int) {
	switch k {
	case XOR16:
		h := uint16(seed)
		for ; len(b) >= 2; b = b[2:] {
			h ^= binary.BigEndian.Uint16(b)
		}
		return uint32(h), 16
	case CRC16CCITT:
		c := uint16(seed)
		for _, x := range b {
			for i := 7; i >= 0; i-- {
				top := c>>15 ^ uint16(x>>i&1)
				c <<= 1
				if top != 0 {
					c ^= 0x1021
				}
			}
		}
		return uint32(c), 16
	case CRC16Bisync:
		return slowReflected(b, seed, 0x8005, 16), 16
	}
	c := ^slowReflected(b, ^seed, 0x04C11DB7, 32)
	switch k {
	case CRC32Low:
		return c & 0xFFFF, 16
	case CRC32High:
		return c >> 16, 16
	}
	return c, 32
}

// slowReflected takes the lowest bit of each byte first; poly has the highest power first.
func slowReflected(b []byte, c, poly uint32, width int) uint32 {
	poly = bits.Reverse32(poly) >> (32 - width)
	for _, x := range b {
		for i := range 8 {
			low := c&1 ^ uint32(x>>i&1)
			c >>= 1
			if low != 0 {
				c ^= poly
			}
		}
	}
	return c
}

func slowMurmur(b []byte, seed uint32) uint32 {
	h := seed
	for w := b; len(w) >= 4; w = w[4:] {
		k := binary.LittleEndian.Uint32(w) * 0xcc9e2d51
		k = k<<15 | k>>17
		k *= 0x1b873593
		h ^= k
		h = h<<13 | h>>19
		h = h*5 + 0xe6546b64
	}
	h ^= uint32(len(b))
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h
}

// slowLinux fills the kernel's 48 bytes and follows fib_multipath_hash.
func slowLinux(m Model, src, dst [4]byte, sport, dport uint16, proto byte) uint32 {
	var b [48]byte
	b[2] = proto
	binary.BigEndian.PutUint16(b[28:], sport)
	binary.BigEndian.PutUint16(b[30:], dport)
	copy(b[36:], src[:])
	copy(b[40:], dst[:])
	le := binary.LittleEndian
	if s, d := le.Uint32(b[36:]), le.Uint32(b[40:]); d < s {
		le.PutUint32(b[36:], d)
		le.PutUint32(b[40:], s)
	}
	if s, d := le.Uint16(b[28:]), le.Uint16(b[30:]); d < s {
		le.PutUint16(b[28:], d)
		le.PutUint16(b[30:], s)
	}
	key := uint64(m.Seed)<<32 | uint64(m.Seed)
	h := uint32(slowSip(key, key, b[:]))
	if h == 0 {
		h = 1
	}
	if m.Policy != 1 && !m.Local {
		h = slowJhash(h, 0, 0)
	}
	return h >> 1
}

// slowSip is SipHash-2-4 (Aumasson, Bernstein 2012).
func slowSip(k0, k1 uint64, b []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	round := func() {
		v[0] += v[1]
		v[1] = bits.RotateLeft64(v[1], 13)
		v[1] ^= v[0]
		v[0] = bits.RotateLeft64(v[0], 32)
		v[2] += v[3]
		v[3] = bits.RotateLeft64(v[3], 16)
		v[3] ^= v[2]
		v[0] += v[3]
		v[3] = bits.RotateLeft64(v[3], 21)
		v[3] ^= v[0]
		v[2] += v[1]
		v[1] = bits.RotateLeft64(v[1], 17)
		v[1] ^= v[2]
		v[2] = bits.RotateLeft64(v[2], 32)
	}
	last := uint64(len(b)) << 56
	word := func(w uint64) {
		v[3] ^= w
		round()
		round()
		v[0] ^= w
	}
	for ; len(b) >= 8; b = b[8:] {
		word(binary.LittleEndian.Uint64(b))
	}
	for i, x := range b {
		last |= uint64(x) << (8 * i)
	}
	word(last)
	v[2] ^= 0xff
	for range 4 {
		round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// slowJhash is the kernel's jhash_2words (include/linux/jhash.h).
func slowJhash(a, b, initval uint32) uint32 {
	initval += 0xdeadbeef + 2<<2
	a += initval
	b += initval
	c := initval
	rol := bits.RotateLeft32
	c ^= b
	c -= rol(b, 14)
	a ^= c
	a -= rol(c, 11)
	b ^= a
	b -= rol(a, 25)
	c ^= b
	c -= rol(b, 16)
	a ^= c
	a -= rol(c, 4)
	b ^= a
	b -= rol(a, 14)
	c ^= b
	c -= rol(b, 24)
	return c
}

// slowPath follows a flow through a configuration, link by link, without the fabric's own structures. It returns the names of
// the links.
func slowPath(c Config, src, dst string, t Tuple) []string {
	leaf := func(host string) string {
		for _, h := range c.Hosts {
			if h.Name == host {
				return h.Leaf
			}
		}
		panic(host)
	}
	at, to := leaf(src), leaf(dst)
	distance := slowDistances(c, to)
	var names []string
	for at != to {
		var hops []LinkConfig
		for _, l := range slowLinksFrom(c, at) {
			if distance[l.To] == distance[at]-1 {
				hops = append(hops, l)
			}
		}
		var sw Switch
		for _, s := range c.Switches {
			if s.Name == at {
				sw = s
			}
		}
		s := sw.Selection
		s.Bits = uint8(sw.Model.Bits())
		l := hops[0]
		if len(hops) > 1 {
			l = hops[s.Pick(slowHash(sw.Model, t), len(hops))]
		}
		name := at + "->" + l.To
		if l.Bond > 1 {
			m := sw.Model
			if l.BondModel != nil {
				m = *l.BondModel
			}
			among := Selection{Bits: uint8(m.Bits())}
			if s.Kind == HashRange {
				among.Kind = HashRange
			}
			name += "#" + string(rune('1'+among.Pick(slowHash(m, t), l.Bond)))
		}
		names = append(names, name)
		at = l.To
	}
	return names
}

// slowLinksFrom are the links that lead away from a switch, all in its direction.
func slowLinksFrom(c Config, at string) []LinkConfig {
	var out []LinkConfig
	for _, l := range c.Links {
		switch {
		case l.From == at:
			out = append(out, l)
		case l.To == at && !l.OneWay:
			l.From, l.To = l.To, l.From
			out = append(out, l)
		}
	}
	return out
}

// slowDistances are how many links it takes from each switch, found by making them smaller while that goes; far where there
// is no way.
func slowDistances(c Config, to string) map[string]int {
	d := map[string]int{}
	for _, s := range c.Switches {
		d[s.Name] = far
	}
	d[to] = 0
	for changed := true; changed; {
		changed = false
		shorten := func(from, to string) {
			if d[to] != far && d[to]+1 < d[from] {
				d[from], changed = d[to]+1, true
			}
		}
		for _, l := range c.Links {
			shorten(l.From, l.To)
			if !l.OneWay {
				shorten(l.To, l.From)
			}
		}
	}
	return d
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
