package study

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/term"
)

// Write prints the report for people.
func (o *Report) Write(out *term.Output) {
	if o.Title != "" {
		out.Println(out.Bold(o.Title))
		out.Println()
	}
	out.Table(o.Table())
	out.Println()
	out.Println("Seconds and cuts are means over the runs (one a seed). A cut is against ecmp on the same workloads, seed by seed, with its")
	out.Println("95 % confidence interval (Student's t over the paired seeds), and in brackets the percentiles 2.5 to 97.5 of single runs.")
	if o.any(func(p *Policy) bool { return p.Name == Bound }) {
		out.Println(Bound + ": shortest remaining first with all links as one pool and the best destination; no policy, a limit.")
	}
	out.Println()
	out.Table(o.CountTable())
	out.Println()
	out.Println("Counts are of a mean run.")
	if len(o.Published) > 0 {
		out.Println()
		out.Table(o.PaperTable())
		out.Println()
		out.Println("The paper's figure is one run of 1,000 requests: inside means within the percentiles 2.5 to 97.5 of our single runs.")
	}
	out.Println()
	o.ending(out)
}

// ending says what the report rests on.
func (o *Report) ending(out *term.Output) {
	line := fmt.Sprintf("digest %s of %d runs", o.Digest, o.Runs)
	if o.Packets > 0 {
		line += fmt.Sprintf(", %d data packets", o.Packets)
	}
	out.Println(line)
	if o.Missing > 0 {
		out.Println(out.Yellow(fmt.Sprintf("%d of %d runs are missing; the same command makes them.", o.Missing, o.Missing+o.Runs)))
	}
	if len(o.Others) > 0 {
		out.Println(out.Yellow("Some results were made by another version of this program: " + strings.Join(o.Others, ", ") + ". Remove them, or give another directory, to make them anew."))
	}
}

// columns are those that say which group a line is of.
func (o *Report) columns() []term.Column {
	c := []term.Column{term.Left("qps"), term.Left("policy")}
	if o.Sweep != "" {
		c = append([]term.Column{term.Left(o.Sweep)}, c...)
	}
	return c
}

func (o *Report) cells(g *Group, p *Policy) []string {
	c := []string{number64(g.QPS), p.Name}
	if o.Sweep != "" {
		c = append([]string{g.Variant}, c...)
	}
	return c
}

// Table is one line for each policy of each group: times and cuts.
func (o *Report) Table() *term.Table {
	t := term.NewTable(append(o.columns(), term.Right("runs"), term.Right("mean s"), term.Right("P50"), term.Right("P95"), term.Right("P99"), term.Right("TTFT mean"), term.Right("P95"),
		term.Right("mean cut"), term.Right("P95 cut"), term.Right("P99 cut"), term.Right("TTFT mean cut"), term.Right("P95 cut"))...)
	for gi := range o.Groups {
		g := &o.Groups[gi]
		for i := range g.Policies {
			p := &g.Policies[i]
			row := append(o.cells(g, p), strconv.Itoa(p.Times.Mean.Runs))
			for _, q := range quantities() {
				row = append(row, strconv.FormatFloat(q.at(&p.Times).Mean/1000, 'f', 3, 64))
			}
			for _, q := range quantities() {
				switch {
				case q.name == "p50":
				case p.Cuts == nil:
					row = append(row, "-")
				default:
					row = append(row, cutText(q.at((*Quantities)(p.Cuts)), q.name == "mean" || q.name == "p95"))
				}
			}
			t.Row(row...)
		}
	}
	return t
}

// CountTable is what the policies have counted, in a mean run. What nobody has counted has no column.
func (o *Report) CountTable() *term.Table {
	type count struct {
		name string
		of   func(*Policy) string
	}
	n := func(at func(*Policy) int64) func(*Policy) string {
		return func(p *Policy) string { return p.each(at(p)) }
	}
	all := []count{
		{"fallbacks", n(func(p *Policy) int64 { return p.Counts.Fallbacks })},
		{"conflicts", n(func(p *Policy) int64 { return p.Counts.Conflicts })},
		{"moves", n(func(p *Policy) int64 { return p.Counts.Moves })},
		{"waited", n(func(p *Policy) int64 { return p.Counts.Waited })},
		{"mean wait s", func(p *Policy) string { return strconv.FormatFloat(p.WaitMs/1000, 'f', 3, 64) }},
		{"messages", n(func(p *Policy) int64 { return p.Counts.Messages })},
		{"kB", n(func(p *Policy) int64 { return p.Counts.MessageBytes / 1000 })},
		{"lost", n(func(p *Policy) int64 { return p.Counts.Lost })},
		{"mispathed", n(func(p *Policy) int64 { return p.Counts.Mispathed })},
		{"mice", n(func(p *Policy) int64 { return p.Counts.Mice })},
	}
	columns, shown := o.columns(), []count{}
	for _, c := range all {
		if o.any(func(p *Policy) bool { return strings.Trim(c.of(p), "0.") != "" }) {
			columns, shown = append(columns, term.Right(c.name)), append(shown, c)
		}
	}
	t := term.NewTable(columns...)
	for gi := range o.Groups {
		g := &o.Groups[gi]
		for i := range g.Policies {
			row := o.cells(g, &g.Policies[i])
			for _, c := range shown {
				row = append(row, c.of(&g.Policies[i]))
			}
			t.Row(row...)
		}
	}
	return t
}

// any says whether it is so of any policy of any group.
func (o *Report) any(so func(*Policy) bool) bool {
	for gi := range o.Groups {
		for i := range o.Groups[gi].Policies {
			if so(&o.Groups[gi].Policies[i]) {
				return true
			}
		}
	}
	return false
}

// PaperTable is the paper's figures beside ours.
func (o *Report) PaperTable() *term.Table {
	t := term.NewTable(term.Left("qps"), term.Left("cut of ark"), term.Right("paper"), term.Right("ours"), term.Right("single runs"), term.Left("the paper's is"))
	for i := range o.Published {
		p := &o.Published[i]
		verdict, single := "-", "-"
		if p.Inside != nil {
			single = fmt.Sprintf("%.1f to %.1f %%", 100**p.Ours.SingleLow, 100**p.Ours.SingleHigh)
			verdict = "outside the band"
			if *p.Inside {
				verdict = "inside the band"
			}
		}
		t.Row(number64(p.QPS), paperName(p.Quantity), fmt.Sprintf("%.1f %%", 100*p.Paper), cutText(&p.Ours, false), single, verdict)
	}
	return t
}

func paperName(quantity string) string {
	return map[string]string{"mean": "mean FCT", "p95": "P95 FCT", "ttft_mean": "mean TTFT", "ttft_p95": "P95 TTFT"}[quantity]
}

// cutText is a cut in percent, with its confidence interval, and with the range of single runs where that is asked for.
func cutText(s *Spread, single bool) string {
	text := fmt.Sprintf("%.1f", 100*s.Mean)
	if s.High != nil {
		text += fmt.Sprintf(" ± %.1f", 100*s.Half())
	}
	text += " %"
	if single && s.SingleLow != nil {
		text += fmt.Sprintf(" (%.0f to %.0f)", 100**s.SingleLow, 100**s.SingleHigh)
	}
	return text
}

// WriteBreak prints a sweep for people: a line for each of its variants and rates, with every policy's cuts beside each other.
func (o *Report) WriteBreak(out *term.Output) {
	out.Println(out.Bold(o.Title))
	out.Println()
	out.Table(o.BreakTable())
	out.Println()
	o.ending(out)
}

// BreakTable is that line: mean and P95 cut against ecmp under the same circumstances.
func (o *Report) BreakTable() *term.Table {
	columns := []term.Column{term.Left(o.Sweep)}
	rates := len(o.rates()) > 1
	if rates {
		columns = append(columns, term.Right("qps"))
	}
	columns = append(columns, term.Right("ecmp mean s"), term.Right("P95"))
	for _, name := range o.plan.Policies {
		if name != Base {
			columns = append(columns, term.Right(name+" mean cut"), term.Right("P95 cut"))
		}
	}
	t := term.NewTable(append(columns, term.Right("fallbacks"), term.Right("mispathed"))...)
	for gi := range o.Groups {
		g := &o.Groups[gi]
		row := []string{g.Variant}
		if rates {
			row = append(row, number64(g.QPS))
		}
		at := func(p *Policy, q func(*Policy) string) string {
			if p == nil {
				return "-"
			}
			return q(p)
		}
		seconds := func(of func(*Quantities) *Spread) func(*Policy) string {
			return func(p *Policy) string { return strconv.FormatFloat(of(&p.Times).Mean/1000, 'f', 3, 64) }
		}
		cut := func(of func(*Quantities) *Spread) func(*Policy) string {
			return func(p *Policy) string {
				if p.Cuts == nil {
					return "-"
				}
				return cutText(of((*Quantities)(p.Cuts)), false)
			}
		}
		mean, p95 := func(q *Quantities) *Spread { return &q.Mean }, func(q *Quantities) *Spread { return &q.P95 }
		base := o.find(g.variant, g.QPS, Base)
		row = append(row, at(base, seconds(mean)), at(base, seconds(p95)))
		var fallbacks, mispathed []string
		for _, name := range o.plan.Policies {
			if name == Base {
				continue
			}
			p := o.find(g.variant, g.QPS, name)
			row = append(row, at(p, cut(mean)), at(p, cut(p95)))
			fallbacks = append(fallbacks, at(p, func(p *Policy) string { return p.each(p.Counts.Fallbacks) }))
			mispathed = append(mispathed, at(p, func(p *Policy) string { return p.each(p.Counts.Mispathed) }))
		}
		t.Row(append(row, strings.Join(fallbacks, "/"), strings.Join(mispathed, "/"))...)
	}
	return t
}

// each is a count of a mean run.
func (p *Policy) each(v int64) string {
	return strconv.FormatFloat(float64(v)/float64(p.Times.Mean.Runs), 'f', 0, 64)
}

// ModelTable is how far the fluid is from the packets, for each policy that both reports have at the same rate: of the mean
// and P95 FCT in percent, of the cuts in points.
func ModelTable(packets, fluid *Report) *term.Table {
	t := term.NewTable(term.Left("qps"), term.Left("policy"), term.Right("mean s: packets"), term.Right("fluid"), term.Right("%"), term.Right("P95 s: packets"), term.Right("fluid"), term.Right("%"),
		term.Right("mean cut: packets"), term.Right("fluid"), term.Right("points"), term.Right("P95 cut: packets"), term.Right("fluid"), term.Right("points"))
	for gi := range packets.Groups {
		g := &packets.Groups[gi]
		for i := range g.Policies {
			p := &g.Policies[i]
			f := fluid.find(g.variant, g.QPS, p.Name)
			if f == nil || p.Name == Bound { // the bound has no network
				continue
			}
			row := []string{number64(g.QPS), p.Name}
			for _, of := range []func(*Quantities) *Spread{func(q *Quantities) *Spread { return &q.Mean }, func(q *Quantities) *Spread { return &q.P95 }} {
				a, b := of(&p.Times).Mean, of(&f.Times).Mean
				row = append(row, strconv.FormatFloat(a/1000, 'f', 3, 64), strconv.FormatFloat(b/1000, 'f', 3, 64), fmt.Sprintf("%+.1f", 100*(b/a-1)))
			}
			for _, of := range []func(*Quantities) *Spread{func(q *Quantities) *Spread { return &q.Mean }, func(q *Quantities) *Spread { return &q.P95 }} {
				if p.Cuts == nil || f.Cuts == nil {
					row = append(row, "-", "-", "-")
					continue
				}
				a, b := of((*Quantities)(p.Cuts)).Mean, of((*Quantities)(f.Cuts)).Mean
				row = append(row, fmt.Sprintf("%.1f %%", 100*a), fmt.Sprintf("%.1f %%", 100*b), fmt.Sprintf("%+.1f", 100*(b-a)))
			}
			t.Row(row...)
		}
	}
	return t
}
