package lab

import (
	"fmt"
	"strconv"

	"shoal/internal/term"
)

// Write prints the report for people.
func (p *Report) Write(o *term.Output) {
	o.Table(p.Table())
	o.Println()
	o.Println("FCT over all flows of all workloads, in seconds. A cut is against ecmp on the same workloads, and in brackets that of")
	o.Println("the workload with the least and with the most; paper: the cuts of mean and P95 that the ARK paper has in a simulator.")
	o.Println("max/mean: bytes of the most used spine by those of the mean one, over a run. peak: the most flows on one spine at once.")
	if failed := p.failed(); failed > 0 {
		o.Println(o.Red(fmt.Sprintf("Failed flows: %d. Their times are not in the table.", failed)))
	}
	if len(p.Fabric) > 1 {
		o.Println(o.Yellow(fmt.Sprintf("These runs are from %d different fabrics.", len(p.Fabric))))
	}
}

func (p *Report) failed() (n int) {
	for _, g := range p.Groups {
		for _, o := range g.Policies {
			n += o.Failed
		}
	}
	return n
}

// Table is one line a policy and rate.
func (p *Report) Table() *term.Table {
	t := term.NewTable(term.Left("qps"), term.Left("policy"), term.Right("runs"), term.Right("mean s"), term.Right("P95"), term.Right("P99"),
		term.Right("mean cut"), term.Right("P95 cut"), term.Right("paper"), term.Right("conflicts"), term.Right("fallbacks"), term.Right("moves"),
		term.Right("max/mean"), term.Right("peak"), term.Right("failed"))
	for _, g := range p.Groups {
		for _, o := range g.Policies {
			imbalance := "-"
			if o.Imbalance != nil {
				imbalance = strconv.FormatFloat(*o.Imbalance, 'f', 2, 64)
			}
			published := "-"
			if o.PaperMean != nil && o.PaperP95 != nil {
				published = fmt.Sprintf("%.1f / %.1f %%", 100**o.PaperMean, 100**o.PaperP95)
			}
			t.Row(g.Label, o.Name, strconv.Itoa(o.Workloads), seconds(o.MeanMs), seconds(o.P95Ms), seconds(o.P99Ms), cutText(o.MeanGain), cutText(o.P95Gain), published,
				strconv.FormatInt(o.Conflicts, 10), strconv.FormatInt(o.Fallbacks, 10), strconv.FormatInt(o.Moves, 10), imbalance, strconv.Itoa(o.PeakFlows), strconv.Itoa(o.Failed))
		}
	}
	return t
}

func seconds(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return strconv.FormatFloat(*ms/1000, 'f', 3, 64)
}

func cutText(g *Gain) string {
	if g == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %% (%.0f to %.0f)", 100*g.All, 100*g.Least, 100*g.Most)
}
