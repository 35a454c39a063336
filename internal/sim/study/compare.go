package study

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"shoal/internal/lab"
	"shoal/internal/sim"
	"shoal/internal/sim/control"
	"shoal/internal/sim/fabric"
	"shoal/internal/term"
)

// LabRun is what a lab has measured, and the plan that plays the same workloads in the simulator.
type LabRun struct {
	Dir     string
	Results []*lab.Result
	Plan    *Plan
	// Without are policies of the lab that the simulator does not have.
	Without []string
}

// LabScenario is the lab's fabric with the settings that its agents have, bytes and times as they are there.
func LabScenario() Scenario {
	s, l := Defaults(), lab.Defaults()
	s.Shape = Shape{Pods: l.Pods, Leaves: l.Leaves, Hosts: l.HostsPerLeaf, Spines: l.Spines, Cores: l.Cores, Rate: l.Rate, Delay: 10 * time.Microsecond}
	s.Control.Chunk = 64 << 10 // of fleet.Defaults: small enough for flows that are scaled down
	s.Control.Notice = lab.DefaultRun().Announce
	return s
}

// ReadLab reads the runs in a lab's directory (shoal lab run --dir) and makes a plan that has the same policies play the same
// workloads on s. Flows of ecmp take the paths that they took in the lab, so that the collisions are the same; so do those
// of other policies for which no path was reserved.
func ReadLab(dir string, s Scenario, policies []string) (*LabRun, error) {
	results, err := lab.ReadResults(dir)
	if err != nil {
		return nil, err
	}
	l := &LabRun{Dir: dir}
	byName := map[string]int{} // among plan.Recorded
	plan := &Plan{Title: "the lab's workloads of " + dir, Variants: []Variant{{Scenario: s}}}
	t, err := s.Topology()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if len(policies) > 0 && !slices.Contains(policies, r.Policy) {
			continue
		}
		if !slices.Contains(control.Policies(), r.Policy) {
			if !slices.Contains(l.Without, r.Policy) {
				l.Without = append(l.Without, r.Policy)
			}
			continue
		}
		if want := s.Shape.Pods * s.Shape.Spines; len(r.Spines) > want {
			return nil, fmt.Errorf("study: the lab of %s has %d spines, and the scenario %d; give the lab's own shape (leaves, hosts, spines, pods, cores)", dir, len(r.Spines), want)
		}
		l.Results = append(l.Results, r)
		if !slices.Contains(plan.Policies, r.Policy) {
			plan.Policies = append(plan.Policies, r.Policy)
		}
		if _, ok := byName[r.Workload]; !ok {
			w, err := sim.LoadWorkload(filepath.Join(dir, r.Workload+".flows"))
			if err != nil {
				return nil, err
			}
			if w.Digest() != r.Digest {
				return nil, fmt.Errorf("study: %s was played with other flows than %s.flows has", r.Policy, r.Workload)
			}
			if err := w.Fits(t.Hosts()); err != nil {
				return nil, err
			}
			plan.Recorded = append(plan.Recorded, Recording{Workload: w, Ports: map[string][]uint16{}})
			byName[r.Workload] = len(plan.Recorded) - 1
		}
		rec := &plan.Recorded[byName[r.Workload]]
		ports, err := portsOf(t, r, len(rec.Workload.Flows))
		if err != nil {
			return nil, err
		}
		rec.Ports[r.Policy] = ports
	}
	if len(l.Results) == 0 {
		return nil, fmt.Errorf("study: no run in %s is of a policy that is asked for and can be simulated", dir)
	}
	sort.Slice(plan.Policies, func(i, j int) bool {
		a, b := plan.Policies[i], plan.Policies[j]
		if (a == Base) != (b == Base) {
			return a == Base
		}
		return a < b
	})
	l.Plan = plan
	return l, plan.Validate()
}

// LabRate is the rate of a lab's links, in bit/s, by what its workloads' titles say of their scale; 0 where they do not.
func LabRate(dir string) (int64, error) {
	results, err := lab.ReadResults(dir)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(results[0].Title, "sizes / ")
	if !ok {
		return 0, nil
	}
	digits, _, _ := strings.Cut(rest, ",")
	scale, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || scale < 1 {
		return 0, nil
	}
	return Defaults().Shape.Rate / scale, nil
}

// portsOf are source ports that lead to the paths which the flows of a run took without a reservation; 0 for the others.
func portsOf(t *fabric.Topology, r *lab.Result, flows int) ([]uint16, error) {
	ports := make([]uint16, flows)
	for i := range r.FlowResults {
		f := &r.FlowResults[i]
		if f.ID < 0 || f.ID >= flows || len(f.Paths) != 1 || r.Policy != Base && !f.Fallback {
			continue
		}
		if n := len(t.Paths(f.Src, f.Dst)); f.Paths[0] < 0 || f.Paths[0] >= n {
			return nil, fmt.Errorf("study: flow %d of %s under %s took path %d, and the scenario has %d between its hosts; give the lab's own shape", f.ID, r.Workload, r.Policy, f.Paths[0], n)
		}
		const first, tries = 49152, 16384
		for k := range tries { // from another one for each flow, so that they are not all the same
			port := uint16(first + (k+f.ID*97)%tries)
			if t.PathOf(f.Src, f.Dst, port) == f.Paths[0] {
				ports[f.ID] = port
				break
			}
		}
	}
	return ports, nil
}

// Comparison is the lab's cuts beside the simulator's.
type Comparison struct {
	Groups []ComparisonGroup `json:"groups"`
	// Within says whether all differences are at most five points, and SameRanking whether the policies stand in the same
	// order of mean and of P95 FCT at every rate.
	Within      bool   `json:"within_5_points"`
	SameRanking bool   `json:"same_ranking"`
	Digest      string `json:"digest"` // of the simulator's runs
}

// ComparisonGroup is one rate.
type ComparisonGroup struct {
	Label    string `json:"label"`
	Policies []Both `json:"policies"`
	// LabOrder and SimOrder are the policies by their mean FCT, the best first; the P95 orders likewise.
	LabOrder    []string `json:"lab_order"`
	SimOrder    []string `json:"sim_order"`
	LabOrderP95 []string `json:"lab_order_p95"`
	SimOrderP95 []string `json:"sim_order_p95"`
}

// Both is one policy: times in ms over all flows of all its workloads, cuts against ecmp as parts.
type Both struct {
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
	LabMs     Pair   `json:"lab_ms"`
	SimMs     Pair   `json:"sim_ms"`
	LabCut    Pair   `json:"lab_cut"`
	SimCut    Pair   `json:"sim_cut"`
}

// Pair is of mean and P95.
type Pair struct {
	Mean float64 `json:"mean"`
	P95  float64 `json:"p95"`
}

// worst is the larger difference of the two cuts.
func (b *Both) worst() float64 {
	return max(abs(b.SimCut.Mean-b.LabCut.Mean), abs(b.SimCut.P95-b.LabCut.P95))
}

func abs(v float64) float64 { return max(v, -v) }

// maxDifference is what a cut may differ by.
const maxDifference = 0.05

// Compare puts what Run has returned for l.Plan beside what the lab measured. All flows of a rate's workloads are taken
// together, as the lab's own report does it; workloads that one of the two lacks for a policy are left out of its cuts.
func (l *LabRun) Compare(results []*Result) *Comparison {
	c := &Comparison{Within: true, SameRanking: true, Digest: NewReport(l.Plan, results).Digest}
	type key struct{ label, policy string }
	measured, simulated := map[key]map[string][]float64{}, map[key]map[string][]float64{}
	put := func(m map[key]map[string][]float64, k key, workload string, ms []float64) {
		if m[k] == nil {
			m[k] = map[string][]float64{}
		}
		m[k][workload] = ms
	}
	var labels []string
	label := func(name string, qps float64) string {
		s := name
		if qps > 0 {
			s = number64(qps)
		}
		if !slices.Contains(labels, s) {
			labels = append(labels, s)
		}
		return s
	}
	for _, r := range l.Results {
		var ms []float64
		for i := range r.FlowResults {
			if f := &r.FlowResults[i]; f.Error == "" {
				ms = append(ms, float64(f.FCTUs)/1000)
			}
		}
		put(measured, key{label(r.Workload, r.QPS), r.Policy}, r.Workload, ms)
	}
	for _, r := range results {
		if r != nil {
			put(simulated, key{label(r.Workload, r.QPS), r.Policy}, r.Workload, milliseconds(r.FCT))
		}
	}
	for _, name := range labels {
		g := ComparisonGroup{Label: name}
		for _, policy := range l.Plan.Policies {
			k, base := key{name, policy}, key{name, Base}
			b := Both{Name: policy}
			var lm, sm, lb, sb []float64
			for w := range measured[k] {
				if len(simulated[k][w]) == 0 || len(measured[base][w]) == 0 || len(simulated[base][w]) == 0 {
					continue
				}
				b.Workloads++
				lm, sm = append(lm, measured[k][w]...), append(sm, simulated[k][w]...)
				lb, sb = append(lb, measured[base][w]...), append(sb, simulated[base][w]...)
			}
			if b.Workloads == 0 {
				continue
			}
			b.LabMs, b.SimMs = pairOf(lm), pairOf(sm)
			b.LabCut, b.SimCut = cutOf(b.LabMs, pairOf(lb)), cutOf(b.SimMs, pairOf(sb))
			c.Within = c.Within && b.worst() <= maxDifference
			g.Policies = append(g.Policies, b)
		}
		if len(g.Policies) == 0 {
			continue
		}
		order := func(of func(*Both) float64) []string {
			by := slices.Clone(g.Policies)
			sort.SliceStable(by, func(i, j int) bool { return of(&by[i]) > of(&by[j]) })
			var names []string
			for _, b := range by {
				names = append(names, b.Name)
			}
			return names
		}
		g.LabOrder, g.SimOrder = order(func(b *Both) float64 { return b.LabCut.Mean }), order(func(b *Both) float64 { return b.SimCut.Mean })
		g.LabOrderP95, g.SimOrderP95 = order(func(b *Both) float64 { return b.LabCut.P95 }), order(func(b *Both) float64 { return b.SimCut.P95 })
		c.SameRanking = c.SameRanking && slices.Equal(g.LabOrder, g.SimOrder) && slices.Equal(g.LabOrderP95, g.SimOrderP95)
		c.Groups = append(c.Groups, g)
	}
	return c
}

func pairOf(ms []float64) Pair {
	sort.Float64s(ms)
	return Pair{round(mean(ms)), round(percentile(95)(ms))}
}

func cutOf(own, base Pair) Pair {
	return Pair{round(1 - own.Mean/base.Mean), round(1 - own.P95/base.P95)}
}

// Table is one line for each policy of each rate.
func (c *Comparison) Table() *term.Table {
	t := term.NewTable(term.Left("qps"), term.Left("policy"), term.Right("workloads"), term.Right("lab: mean s"), term.Right("P95"), term.Right("simulator: mean s"), term.Right("P95"),
		term.Right("mean cut: lab"), term.Right("simulator"), term.Right("points"), term.Right("P95 cut: lab"), term.Right("simulator"), term.Right("points"))
	s := func(ms float64) string { return strconv.FormatFloat(ms/1000, 'f', 3, 64) }
	p := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	for _, g := range c.Groups {
		for i := range g.Policies {
			b := &g.Policies[i]
			row := []string{g.Label, b.Name, strconv.Itoa(b.Workloads), s(b.LabMs.Mean), s(b.LabMs.P95), s(b.SimMs.Mean), s(b.SimMs.P95)}
			if b.Name == Base {
				row = append(row, "-", "-", "-", "-", "-", "-")
			} else {
				row = append(row, p(b.LabCut.Mean), p(b.SimCut.Mean), fmt.Sprintf("%+.1f", 100*(b.SimCut.Mean-b.LabCut.Mean)),
					p(b.LabCut.P95), p(b.SimCut.P95), fmt.Sprintf("%+.1f", 100*(b.SimCut.P95-b.LabCut.P95)))
			}
			t.Row(row...)
		}
	}
	return t
}

// Write prints the comparison for people.
func (c *Comparison) Write(o *term.Output) {
	o.Table(c.Table())
	o.Println()
	for _, g := range c.Groups {
		o.Println("ranking at " + g.Label + ", best first: by mean " + orders(g.LabOrder, g.SimOrder) + "; by P95 " + orders(g.LabOrderP95, g.SimOrderP95))
	}
	verdict := func(ok bool, yes, no string) string {
		if ok {
			return o.Green(yes)
		}
		return o.Yellow(no)
	}
	o.Println(verdict(c.Within, "all cuts are within 5 points", "some cuts differ by more than 5 points") + "; " + verdict(c.SameRanking, "the ranking is the same", "the ranking is not the same"))
	o.Println("digest", c.Digest)
}

func orders(lab, simulator []string) string {
	if slices.Equal(lab, simulator) {
		return strings.Join(lab, ", ") + " in both"
	}
	return strings.Join(lab, ", ") + " in the lab, " + strings.Join(simulator, ", ") + " in the simulator"
}

// WriteJSON writes the comparison as one indented JSON object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}
