package lab

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
)

// Report is what a comparison has shown. Its JSON is the output of `shoal lab run --output json`; a null is something that
// nobody measured. Times are in milliseconds, gains are cuts against the policy ecmp on the same workloads: 0.25 is a
// quarter less, and negative is more.
type Report struct {
	Fabric []string `json:"fabrics"` // digests: more than one means that runs of different fabrics are compared
	Groups []Group  `json:"groups"`  // by rate
}

// Group is the runs of one rate; of recorded workloads without a rate, those of one workload.
type Group struct {
	Label    string   `json:"label"`
	QPS      float64  `json:"qps,omitempty"`
	Policies []Policy `json:"policies"` // ecmp first, then by name
}

// Policy is one policy at one rate, over all its workloads. Failed flows are in no time.
type Policy struct {
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
	Flows     int    `json:"flows"`
	Failed    int    `json:"failed"`

	MeanMs *float64 `json:"mean_ms"`
	P50Ms  *float64 `json:"p50_ms"`
	P95Ms  *float64 `json:"p95_ms"`
	P99Ms  *float64 `json:"p99_ms"`
	// Each is the same of every workload by itself, in order of the workloads' names.
	Each []Quantiles `json:"each"`

	MeanGain  *Gain `json:"mean_gain,omitempty"`
	P95Gain   *Gain `json:"p95_gain,omitempty"`
	P99Gain   *Gain `json:"p99_gain,omitempty"`
	PaperMean *Cut  `json:"paper_mean_gain,omitempty"` // what the paper has in a simulator, where it says
	PaperP95  *Cut  `json:"paper_p95_gain,omitempty"`

	Counts
	// Imbalance is the bytes that went up to the most used spine by those of the mean spine, over a whole run; the mean of
	// the runs. 1 is even.
	Imbalance *float64 `json:"imbalance"`
	// PeakFlows is the most flows that were seen on one spine at once.
	PeakFlows int   `json:"peak_flows"`
	LateMs    int64 `json:"late_ms"` // the latest start of a flow: large where the machine was too slow
}

// Cut is a part that was saved.
type Cut = float64

// Gain is a cut over all flows of the workloads that both policies have, and the least and the most of one workload.
type Gain struct {
	All       Cut `json:"all"`
	Least     Cut `json:"least"`
	Most      Cut `json:"most"`
	Workloads int `json:"workloads"`
}

// Quantiles of one workload, by the nearest rank.
type Quantiles struct {
	Workload string  `json:"workload"`
	MeanMs   float64 `json:"mean_ms"`
	P95Ms    float64 `json:"p95_ms"`
	P99Ms    float64 `json:"p99_ms"`
}

// control is the policy that others are compared with.
const control = "ecmp"

// paper are the published cuts of ARK against ECMP, mean and P95, by rate (a simulator, 1,000 requests a point).
func paper(policy string, qps float64) (mean, p95 *Cut) {
	if policy != "ark" {
		return nil, nil
	}
	switch qps {
	case 1:
		return new(0.019), new(0.012)
	case 25:
		return new(0.273), new(0.340)
	case 30:
		return new(0.138), new(0.124)
	}
	return nil, nil
}

// NewReport sums results up. They are not changed.
func NewReport(results []*Result) *Report {
	p := &Report{}
	groups := map[string]map[string][]*Result{} // by label, then policy
	qps := map[string]float64{}
	for _, r := range results {
		if !slices.Contains(p.Fabric, r.Fabric) {
			p.Fabric = append(p.Fabric, r.Fabric)
		}
		label := r.Workload
		if r.QPS > 0 {
			label = strconv.FormatFloat(r.QPS, 'g', -1, 64)
		}
		if groups[label] == nil {
			groups[label] = map[string][]*Result{}
		}
		groups[label][r.Policy] = append(groups[label][r.Policy], r)
		qps[label] = r.QPS
	}
	sort.Strings(p.Fabric)
	for label, policies := range groups {
		g := Group{Label: label, QPS: qps[label]}
		for name, runs := range policies {
			sort.Slice(runs, func(i, j int) bool { return runs[i].Workload < runs[j].Workload })
			g.Policies = append(g.Policies, sum(name, runs))
		}
		sort.Slice(g.Policies, func(i, j int) bool {
			a, b := g.Policies[i].Name, g.Policies[j].Name
			if (a == control) != (b == control) {
				return a == control
			}
			return a < b
		})
		for i := range g.Policies {
			o := &g.Policies[i]
			o.PaperMean, o.PaperP95 = paper(o.Name, g.QPS)
			if own, other := policies[o.Name], policies[control]; o.Name != control && other != nil {
				own, other = common(own, other)
				o.MeanGain, o.P95Gain, o.P99Gain = gain(own, other, Mean), gain(own, other, Percentile(95)), gain(own, other, Percentile(99))
			}
		}
		p.Groups = append(p.Groups, g)
	}
	sort.Slice(p.Groups, func(i, j int) bool {
		if a, b := p.Groups[i].QPS, p.Groups[j].QPS; a != b {
			return a < b
		}
		return p.Groups[i].Label < p.Groups[j].Label
	})
	return p
}

// sum is one policy over its runs.
func sum(name string, runs []*Result) Policy {
	o := Policy{Name: name, Workloads: len(runs)}
	imbalance, measured := 0.0, 0
	for _, r := range runs {
		o.Flows += r.Flows
		o.Failed += r.End.Failed
		o.Conflicts += r.End.Counts.Conflicts
		o.Fallbacks += r.End.Counts.Fallbacks
		o.Moves += r.End.Counts.Moves
		o.LateMs = max(o.LateMs, r.End.LateMs)
		if v := r.imbalance(); v > 0 {
			imbalance += v
			measured++
		}
		for i := range r.Samples {
			o.PeakFlows = max(o.PeakFlows, slices.Max(append([]int{0}, r.Samples[i].Flows...)))
		}
		if t := times(r); len(t) > 0 {
			o.Each = append(o.Each, Quantiles{Workload: r.Workload, MeanMs: round(Mean(t)), P95Ms: round(Percentile(95)(t)), P99Ms: round(Percentile(99)(t))})
		}
	}
	if measured > 0 {
		o.Imbalance = new(round(imbalance / float64(measured)))
	}
	if t := times(runs...); len(t) > 0 {
		o.MeanMs, o.P50Ms = new(round(Mean(t))), new(round(Percentile(50)(t)))
		o.P95Ms, o.P99Ms = new(round(Percentile(95)(t))), new(round(Percentile(99)(t)))
	}
	return o
}

// times are the completion times of all flows that arrived, in milliseconds, sorted.
func times(runs ...*Result) []float64 {
	var t []float64
	for _, r := range runs {
		for i := range r.FlowResults {
			if f := &r.FlowResults[i]; f.Error == "" {
				t = append(t, float64(f.FCTUs)/1000)
			}
		}
	}
	sort.Float64s(t)
	return t
}

// common are the runs of workloads that both have, in the same order.
func common(a, b []*Result) (x, y []*Result) {
	for _, r := range a {
		for _, s := range b {
			if r.Workload == s.Workload && r.Digest == s.Digest && len(times(r)) > 0 && len(times(s)) > 0 {
				x, y = append(x, r), append(y, s)
			}
		}
	}
	return x, y
}

func gain(own, other []*Result, of func([]float64) float64) *Gain {
	if len(own) == 0 {
		return nil
	}
	cut := func(a, b []*Result) float64 { return round(1 - of(times(a...))/of(times(b...))) }
	g := &Gain{All: cut(own, other), Least: math.Inf(1), Most: math.Inf(-1), Workloads: len(own)}
	for i := range own {
		c := cut(own[i:i+1], other[i:i+1])
		g.Least, g.Most = min(g.Least, c), max(g.Most, c)
	}
	return g
}

// spineBytes is what went up to each spine in the whole run.
func (r *Result) spineBytes() []int64 {
	out := make([]int64, len(r.Spines))
	for _, s := range r.Samples {
		for i, b := range s.Bytes {
			if k := r.spineOf(i); k >= 0 {
				out[k] += b
			}
		}
	}
	return out
}

// imbalance is the most used spine by the mean; 0 where nothing was counted.
func (r *Result) imbalance() float64 {
	var most, all int64
	spines := r.spineBytes()
	for _, b := range spines {
		most, all = max(most, b), all+b
	}
	if all == 0 {
		return 0
	}
	return float64(most) * float64(len(spines)) / float64(all)
}

// Mean is that of at least one value.
func Mean(values []float64) float64 {
	var s float64
	for _, v := range values {
		s += v
	}
	return s / float64(len(values))
}

// Percentile is the nearest-rank percentile of sorted values: the least that percent of all do not exceed.
func Percentile(percent int) func([]float64) float64 {
	return func(sorted []float64) float64 { return sorted[max(0, (len(sorted)*percent+99)/100-1)] }
}

// round keeps four digits after the point: more is noise.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// WriteJSON writes the report as one indented JSON object.
func (p *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}
