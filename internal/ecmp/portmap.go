package ecmp

import (
	"fmt"
	"slices"
	"unsafe"
)

// PortMap is M(p_k) for one source, destination, destination port and protocol: for every path the source ports that lead
// there. It is computed by Route.Map and Route.Ports, or filled in as ports are learned. A port is in it once.
type PortMap struct {
	buckets [][]uint16 // by path, ascending
	// The same by port: paths[i] is the path of ports[i], ascending. ports is nil where they are first, first+1, and so on.
	ports []uint16
	first uint16
	paths []uint16
}

// NewPortMap is an empty map for so many paths, at most MaxPaths.
func NewPortMap(paths int) *PortMap {
	if paths < 0 || paths > MaxPaths {
		panic(fmt.Sprintf("ecmp: a port map of %d paths", paths))
	}
	return &PortMap{buckets: make([][]uint16, paths), ports: []uint16{}}
}

// Paths is the number of paths.
func (m *PortMap) Paths() int { return len(m.buckets) }

// Len is the number of ports.
func (m *PortMap) Len() int { return len(m.paths) }

// Ports are the source ports of a path, ascending. They are the map's own: do not change them, and do not keep them over
// an Add.
func (m *PortMap) Ports(path int) []uint16 {
	if path < 0 || path >= len(m.buckets) {
		return nil
	}
	return m.buckets[path]
}

// PathOf is the path of a source port, where it is known.
func (m *PortMap) PathOf(port uint16) (path int, ok bool) {
	i, ok := m.find(port)
	if !ok {
		return 0, false
	}
	return int(m.paths[i]), true
}

// find is where a port stands among all, or where it would.
func (m *PortMap) find(port uint16) (int, bool) {
	if m.ports != nil {
		return slices.BinarySearch(m.ports, port)
	}
	switch i := int(port) - int(m.first); {
	case i < 0:
		return 0, false
	case i >= len(m.paths):
		return len(m.paths), false
	default:
		return i, true
	}
}

// Add says that a source port leads over a path, whatever the map said before. It reports whether that is new. A path that
// the map does not have changes nothing.
func (m *PortMap) Add(port uint16, path int) bool {
	if path < 0 || path >= len(m.buckets) {
		return false
	}
	i, known := m.find(port)
	if known {
		before := m.paths[i]
		if int(before) == path {
			return false
		}
		b := m.buckets[before]
		k, _ := slices.BinarySearch(b, port)
		m.buckets[before] = slices.Delete(b, k, k+1)
		m.paths[i] = uint16(path)
	} else {
		m.list()
		m.ports = slices.Insert(m.ports, i, port)
		m.paths = slices.Insert(m.paths, i, uint16(path))
	}
	k, _ := slices.BinarySearch(m.buckets[path], port)
	m.buckets[path] = slices.Insert(m.buckets[path], k, port)
	return true
}

// list writes down the ports one by one.
func (m *PortMap) list() {
	if m.ports != nil {
		return
	}
	m.ports = make([]uint16, len(m.paths))
	for i := range m.ports {
		m.ports[i] = m.first + uint16(i)
	}
}

// push is Add for a port above all others.
func (m *PortMap) push(port uint16, path uint16) {
	m.ports = append(m.ports, port)
	m.paths = append(m.paths, path)
	m.buckets[path] = append(m.buckets[path], port)
}

// sort fills the buckets from paths, by counting: the ports of a path end up ascending. The two halves of the ports go side
// by side, each with its own places in the buckets: else one port would often wait for the one before it.
func (m *PortMap) sort() {
	n, half := len(m.buckets), len(m.paths)/2
	at := make([]uint32, 2*n)
	lowAt, highAt := at[:n], at[n:]
	low, high := m.paths[:half], m.paths[half:2*half]
	for i, k := range low {
		lowAt[k]++
		highAt[high[i]]++
	}
	odd := m.paths[2*half:] // none or one
	for _, k := range odd {
		highAt[k]++
	}
	all := make([]uint16, len(m.paths))
	sum := uint32(0)
	for k := range m.buckets {
		begin, middle := sum, sum+lowAt[k]
		sum = middle + highAt[k]
		if sum > begin {
			m.buckets[k] = all[begin:sum:sum]
		}
		lowAt[k], highAt[k] = begin, middle
	}
	port := m.first
	for i, k := range low {
		a := lowAt[k]
		all[a], lowAt[k] = port, a+1
		h := high[i]
		b := highAt[h]
		all[b], highAt[h] = port+uint16(half), b+1
		port++
	}
	for _, k := range odd {
		all[highAt[k]] = port + uint16(half)
	}
}

// Bytes is the memory that the map holds.
func (m *PortMap) Bytes() int {
	const header = int(unsafe.Sizeof([]uint16{}))
	n := int(unsafe.Sizeof(*m)) + header*cap(m.buckets) + 2*cap(m.ports) + 2*cap(m.paths)
	for _, b := range m.buckets {
		n += 2 * cap(b)
	}
	return n
}
