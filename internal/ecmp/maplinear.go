package ecmp

import (
	"math/bits"
	"unsafe"
)

// mapLinear fills a map by linearity, where that can be done: one switch chooses among a power of two of paths by some bits
// of a linear hash, and the range is 2^b ports that begin at a multiple of 2^b. It is false, and nothing is done,
// elsewhere.
//
// The path of a port is then path(first) ^ (exclusive or of one column for each bit that is set in the port's low b bits).
// The ports of one path are the solutions of a linear equation over GF(2): one of them, and its exclusive or with every
// sum of a basis of the ports that change nothing. Where every vector of the basis has its highest bit for itself, counting
// through the sums gives the solutions in ascending order, so that nothing has to be sorted.
func (r *Route) mapLinear(t Tuple, m *PortMap) bool {
	s := &r.stages[0]
	for len(s.hops) == 1 && s.paths > 1 {
		s = &r.stages[s.hops[0].to]
	}
	n := len(m.paths)
	if !s.flat || !s.model.Kind.Linear() || !s.choose.isBits() || n&(n-1) != 0 || int(m.first)&(n-1) != 0 {
		return false
	}
	width := bits.TrailingZeros(uint(n))
	p := s.model.Prepare(t)
	zero := uint16(s.choose.pick(p.At(m.first)))
	var column [16]uint16
	for i := range width {
		column[i] = uint16(s.choose.pick(p.At(m.first+1<<i))) ^ zero
	}
	m.paths[0] = zero
	for i, c := range column[:width] {
		double(m.paths, i, c)
	}
	m.solve(zero, column[:width])
	return true
}

// double fills out[1<<i : 2<<i] with what stands before it, changed by c; four at a time where there are four.
func double(out []uint16, i int, c uint16) {
	from, to := out[:1<<i], out[1<<i:2<<i]
	if i < 2 {
		for k, v := range from {
			to[k] = v ^ c
		}
		return
	}
	c4 := uint64(c) * 0x0001_0001_0001_0001
	to4 := fours(to)
	for k, v := range fours(from) {
		to4[k] = v ^ c4
	}
}

// fours looks at numbers four at a time, in whatever order the machine has them.
func fours(x []uint16) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/4)
}

// solve fills the buckets.
func (m *PortMap) solve(zero uint16, column []uint16) {
	// image[k] is a value that has highest bit k, and ports[k] the bits of a port that change the path by it: only bits whose
	// columns do not depend on lower ones. The others each give a vector of the basis.
	var image, ports [16]uint16
	reduce := func(v uint16) (rest, port uint16) {
		for v != 0 {
			k := bits.Len16(v) - 1
			if image[k] == 0 {
				break
			}
			v, port = v^image[k], port^ports[k]
		}
		return v, port
	}
	var basis []uint16
	for i, c := range column {
		rest, port := reduce(c)
		port ^= 1 << i
		if rest == 0 {
			basis = append(basis, port)
			continue
		}
		k := bits.Len16(rest) - 1
		image[k], ports[k] = rest, port
	}
	all := make([]uint16, len(m.paths))
	size := 1 << len(basis)
	for path := range m.buckets {
		rest, port := reduce(uint16(path) ^ zero)
		if rest != 0 {
			continue // no port leads there
		}
		bucket := all[:size:size]
		all = all[size:]
		bucket[0] = m.first | port
		for i, b := range basis {
			double(bucket, i, b)
		}
		m.buckets[path] = bucket
	}
}
