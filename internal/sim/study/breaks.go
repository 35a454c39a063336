package study

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Break is one way to make a policy's life hard: a plan whose variants get worse.
type Break struct {
	Name string
	Help string
	plan func(d *Draft) (sweep string, v []Variant, err error)
}

// BreakPolicies are those whose gains are looked at.
func BreakPolicies() []string { return []string{Base, "ark", "least", "shoal"} }

// MaxGrowth bounds the requests of a larger fabric, in those of the paper's.
const MaxGrowth = 4

// grow gives a fabric so many times the load.
func (s *Scenario) grow(times float64) {
	s.Load *= times
	if times > MaxGrowth {
		s.Workload.Requests = max(1, int(float64(s.Workload.Requests)*MaxGrowth/times))
	}
}

// failAt is when a spine dies: a quarter of the transfers have come then, at the highest of the rates.
func (d *Draft) failAt() time.Duration {
	if len(d.QPS) == 0 {
		return 0 // the plan says so
	}
	quarter := float64(d.Scenario.Workload.Requests) / 4 / slices.Max(d.QPS)
	return time.Duration(min(quarter, (24*time.Hour).Seconds()) * float64(time.Second))
}

// Breaks are all of them, in the order in which they are shown. Fabrics of another size carry the paper's load: where there
// are n times as many uplinks from the sending half, n times the rate. Requests are n times as many too, up to MaxGrowth:
// beyond it they arrive for a shorter time, since every host hears of every transfer.
func Breaks() []Break {
	sweep := func(field string, values ...string) func(*Draft) (string, []Variant, error) {
		return func(d *Draft) (string, []Variant, error) {
			v, err := SweepOver(d.Scenario, field, values)
			return field, v, err
		}
	}
	return []Break{
		{"delay", "of control messages, 0 to 100 ms", sweep("delay", "0s", "500us", "5ms", "20ms", "50ms", "100ms")},
		{"loss", "of control messages, 0 to 30 %", sweep("loss", "0", "0.01", "0.05", "0.1", "0.2", "0.3")},
		{"skew", "of the hosts' clocks, 0 to 100 ms", sweep("skew", "0s", "1ms", "5ms", "20ms", "50ms", "100ms")},
		{"mice", "0 to 30 % of the bytes in short flows that nobody announces", sweep("mice", "0", "0.05", "0.1", "0.2", "0.3")},
		{"spine", "a spine dies after a quarter of the transfers, and the hosts learn of it sooner or later", deadSpine},
		{"paths", "K = 4, 8, 64 spines, with 2 K hosts at each leaf; the fluid alone: 1,000 spines, 1,024 hosts", morePaths},
		{"hosts", "16 to 128 hosts, 8 at each leaf; the fluid alone: 1,024", moreHosts},
		{"tiers", "two pods under cores: three tiers", threeTiers},
		{"hash", "the hosts' model of the switches' hashes is right, wrong, or missing", sweep("hosts-believe", Truth, WrongSeed, Nothing)},
		{"network", "control messages on a network of their own, or among the data", controlNetwork},
	}
}

// BreakNames are the names of Breaks.
func BreakNames() []string {
	var names []string
	for _, b := range Breaks() {
		names = append(names, b.Name)
	}
	return names
}

// BreakPlans are the plans of the breaks of these names, made from a draft, whose own sweep is left aside.
func (d *Draft) BreakPlans(names []string) ([]*Plan, error) {
	if d.Field != "" {
		return nil, fmt.Errorf("study: a sweep over %s, and a break, which is one itself; give one of them", d.Field)
	}
	all := Breaks()
	var plans []*Plan
	for _, name := range names {
		i := slices.IndexFunc(all, func(b Break) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("study: nothing to break is called %.40q; use some of %v", name, BreakNames())
		}
		sweep, variants, err := all[i].plan(d)
		if err != nil {
			return nil, err
		}
		p := &Plan{Title: name + ": " + all[i].Help, Policies: d.Policies, QPS: d.QPS, Seeds: Seeds(d.Seeds), Sweep: sweep, Variants: variants}
		if err := p.Validate(); err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// change makes variants that differ in more than one field.
type change struct {
	name string
	x    float64
	set  func(*Scenario)
}

func variants(s Scenario, changes []change) []Variant {
	var out []Variant
	for _, c := range changes {
		v := Variant{Name: c.name, X: c.x, Scenario: s}
		c.set(&v.Scenario)
		out = append(out, v)
	}
	return out
}

func deadSpine(d *Draft) (string, []Variant, error) {
	dies := func(learn time.Duration) func(*Scenario) {
		return func(s *Scenario) {
			s.Control.Failure.Switch, s.Control.Failure.At, s.Control.Failure.Learn = "spine1", d.failAt(), learn
		}
	}
	return "dead spine", variants(d.Scenario, []change{
		{"none", 0, func(*Scenario) {}},
		{"learned after 100ms", 1, dies(100 * time.Millisecond)},
		{"learned after 1s", 2, dies(time.Second)},
		{"learned after 10s", 3, dies(10 * time.Second)},
	}), nil
}

// morePaths keeps the paper's ratio of hosts to spines, so that the load of an uplink stays that of the paper.
func morePaths(d *Draft) (string, []Variant, error) {
	var all []change
	for _, k := range []int{4, 8, 64} {
		all = append(all, change{fmt.Sprintf("%d (%d hosts)", k, 4*k), float64(k), func(s *Scenario) {
			s.Shape.Pods, s.Shape.Cores, s.Shape.Leaves, s.Shape.Hosts, s.Shape.Spines = 1, 0, 2, 2*k, k
			s.grow(float64(k) / 4)
		}})
	}
	if d.Scenario.Model == Fluid {
		// 1,000 spines with the paper's ratio would be 4,000 hosts. With 1,024 the load of a host's own link is the paper's,
		// and that of an uplink a quarter of it: what is left is to find a free one of very many.
		all = append(all, change{"1000 (1024 hosts)", 1000, func(s *Scenario) {
			s.Shape.Pods, s.Shape.Cores, s.Shape.Leaves, s.Shape.Hosts, s.Shape.Spines = 1, 0, 2, 512, 1000
			s.grow(64)
		}})
	}
	return "spines", variants(d.Scenario, all), nil
}

// moreHosts adds leaves with 8 hosts each; every leaf has its own uplinks.
func moreHosts(d *Draft) (string, []Variant, error) {
	hosts := []int{16, 32, 64, 128}
	if d.Scenario.Model == Fluid {
		hosts = append(hosts, 1024)
	}
	var all []change
	for _, n := range hosts {
		all = append(all, change{strconv.Itoa(n), float64(n), func(s *Scenario) {
			s.Shape.Pods, s.Shape.Cores, s.Shape.Leaves, s.Shape.Hosts, s.Shape.Spines = 1, 0, n/8, 8, 4
			s.grow(float64(n) / 16)
		}})
	}
	return "hosts in all", variants(d.Scenario, all), nil
}

// threeTiers sends from one pod to another: each of a pod's 4 spines has 2 of the 8 cores, so that there are as many cables
// between spines and cores as between leaves and spines.
func threeTiers(d *Draft) (string, []Variant, error) {
	return "tiers", variants(d.Scenario, []change{
		{"2 (16 hosts)", 2, func(s *Scenario) {}},
		{"3 (32 hosts, 8 cores)", 3, func(s *Scenario) {
			s.Shape.Pods, s.Shape.Leaves, s.Shape.Hosts, s.Shape.Spines, s.Shape.Cores = 2, 2, 8, 4, 8
			s.grow(2)
		}},
	}), nil
}

func controlNetwork(d *Draft) (string, []Variant, error) {
	return "control plane", variants(d.Scenario, []change{
		{"a network of its own", 0, func(s *Scenario) {}},
		{"in the data fabric", 1, func(s *Scenario) { s.Control.InFabric = true }},
	}), nil
}
