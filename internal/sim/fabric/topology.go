package fabric

import (
	"fmt"
	"math"
	"net/netip"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// DstPort is the destination port of all data, as in the ns-3 family of simulators.
const DstPort = 100

// LinkIndex is the place of a link in Topology.Links.
type LinkIndex int32

// Link is one direction of a cable.
type Link struct {
	ID       ecmp.LinkID // 0 for a host's own link
	Name     string      // "h3->leaf0"
	From, To int32       // nodes: hosts first, by their index, then switches in the order of the configuration
	Rate     int64       // bit/s
	Delay    sim.Time    // propagation
}

// Topology is a network of hosts and switches: the truth, whatever the hosts believe of it. It is made from the same
// description that the product reads, and finds paths by the same code. It never changes, but it remembers routes that
// it was asked for, so that it is not for several goroutines.
type Topology struct {
	Links []Link

	config   ecmp.Config
	fabric   *ecmp.Fabric
	hosts    []ecmp.Host
	leaf     []int32 // by host: its switch, among the switches
	up, down []LinkIndex
	byID     map[ecmp.LinkID]LinkIndex
	nodes    int
	routes   map[[2]int32]*route // by leaves
}

type route struct {
	*ecmp.Route
	paths [][]LinkIndex
}

// NewTopology takes the hosts in the order of the configuration. rate is that of cables and hosts for which the
// configuration has none, delay is every cable's.
func NewTopology(net ecmp.Config, rate int64, delay sim.Time) (*Topology, error) {
	if rate <= 0 || delay < 0 {
		return nil, fmt.Errorf("fabric: links of %d bit/s and %v; give a rate above 0, and a delay", rate, delay)
	}
	f, err := ecmp.New(net)
	if err != nil {
		return nil, err
	}
	t := &Topology{config: net, fabric: f, hosts: net.Hosts, byID: map[ecmp.LinkID]LinkIndex{}, routes: map[[2]int32]*route{}}
	t.nodes = len(net.Hosts) + len(net.Switches)
	bySwitch := map[string]int32{}
	for i, s := range net.Switches {
		bySwitch[s.Name] = int32(i)
	}
	add := func(name string, from, to int32, capacity int64, id ecmp.LinkID) LinkIndex {
		if capacity == 0 {
			capacity = rate
		}
		t.Links = append(t.Links, Link{ID: id, Name: name, From: from, To: to, Rate: capacity, Delay: delay})
		return LinkIndex(len(t.Links) - 1)
	}
	n := int32(len(net.Hosts))
	for i, h := range net.Hosts {
		s := bySwitch[h.Leaf]
		t.leaf = append(t.leaf, s)
		t.up = append(t.up, add(h.Name+"->"+h.Leaf, int32(i), n+s, h.Capacity, 0))
		t.down = append(t.down, add(h.Leaf+"->"+h.Name, n+s, int32(i), h.Capacity, 0))
	}
	for _, l := range net.Links {
		ends := [][2]string{{l.From, l.To}, {l.To, l.From}}
		if l.OneWay {
			ends = ends[:1]
		}
		for _, e := range ends {
			for m := range max(1, l.Bond) {
				name := e[0] + "->" + e[1]
				if l.Bond > 1 {
					name = fmt.Sprintf("%s#%d", name, m+1)
				}
				id := ecmp.NameLink(name)
				t.byID[id] = add(name, n+bySwitch[e[0]], n+bySwitch[e[1]], l.Capacity, id)
			}
		}
	}
	return t, nil
}

// Hosts is how many hosts there are, Nodes how many hosts and switches.
func (t *Topology) Hosts() int { return len(t.hosts) }

// Nodes is how many hosts and switches there are.
func (t *Topology) Nodes() int { return t.nodes }

// Host is the host with this index.
func (t *Topology) Host(i int) ecmp.Host { return t.hosts[i] }

// Config is the description that it was made from. Nobody changes it.
func (t *Topology) Config() ecmp.Config { return t.config }

// Fabric is the description that the paths come from.
func (t *Topology) Fabric() *ecmp.Fabric { return t.fabric }

// ByID is the link with this ID.
func (t *Topology) ByID(id ecmp.LinkID) (LinkIndex, bool) {
	l, ok := t.byID[id]
	return l, ok
}

// Up is the link from a host to its leaf, Down the one back.
func (t *Topology) Up(host int) LinkIndex { return t.up[host] }

// Down is the link from its leaf to a host.
func (t *Topology) Down(host int) LinkIndex { return t.down[host] }

func (t *Topology) route(src, dst int) *route {
	key := [2]int32{t.leaf[src], t.leaf[dst]}
	if r := t.routes[key]; r != nil {
		return r
	}
	of, err := t.fabric.Route(t.hosts[src].Name, t.hosts[dst].Name)
	if err != nil {
		panic(fmt.Sprintf("fabric: from host %d to host %d of %d: %v", src, dst, len(t.hosts), err))
	}
	r := &route{Route: of}
	for _, p := range of.Paths() {
		var links []LinkIndex
		for _, id := range p.Links {
			links = append(links, t.byID[id])
		}
		r.paths = append(r.paths, links)
	}
	t.routes[key] = r
	return r
}

// Connected says whether there is a way between two hosts.
func (t *Topology) Connected(src, dst int) bool {
	if src == dst {
		return false
	}
	if t.routes[[2]int32{t.leaf[src], t.leaf[dst]}] != nil {
		return true
	}
	_, err := t.fabric.Route(t.hosts[src].Name, t.hosts[dst].Name)
	return err == nil
}

// Route is the choice among the paths of two hosts that are Connected.
func (t *Topology) Route(src, dst int) *ecmp.Route { return t.route(src, dst).Route }

// Paths are the links between the two hosts' leaves, of each path of Route, in its order. They are shared: do not change
// them. Up(src) comes before, and Down(dst) after.
func (t *Topology) Paths(src, dst int) [][]LinkIndex { return t.route(src, dst).paths }

// Tuple is what the packets of a flow carry.
func (t *Topology) Tuple(src, dst int, port uint16) ecmp.Tuple {
	return ecmp.Tuple{Src: t.hosts[src].Addr, Dst: t.hosts[dst].Addr, SrcPort: port, DstPort: DstPort, Proto: ecmp.UDP}
}

// PathOf is the path that the switches' hashes give a flow with this source port.
func (t *Topology) PathOf(src, dst int, port uint16) int {
	return t.Route(src, dst).PathOf(t.Tuple(src, dst, port))
}

// BackOf is the path that the acknowledgements of that flow take: they have addresses and ports the other way round.
func (t *Topology) BackOf(src, dst int, port uint16) int {
	return t.Route(dst, src).PathOf(ecmp.Tuple{Src: t.hosts[dst].Addr, Dst: t.hosts[src].Addr, SrcPort: DstPort, DstPort: port, Proto: ecmp.UDP})
}

// LeafSpine describes a network of two tiers: host i hangs on leaf i/perLeaf. As in the ns-3 family every switch hashes
// with MurmurHash3, its own node number as the seed: hosts come first, then leaves, then spines.
func LeafSpine(leaves, perLeaf, spines int, rate int64) ecmp.Config {
	return FatTree(1, leaves, perLeaf, spines, 0, rate)
}

// FatTree describes a network of pods, each with so many leaves and spines of its own; core k hangs on spine k mod spines
// of every pod. With one pod and no cores it is LeafSpine.
func FatTree(pods, leaves, perLeaf, spines, cores int, rate int64) ecmp.Config {
	var c ecmp.Config
	n := pods * leaves * perLeaf
	for i := range n {
		c.Hosts = append(c.Hosts, ecmp.Host{Name: fmt.Sprintf("h%d", i), Addr: hostAddr(i), Leaf: fmt.Sprintf("leaf%d", i/perLeaf), Capacity: rate})
	}
	sw := func(kind string, i int) {
		c.Switches = append(c.Switches, ecmp.Switch{Name: fmt.Sprintf("%s%d", kind, i), Model: ecmp.Model{Kind: ecmp.Murmur3, Seed: uint32(n + len(c.Switches))}})
	}
	for i := range pods * leaves {
		sw("leaf", i)
	}
	for i := range pods * spines {
		sw("spine", i)
	}
	for i := range cores {
		sw("core", i)
	}
	cable := func(from string, i int, to string, j int) {
		c.Links = append(c.Links, ecmp.LinkConfig{From: fmt.Sprintf("%s%d", from, i), To: fmt.Sprintf("%s%d", to, j), Capacity: rate})
	}
	for pod := range pods {
		for l := range leaves {
			for s := range spines {
				cable("leaf", pod*leaves+l, "spine", pod*spines+s)
			}
		}
		for s := range spines {
			for k := s; k < cores; k += spines {
				cable("spine", pod*spines+s, "core", k)
			}
		}
	}
	return c
}

// hostAddr is 11.0.0.1 + (i << 8), as in the ns-3 family.
func hostAddr(i int) netip.Addr {
	if i < 0 || i > math.MaxUint16 {
		panic(fmt.Sprintf("fabric: host %d has no address", i))
	}
	return netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 1})
}
