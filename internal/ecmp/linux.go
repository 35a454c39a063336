package ecmp

import "math/bits"

// The Linux kernel's multipath hash (fib_multipath_hash in net/ipv4/route.c), for IPv4 on a little-endian machine:
//
//   - What is hashed is the part of struct flow_keys that counts, 48 bytes, zero but for the protocol at byte 2, the ports at
//     28 and 30, the addresses at 36 and 40, all as they stand in the packet. A field that is not chosen is zero.
//   - Both directions of a flow hash alike: the addresses are swapped where the destination is the smaller number, read as a
//     little-endian word, and so are the ports, on their own (__flow_hash_consistentify in net/core/flow_dissector.c).
//   - SipHash-2-4, both halves of whose key are seed<<32 | seed (fib_multipath_hash_construct_key in
//     include/net/ip_fib.h); its low 32 bits, and 1 where these are 0.
//   - Policy 3, for what is forwarded, goes on with jhash_2words(hash, 0, 0): the 0 is the hash of an inner packet that is not
//     there (fib_multipath_custom_hash_skb). What the machine sends itself goes without (fib_multipath_custom_hash_fl4),
//     and so does policy 1 in both cases (fib_multipath_hash, case 1).
//   - The last bit is dropped.
//
// The tests compare this with the kernel that they run on; `ip route get` without iif is no proof of what is sent locally,
// since it makes up a packet and hashes that as if it were forwarded. What else decides, and is not modelled:
//   - A multipath route without next-hop objects prefers, for what the machine sends itself, next hops whose interface has the
//     packet's source address (fib_select_multipath in net/ipv4/fib_semantics.c; seen on Linux 6.18). A host with several
//     uplinks needs an address that is on none of them, on its loopback say.
//   - fib_multipath_use_neigh, and links that are down, take next hops out.
//   - Policy 1 takes a hash that the packet already has from a socket or a network card (skb->l4_hash).

const (
	linuxKeyBytes = 48
	jhashInit     = 0xdeadbeef + 2<<2 // of two words
)

// linuxState is SipHash with the three words before the ports taken in, and the words that follow them.
type linuxState struct {
	v          [4]uint64
	tail       [4]uint64 // the words after that of the ports: two of addresses, that of the length; then 0, which changes nothing
	dstPort    uint16    // as a little-endian machine reads it
	isJenkined bool      // jhash_2words comes after
}

// sipRound is one round of SipHash.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}

// sipWord takes in one word.
func sipWord(v0, v1, v2, v3, w uint64) (uint64, uint64, uint64, uint64) {
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^w)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return v0 ^ w, v1, v2, v3
}

func (s *linuxState) prepare(m Model, t *Tuple) {
	f := m.fields()
	key := uint64(m.Seed)<<32 | uint64(m.Seed)
	v0, v1, v2, v3 := key^0x736f6d6570736575, key^0x646f72616e646f6d, key^0x6c7967656e657261, key^0x7465646279746573
	var proto uint64
	if f&Proto != 0 {
		proto = uint64(t.Proto) << 16
	}
	for _, w := range [3]uint64{proto, 0, 0} {
		v0, v1, v2, v3 = sipWord(v0, v1, v2, v3, w)
	}
	s.v = [4]uint64{v0, v1, v2, v3}
	var src, dst uint32
	if f&SrcIP != 0 {
		src = bits.ReverseBytes32(v4(t.Src))
	}
	if f&DstIP != 0 {
		dst = bits.ReverseBytes32(v4(t.Dst))
	}
	s.tail = [4]uint64{uint64(min(src, dst)) << 32, uint64(max(src, dst)), linuxKeyBytes << 56}
	if f&DstPort != 0 {
		s.dstPort = bits.ReverseBytes16(t.DstPort)
	}
	s.isJenkined = m.Policy != 1 && !m.Local
}

// word is the word of the two ports.
func (s *linuxState) word(port uint16) uint64 {
	port = bits.ReverseBytes16(port)
	return uint64(min(port, s.dstPort))<<32 | uint64(max(port, s.dstPort))<<48
}

// end turns the low half of SipHash's result into the kernel's.
func (s *linuxState) end(sip uint32) uint32 {
	h := max(sip, 1)
	if s.isJenkined {
		h = jhash(h)
	}
	return h >> 1
}

// jhash is jhash_2words(a, 0, 0) of the kernel (Jenkins, lookup3).
func jhash(a uint32) uint32 {
	a += jhashInit
	b := uint32(jhashInit)
	c := -bits.RotateLeft32(b, 14) // b and c begin as the same word, so that b ^ c is 0
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}

func (s *linuxState) at(port uint16) uint32 {
	v0, v1, v2, v3 := s.v[0], s.v[1], s.v[2], s.v[3]
	w := s.word(port)
	for _, next := range &s.tail {
		v0, v1, v2, v3 = sipWord(v0, v1, v2, v3, w)
		w = next
	}
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return s.end(uint32(v0 ^ v1 ^ v2 ^ v3))
}

// two is SipHash for the words of two ports side by side, since one alone waits for itself; the first result is in the low
// half. It is a function of its own so that there are registers for both.
//
//go:noinline
func (s *linuxState) two(w, x uint64) uint64 {
	v0, v1, v2, v3 := s.v[0], s.v[1], s.v[2], s.v[3]^w
	u0, u1, u2, u3 := s.v[0], s.v[1], s.v[2], s.v[3]^x
	for _, next := range &s.tail {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		u0, u1, u2, u3 = sipRound(u0, u1, u2, u3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		u0, u1, u2, u3 = sipRound(u0, u1, u2, u3)
		v0, u0 = v0^w, u0^x
		w, x = next, next
		v3, u3 = v3^w, u3^w
	}
	v2, u2 = v2^0xff, u2^0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		u0, u1, u2, u3 = sipRound(u0, u1, u2, u3)
	}
	return uint64(uint32(v0^v1^v2^v3)) | (u0^u1^u2^u3)<<32
}

func (s *linuxState) each(ports []uint16, mask uint16, out []uint32) {
	out = out[:len(ports)]
	for i := 0; i+1 < len(ports); i += 2 {
		both := s.two(s.word(ports[i]&mask), s.word(ports[i+1]&mask))
		out[i], out[i+1] = uint32(both), uint32(both>>32)
	}
	if n := len(ports); n%2 == 1 {
		out[n-1] = uint32(s.two(s.word(ports[n-1]&mask), 0))
	}
	for i, sip := range out {
		out[i] = s.end(sip)
	}
}

func (m Model) linux(t *Tuple) uint32 {
	var s linuxState
	s.prepare(m, t)
	port := t.SrcPort
	if m.fields()&SrcPort == 0 {
		port = 0
	}
	return s.at(port)
}
