package study

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"shoal/internal/sim"
	"shoal/internal/sim/control"
)

// Bound is the row that is no policy: pooled SRPT, near what is physically possible.
const Bound = "srpt-bound"

// Base is the policy that others are compared with.
const Base = "ecmp"

// Policies are the names that a plan may have.
func Policies() []string { return append(control.Policies(), Bound) }

// Limits of a plan.
const (
	MaxPoints   = 100_000
	MaxVariants = 1000
	MaxSeeds    = 1000
)

// Plan is every policy under every variant on the workloads of every rate and seed. What decides a point's result is in the
// plan, and nothing else.
type Plan struct {
	Title    string
	Policies []string
	QPS      []float64
	Seeds    []uint64
	Variants []Variant
	// Sweep says what the variants differ in; empty where there is only one.
	Sweep string
	// Recorded are workloads to play in place of those that QPS and Seeds make; see Recording.
	Recorded []Recording
	// Program is the version of what runs it; it goes into the results.
	Program string
}

// Variant is one scenario among several that are compared.
type Variant struct {
	Name     string  // of its value, as people read it
	X        float64 // where it stands on a plot's axis
	Scenario Scenario
}

// Recording is a workload that was played elsewhere.
type Recording struct {
	Workload *sim.Workload
	// Ports, of a policy: the source port of each flow, by its ID. A policy without an entry chooses by itself.
	Ports map[string][]uint16
}

// Point is one run.
type Point struct {
	Variant int
	QPS     float64
	Seed    uint64
	Policy  string
	record  int // among Plan.Recorded
}

// Seeds are 1 to n.
func Seeds(n int) []uint64 {
	var s []uint64
	for i := range n {
		s = append(s, uint64(i+1))
	}
	return s
}

// Validate reports what is wrong first.
func (p *Plan) Validate() error {
	if len(p.Policies) == 0 || len(p.Variants) == 0 || len(p.Variants) > MaxVariants {
		return fmt.Errorf("study: %d policies and %d variants; give at least one policy and 1 to %d variants", len(p.Policies), len(p.Variants), MaxVariants)
	}
	for i, name := range p.Policies {
		if !slices.Contains(Policies(), name) {
			return fmt.Errorf("study: policy %.40q does not exist; use some of %v", name, Policies())
		}
		if slices.Contains(p.Policies[:i], name) {
			return fmt.Errorf("study: policy %q is given twice", name)
		}
	}
	if len(p.Recorded) == 0 {
		if len(p.QPS) == 0 || len(p.Seeds) == 0 || len(p.Seeds) > MaxSeeds {
			return fmt.Errorf("study: %d rates and %d seeds; give at least one rate, and 1 to %d seeds", len(p.QPS), len(p.Seeds), MaxSeeds)
		}
		for i, q := range p.QPS {
			if !(q >= 0.01 && q <= sim.MaxQPS) || slices.Contains(p.QPS[:i], q) {
				return fmt.Errorf("study: qps %g is given twice, or is not within 0.01 to 10000", q)
			}
		}
	}
	for i, v := range p.Variants {
		if slices.ContainsFunc(p.Variants[:i], func(o Variant) bool { return o.Name == v.Name }) {
			return fmt.Errorf("study: variant %q is there twice", v.Name)
		}
		s := v.Scenario
		if err := s.Validate(); err != nil {
			if v.Name != "" {
				return fmt.Errorf("%w (in variant %s)", err, v.Name)
			}
			return err
		}
		for _, r := range p.Recorded {
			if err := r.Workload.Fits(s.Shape.Pods * s.Shape.Leaves * s.Shape.Hosts); err != nil {
				return err
			}
		}
		for _, q := range p.QPS {
			if err := s.validateRate(q); err != nil {
				return err
			}
		}
	}
	if n := len(p.Points()); n > MaxPoints {
		return fmt.Errorf("study: %d runs; at most %d are made", n, MaxPoints)
	}
	return nil
}

// Points are the runs in the order in which they begin: all of one seed, then the next seed, so that a study that is cut
// short has something of everything.
func (p *Plan) Points() []Point {
	var all []Point
	add := func(qps float64, seed uint64, record int) {
		for v := range p.Variants {
			for _, policy := range p.Policies {
				all = append(all, Point{Variant: v, QPS: qps, Seed: seed, Policy: policy, record: record})
			}
		}
	}
	for i, r := range p.Recorded {
		add(r.Workload.QPS, r.Workload.Seed, i)
	}
	if len(p.Recorded) > 0 {
		return all
	}
	for _, seed := range p.Seeds {
		for _, qps := range p.QPS {
			add(qps, seed, 0)
		}
	}
	return all
}

// Workload is what a point plays: that of its seed and rate, whatever its policy.
func (p *Plan) Workload(at Point) (*sim.Workload, error) {
	if len(p.Recorded) == 0 {
		return sim.Generate(p.Variants[at.Variant].Scenario.workload(at.QPS, at.Seed))
	}
	r := &p.Recorded[at.record]
	ports := r.Ports[at.Policy]
	if ports == nil {
		return r.Workload, nil
	}
	w := *r.Workload
	w.Flows = slices.Clone(w.Flows)
	for i := range w.Flows {
		w.Flows[i].Port = ports[i]
	}
	return &w, nil
}

// sampled says whether a point's run is looked at over time: those of the first seed alone, which is enough for plots.
func (p *Plan) sampled(at Point) bool {
	if len(p.Recorded) > 0 {
		return at.record == 0
	}
	return at.Seed == p.Seeds[0]
}

// weight is about how long a point takes, compared with others: more transfers are under way at once, the higher the rate,
// and under a policy with tables every host hears of each of them; under shoal it reckons with all that wait, too.
func (p *Plan) weight(at Point) float64 {
	s := &p.Variants[at.Variant].Scenario
	requests := s.workload(max(0.01, at.QPS), at.Seed).Requests
	if len(p.Recorded) > 0 {
		requests = len(p.Recorded[at.record].Workload.Flows)
	}
	w := float64(requests) * (10 + at.QPS*s.Load)
	size := float64(s.Shape.Pods*s.Shape.Leaves*s.Shape.Hosts) / 16
	switch at.Policy {
	case "ark", "least", "split":
		w *= max(1, size)
	case "shoal":
		w *= 2 * max(1, size*size)
	}
	return w
}

// key identifies what a point is made from: two with the same one have the same result.
func (p *Plan) key(at Point) string {
	s := &p.Variants[at.Variant].Scenario
	h := xxh3.New()
	fmt.Fprintf(h, "format %d\npolicy %s\nqps %g\nseed %d\nsampled %v\n", resultFormat, at.Policy, at.QPS, at.Seed, p.sampled(at))
	fmt.Fprintf(h, "%+v\n", *s) // values alone: what hosts believe is not filled in yet
	if len(p.Recorded) > 0 {
		r := &p.Recorded[at.record]
		ports, _ := json.Marshal(r.Ports[at.Policy]) // numbers: no error
		fmt.Fprintf(h, "recorded %s %s %s\n", r.Workload.Name, r.Workload.Digest(), ports)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// name is that of a point's workload, for files and tables.
func (p *Plan) name(at Point) string {
	if len(p.Recorded) > 0 {
		return p.Recorded[at.record].Workload.Name
	}
	return "qps" + strconv.FormatFloat(at.QPS, 'g', -1, 64) + "-seed" + strconv.FormatUint(at.Seed, 10)
}

// SweepOver makes a variant of every value of a field. The names of the variants are the values.
func SweepOver(s Scenario, field string, values []string) ([]Variant, error) {
	f := FieldByName(field)
	if f == nil {
		return nil, fmt.Errorf("study: sweep over %.40q, which does not exist; the fields are %v", field, FieldNames())
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("study: sweep over %s without values", field)
	}
	var all []Variant
	for i, text := range values {
		v := Variant{X: float64(i), Scenario: s}
		if err := f.Set(&v.Scenario, text); err != nil {
			return nil, err
		}
		v.Name = f.Get(&v.Scenario)
		v.X = axis(v.Name, v.X)
		all = append(all, v)
	}
	return all, nil
}

// FieldNames are the names of Fields, in their order.
func FieldNames() []string {
	var names []string
	for _, f := range Fields() {
		names = append(names, f.Name)
	}
	return names
}
