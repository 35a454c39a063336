package lab

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Files that WritePlots makes.
const (
	plotFCT    = "fct.svg"
	plotSpines = "spines.svg"
)

// shownQPS is the rate whose runs are drawn over time, where there are several: where ECMP suffers most in the paper.
const shownQPS = 25

// WritePlots draws the completion times by rate, and what each spine carried over time, into dir; it returns the files. Of
// what there are no data for, there is no file.
func WritePlots(dir string, results []*Result) ([]string, error) {
	var files []string
	rows := [][]*plot.Plot{fctPlots(NewReport(results))}
	if rows[0] != nil {
		files = append(files, filepath.Join(dir, plotFCT))
		if err := DrawTo(files[0], rows, 10*vg.Inch, 4*vg.Inch); err != nil {
			return nil, err
		}
	}
	if rows := spinePlots(results); len(rows) > 0 {
		files = append(files, filepath.Join(dir, plotSpines))
		if err := DrawTo(files[len(files)-1], rows, 10*vg.Inch, vg.Length(len(rows))*2.2*vg.Inch); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Palette is that of Okabe and Ito, which the colour-blind can tell apart, and one more.
func Palette() []color.RGBA {
	return []color.RGBA{{0, 0, 0, 255}, {230, 159, 0, 255}, {0, 114, 178, 255}, {0, 158, 115, 255}, {213, 94, 0, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {200, 190, 40, 255}}
}

// colour i of the palette, over and over.
func colour(i int) color.Color { return Palette()[i%len(Palette())] }

// fctPlots are mean and P95 by rate, a line a policy; the bars reach from the least to the most of one workload.
func fctPlots(p *Report) []*plot.Plot {
	var names []string
	for _, g := range p.Groups {
		for _, o := range g.Policies {
			if g.QPS > 0 && o.MeanMs != nil && !slices.Contains(names, o.Name) {
				names = append(names, o.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case a == control && b != control:
			return -1
		case b == control && a != control:
			return 1
		}
		return 0
	})
	var plots []*plot.Plot
	for _, kind := range []struct {
		title string
		all   func(*Policy) *float64
		each  func(*Quantiles) float64
	}{
		{"mean flow completion time", func(o *Policy) *float64 { return o.MeanMs }, func(q *Quantiles) float64 { return q.MeanMs }},
		{"P95 flow completion time", func(o *Policy) *float64 { return o.P95Ms }, func(q *Quantiles) float64 { return q.P95Ms }},
	} {
		f := Figure(kind.title, "flows per second", "s")
		for i, name := range names {
			var points spread
			for _, g := range p.Groups {
				for k := range g.Policies {
					o := &g.Policies[k]
					if v := kind.all(o); o.Name == name && g.QPS > 0 && v != nil {
						points.add(g.QPS, *v, o.Each, kind.each)
					}
				}
			}
			if len(points.XYs) > 0 {
				points.draw(f, name, colour(i))
			}
		}
		f.X.Max *= 1.04
		plots = append(plots, f)
	}
	return plots
}

// spread is points with bars.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

func (s *spread) add(x, ms float64, each []Quantiles, of func(*Quantiles) float64) {
	least, most := ms, ms
	for i := range each {
		least, most = min(least, of(&each[i])), max(most, of(&each[i]))
	}
	s.XYs = append(s.XYs, plotter.XY{X: x, Y: ms / 1000})
	s.YErrors = append(s.YErrors, struct{ Low, High float64 }{(ms - least) / 1000, (most - ms) / 1000})
}

func (s *spread) draw(f *plot.Plot, name string, c color.Color) {
	l := &plotter.Line{XYs: s.XYs, LineStyle: draw.LineStyle{Color: c, Width: vg.Points(1.5)}}
	dots := &plotter.Scatter{XYs: s.XYs, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}}
	bars := &plotter.YErrorBars{XYs: s.XYs, YErrors: s.YErrors, LineStyle: draw.LineStyle{Color: c, Width: vg.Points(0.75)}, CapWidth: vg.Points(5)}
	f.Add(bars, l, dots)
	f.Legend.Add(name, l)
}

// spinePlots are one row a policy, of one and the same workload: what went up to each spine, and how many flows were on it.
func spinePlots(results []*Result) [][]*plot.Plot {
	var best *Result
	for _, r := range results {
		if len(r.Samples) > 1 && (best == nil || math.Abs(r.QPS-shownQPS) < math.Abs(best.QPS-shownQPS)) {
			best = r
		}
	}
	if best == nil {
		return nil
	}
	var shown []*Result
	for _, r := range results {
		if r.Workload == best.Workload && len(r.Samples) > 1 {
			shown = append(shown, r)
		}
	}
	slices.SortStableFunc(shown, func(a, b *Result) int {
		if a.Policy == control {
			return -1
		}
		return 0
	})
	var rows [][]*plot.Plot
	var bits, flows, seconds float64
	for _, r := range shown {
		b := Figure(r.Policy+": to each spine ("+r.Workload+")", "s", "Mb/s")
		n := Figure(r.Policy+": flows on each spine", "s", "flows")
		n.Legend = plot.NewLegend() // one a row is enough
		for k, spine := range r.Spines {
			rate, under := r.overTime(k)
			for _, v := range rate {
				bits, seconds = max(bits, v.Y), max(seconds, v.X)
			}
			for _, v := range under {
				flows = max(flows, v.Y)
			}
			style := draw.LineStyle{Color: colour(k), Width: vg.Points(1)}
			l := &plotter.Line{XYs: rate, LineStyle: style}
			b.Add(l)
			b.Legend.Add(spine, l)
			n.Add(&plotter.Line{XYs: under, LineStyle: style, StepStyle: plotter.PostStep})
		}
		rows = append(rows, []*plot.Plot{b, n})
	}
	for _, row := range rows { // the same axes: rows are to be compared
		row[0].X.Max, row[1].X.Max, row[0].Y.Max, row[1].Y.Max = seconds, seconds, 1.3*bits, max(1, flows)
		row[0].Legend.Top = true
	}
	return rows
}

// overTime is what went up to spine k, in Mb/s over windows of about half a second, and the flows that were on it.
func (r *Result) overTime(k int) (rate, flows plotter.XYs) {
	const windowMs = 500
	var bytes, from, last int64
	for _, s := range r.Samples {
		for i, b := range s.Bytes {
			if r.spineOf(i) == k {
				bytes += b
			}
		}
		flows = append(flows, plotter.XY{X: float64(s.AtMs) / 1000, Y: float64(s.Flows[k])})
		if last = s.AtMs; last-from >= windowMs {
			rate = append(rate, plotter.XY{X: float64(from+last) / 2000, Y: float64(bytes) * 8 / 1000 / float64(last-from)})
			bytes, from = 0, last
		}
	}
	return rate, flows
}

// Figure is an empty plot with a grid, from 0 on.
func Figure(title, x, y string) *plot.Plot {
	f := plot.New()
	f.Title.Text, f.X.Label.Text, f.Y.Label.Text = title, x, y
	f.Title.TextStyle.Font.Size = vg.Points(10)
	f.X.Min, f.Y.Min = 0, 0
	f.Legend.Top, f.Legend.Left = true, true
	f.Legend.TextStyle.Font.Size = vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{230}, color.Gray{230}
	f.Add(grid)
	return f
}

// DrawTo draws rows of plots of one size into a file, as SVG.
func DrawTo(path string, rows [][]*plot.Plot, width, height vg.Length) error {
	c := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: len(rows), Cols: len(rows[0]), PadX: vg.Points(12), PadY: vg.Points(8), PadTop: vg.Points(4), PadBottom: vg.Points(4), PadLeft: vg.Points(4), PadRight: vg.Points(8)}
	for i, row := range plot.Align(rows, tiles, draw.New(c)) {
		for j := range row {
			rows[i][j].Draw(row[j])
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("lab: plot: %w", err)
	}
	defer f.Close()
	if _, err := c.WriteTo(f); err != nil {
		return fmt.Errorf("lab: plot %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("lab: plot %s: %w", path, err)
	}
	return nil
}
