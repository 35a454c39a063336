package ecmp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// Limits of a fabric.
const (
	MaxSwitches  = 2048
	MaxHosts     = 4096
	MaxLinks     = 32768 // directed, every member of a bond for itself
	MaxBond      = 64    // members of one bond
	MaxPaths     = 4096  // between two leaves
	MaxPathLinks = 8     // of one path
	MaxName      = 128   // bytes
)

// Config is a fabric as a file describes it.
type Config struct {
	Hosts    []Host       `yaml:"hosts" json:"hosts"`
	Switches []Switch     `yaml:"switches" json:"switches"`
	Links    []LinkConfig `yaml:"links" json:"links"`
}

// Host is a peer's machine. Its own link is part of no path, since all its paths have it.
type Host struct {
	Name     string     `yaml:"name" json:"name"`                             // the peer's ID
	Addr     netip.Addr `yaml:"addr" json:"addr"`                             // what its transfers come from; IPv4
	Leaf     string     `yaml:"leaf" json:"leaf"`                             // the switch that it hangs on
	Capacity int64      `yaml:"capacity,omitempty" json:"capacity,omitempty"` // of its network card, in bit/s; 0 is unknown
}

// Switch is a switch with the hash by which it chooses among equal-cost next hops.
type Switch struct {
	Name string `yaml:"name" json:"name"`
	// Model may be left out where it is not known. The paths are known then, but which one a source port takes has to be
	// learned (Route.Known).
	Model     Model     `yaml:"model,omitempty" json:"model,omitzero"`
	Selection Selection `yaml:"selection,omitempty" json:"selection,omitzero"`
}

// LinkConfig is a cable between two switches, in both directions. Where several next hops are equally near, they stand in
// the order of the cables here.
type LinkConfig struct {
	From     string `yaml:"from" json:"from"`
	To       string `yaml:"to" json:"to"`
	Capacity int64  `yaml:"capacity,omitempty" json:"capacity,omitempty"` // bit/s each way, of each member of a bond; 0 is unknown
	OneWay   bool   `yaml:"one_way,omitempty" json:"one_way,omitempty"`   // only From to To
	// Bond is how many cables the switches take for one; 0 and 1 are a cable alone. The switch that sends chooses among them,
	// equally, after it has chosen the next hop.
	Bond int `yaml:"bond,omitempty" json:"bond,omitempty"`
	// BondModel is the hash of that choice; none: the sending switch's own. With the very same hash as the choice before,
	// some members may get nothing, and their paths no ports.
	BondModel *Model `yaml:"bond_model,omitempty" json:"bond_model,omitempty"`
}

// Fabric is a network of switches and the hosts on it. It never changes, and may be used by several goroutines.
type Fabric struct {
	hosts    []Host // sorted by name
	byHost   map[string]int
	switches []Switch
	bySwitch map[string]int32
	next     [][]cable // by switch, in the order of the configuration
	into     [][]int32 // by switch, those that have a cable to it
	links    map[LinkID]Link
	digest   uint64
}

// cable is one direction of a LinkConfig.
type cable struct {
	to      int32
	members []LinkID
	bond    Selection // among the members
	model   Model     // of that choice
	hasher  string    // the switch whose hash it is; empty where the bond has its own
}

// New makes a fabric. What is wrong is an error that names the field.
func New(c Config) (*Fabric, error) {
	f := &Fabric{byHost: map[string]int{}, bySwitch: map[string]int32{}, links: map[LinkID]Link{}}
	for _, l := range []struct {
		field    string
		n, limit int
	}{{"hosts", len(c.Hosts), MaxHosts}, {"switches", len(c.Switches), MaxSwitches}, {"links", len(c.Links), MaxLinks}} {
		if l.n > l.limit {
			return nil, fmt.Errorf("ecmp: fabric.%s: %d are more than the %d that there may be", l.field, l.n, l.limit)
		}
	}
	if err := f.addSwitches(c.Switches); err != nil {
		return nil, err
	}
	if err := f.addHosts(c.Hosts); err != nil {
		return nil, err
	}
	if err := f.addLinks(c.Links); err != nil {
		return nil, err
	}
	f.into = make([][]int32, len(f.switches))
	for s := range f.next {
		for i := range f.next[s] {
			to := f.next[s][i].to
			f.into[to] = append(f.into[to], int32(s))
		}
	}
	if err := f.checkPaths(); err != nil {
		return nil, err
	}
	f.digest = f.sum()
	return f, nil
}

func wrong(field string, format string, args ...any) error {
	return fmt.Errorf("ecmp: fabric.%s: %s", field, fmt.Sprintf(format, args...))
}

// wrongName says what is wrong with a name; empty where nothing is.
func wrongName(s string) string {
	switch {
	case s == "":
		return "missing; give a name"
	case len(s) > MaxName:
		return fmt.Sprintf("%d bytes are more than the %d of a name", len(s), MaxName)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Sprintf("%q has letters that cannot be printed", s)
	case strings.Contains(s, "->") || strings.Contains(s, "#"):
		return fmt.Sprintf("%q has \"->\" or \"#\" in it, which make up the names of links", s)
	}
	return ""
}

func (f *Fabric) addSwitches(switches []Switch) error {
	f.switches = slices.Clone(switches)
	f.next = make([][]cable, len(switches))
	for i := range f.switches {
		s := &f.switches[i]
		at := func(field string) string { return fmt.Sprintf("switches[%d].%s", i, field) }
		if w := wrongName(s.Name); w != "" {
			return wrong(at("name"), "%s", w)
		}
		if j, ok := f.bySwitch[s.Name]; ok {
			return wrong(at("name"), "%q is that of switches[%d] as well; rename one", s.Name, j)
		}
		f.bySwitch[s.Name] = int32(i)
		if field, w := s.Model.check(); w != "" {
			return wrong(at("model."+field), "%s", w)
		}
		if field, w := s.Selection.check(); w != "" {
			return wrong(at("selection."+field), "%s", w)
		}
		width := uint8(s.Model.Bits())
		if s.Selection.Bits != 0 && width != 0 && s.Selection.Bits != width {
			return wrong(at("selection.bits"), "%d, but the hash %s has %d; leave it out", s.Selection.Bits, s.Model.Kind, width)
		}
		s.Selection.Weights = slices.Clone(s.Selection.Weights)
		s.Selection.Buckets = slices.Clone(s.Selection.Buckets)
	}
	return nil
}

func (f *Fabric) addHosts(hosts []Host) error {
	addrs := map[netip.Addr]int{}
	for i, h := range hosts {
		at := func(field string) string { return fmt.Sprintf("hosts[%d].%s", i, field) }
		if w := wrongName(h.Name); w != "" {
			return wrong(at("name"), "%s", w)
		}
		if j, ok := f.byHost[h.Name]; ok {
			return wrong(at("name"), "%q is that of hosts[%d] as well; a peer has one host", h.Name, j)
		}
		f.byHost[h.Name] = i
		if w := wrongAddr(h.Addr); w != "" {
			return wrong(at("addr"), "%s", w)
		}
		if j, ok := addrs[h.Addr.Unmap()]; ok {
			return wrong(at("addr"), "%v is that of hosts[%d] as well; give each host its own", h.Addr, j)
		}
		addrs[h.Addr.Unmap()] = i
		if _, ok := f.bySwitch[h.Leaf]; !ok {
			return wrong(at("leaf"), "no switch is called %q; add it to fabric.switches, or name another", h.Leaf)
		}
		if h.Capacity < 0 {
			return wrong(at("capacity"), "%d bit/s is less than nothing; leave it out where it is not known", h.Capacity)
		}
	}
	f.hosts = slices.Clone(hosts)
	slices.SortFunc(f.hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	for i := range f.hosts {
		f.hosts[i].Addr = f.hosts[i].Addr.Unmap()
		f.byHost[f.hosts[i].Name] = i
	}
	return nil
}

func (f *Fabric) addLinks(links []LinkConfig) error {
	seen := map[[2]int32]int{}
	for i, l := range links {
		at := func(field string) string { return fmt.Sprintf("links[%d].%s", i, field) }
		var ends [2]int32
		for e, end := range []struct{ field, name string }{{"from", l.From}, {"to", l.To}} {
			s, ok := f.bySwitch[end.name]
			if !ok {
				return wrong(at(end.field), "no switch is called %q; add it to fabric.switches, or name another", end.name)
			}
			ends[e] = s
		}
		if l.Capacity < 0 {
			return wrong(at("capacity"), "%d bit/s is less than nothing; leave it out where it is not known", l.Capacity)
		}
		if ends[0] == ends[1] {
			return wrong(at("to"), "a loop from %q to itself; name another switch", l.From)
		}
		if l.Bond < 0 || l.Bond > MaxBond {
			return wrong(at("bond"), "%d is not from 0 to %d", l.Bond, MaxBond)
		}
		if l.BondModel != nil {
			if l.Bond < 2 {
				return wrong(at("bond_model"), "there is no bond; set bond to 2 or more, or leave it out")
			}
			if field, w := l.BondModel.check(); w != "" {
				return wrong(at("bond_model."+field), "%s", w)
			}
		}
		directions := [][2]int32{ends, {ends[1], ends[0]}}
		if l.OneWay {
			directions = directions[:1]
		}
		for _, d := range directions {
			if j, ok := seen[d]; ok {
				return wrong(fmt.Sprintf("links[%d]", i), "%s to %s is in links[%d] already; for parallel cables set bond there",
					f.switches[d[0]].Name, f.switches[d[1]].Name, j)
			}
			seen[d] = i
			if err := f.addCable(i, d, &l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Fabric) addCable(i int, d [2]int32, l *LinkConfig) error {
	from := &f.switches[d[0]]
	c := cable{to: d[1], model: from.Model, hasher: from.Name}
	if l.BondModel != nil {
		c.model, c.hasher = *l.BondModel, ""
	}
	if from.Selection.Kind == HashRange {
		c.bond.Kind = HashRange
	}
	base := from.Name + "->" + f.switches[d[1]].Name
	for m := range max(1, l.Bond) {
		name := base
		if l.Bond > 1 {
			name = fmt.Sprintf("%s#%d", base, m+1)
		}
		id := NameLink(name)
		if other, ok := f.links[id]; ok {
			return wrong(fmt.Sprintf("links[%d]", i), "the names %q and %q have one hash, %08x; rename a switch", name, other.Name, uint32(id))
		}
		if len(f.links) == MaxLinks {
			return wrong(fmt.Sprintf("links[%d]", i), "%q would be more than the %d links that there may be, of both directions and bonds", name, MaxLinks)
		}
		f.links[id] = Link{ID: id, Name: name, Capacity: l.Capacity}
		c.members = append(c.members, id)
	}
	f.next[d[0]] = append(f.next[d[0]], c)
	return nil
}

// distances are how many links lie between each switch and this one; far where there is no way.
func (f *Fabric) distances(to int32) []int {
	d := make([]int, len(f.switches))
	for i := range d {
		d[i] = far
	}
	d[to] = 0
	queue := []int32{to}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, from := range f.into[s] {
			if d[from] == far {
				d[from] = d[s] + 1
				queue = append(queue, from)
			}
		}
	}
	return d
}

const far = math.MaxInt

// checkPaths sees to it that every pair of leaves has a number of paths that is within bounds, and that weights and buckets
// are those of the next hops that they choose among. Leaves with no way between them are allowed: fabrics may be several.
func (f *Fabric) checkPaths() error {
	isLeaf := make([]bool, len(f.switches))
	for _, h := range f.hosts {
		isLeaf[f.bySwitch[h.Leaf]] = true
	}
	for to, leaf := range isLeaf {
		if !leaf {
			continue
		}
		t := tree{f: f, to: int32(to), distance: f.distances(int32(to)), paths: make([]int, len(f.switches))}
		for from, leaf := range isLeaf {
			if !leaf || t.distance[from] == far {
				continue
			}
			if _, err := t.count(int32(from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tree is the shortest ways from every switch to one.
type tree struct {
	f        *Fabric
	to       int32
	distance []int
	paths    []int // by switch; 0: not counted yet
}

// count is how many paths there are from a switch.
func (t *tree) count(s int32) (int, error) {
	sw := &t.f.switches[s]
	if t.distance[s] > MaxPathLinks {
		return 0, fmt.Errorf("ecmp: fabric.links: from %q to %q it is %d links, more than the %d of a path", sw.Name, t.f.switches[t.to].Name, t.distance[s], MaxPathLinks)
	}
	if s == t.to {
		return 1, nil
	}
	if t.paths[s] != 0 {
		return t.paths[s], nil
	}
	n, hops := 0, 0
	for i := range t.f.next[s] {
		c := &t.f.next[s][i]
		if t.distance[c.to] != t.distance[s]-1 {
			continue
		}
		hops++
		further, err := t.count(c.to)
		if err != nil {
			return 0, err
		}
		if n += further * len(c.members); n > MaxPaths {
			return 0, fmt.Errorf("ecmp: fabric.links: from %q to %q there are more than %d paths", sw.Name, t.f.switches[t.to].Name, MaxPaths)
		}
	}
	if hops > 1 {
		if field, w := sw.Selection.fits(hops); w != "" {
			return 0, wrong(fmt.Sprintf("switches[%d].selection.%s", s, field), "%s from %q towards %q", w, sw.Name, t.f.switches[t.to].Name)
		}
	}
	t.paths[s] = n
	return n, nil
}

// sum is the digest: hosts by name, and switches and cables as they stand in the configuration.
func (f *Fabric) sum() uint64 {
	var h xxh3.Hasher
	for _, host := range f.hosts {
		fmt.Fprintf(&h, "host %q %q\n", host.Name, host.Leaf)
	}
	for s := range f.switches {
		fmt.Fprintf(&h, "switch %q\n", f.switches[s].Name)
		for i := range f.next[s] {
			fmt.Fprintf(&h, "to %q %d\n", f.switches[f.next[s][i].to].Name, len(f.next[s][i].members))
		}
	}
	return max(h.Sum64(), 1)
}

// Digest is of everything that links' names and paths depend on: hosts and their leaves, switches, links and bonds, with
// their order. Hashes, addresses and capacities are not in it. It is never 0.
func (f *Fabric) Digest() uint64 { return f.digest }

// Link is the link of this ID.
func (f *Fabric) Link(id LinkID) (Link, bool) {
	l, ok := f.links[id]
	return l, ok
}

// Links are all links, by name.
func (f *Fabric) Links() []Link {
	out := make([]Link, 0, len(f.links))
	for _, l := range f.links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Hosts are all hosts, by name.
func (f *Fabric) Hosts() []Host { return slices.Clone(f.hosts) }

// Host is the host of this name.
func (f *Fabric) Host(name string) (Host, bool) {
	i, ok := f.byHost[name]
	if !ok {
		return Host{}, false
	}
	return f.hosts[i], true
}
