package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/zeebo/xxh3"

	"shoal/internal/ecmp"
)

// Host is one host of the fabric.
type Host struct {
	Name    string     `json:"name"`    // h0, h1, ...: what Flow.Src and Flow.Dst count
	Leaf    string     `json:"leaf"`    // the switch that it hangs on
	Addr    netip.Addr `json:"addr"`    // on the fabric
	Control netip.Addr `json:"control"` // on the management network
}

// tier is how high a node stands.
type tier uint8

const (
	hosts tier = iota
	leaves
	spines
	cores
)

// node is one namespace: a host or a switch.
type node struct {
	name string
	tier tier
	host int // index among the hosts
	// subnets that a switch reaches through one cable, and what is reached through any of several: kernel ECMP.
	routes []route
}

// route is one route of a node: to dst by any of these cables' other ends, in this order. The order is the kernel's
// numbering of next hops.
type route struct {
	dst    netip.Prefix
	cables []int
}

// end is one end of a cable.
type end struct {
	node int
	dev  string
	addr netip.Prefix
	mac  net.HardwareAddr
}

// cable joins the lower node a to the higher node b.
type cable struct{ a, b end }

// plan is the fabric on paper: everything that Up makes, in its order. It is a pure function of the configuration.
type plan struct {
	cfg    Config
	nodes  []node // hosts, leaves, spines, cores
	cables []cable
	hosts  []Host
	byName map[string]int
}

// management is the name of the namespace that holds the bridge of the management network.
const management = "mgmt"

func newPlan(c Config) *plan {
	p := &plan{cfg: c, byName: map[string]int{}}
	nLeaves, nSpines := c.Pods*c.Leaves, c.Pods*c.Spines
	for i := range nLeaves * c.HostsPerLeaf {
		leaf := i / c.HostsPerLeaf
		p.hosts = append(p.hosts, Host{Name: fmt.Sprintf("h%d", i), Leaf: fmt.Sprintf("leaf%d", leaf),
			Addr: hostAddr(leaf, i%c.HostsPerLeaf), Control: netip.AddrFrom4([4]byte{10, 99, 0, byte(i + 1)})})
		p.add(node{name: p.hosts[i].Name, tier: hosts, host: i})
	}
	for i := range nLeaves {
		p.add(node{name: fmt.Sprintf("leaf%d", i), tier: leaves})
	}
	for i := range nSpines {
		p.add(node{name: fmt.Sprintf("spine%d", i), tier: spines})
	}
	for i := range c.Cores {
		p.add(node{name: fmt.Sprintf("core%d", i), tier: cores})
	}
	for i := range p.hosts {
		leaf := i / c.HostsPerLeaf
		n := p.connect(p.hosts[i].Name, p.hosts[i].Leaf, netip.PrefixFrom(p.hosts[i].Addr, 32), netip.PrefixFrom(gateway(leaf), 32))
		p.cables[n].a.dev = "data"
		p.route(p.hosts[i].Name, netip.PrefixFrom(netip.IPv4Unspecified(), 0), n)
		p.route(p.hosts[i].Leaf, netip.PrefixFrom(p.hosts[i].Addr, 32), n)
	}
	p.connectSwitches()
	return p
}

// connectSwitches lays the cables above the hosts, and the routes over them.
func (p *plan) connectSwitches() {
	c := p.cfg
	up := map[string][]int{} // of a leaf or a spine: its cables upwards
	between := func(lower, upper string) int {
		n := len(p.cables) - len(p.hosts)
		low := netip.AddrFrom4([4]byte{10, 2, byte(n >> 6), byte(n&63)<<2 + 1})
		k := p.connect(lower, upper, netip.PrefixFrom(low, 30), netip.PrefixFrom(low.Next(), 30))
		up[lower] = append(up[lower], k)
		return k
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	for pod := range c.Pods {
		for l := range c.Leaves {
			leaf := pod*c.Leaves + l
			name := fmt.Sprintf("leaf%d", leaf)
			for s := range c.Spines {
				spine := fmt.Sprintf("spine%d", pod*c.Spines+s)
				p.route(spine, subnet(leaf), between(name, spine))
			}
			p.route(name, all, up[name]...)
		}
	}
	if c.Pods == 1 {
		return
	}
	plane := c.Cores / c.Spines // cores of each plane
	for pod := range c.Pods {
		for s := range c.Spines {
			name := fmt.Sprintf("spine%d", pod*c.Spines+s)
			for k := range plane {
				core := fmt.Sprintf("core%d", s*plane+k)
				n := between(name, core)
				for l := range c.Leaves {
					p.route(core, subnet(pod*c.Leaves+l), n)
				}
			}
			p.route(name, all, up[name]...)
		}
	}
}

func (p *plan) add(n node) {
	p.byName[n.name] = len(p.nodes)
	p.nodes = append(p.nodes, n)
}

// connect lays a cable; an interface is called after what it leads to.
func (p *plan) connect(lower, upper string, a, b netip.Prefix) int {
	n := len(p.cables)
	mac := func(side byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0x5a, 0, byte(n >> 8), byte(n), side} }
	p.cables = append(p.cables, cable{
		a: end{node: p.byName[lower], dev: upper, addr: a, mac: mac(0)},
		b: end{node: p.byName[upper], dev: lower, addr: b, mac: mac(1)},
	})
	return n
}

func (p *plan) route(name string, dst netip.Prefix, cables ...int) {
	n := &p.nodes[p.byName[name]]
	n.routes = append(n.routes, route{dst, cables})
}

// ends are the two ends of a cable as seen from a node.
func (c *cable) ends(node int) (own, other *end) {
	if c.a.node == node {
		return &c.a, &c.b
	}
	return &c.b, &c.a
}

func hostAddr(leaf, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 1, byte(leaf), byte(i + 1)})
}
func gateway(leaf int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(leaf), 254}) }
func subnet(leaf int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(leaf), 0}), 24)
}

// controlGateway is the management bridge's own address.
func controlGateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 0, 254}) }

// seed is a switch's hash seed: of its own, so that choices do not polarise from tier to tier. The kernel takes 0 for
// "any".
func (p *plan) seed(name string) uint32 {
	return max(1, uint32(xxh3.HashStringSeed("lab hash seed "+name, p.cfg.Seed)))
}

// seeds are those of all switches.
func (p *plan) seeds() map[string]uint32 {
	m := map[string]uint32{}
	for _, n := range p.nodes {
		if n.tier != hosts {
			m[n.name] = p.seed(n.name)
		}
	}
	return m
}

// describe is the fabric as policies see it. The links stand in the order of the kernel's next hops.
func (p *plan) describe(seeds map[string]uint32) ecmp.Config {
	var c ecmp.Config
	for _, h := range p.hosts {
		c.Hosts = append(c.Hosts, ecmp.Host{Name: h.Name, Addr: h.Addr, Leaf: h.Leaf, Capacity: p.cfg.Rate})
	}
	for _, n := range p.nodes {
		if n.tier != hosts {
			c.Switches = append(c.Switches, ecmp.Switch{Name: n.name, Model: ecmp.Model{Kind: ecmp.Linux, Policy: 3, Seed: seeds[n.name]},
				Selection: ecmp.Selection{Kind: ecmp.HashRange}})
		}
	}
	for _, l := range p.cables[len(p.hosts):] {
		c.Links = append(c.Links, ecmp.LinkConfig{From: p.nodes[l.a.node].name, To: p.nodes[l.b.node].name, Capacity: p.cfg.Rate})
	}
	return c
}

// namespaces are the names of all that is made.
func (p *plan) namespaces() []string {
	var names []string
	for _, n := range p.nodes {
		names = append(names, p.cfg.Name+"-"+n.name)
	}
	return append(names, p.cfg.Name+"-"+management)
}

// linkName is what package ecmp calls the direction of a cable.
func linkName(from, to string) string { return from + "->" + to }

// linkNames are the names of a path's links, in order of the names.
func linkNames(f *ecmp.Fabric, p ecmp.Path) []string {
	names := make([]string, len(p.Links))
	for i, id := range p.Links {
		l, _ := f.Link(id)
		names[i] = l.Name
	}
	slices.Sort(names)
	return names
}
