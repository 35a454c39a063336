package ecmp

import (
	"fmt"
	"slices"
)

// Route is the shortest ways from one host's leaf to another's: a tree of choices, in which the tuple of a flow takes one
// path. It never changes, and may be used by several goroutines.
type Route struct {
	stages  []stage // the first one is the source's leaf
	choices int     // stages with something to choose
	known   bool
	paths   []Path
}

// stage is a switch on the way, or the members of a bond: one choice.
type stage struct {
	via       string // the switch; empty for a bond
	hasher    string // the switch whose hash chooses; empty for a bond that has its own
	model     Model
	selection Selection
	hops      []hop
	paths     int     // from here on
	choose    chooser // of model and selection
	flat      bool    // every hop is one path: a hop's index is the path's
	choice    int     // numbers the stages with something to choose
}

// hop is one of the things to choose.
type hop struct {
	link   LinkID
	isLink bool  // not so for a bond as a whole, whose members are links
	to     int32 // stage
	first  int   // index of its first path, from this stage on
}

// Route finds the paths between two hosts, by their names. It is not cheap: keep it.
func (f *Fabric) Route(src, dst string) (*Route, error) {
	var leaf [2]int32
	for i, name := range []string{src, dst} {
		h, ok := f.Host(name)
		if !ok {
			return nil, fmt.Errorf("ecmp: no host of the fabric is called %q; add it to fabric.hosts", name)
		}
		leaf[i] = f.bySwitch[h.Leaf]
	}
	if src == dst {
		return nil, fmt.Errorf("ecmp: %q is both ends of the route; nothing leaves the host", src)
	}
	b := builder{tree: tree{f: f, to: leaf[1], distance: f.distances(leaf[1])}, at: map[int32]int32{}}
	if b.distance[leaf[0]] == far {
		return nil, fmt.Errorf("ecmp: there is no way from %q to %q: no links lead from switch %q to %q",
			src, dst, f.switches[leaf[0]].Name, f.switches[leaf[1]].Name)
	}
	b.stage(leaf[0])
	r := &Route{stages: b.stages}
	r.finish()
	return r, nil
}

// builder makes the stages of a route, each switch once.
type builder struct {
	tree
	stages []stage
	at     map[int32]int32 // stage, by switch
}

// stage is the stage of a switch, made where it is not there. The checks of New hold: nothing is too long or too many.
func (b *builder) stage(s int32) int32 {
	if i, ok := b.at[s]; ok {
		return i
	}
	i := int32(len(b.stages))
	b.at[s] = i
	sw := &b.f.switches[s]
	b.stages = append(b.stages, stage{via: sw.Name, hasher: sw.Name, model: sw.Model, selection: sw.Selection})
	var hops []hop
	paths := 0
	for k := range b.f.next[s] {
		c := &b.f.next[s][k]
		if b.distance[c.to] != b.distance[s]-1 {
			continue
		}
		to := b.stage(c.to)
		h := hop{link: c.members[0], isLink: true, to: to, first: paths}
		if len(c.members) > 1 {
			h.isLink, h.to = false, b.bond(c, to)
		}
		hops = append(hops, h)
		paths += b.stages[h.to].paths
	}
	b.stages[i].hops, b.stages[i].paths = hops, paths
	if len(hops) == 0 {
		b.stages[i].paths = 1 // the destination's leaf
	}
	return i
}

// bond is the stage of a bond's members, all of which lead to one stage.
func (b *builder) bond(c *cable, to int32) int32 {
	s := stage{hasher: c.hasher, model: c.model, selection: c.bond}
	for _, id := range c.members {
		s.hops = append(s.hops, hop{link: id, isLink: true, to: to, first: s.paths})
		s.paths += b.stages[to].paths
	}
	b.stages = append(b.stages, s)
	return int32(len(b.stages) - 1)
}

// finish computes what follows from the stages.
func (r *Route) finish() {
	r.choices, r.known = 0, true
	for i := range r.stages {
		s := &r.stages[i]
		if len(s.hops) < 2 {
			continue
		}
		s.choice = r.choices
		r.choices++
		r.known = r.known && s.model.Kind != Unknown
		selection := s.selection
		if selection.Bits == 0 {
			selection.Bits = uint8(s.model.Bits())
		}
		s.choose = newChooser(&selection, len(s.hops))
		s.flat = s.paths == len(s.hops)
	}
	if r.paths == nil {
		r.paths = make([]Path, 0, r.stages[0].paths)
		r.list(0, Path{})
	}
}

// list adds the paths that go on from a stage after what so far holds.
func (r *Route) list(at int32, so Path) {
	s := &r.stages[at]
	if s.via != "" {
		so.Via = append(slices.Clip(so.Via), s.via)
	}
	if len(s.hops) == 0 {
		r.paths = append(r.paths, Path{Links: slices.Clone(so.Links), Via: slices.Clone(so.Via)})
		return
	}
	for _, h := range s.hops {
		further := so
		if h.isLink {
			further.Links = append(slices.Clip(so.Links), h.link)
		}
		r.list(h.to, further)
	}
}

// Paths are all paths; an index into them is what "path" means for this pair of hosts. There is one, without links, where
// both hang on one leaf. The slice is shared: do not change it.
func (r *Route) Paths() []Path { return r.paths }

// Known says whether the hash of every switch that has something to choose is known. Where it is not, PathOf is -1 and maps
// are empty.
func (r *Route) Known() bool { return r.known }

// With is the same route with other hashes: model is asked for every switch that has something to choose, and gives its
// hash, or the present one. Bonds with a hash of their own keep it; others follow their switch. It is how candidates for
// FitModel are made.
func (r *Route) With(model func(name string, now Model) Model) (*Route, error) {
	out := &Route{stages: slices.Clone(r.stages), paths: r.paths}
	for i := range out.stages {
		s := &out.stages[i]
		if len(s.hops) < 2 || s.hasher == "" {
			continue
		}
		m := model(s.hasher, s.model)
		if field, w := m.check(); w != "" {
			return nil, fmt.Errorf("ecmp: model of %q: %s: %s", s.hasher, field, w)
		}
		if b := int(s.selection.Bits); b != 0 && m.Kind != Unknown && b != m.Bits() {
			return nil, fmt.Errorf("ecmp: model of %q: %s has %d bits, and selection.bits says %d", s.hasher, m.Kind, m.Bits(), b)
		}
		s.model = m
	}
	out.finish()
	return out, nil
}

// PathOf is the path of a flow: an index into Paths. It allocates nothing.
func (r *Route) PathOf(t Tuple) int {
	if !r.known {
		return -1
	}
	path, at := 0, int32(0)
	for {
		s := &r.stages[at]
		switch {
		case s.paths == 1:
			return path
		case len(s.hops) == 1:
			at = s.hops[0].to
		default:
			h := &s.hops[s.choose.pick(s.model.Hash(t))]
			path += h.first
			at = h.to
		}
	}
}
