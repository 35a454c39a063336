package lab

import (
	"strings"
	"testing"

	"shoal/internal/ecmp"
)

// threeTiers is two pods of two leaves and two spines, four cores.
func threeTiers() Config {
	c := Defaults()
	c.Pods, c.Spines, c.Cores, c.HostsPerLeaf = 2, 2, 4, 3
	return c
}

func TestPlanDescribesTheFabric(t *testing.T) {
	for _, c := range []struct {
		cfg      Config
		src, dst string
		paths    int
		via      string // of path 1
	}{
		{Defaults(), "h0", "h8", 4, "leaf0 spine1 leaf1"},
		{Defaults(), "h0", "h7", 1, ""},
		{threeTiers(), "h0", "h3", 2, "leaf0 spine1 leaf1"},
		{threeTiers(), "h0", "h11", 4, "leaf0 spine0 core1 spine2 leaf3"},
		{threeTiers(), "h11", "h0", 4, "leaf3 spine2 core1 spine0 leaf0"},
	} {
		p := newPlan(c.cfg)
		f, err := ecmp.New(p.describe(p.seeds()))
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Route(c.src, c.dst)
		if err != nil {
			t.Fatal(err)
		}
		paths := r.Paths()
		if len(paths) != c.paths {
			t.Errorf("%s to %s: %d paths, want %d", c.src, c.dst, len(paths), c.paths)
		} else if c.paths > 1 && strings.Join(paths[1].Via, " ") != c.via {
			t.Errorf("%s to %s: path 1 is %v, want %s", c.src, c.dst, paths[1].Via, c.via)
		}
		for _, path := range paths {
			for _, name := range linkNames(f, path) {
				if !strings.Contains(name, "->") {
					t.Errorf("a link is called %q", name)
				}
			}
		}
	}
}

// What must differ differs, at the largest sizes as well, and interfaces have names that the kernel takes.
func TestPlanGivesNothingTwice(t *testing.T) {
	wide, tall := Defaults(), Defaults()
	wide.Leaves, wide.Spines, wide.HostsPerLeaf = 16, 16, 4
	tall.Pods, tall.Leaves, tall.Spines, tall.Cores, tall.HostsPerLeaf = 8, 2, 2, 16, 4
	for _, c := range []Config{Defaults(), threeTiers(), wide, tall} {
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		p := newPlan(c)
		seen := map[string]bool{}
		once := func(what string) {
			if seen[what] {
				t.Errorf("%s twice", what)
			}
			seen[what] = true
		}
		for _, n := range p.namespaces() {
			once("namespace " + n)
		}
		seeds := map[uint32]bool{}
		for _, s := range p.seeds() {
			if s == 0 || seeds[s] {
				t.Errorf("the seed %d is 0, or of two switches", s)
			}
			seeds[s] = true
		}
		for i := range p.cables {
			l := &p.cables[i]
			for _, e := range []end{l.a, l.b} {
				if len(e.dev) > 15 || e.dev == "" {
					t.Errorf("interface %q", e.dev)
				}
				once("interface " + p.nodes[e.node].name + " " + e.dev)
				once("mac " + e.mac.String())
				if a := e.addr.Addr(); a.As4()[3] != 254 { // a leaf has one address towards all its hosts
					once("address " + a.String())
				}
			}
			if i >= len(p.hosts) && l.a.addr.Masked() != l.b.addr.Masked() {
				t.Errorf("a cable from %v to %v", l.a.addr, l.b.addr)
			}
		}
		for _, h := range p.hosts {
			once("address " + h.Control.String())
		}
		if _, err := newWays(p.describe(p.seeds()), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestFabricsOutOfRangeAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"the name", func(c *Config) { c.Name = "../x" }},
		{"the name", func(c *Config) { c.Name = strings.Repeat("x", 33) }},
		{"the run directory", func(c *Config) { c.RunDir = "here" }},
		{"pods", func(c *Config) { c.Pods = MaxPods + 1 }},
		{"leaves", func(c *Config) { c.Leaves = 1 }},
		{"leaves", func(c *Config) { c.Leaves = MaxSwitches + 1 }},
		{"spines", func(c *Config) { c.Spines = MaxSwitches + 1 }},
		{"spines", func(c *Config) { c.Spines = 0 }},
		{"cores with one pod", func(c *Config) { c.Cores = 4 }},
		{"cores over", func(c *Config) { c.Pods, c.Cores = 2, 6 }},
		{"cores over", func(c *Config) { c.Pods, c.Cores = 2, MaxSwitches+4 }},
		{"hosts", func(c *Config) { c.HostsPerLeaf = 33 }},
		{"hosts", func(c *Config) { c.HostsPerLeaf = 0 }},
		{"bit/s", func(c *Config) { c.Rate = MinRate - 1 }},
		{"bit/s", func(c *Config) { c.Rate = MaxRate + 1 }},
		{"burst", func(c *Config) { c.Burst = 1000 }},
		{"queue", func(c *Config) { c.Queue = 1000 }},
		{"ports", func(c *Config) { c.FirstPort = 80 }},
		{"ports", func(c *Config) { c.FirstPort, c.LastPort = 2000, 1999 }},
	} {
		cfg := Defaults()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "lab: ") {
			t.Errorf("%q: %v", c.want, err)
		}
	}
	largest := Defaults()
	largest.Leaves, largest.Spines, largest.HostsPerLeaf, largest.Name = MaxSwitches, MaxSwitches, MaxHosts/MaxSwitches, strings.Repeat("x", 32)
	if err := largest.Validate(); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestBurstGrowsWithTheRate(t *testing.T) {
	c := Defaults()
	for _, x := range []struct {
		rate int64
		want int
	}{{1_000_000, 4096}, {100_000_000, 4096}, {1_000_000_000, 40960}} {
		if c.Rate = x.rate; c.burst() != x.want {
			t.Errorf("%d bytes at %d bit/s, want %d", c.burst(), x.rate, x.want)
		}
	}
	if c.Burst = 3000; c.burst() != 3000 {
		t.Errorf("%d bytes, want 3000", c.burst())
	}
}

func TestProbesAreJudgedByTheirWay(t *testing.T) {
	p := newPlan(Defaults())
	probes, err := p.probes(p.describe(p.seeds()), 300, 1)
	if err != nil {
		t.Fatal(err)
	}
	tcp := 0
	for _, x := range probes {
		if x.tuple.Proto == ecmp.TCP {
			tcp++
		}
		if len(x.want) != 2 || x.tuple.SrcPort == 0 || x.tuple.DstPort == 0 || x.tuple.Src.As4()[2] == x.tuple.Dst.As4()[2] {
			t.Fatalf("%s over %v", tupleText(x.tuple), x.want)
		}
	}
	if tcp != 150 {
		t.Errorf("%d of 300 are TCP", tcp)
	}
	for _, n := range []int{0, MaxProbes + 1} {
		if _, err := p.probes(p.describe(p.seeds()), n, 1); err == nil {
			t.Errorf("%d probes", n)
		}
	}
}
