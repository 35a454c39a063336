package ecmp

import "slices"

// batch is how many ports go through the stages at a time: what they need stays in the first cache.
const (
	batch      = 512
	smallBatch = 64 // where few ports are wanted
)

// Map is the path of every port of the range. t.SrcPort does not count.
func (r *Route) Map(t Tuple, ports Range) *PortMap {
	m := &PortMap{buckets: make([][]uint16, len(r.paths)), first: ports.First}
	if !r.known || ports.Len() == 0 {
		m.list()
		return m
	}
	m.paths = make([]uint16, ports.Len())
	if r.mapLinear(t, m) {
		return m
	}
	w := walker{r: r, t: t, size: min(batch, ports.Len())}
	list := make([]uint16, w.size)
	for from := 0; from < len(m.paths); from += w.size {
		n := min(w.size, len(m.paths)-from)
		for i := range list[:n] {
			list[i] = ports.First + uint16(from+i)
		}
		w.walk(list[:n], m.paths[from:from+n])
	}
	m.sort()
	return m
}

// Ports is a map of some ports: it takes the ports of the range in order, without those that skip names, until every path
// has perPath of them, or the range is used up. skip may be nil. A path may end up with fewer, or with none where the
// hashes of several stages are alike.
func (r *Route) Ports(t Tuple, ports Range, perPath int, skip func(port uint16) bool) *PortMap {
	m := NewPortMap(len(r.paths))
	if !r.known || perPath <= 0 {
		return m
	}
	perPath = min(perPath, ports.Len())
	wanted := len(r.paths) * perPath
	if wanted <= ports.Len() {
		all := make([]uint16, 3*wanted)
		m.ports, m.paths = all[:0:wanted], all[wanted:wanted:2*wanted]
		for k := range m.buckets {
			at := 2*wanted + k*perPath
			m.buckets[k] = all[at : at : at+perPath]
		}
	}
	w := walker{r: r, t: t, size: batch}
	if wanted <= 4*smallBatch {
		w.size = smallBatch
	}
	list, paths := make([]uint16, 0, w.size), make([]uint16, w.size)
	full := 0
	for next := int(ports.First); next <= int(ports.Last) && full < len(r.paths); {
		for list = list[:0]; len(list) < w.size && next <= int(ports.Last); next++ {
			if skip == nil || !skip(uint16(next)) {
				list = append(list, uint16(next))
			}
		}
		w.walk(list, paths)
		for i, port := range list {
			path := paths[i]
			have := len(m.buckets[path])
			if have == perPath {
				continue
			}
			m.push(port, path)
			if have+1 == perPath {
				full++
			}
		}
	}
	return m
}

// walker sends many ports of one flow through the stages of a route.
type walker struct {
	r        *Route
	t        Tuple
	size     int        // ports at a time, at most
	prepared []prepared // by choice
	levels   []*level   // by depth
}

type prepared struct {
	Prepared
	ready bool
}

// level is the memory of one depth of the walk: ports that are at one stage, and then ordered by the hop that they take.
type level struct {
	hashes []uint32
	picks  []uint16
	ports  []uint16
	slots  []uint16 // where the path of each port goes
	ends   []int32  // by hop
}

func (w *walker) level(depth int) *level {
	for len(w.levels) <= depth {
		w.levels = append(w.levels, &level{hashes: make([]uint32, w.size), picks: make([]uint16, w.size)})
	}
	return w.levels[depth]
}

// walk writes the path of each port to out. There are at most size of them.
func (w *walker) walk(ports, out []uint16) {
	if w.prepared == nil {
		w.prepared = make([]prepared, w.r.choices)
	}
	w.from(0, 0, 0, ports, nil, out)
}

// from goes on from a stage, where these ports have come to; first is the index of its first path. The path of ports[i]
// goes to out[slots[i]], or where slots is nil to out[i].
func (w *walker) from(at int32, first, depth int, ports, slots, out []uint16) {
	s := &w.r.stages[at]
	for s.paths > 1 && len(s.hops) == 1 {
		s = &w.r.stages[s.hops[0].to]
	}
	if s.paths == 1 {
		for i := range ports {
			out[slot(slots, i)] = uint16(first)
		}
		return
	}
	l := w.level(depth)
	p := &w.prepared[s.choice]
	if !p.ready {
		p.Prepared, p.ready = s.model.Prepare(w.t), true
	}
	p.each(ports, l.hashes)
	hashes := l.hashes[:len(ports)]
	if s.flat && slots == nil && first == 0 {
		s.choose.each(hashes, out)
		return
	}
	picks := l.picks[:len(ports)]
	s.choose.each(hashes, picks)
	if s.flat {
		for i, k := range picks {
			out[slot(slots, i)] = uint16(first) + k
		}
		return
	}
	w.branch(s, first, depth, ports, slots, picks, out)
}

func slot(slots []uint16, i int) int {
	if slots == nil {
		return i
	}
	return int(slots[i])
}

// branch orders the ports by the hop that they take, and goes on with each hop.
func (w *walker) branch(s *stage, first, depth int, ports, slots, picks, out []uint16) {
	l := w.levels[depth]
	if l.ports == nil {
		l.ports, l.slots = make([]uint16, w.size), make([]uint16, w.size)
	}
	l.ends = slices.Grow(l.ends[:0], len(s.hops))[:len(s.hops)]
	clear(l.ends)
	for _, k := range picks {
		l.ends[k]++
	}
	sum := int32(0)
	for k, n := range l.ends { // begins, which turn to ends as ports are put in place
		l.ends[k] = sum
		sum += n
	}
	for i, k := range picks {
		at := l.ends[k]
		l.ends[k]++
		l.ports[at], l.slots[at] = ports[i], uint16(slot(slots, i))
	}
	begin := int32(0)
	for k, end := range l.ends {
		if end > begin {
			h := &s.hops[k]
			w.from(h.to, first+h.first, depth+1, l.ports[begin:end], l.slots[begin:end], out)
		}
		begin = end
	}
}
