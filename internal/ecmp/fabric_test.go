package ecmp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func murmurs(i int) Model { return Model{Kind: Murmur3, Seed: uint32(i)} }

// names are the links of a path.
func names(f *Fabric, p Path) []string {
	var out []string
	for _, id := range p.Links {
		l, ok := f.Link(id)
		if !ok {
			l.Name = fmt.Sprintf("unknown %d", id)
		}
		out = append(out, l.Name)
	}
	return out
}

func TestPathsOfTwoTiers(t *testing.T) {
	f := mustNew(t, leafSpine(3, 3, 2, murmurs, Selection{}))
	r := mustRoute(t, f, "h1.1", "h3.2")
	var got [][]string
	for _, p := range r.Paths() {
		got = append(got, append(names(f, p), p.Via...))
	}
	want := [][]string{
		{"leaf1->spine1", "spine1->leaf3", "leaf1", "spine1", "leaf3"},
		{"leaf1->spine2", "spine2->leaf3", "leaf1", "spine2", "leaf3"},
		{"leaf1->spine3", "spine3->leaf3", "leaf1", "spine3", "leaf3"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	l, _ := f.Link(NameLink("leaf1->spine2"))
	if want := (Link{NameLink("leaf1->spine2"), "leaf1->spine2", 100e9}); l != want {
		t.Errorf("%+v, want %+v", l, want)
	}
	if _, ok := f.Link(NameLink("leaf1->leaf2")); ok {
		t.Error("a link that is not there")
	}
	if h, ok := f.Host("h2.1"); !ok || h.Capacity != 100e9 || h.Leaf != "leaf2" {
		t.Errorf("%+v, %v", h, ok)
	}
	if n := len(f.Links()); n != 18 || !slices.IsSortedFunc(f.Links(), func(a, b Link) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d links", n)
	}
}

func TestOneLeafIsOnePath(t *testing.T) {
	f := mustNew(t, leafSpine(2, 3, 2, murmurs, Selection{}))
	r := mustRoute(t, f, "h1.1", "h1.2")
	if p := r.Paths(); len(p) != 1 || len(p[0].Links) != 0 || !slices.Equal(p[0].Via, []string{"leaf1"}) {
		t.Errorf("%+v", p)
	}
	tu := flow(f, "h1.1", "h1.2")
	if r.PathOf(tu) != 0 || !r.Known() || len(r.Map(tu, RoCE).Ports(0)) != RoCE.Len() || r.Ports(tu, RoCE, 3, nil).Len() != 3 {
		t.Error("the ports of a single path")
	}
}

func TestPathsOfThreeTiers(t *testing.T) {
	f := mustNew(t, fatTree(4, murmurs, Selection{}))
	across := mustRoute(t, f, "h1.1", "h3.2")
	var got []string
	for _, p := range across.Paths() {
		got = append(got, strings.Join(p.Via, " "))
	}
	want := []string{
		"leaf1.1 agg1.1 core1 agg3.1 leaf3.2", "leaf1.1 agg1.1 core2 agg3.1 leaf3.2",
		"leaf1.1 agg1.2 core3 agg3.2 leaf3.2", "leaf1.1 agg1.2 core4 agg3.2 leaf3.2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	within := mustRoute(t, f, "h1.1", "h1.2")
	if p := within.Paths(); len(p) != 2 || len(p[0].Links) != 2 || p[1].Via[1] != "agg1.2" {
		t.Errorf("%v", p)
	}
}

func TestABondIsAStage(t *testing.T) {
	c := leafSpine(2, 2, 1, murmurs, Selection{})
	c.Links[0].Bond = 2                                                  // leaf1 - spine1
	c.Links[3].Bond, c.Links[3].BondModel = 3, &Model{Kind: CRC16Bisync} // leaf2 - spine2
	f := mustNew(t, c)
	var got []string
	for _, p := range mustRoute(t, f, "h1.1", "h2.1").Paths() {
		got = append(got, strings.Join(names(f, p), " "))
	}
	want := []string{
		"leaf1->spine1#1 spine1->leaf2", "leaf1->spine1#2 spine1->leaf2",
		"leaf1->spine2 spine2->leaf2#1", "leaf1->spine2 spine2->leaf2#2", "leaf1->spine2 spine2->leaf2#3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestEqualNextHopsStandInTheOrderOfLinks(t *testing.T) {
	c := leafSpine(2, 3, 1, murmurs, Selection{})
	slices.Reverse(c.Links)
	f := mustNew(t, c)
	var got []string
	for _, p := range mustRoute(t, f, "h1.1", "h2.1").Paths() {
		got = append(got, p.Via[1])
	}
	if want := []string{"spine3", "spine2", "spine1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOneWayLinksGoOneWay(t *testing.T) {
	c := leafSpine(2, 2, 1, murmurs, Selection{})
	c.Links[2].OneWay = true // leaf1 to spine2
	f := mustNew(t, c)
	if n := len(mustRoute(t, f, "h1.1", "h2.1").Paths()); n != 2 {
		t.Errorf("%d paths there", n)
	}
	if n := len(mustRoute(t, f, "h2.1", "h1.1").Paths()); n != 1 {
		t.Errorf("%d paths back", n)
	}
}

func TestRoutesThatAreNotThere(t *testing.T) {
	c := leafSpine(2, 1, 1, murmurs, Selection{})
	c.Switches = append(c.Switches, Switch{Name: "island"})
	c.Hosts = append(c.Hosts, Host{Name: "far", Addr: addr("10.9.9.9"), Leaf: "island"})
	f := mustNew(t, c)
	for _, x := range [][3]string{
		{"h1.1", "nobody", `no host of the fabric is called "nobody"`}, {"h1.1", "h1.1", "both ends"},
		{"h1.1", "far", `no links lead from switch "leaf1" to "island"`},
	} {
		if _, err := f.Route(x[0], x[1]); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%v, want %q in it", err, x[2])
		}
	}
}

func TestWrongFabricsNameTheField(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *Config)
		want   string
	}{
		{"no switch name", func(c *Config) { c.Switches[1].Name = "" }, "fabric.switches[1].name: missing"},
		{"long name", func(c *Config) { c.Switches[1].Name = strings.Repeat("x", MaxName+1) }, "fabric.switches[1].name: 129 bytes"},
		{"arrow in a name", func(c *Config) { c.Switches[1].Name = "a->b" }, "fabric.switches[1].name: \"a->b\" has"},
		{"hash in a name", func(c *Config) { c.Hosts[1].Name = "a#1" }, "fabric.hosts[1].name: \"a#1\" has"},
		{"control characters", func(c *Config) { c.Hosts[1].Name = "a\x1b[2J" }, "fabric.hosts[1].name: \"a\\x1b[2J\" has letters"},
		{"switch twice", func(c *Config) { c.Switches[2].Name = "leaf1" }, "fabric.switches[2].name: \"leaf1\" is that of switches[0]"},
		{"model", func(c *Config) { c.Switches[0].Model.Policy = 3 }, "fabric.switches[0].model.policy: murmur3 has none"},
		{"selection", func(c *Config) { c.Switches[0].Selection.Kind = Resilient }, "fabric.switches[0].selection.buckets: there are 0"},
		{"width", func(c *Config) { c.Switches[0].Selection = Selection{Kind: HashRange, Bits: 31} }, "fabric.switches[0].selection.bits: 31, but the hash murmur3 has 32"},
		{"host twice", func(c *Config) { c.Hosts[1].Name = "h1.1" }, "fabric.hosts[1].name: \"h1.1\" is that of hosts[0]"},
		{"no address", func(c *Config) { c.Hosts[1].Addr = netip.Addr{} }, "fabric.hosts[1].addr: missing"},
		{"IPv6", func(c *Config) { c.Hosts[1].Addr = addr("fe80::1") }, "fabric.hosts[1].addr: fe80::1 is not IPv4"},
		{"address twice", func(c *Config) { c.Hosts[1].Addr = addr("::ffff:10.0.1.1") }, "fabric.hosts[1].addr: ::ffff:10.0.1.1 is that of hosts[0]"},
		{"dangling host", func(c *Config) { c.Hosts[1].Leaf = "leaf9" }, "fabric.hosts[1].leaf: no switch is called \"leaf9\""},
		{"host capacity", func(c *Config) { c.Hosts[0].Capacity = -1 }, "fabric.hosts[0].capacity: -1 bit/s"},
		{"dangling from", func(c *Config) { c.Links[2].From = "leaf9" }, "fabric.links[2].from: no switch is called \"leaf9\""},
		{"dangling to", func(c *Config) { c.Links[3].To = "spine9" }, "fabric.links[3].to: no switch is called \"spine9\""},
		{"loop", func(c *Config) { c.Links[3].To = "leaf2" }, "fabric.links[3].to: a loop from \"leaf2\" to itself"},
		{"link capacity", func(c *Config) { c.Links[1].Capacity = -5 }, "fabric.links[1].capacity: -5 bit/s"},
		{"bond", func(c *Config) { c.Links[1].Bond = MaxBond + 1 }, "fabric.links[1].bond: 65 is not from 0 to 64"},
		{"bond below nothing", func(c *Config) { c.Links[1].Bond = -1 }, "fabric.links[1].bond: -1"},
		{"bond model", func(c *Config) { c.Links[1].Bond, c.Links[1].BondModel = 2, &Model{Seed: 1} }, "fabric.links[1].bond_model.kind: missing"},
		{"bond model without a bond", func(c *Config) { c.Links[1].BondModel = &Model{} }, "fabric.links[1].bond_model: there is no bond"},
		{"link twice", func(c *Config) { c.Links[3] = c.Links[0] }, "fabric.links[3]: leaf1 to spine1 is in links[0] already"},
		{"link there and back", func(c *Config) { c.Links[3] = LinkConfig{From: "spine1", To: "leaf1", OneWay: true} }, "fabric.links[3]: spine1 to leaf1 is in links[0] already"},
		{"weights", func(c *Config) { c.Switches[0].Selection.Weights = []int{1, 2, 3} }, "fabric.switches[0].selection.weights: there are 3, and 2 next hops from \"leaf1\" towards \"leaf2\""},
		{"buckets", func(c *Config) { c.Switches[0].Selection = Selection{Kind: Resilient, Buckets: []uint16{0, 2}} }, "fabric.switches[0].selection.buckets[1]: next hop 2 is not one of 0 to 1"},
	} {
		fabric := leafSpine(2, 2, 1, murmurs, Selection{})
		c.change(&fabric)
		_, err := New(fabric)
		if err == nil || !strings.HasPrefix(err.Error(), "ecmp: "+c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, "ecmp: "+c.want)
		}
	}
}

func chain(n int) Config {
	var c Config
	for i := range n {
		c.Switches = append(c.Switches, Switch{Name: fmt.Sprint("s", i)})
		if i > 0 {
			c.Links = append(c.Links, LinkConfig{From: fmt.Sprint("s", i-1), To: fmt.Sprint("s", i)})
		}
	}
	c.Hosts = []Host{{Name: "a", Addr: addr("10.0.0.1"), Leaf: "s0"}, {Name: "b", Addr: addr("10.0.0.2"), Leaf: fmt.Sprint("s", n-1)}}
	return c
}

func TestLimitsOfFabrics(t *testing.T) {
	hosts := func(n int) Config {
		c := Config{Switches: []Switch{{Name: "s"}}}
		for i := range n {
			c.Hosts = append(c.Hosts, Host{Name: fmt.Sprint("h", i), Leaf: "s", Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		}
		return c
	}
	switches := func(n int) Config {
		var c Config
		for i := range n {
			c.Switches = append(c.Switches, Switch{Name: fmt.Sprint("s", i)})
		}
		return c
	}
	// One cable a pair of 300 switches, one way: as many directed links as wanted.
	links := func(n int) Config {
		c := switches(300)
		for i := range n {
			c.Links = append(c.Links, LinkConfig{From: fmt.Sprint("s", i/299), To: fmt.Sprint("s", (i/299+1+i%299)%300), OneWay: true})
		}
		return c
	}
	bonds := func(n int) Config {
		c := switches(300)
		for i := range n / 128 {
			c.Links = append(c.Links, LinkConfig{From: fmt.Sprint("s", 2*(i%150)), To: fmt.Sprint("s", 2*((i+i/150)%150)+1), Bond: MaxBond})
		}
		return c
	}
	spines := func(n int) Config { return leafSpine(2, n, 1, murmurs, Selection{}) }
	// 64 spines, bonds of 64 up: 4096 paths; a spine more is 64 more.
	wide := func(n int) Config {
		c := leafSpine(2, n, 1, murmurs, Selection{})
		for i := range c.Links {
			if c.Links[i].From == "leaf1" {
				c.Links[i].Bond = MaxBond
			}
		}
		return c
	}
	for _, c := range []struct {
		name  string
		of    func(n int) Config
		limit int
		step  int
		want  string
	}{
		{"hosts", hosts, MaxHosts, 1, "fabric.hosts: 4097 are more than the 4096"},
		{"switches", switches, MaxSwitches, 1, "fabric.switches: 2049 are more than the 2048"},
		{"links", links, MaxLinks, 1, "fabric.links: 32769 are more than the 32768"},
		{"members of bonds", bonds, MaxLinks, 128, "would be more than the 32768 links"},
		{"next hops", spines, MaxSwitches - 2, 1, "fabric.switches: 2049 are more"},
		{"paths", wide, MaxPaths / MaxBond, 1, "more than 4096 paths"},
		{"links of a path", chain, MaxPathLinks + 1, 1, "it is 9 links, more than the 8 of a path"},
	} {
		// Two names of tens of thousands may have one hash: another error, which has its own test.
		if _, err := New(c.of(c.limit)); err != nil && !strings.Contains(err.Error(), "have one hash") {
			t.Errorf("%s: %d: %v", c.name, c.limit, err)
		}
		if _, err := New(c.of(c.limit + c.step)); err == nil || !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "have one hash") {
			t.Errorf("%s: %d: %v, want %q", c.name, c.limit+c.step, err, c.want)
		}
	}
}

func TestAsManyPathsAsThereMayBe(t *testing.T) {
	c := leafSpine(2, MaxPaths/MaxBond, 1, murmurs, Selection{})
	for i := range c.Links {
		if c.Links[i].From == "leaf1" {
			c.Links[i].Bond, c.Links[i].BondModel = MaxBond, &Model{Kind: Murmur3, Seed: 99}
		}
	}
	f := mustNew(t, c)
	r := mustRoute(t, f, "h1.1", "h2.1")
	if n := len(r.Paths()); n != MaxPaths {
		t.Fatalf("%d paths", n)
	}
	tu := flow(f, "h1.1", "h2.1")
	m := r.Map(tu, Range{0, 65535})
	for port := range 1 << 16 {
		tu.SrcPort = uint16(port)
		if got, ok := m.PathOf(tu.SrcPort); !ok || got != r.PathOf(tu) {
			t.Fatalf("port %d is on path %d, want %d", port, got, r.PathOf(tu))
		}
	}
	if m.Len() != 1<<16 || m.Paths() != MaxPaths {
		t.Errorf("%d ports, %d paths", m.Len(), m.Paths())
	}
}

func TestNamesOfOneHashAreRefused(t *testing.T) {
	seen := map[LinkID]int{}
	for i := 0; ; i++ {
		id := NameLink(fmt.Sprintf("s%d->core", i))
		j, ok := seen[id]
		if !ok {
			seen[id] = i
			continue
		}
		a, b := fmt.Sprint("s", j), fmt.Sprint("s", i)
		_, err := New(Config{Switches: []Switch{{Name: a}, {Name: b}, {Name: "core"}}, Links: []LinkConfig{{From: a, To: "core"}, {From: b, To: "core"}}})
		if err == nil || !strings.HasPrefix(err.Error(), "ecmp: fabric.links[1]: the names") {
			t.Errorf("%s and %s: %v", a, b, err)
		}
		return
	}
}

func TestDigest(t *testing.T) {
	base := leafSpine(3, 2, 1, murmurs, Selection{})
	d := mustNew(t, base).Digest()
	for _, c := range []struct {
		name   string
		same   bool
		change func(c *Config)
	}{
		{"nothing", true, func(c *Config) {}},
		{"another seed", true, func(c *Config) { c.Switches[0].Model.Seed = 77 }},
		{"another capacity", true, func(c *Config) { c.Links[0].Capacity, c.Hosts[0].Capacity = 1, 1 }},
		{"another address", true, func(c *Config) { c.Hosts[0].Addr = addr("10.8.8.8") }},
		{"hosts in another order", true, func(c *Config) { slices.Reverse(c.Hosts) }},
		{"a host moved", false, func(c *Config) { c.Hosts[0].Leaf = "leaf2" }},
		{"a host more", false, func(c *Config) { c.Hosts = append(c.Hosts, Host{Name: "x", Addr: addr("10.8.8.8"), Leaf: "leaf1"}) }},
		{"links in another order", false, func(c *Config) { slices.Reverse(c.Links) }},
		{"a bond", false, func(c *Config) { c.Links[0].Bond = 2 }},
		{"one way", false, func(c *Config) { c.Links[0].OneWay = true }},
		{"a link less", false, func(c *Config) { c.Links = c.Links[1:] }},
	} {
		other := leafSpine(3, 2, 1, murmurs, Selection{})
		c.change(&other)
		if got := mustNew(t, other).Digest(); got == 0 || (got == d) != c.same {
			t.Errorf("%s: %x and %x", c.name, got, d)
		}
	}
}

// What a caller does with its configuration afterwards is no business of the fabric.
func TestAFabricIsItsOwn(t *testing.T) {
	c := leafSpine(2, 2, 1, murmurs, Selection{Weights: []int{1, 3}})
	f := mustNew(t, c)
	tu := flow(f, "h1.1", "h2.1")
	before := mustRoute(t, f, "h1.1", "h2.1").Map(tu, RoCE).Ports(0)
	for i := range c.Switches {
		if w := c.Switches[i].Selection.Weights; w != nil {
			w[0] = 50
		}
		c.Switches[i].Model = Model{}
	}
	c.Hosts[0].Leaf = "spine1"
	if after := mustRoute(t, f, "h1.1", "h2.1").Map(tu, RoCE).Ports(0); !slices.Equal(before, after) {
		t.Error("the map has changed with the configuration")
	}
}

func TestConfigurationsAsFiles(t *testing.T) {
	in := `
hosts:
  - {name: p1, addr: 10.0.1.1, leaf: leaf1, capacity: 100000000000}
  - {name: d1, addr: 10.0.2.1, leaf: leaf2}
switches:
  - {name: leaf1, model: {kind: linux, seed: 11}, selection: {kind: range}}
  - {name: leaf2, model: {kind: murmur3, seed: 17}}
  - name: spine1
  - name: spine2
links:
  - {from: leaf1, to: spine1, capacity: 100000000000, bond: 2, bond_model: {kind: xor16}}
  - {from: leaf1, to: spine2, one_way: true}
  - {from: spine1, to: leaf2}
  - {from: spine2, to: leaf2}
`
	want := Config{
		Hosts: []Host{{Name: "p1", Addr: addr("10.0.1.1"), Leaf: "leaf1", Capacity: 100e9}, {Name: "d1", Addr: addr("10.0.2.1"), Leaf: "leaf2"}},
		Switches: []Switch{{Name: "leaf1", Model: Model{Kind: Linux, Seed: 11}, Selection: Selection{Kind: HashRange}},
			{Name: "leaf2", Model: Model{Kind: Murmur3, Seed: 17}}, {Name: "spine1"}, {Name: "spine2"}},
		Links: []LinkConfig{{From: "leaf1", To: "spine1", Capacity: 100e9, Bond: 2, BondModel: &Model{Kind: XOR16}},
			{From: "leaf1", To: "spine2", OneWay: true}, {From: "spine1", To: "leaf2"}, {From: "spine2", To: "leaf2"}},
	}
	d := yaml.NewDecoder(strings.NewReader(in))
	d.KnownFields(true)
	var got Config
	if err := d.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	mustNew(t, got)
	y, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var fromYAML, fromJSON Config
	if err := yaml.Unmarshal(y, &fromYAML); err != nil || !reflect.DeepEqual(fromYAML, want) {
		t.Errorf("%v from\n%s", err, y)
	}
	if err := json.Unmarshal(j, &fromJSON); err != nil || !reflect.DeepEqual(fromJSON, want) {
		t.Errorf("%v from\n%s", err, j)
	}
}
