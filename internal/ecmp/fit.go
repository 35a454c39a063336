package ecmp

import (
	"math/bits"
	"slices"
)

// Seen is what a probe has told: packets of a flow with this source port take this path.
type Seen struct {
	Port uint16
	Path int
}

// surplus is how many bits of the answers must be beyond what a fit needs to fit anything: a fit of noise is one in 2^16.
const surplus = 16

// distinct sorts what was seen by port, each once. It is false where a port was seen on two paths, or on one that is none
// of those there are; paths are those seen, ascending.
func distinct(seen []Seen) (ports []Seen, paths []int, ok bool) {
	ports = slices.Clone(seen)
	slices.SortFunc(ports, func(a, b Seen) int {
		if a.Port != b.Port {
			return int(a.Port) - int(b.Port)
		}
		return a.Path - b.Path
	})
	ports = slices.Compact(ports)
	for i, s := range ports {
		if i > 0 && ports[i-1].Port == s.Port || s.Path < 0 || s.Path >= MaxPaths {
			return nil, nil, false
		}
		paths = append(paths, s.Path)
	}
	slices.Sort(paths)
	return ports, slices.Compact(paths), true
}

// span is a subspace of the 16-bit vectors over GF(2): for each highest bit at most one vector that has it.
type span struct {
	v         [16]uint16
	dimension int
}

// reduce is what is left of x: the same for all vectors that differ by one of the span, and 0 for those of the span.
func (s *span) reduce(x uint16) uint16 {
	for k := 15; k >= 0; k-- {
		if x>>k&1 != 0 {
			x ^= s.v[k]
		}
	}
	return x
}

func (s *span) add(x uint16) {
	if x = s.reduce(x); x != 0 {
		s.v[bits.Len16(x)-1] = x
		s.dimension++
	}
}

// FitLinear finds what a linear hash (CRC, XOR) and a power of two of equal paths make of ports that were not seen, from
// those that were (RePaC). Which path has which number does not matter. The function gives -1 for a port that what was seen
// does not decide: one with a bit that was the same in all of it, or one of a path that was not seen.
//
// It is false where the hash is not linear, where the paths are no power of two or not equal, and where too little was seen
// to tell: about 16 ports, and 16/log2(paths) more.
//
// The rule: a linear hash gives two ports one path if and only if their exclusive or is one of a subspace. The differences
// of ports of one path span it; the paths are its cosets.
func FitLinear(seen []Seen, paths int) (func(port uint16) int, bool) {
	if paths < 2 || paths&(paths-1) != 0 {
		return nil, false
	}
	ports, labels, ok := distinct(seen)
	if !ok || len(labels) < 2 || labels[len(labels)-1] >= paths {
		return nil, false
	}
	origin := ports[0].Port
	first := make(map[int]uint16, len(labels)) // a port of each path
	var all, same span
	for _, s := range ports {
		all.add(s.Port ^ origin)
		f, ok := first[s.Path]
		if !ok {
			first[s.Path] = s.Port
			continue
		}
		same.add(s.Port ^ f)
	}
	width := all.dimension - same.dimension // of the paths that the ports seen can lead to; not all need have been seen
	spare := len(ports) - len(labels) - same.dimension
	if 1<<width < len(labels) || 1<<width > paths || spare*width < surplus {
		return nil, false
	}
	path := make(map[uint16]int, len(labels)) // by coset
	for _, l := range labels {
		path[same.reduce(first[l]^origin)] = l
	}
	if len(path) != len(labels) {
		return nil, false
	}
	return func(port uint16) int {
		x := port ^ origin
		p, ok := path[same.reduce(x)]
		if !ok || all.reduce(x) != 0 {
			return -1
		}
		return p
	}, true
}

// FitModel is the first candidate that agrees with all that was seen of a flow's ports; t.SrcPort does not count. It is false
// where none does, and where too little was seen to tell so many candidates apart.
func FitModel(candidates []*Route, t Tuple, seen []Seen) (*Route, bool) {
	ports, labels, ok := distinct(seen)
	if !ok || len(labels) == 0 {
		return nil, false
	}
	if each := bits.Len(uint(len(labels))) - 1; each*len(ports) < surplus+bits.Len(uint(len(candidates))) {
		return nil, false
	}
	for _, r := range candidates {
		agrees := func(s Seen) bool {
			t.SrcPort = s.Port
			return r.PathOf(t) == s.Path
		}
		if r.Known() && !slices.ContainsFunc(ports, func(s Seen) bool { return !agrees(s) }) {
			return r, true
		}
	}
	return nil, false
}
