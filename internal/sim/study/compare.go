package study

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"shoal/internal/lab"
	"shoal/internal/term"
)

// Comparison is the lab's cuts beside the simulator's.
type Comparison struct {
	Groups []ComparisonGroup `json:"groups"`
	// Within says whether all differences are at most five points, and SameRanking whether the policies stand in the same
	// order of mean and of P95 FCT at every rate.
	Within      bool `json:"within_5_points"`
	SameRanking bool `json:"same_ranking"`
	// Without are policies of the lab that the simulator does not have.
	Without []string `json:"not_simulated"`
	Digest  string   `json:"digest"` // of the simulator's runs
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
	Failed    int    `json:"failed"` // flows that failed in the lab: in neither's times
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
// together, as the lab's own report does it; workloads that one of the two lacks for a policy are left out of its cuts, and
// flows that failed in the lab are left out of the simulator's times too. An error says that nothing is left to compare.
func (l *LabRun) Compare(results []*Result) (*Comparison, error) {
	c := &Comparison{Within: true, SameRanking: true, Without: l.Without, Digest: NewReport(l.Plan, results).Digest}
	runs := l.pairs(results)
	var labels []string
	for _, r := range runs {
		if !slices.Contains(labels, r.label) {
			labels = append(labels, r.label)
		}
	}
	compared := false
	for _, label := range labels {
		g := ComparisonGroup{Label: label}
		for _, policy := range l.Plan.Policies {
			b := both(runs, label, policy)
			if b.Workloads == 0 {
				continue
			}
			compared = compared || policy != Base
			c.Within = c.Within && b.worst() <= maxDifference
			g.Policies = append(g.Policies, b)
		}
		if len(g.Policies) == 0 {
			continue
		}
		g.LabOrder, g.SimOrder = g.order(func(b *Both) float64 { return b.LabCut.Mean }), g.order(func(b *Both) float64 { return b.SimCut.Mean })
		g.LabOrderP95, g.SimOrderP95 = g.order(func(b *Both) float64 { return b.LabCut.P95 }), g.order(func(b *Both) float64 { return b.SimCut.P95 })
		c.SameRanking = c.SameRanking && slices.Equal(g.LabOrder, g.SimOrder) && slices.Equal(g.LabOrderP95, g.SimOrderP95)
		c.Groups = append(c.Groups, g)
	}
	if !compared {
		return nil, errNothing(l.Dir)
	}
	return c, nil
}

// paired is one run of the lab with the simulator's of the same policy and workload: times in ms of the flows that the
// lab has times of.
type paired struct {
	label, policy, workload string
	lab, sim                []float64
	failed                  int // flows that are left out
}

// pairs are the runs that both have, with at least one flow.
func (l *LabRun) pairs(results []*Result) []paired {
	var all []paired
	for _, r := range l.Results {
		i := slices.IndexFunc(results, func(s *Result) bool { return s != nil && s.Policy == r.Policy && s.Workload == r.Workload })
		if i < 0 {
			continue
		}
		p := paired{label: r.Workload, policy: r.Policy, workload: r.Workload}
		if r.QPS > 0 {
			p.label = number64(r.QPS)
		}
		fct := milliseconds(results[i].FCT)
		for k := range r.FlowResults {
			if f := &r.FlowResults[k]; f.Error == "" && f.ID >= 0 && f.ID < len(fct) {
				p.lab, p.sim = append(p.lab, float64(f.FCTUs)/1000), append(p.sim, fct[f.ID])
			}
		}
		if p.failed = len(fct) - len(p.lab); len(p.lab) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// both is one policy at one rate, over the workloads that ecmp has played too.
func both(runs []paired, label, policy string) Both {
	b := Both{Name: policy}
	var lm, sm, lb, sb []float64
	for i := range runs {
		r := &runs[i]
		if r.label != label || r.policy != policy {
			continue
		}
		k := slices.IndexFunc(runs, func(x paired) bool { return x.workload == r.workload && x.policy == Base })
		if k < 0 {
			continue
		}
		b.Workloads++
		b.Failed += r.failed
		lm, sm = append(lm, r.lab...), append(sm, r.sim...)
		lb, sb = append(lb, runs[k].lab...), append(sb, runs[k].sim...)
	}
	if b.Workloads > 0 {
		b.LabMs, b.SimMs = pairOf(lm), pairOf(sm)
		b.LabCut, b.SimCut = cutOf(b.LabMs, pairOf(lb)), cutOf(b.SimMs, pairOf(sb))
	}
	return b
}

// order is the policies by something, the most first; equal ones as they stand.
func (g *ComparisonGroup) order(of func(*Both) float64) []string {
	by := slices.Clone(g.Policies)
	sort.SliceStable(by, func(i, j int) bool { return of(&by[i]) > of(&by[j]) })
	var names []string
	for _, b := range by {
		names = append(names, b.Name)
	}
	return names
}

func pairOf(ms []float64) Pair {
	sort.Float64s(ms)
	return Pair{round(lab.Mean(ms)), round(lab.Percentile(95)(ms))}
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
	for _, g := range c.Groups {
		for i := range g.Policies {
			if b := &g.Policies[i]; b.Failed > 0 {
				o.Println(o.Yellow(fmt.Sprintf("%d flows of %s at %s failed in the lab, and are left out on both sides", b.Failed, b.Name, g.Label)))
			}
		}
	}
	if len(c.Without) > 0 {
		o.Println("not simulated:", strings.Join(c.Without, ", "))
	}
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
