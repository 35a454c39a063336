package study

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"shoal/internal/lab"
)

// shownQPS is the rate whose runs are drawn as a distribution and over time, where there are several: where ECMP suffers
// most in the paper.
const shownQPS = 25

// shownPolicies are drawn over time, as far as the plan has them: all of them do not fit on a page.
var shownPolicies = []string{Base, "ark", "least", "shoal"}

// WritePlots draws what the report has data for into dir, as SVG, and returns the files.
func (o *Report) WritePlots(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("study: plot: %w", err)
	}
	draw := func(name string, rows [][]*plot.Plot, width, rowHeight vg.Length) error {
		if len(rows) == 0 {
			return nil
		}
		path := filepath.Join(dir, name)
		files = append(files, path)
		return lab.DrawTo(path, rows, width, vg.Length(len(rows))*rowHeight)
	}
	if o.Sweep != "" {
		err = o.writeSweep(draw)
		return files, err
	}
	for _, f := range []struct {
		name   string
		rows   [][]*plot.Plot
		height vg.Length
	}{
		{"fct.svg", o.ratePlots(false), 4 * vg.Inch},
		{"cuts.svg", o.ratePlots(true), 4 * vg.Inch},
		{"cdf.svg", o.cdfPlot(), 4.5 * vg.Inch},
		{"spines.svg", o.spinePlots(), 2.2 * vg.Inch},
		{"queues.svg", o.queuePlot(), 3.5 * vg.Inch},
	} {
		if err := draw(f.name, f.rows, 11*vg.Inch, f.height); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// style is a policy's, the same on every plot: a colour, and dashes where there are more policies than colours.
func style(policy string, width float64) draw.LineStyle {
	palette := lab.Palette()
	order := [...]string{Base, "ark", "least", "shoal", "split", "spray", "hedera", "ecmp-fixed", "flowlet", "plb", Bound}
	i := max(0, slices.Index(order[:], policy))
	s := draw.LineStyle{Color: palette[i%len(palette)], Width: vg.Points(width)}
	if i >= len(palette) {
		s.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	return s
}

// ratePlots are mean and P95 by rate, a line a policy: times, or cuts with the paper's beside them. Bands are those of the
// mean's confidence; of single runs for ark's cuts, with which the paper is to be compared.
func (o *Report) ratePlots(cuts bool) [][]*plot.Plot {
	if len(o.rates()) < 2 {
		return nil
	}
	var row []*plot.Plot
	for _, q := range quantities() {
		if q.name != "mean" && q.name != "p95" {
			continue
		}
		f := lab.Figure(paperName(q.name), "transfers per second", "s")
		if cuts {
			f = lab.Figure("cut of "+paperName(q.name)+" against ecmp", "transfers per second", "%")
		}
		for _, name := range o.plan.Policies {
			var c curve
			for gi := range o.Groups {
				p := o.find(0, o.Groups[gi].QPS, name)
				switch {
				case p == nil:
				case !cuts:
					c.add(o.Groups[gi].QPS, q.at(&p.Times), 1e-3, false)
				case p.Cuts != nil:
					c.add(o.Groups[gi].QPS, q.at((*Quantities)(p.Cuts)), 100, name == "ark")
				}
			}
			c.draw(f, name, name)
		}
		if cuts {
			var points plotter.XYs
			for _, p := range o.Published {
				if p.Quantity == q.name {
					points = append(points, plotter.XY{X: p.QPS, Y: 100 * p.Paper})
				}
			}
			if len(points) > 0 {
				crosses := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: color.RGBA{200, 0, 0, 255}, Radius: vg.Points(4), Shape: draw.CrossGlyph{}}}
				f.Add(crosses)
				f.Legend.Add("ark, the paper", crosses)
			}
		}
		o.bound(f, q, cuts)
		row = append(row, f)
	}
	return [][]*plot.Plot{row}
}

// bound keeps a policy that is much worse than ecmp from hiding the others.
func (o *Report) bound(f *plot.Plot, q quantity, cuts bool) {
	if cuts {
		f.Y.Min, f.Y.Max = max(f.Y.Min, -50), min(f.Y.Max, 100)
		return
	}
	most := 0.0
	for _, g := range o.Groups {
		if p := o.find(0, g.QPS, Base); p != nil {
			most = max(most, q.at(&p.Times).Mean/1000)
		}
	}
	if most > 0 {
		f.Y.Max = min(f.Y.Max, 2*most)
	}
}

// curve is points with a band around them.
type curve struct {
	line, low, high plotter.XYs
}

func (c *curve) add(x float64, s *Spread, factor float64, single bool) {
	low, high := s.Low, s.High
	if single && s.SingleLow != nil {
		low, high = s.SingleLow, s.SingleHigh
	}
	c.line = append(c.line, plotter.XY{X: x, Y: s.Mean * factor})
	if low != nil {
		c.low, c.high = append(c.low, plotter.XY{X: x, Y: *low * factor}), append(c.high, plotter.XY{X: x, Y: *high * factor})
	}
}

func (c *curve) draw(f *plot.Plot, name, policy string) {
	if len(c.line) == 0 {
		return
	}
	s := style(policy, 1.5)
	if len(c.low) > 1 {
		ring := slices.Clone(c.low)
		for i := len(c.high) - 1; i >= 0; i-- {
			ring = append(ring, c.high[i])
		}
		r, g, b, _ := s.Color.RGBA()
		f.Add(&plotter.Polygon{XYs: []plotter.XYs{ring}, Color: color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 40}})
	}
	l := &plotter.Line{XYs: c.line, LineStyle: s}
	f.Add(l, &plotter.Scatter{XYs: c.line, GlyphStyle: draw.GlyphStyle{Color: s.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}})
	f.Legend.Add(name, l)
}

// shown is the rate to draw: the nearest to shownQPS.
func (o *Report) shown() float64 {
	best := math.Inf(1)
	for _, q := range o.rates() {
		if math.Abs(q-shownQPS) < math.Abs(best-shownQPS) {
			best = q
		}
	}
	return best
}

// cdfPlot is the distribution of completion times over all runs of one rate.
func (o *Report) cdfPlot() [][]*plot.Plot {
	qps := o.shown()
	f := lab.Figure(fmt.Sprintf("flow completion time at %g transfers per second", qps), "s", "part of the transfers")
	f.X.Scale, f.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	f.X.Min = math.Inf(1)
	for _, name := range o.plan.Policies {
		var all []float64
		for i, r := range o.results {
			if at := o.points[i]; r != nil && at.Variant == 0 && at.QPS == qps && at.Policy == name {
				all = append(all, milliseconds(r.FCT)...)
			}
		}
		sort.Float64s(all)
		var line plotter.XYs
		const steps = 400
		for k := 0; k <= steps && len(all) > 0; k++ {
			i := min(len(all)-1, k*len(all)/steps)
			if all[i] > 0 {
				line = append(line, plotter.XY{X: all[i] / 1000, Y: float64(i+1) / float64(len(all))})
			}
		}
		if len(line) > 0 {
			l := &plotter.Line{XYs: line, LineStyle: style(name, 1.25)}
			f.Add(l)
			f.Legend.Add(name, l)
		}
	}
	f.Y.Max = 1
	return [][]*plot.Plot{{f}}
}

// sampled are the runs to draw over time: the first seed's at the shown rate, of the policies that are shown.
func (o *Report) sampled() []*Result {
	var out []*Result
	for _, name := range shownPolicies {
		for i, r := range o.results {
			if at := o.points[i]; r != nil && at.Variant == 0 && at.QPS == o.shown() && at.Policy == name && len(r.Samples) > 1 {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

// spinePlots are the flows on each path over time, a row a policy, all of the same workload.
func (o *Report) spinePlots() [][]*plot.Plot {
	var rows [][]*plot.Plot
	most, last, palette := 1.0, 0.0, lab.Palette()
	for _, r := range o.sampled() {
		f := lab.Figure(fmt.Sprintf("%s: transfers on each spine (%s)", r.Policy, r.Workload), "s", "transfers")
		paths := 0
		for _, s := range r.Samples {
			paths = max(paths, len(s.Flows))
		}
		for k := range min(paths, 16) {
			var line plotter.XYs
			for _, s := range r.Samples {
				n := 0.0 // a sample leaves out paths at its end on which there is nothing
				if k < len(s.Flows) {
					n = float64(s.Flows[k])
				}
				line = append(line, plotter.XY{X: s.At.Seconds(), Y: n})
				most, last = max(most, n), max(last, s.At.Seconds())
			}
			l := &plotter.Line{XYs: line, LineStyle: draw.LineStyle{Color: palette[k%len(palette)], Width: vg.Points(0.75)}, StepStyle: plotter.PostStep}
			f.Add(l)
			f.Legend.Add("path "+strconv.Itoa(k), l)
		}
		rows = append(rows, []*plot.Plot{f})
	}
	for _, row := range rows { // the same axes: rows are to be compared
		row[0].X.Max, row[0].Y.Max = last, most
	}
	return rows
}

// queuePlot is the longest queue of any link over time; of a fluid, which has none, there is no plot.
func (o *Report) queuePlot() [][]*plot.Plot {
	f := lab.Figure("longest queue of any link", "s", "kB")
	any := false
	for _, r := range o.sampled() {
		var line plotter.XYs
		for _, s := range r.Samples {
			line = append(line, plotter.XY{X: s.At.Seconds(), Y: float64(s.Queued) / 1000})
			any = any || s.Queued > 0
		}
		l := &plotter.Line{XYs: line, LineStyle: style(r.Policy, 0.75)}
		f.Add(l)
		f.Legend.Add(r.Policy, l)
	}
	if !any {
		return nil
	}
	return [][]*plot.Plot{{f}}
}

// writeSweep draws the cuts of each rate against what the variants differ in.
func (o *Report) writeSweep(draw func(string, [][]*plot.Plot, vg.Length, vg.Length) error) error {
	for _, qps := range o.rates() {
		name := fileName(o.Sweep)
		if len(o.rates()) > 1 {
			name += "-qps" + number64(qps)
		}
		if err := draw("by-"+name+".svg", o.sweepPlots(qps), 11*vg.Inch, 4*vg.Inch); err != nil {
			return err
		}
	}
	return nil
}

func fileName(s string) string {
	out := []rune(s)
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') {
			out[i] = '-'
		}
	}
	return string(out)
}

func (o *Report) sweepPlots(qps float64) [][]*plot.Plot {
	var row []*plot.Plot
	spaced := o.spaced()
	var names []plot.Tick
	for i, v := range o.plan.Variants {
		names = append(names, plot.Tick{Value: place(v, i, spaced), Label: v.Name})
	}
	for _, q := range quantities() {
		if q.name != "mean" && q.name != "p95" {
			continue
		}
		f := lab.Figure("cut of "+paperName(q.name)+" against ecmp", o.Sweep, "%")
		f.X.Tick.Marker = plot.ConstantTicks(names)
		f.Legend.Top = false
		for _, policy := range o.plan.Policies {
			var c curve
			for i, v := range o.plan.Variants {
				if p := o.find(i, qps, policy); p != nil && p.Cuts != nil {
					c.add(place(v, i, spaced), q.at((*Quantities)(p.Cuts)), 100, false)
				}
			}
			c.draw(f, policy, policy)
		}
		zero := plotter.NewFunction(func(float64) float64 { return 0 })
		zero.Width = vg.Points(0.5)
		f.Add(zero)
		o.bound(f, q, true)
		row = append(row, f)
	}
	return [][]*plot.Plot{row}
}

// spaced says whether the variants stand at equal distances on a plot: where their values are not numbers, or so that
// most would be in one corner.
func (o *Report) spaced() bool {
	v := o.plan.Variants
	low, high := v[0].X, v[0].X
	for _, x := range v {
		low, high = min(low, x.X), max(high, x.X)
	}
	for i := 1; i < len(v); i++ {
		if v[i].X-v[i-1].X < 0.04*(high-low) {
			return true
		}
	}
	return len(v) < 2
}

func place(v Variant, i int, spaced bool) float64 {
	if spaced {
		return float64(i)
	}
	return v.X
}

// axis is the number in a variant's name, where it has one; times in milliseconds.
func axis(name string, fallback float64) float64 {
	if d, err := time.ParseDuration(name); err == nil {
		return float64(d) / float64(time.Millisecond)
	}
	if n, err := strconv.ParseFloat(name, 64); err == nil {
		return n
	}
	return fallback
}
