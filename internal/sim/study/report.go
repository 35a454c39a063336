package study

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"time"

	"shoal/internal/lab"
	"shoal/internal/sim"
	"shoal/internal/sim/control"
)

// Report is what a study has shown. Its JSON is the output of `shoal sim fabric --output json`. Times are in milliseconds;
// cuts are against ecmp on the same workloads, run by run: 0.25 is a quarter less, and negative is more.
type Report struct {
	Title   string   `json:"title,omitempty"`
	Digest  string   `json:"digest"` // of all runs, in the order of the plan
	Runs    int      `json:"runs"`
	Missing int      `json:"missing"`        // runs of the plan that were not made
	Others  []string `json:"other_programs"` // versions that have made some of the results, where it was not this one
	Packets int64    `json:"packets"`
	Sweep   string   `json:"sweep,omitempty"` // what the variants differ in
	Groups  []Group  `json:"groups"`
	// Published are the ARK paper's figures, where the plan has their rates and no sweep.
	Published []Published `json:"paper,omitempty"`

	plan    *Plan
	results []*Result
	points  []Point
}

// Group is the policies under one variant at one rate, in the order of the plan.
type Group struct {
	Variant  string   `json:"variant,omitempty"`
	QPS      float64  `json:"qps"`
	Policies []Policy `json:"policies"`

	variant int
}

// Policy is one policy in a group.
type Policy struct {
	Name   string     `json:"name"`
	Model  string     `json:"model"`
	Times  Quantities `json:"times_ms"`
	Cuts   *Cuts      `json:"cuts"`    // null of ecmp, and without it
	WaitMs float64    `json:"wait_ms"` // the mean part of FCT before the first byte
	// Counts are sums over all runs.
	Counts control.Counts `json:"counts"`
}

// Quantities are of each run; TTFT is prefill, transfer and the first decode step.
type Quantities struct {
	Mean     Spread `json:"mean"`
	P50      Spread `json:"p50"`
	P95      Spread `json:"p95"`
	P99      Spread `json:"p99"`
	TTFTMean Spread `json:"ttft_mean"`
	TTFTP95  Spread `json:"ttft_p95"`
}

// Cuts are the parts that were saved.
type Cuts Quantities

// quantity is one of Quantities.
type quantity struct {
	name string
	of   func(sorted []float64, ttft float64) float64 // of a run's FCTs, in ms
	at   func(*Quantities) *Spread
}

func quantities() []quantity {
	plain := func(f func([]float64) float64) func([]float64, float64) float64 {
		return func(t []float64, _ float64) float64 { return f(t) }
	}
	return []quantity{
		{"mean", plain(lab.Mean), func(q *Quantities) *Spread { return &q.Mean }},
		{"p50", plain(lab.Percentile(50)), func(q *Quantities) *Spread { return &q.P50 }},
		{"p95", plain(lab.Percentile(95)), func(q *Quantities) *Spread { return &q.P95 }},
		{"p99", plain(lab.Percentile(99)), func(q *Quantities) *Spread { return &q.P99 }},
		{"ttft_mean", func(t []float64, more float64) float64 { return lab.Mean(t) + more }, func(q *Quantities) *Spread { return &q.TTFTMean }},
		{"ttft_p95", func(t []float64, more float64) float64 { return lab.Percentile(95)(t) + more }, func(q *Quantities) *Spread { return &q.TTFTP95 }},
	}
}

// cell is where a run belongs.
type cell struct {
	variant int
	qps     float64
	policy  string
}

// NewReport sums up what Run has returned for a plan.
func NewReport(p *Plan, results []*Result) *Report {
	o := &Report{Title: p.Title, Sweep: p.Sweep, plan: p, results: results, points: p.Points()}
	var digest sim.Digest
	cells := map[cell][]int{}
	sorted := make([][]float64, len(results)) // FCTs in ms
	for i, r := range results {
		if r == nil {
			o.Missing++
			continue
		}
		o.Runs++
		o.Packets += r.End.Packets
		digest.Add(int64(r.digest()))
		if r.Program != p.Program && !slices.Contains(o.Others, r.Program) {
			o.Others = append(o.Others, r.Program)
		}
		at := o.points[i]
		key := cell{at.Variant, at.QPS, at.Policy}
		cells[key] = append(cells[key], i)
		sorted[i] = milliseconds(r.FCT)
		sort.Float64s(sorted[i])
	}
	o.Digest = digest.String()
	sort.Strings(o.Others)
	for v := range p.Variants {
		for _, qps := range o.rates() {
			g := Group{Variant: p.Variants[v].Name, QPS: qps, variant: v}
			for _, name := range p.Policies {
				if runs := cells[cell{v, qps, name}]; len(runs) > 0 {
					g.Policies = append(g.Policies, o.policy(name, runs, cells[cell{v, qps, Base}], sorted))
				}
			}
			if len(g.Policies) > 0 {
				o.Groups = append(o.Groups, g)
			}
		}
	}
	if p.Sweep == "" && p.Variants[0].Scenario.isPaper() {
		o.Published = published(o.Groups)
	}
	return o
}

// rates are those of the points, rising.
func (o *Report) rates() []float64 {
	var all []float64
	for _, at := range o.points {
		if !slices.Contains(all, at.QPS) {
			all = append(all, at.QPS)
		}
	}
	slices.Sort(all)
	return all
}

// policy sums up some runs, and what they save against those of the base that have the same workloads.
func (o *Report) policy(name string, runs, base []int, sorted [][]float64) Policy {
	out := Policy{Name: name, Model: o.results[runs[0]].Model}
	s := &o.plan.Variants[o.points[runs[0]].Variant].Scenario
	more := float64(s.Prefill+s.DecodeStep) / float64(time.Millisecond)
	var pairs [][2]int
	waits, flows := 0.0, 0
	for _, i := range runs {
		r := o.results[i]
		addCounts(&out.Counts, &r.End.Counts)
		for _, w := range milliseconds(r.Wait) {
			waits += w
			flows++
		}
		for _, b := range base {
			if x, y := o.points[i], o.points[b]; x.Seed == y.Seed && x.record == y.record {
				pairs = append(pairs, [2]int{i, b})
			}
		}
	}
	out.WaitMs = round(waits / float64(flows))
	if name != Base && len(pairs) > 0 {
		out.Cuts = &Cuts{}
	}
	for _, q := range quantities() {
		var values, cuts []float64
		for _, i := range runs {
			values = append(values, q.of(sorted[i], more))
		}
		*q.at(&out.Times) = newSpread(values)
		if out.Cuts == nil {
			continue
		}
		for _, pair := range pairs {
			cuts = append(cuts, 1-q.of(sorted[pair[0]], more)/q.of(sorted[pair[1]], more))
		}
		*q.at((*Quantities)(out.Cuts)) = newSpread(cuts)
	}
	return out
}

func milliseconds(ns []int64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e6
	}
	return out
}

func addCounts(sum, c *control.Counts) {
	sum.Messages += c.Messages
	sum.MessageBytes += c.MessageBytes
	sum.Lost += c.Lost
	sum.Conflicts += c.Conflicts
	sum.Moves += c.Moves
	sum.Fallbacks += c.Fallbacks
	sum.Waited += c.Waited
	sum.Mispathed += c.Mispathed
	sum.Mice += c.Mice
}

// find is one policy at one rate under the first variant; nil where there is none.
func (o *Report) find(variant int, qps float64, name string) *Policy {
	for i := range o.Groups {
		g := &o.Groups[i]
		if g.variant != variant || g.QPS != qps {
			continue
		}
		for k := range g.Policies {
			if g.Policies[k].Name == name {
				return &g.Policies[k]
			}
		}
	}
	return nil
}

// WriteJSON writes one report as an indented JSON object, several as an array.
func WriteJSON(w io.Writer, reports ...*Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if len(reports) == 1 {
		return e.Encode(reports[0])
	}
	return e.Encode(reports)
}

// WriteCSV writes one line for each policy of each group. A field that nobody knows is empty.
func WriteCSV(w io.Writer, reports ...*Report) error {
	c := csv.NewWriter(w)
	head := []string{"sweep", "variant", "qps", "policy", "model", "runs"}
	for _, q := range quantities() {
		head = append(head, q.name+"_ms")
	}
	for _, q := range quantities() {
		for _, part := range []string{"", "_ci_low", "_ci_high", "_single_low", "_single_high"} {
			head = append(head, q.name+"_cut"+part)
		}
	}
	head = append(head, "wait_ms", "messages", "message_bytes", "lost", "conflicts", "moves", "fallbacks", "waited", "mispathed", "mice")
	c.Write(head)
	for _, o := range reports {
		o.writeRows(c)
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("study: report: %w", err)
	}
	return nil
}

func (o *Report) writeRows(c *csv.Writer) {
	for _, g := range o.Groups {
		for i := range g.Policies {
			p := &g.Policies[i]
			row := []string{o.Sweep, g.Variant, number64(g.QPS), p.Name, p.Model, strconv.Itoa(p.Times.Mean.Runs)}
			for _, q := range quantities() {
				row = append(row, number64(q.at(&p.Times).Mean))
			}
			for _, q := range quantities() {
				if p.Cuts == nil {
					row = append(row, "", "", "", "", "")
					continue
				}
				s := q.at((*Quantities)(p.Cuts))
				row = append(row, number64(s.Mean), optional(s.Low), optional(s.High), optional(s.SingleLow), optional(s.SingleHigh))
			}
			n := &p.Counts
			row = append(row, number64(p.WaitMs))
			for _, v := range []int64{n.Messages, n.MessageBytes, n.Lost, n.Conflicts, n.Moves, n.Fallbacks, n.Waited, n.Mispathed, n.Mice} {
				row = append(row, strconv.FormatInt(v, 10))
			}
			c.Write(row)
		}
	}
}

func number64(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return number64(*v)
}
