package load

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/term"
)

// Write prints the report for people.
func (p *Report) Write(o *term.Output) {
	o.Printf("%s  %s", o.Bold("workload"), p.Workload)
	o.Printf("%s  seed %d, digest %s, model %s, %s, %s", o.Bold("run"), p.Seed, p.Digest, p.Model, p.Arrivals, streaming(p.Stream))
	state := fmt.Sprintf("%d of %d requests sent in %.1f s, %d answered", p.Sent, p.Planned, p.Seconds, p.OK)
	switch p.Ended {
	case TimeLimit:
		state += ", " + o.Yellow("ended by the time limit")
	case Interrupted:
		state += ", " + o.Yellow("interrupted")
	}
	if p.Unfinished > 0 {
		state += fmt.Sprintf(", %d unfinished", p.Unfinished)
	}
	if p.Failed > 0 {
		state += ", " + o.Red(fmt.Sprintf("%d failed", p.Failed))
	}
	o.Println(state)
	o.Println()
	o.Table(Compare(p))
	if len(p.Peers) > 0 {
		o.Println()
		o.Table(p.peers())
	}
	if p.Predicted != nil {
		o.Printf("\npredicted to be cached: %d tokens; found: %d", *p.Predicted, *p.Found)
	}
	if len(p.Reasons) > 0 {
		words := make([]string, len(p.Reasons))
		for i, r := range p.Reasons {
			words[i] = fmt.Sprintf("%s %d", r.Name, r.Count)
		}
		o.Printf("reasons: %s", strings.Join(words, ", "))
	}
	if len(p.Errors) > 0 {
		o.Println()
		o.Table(p.errors())
	}
}

func streaming(on bool) string {
	if on {
		return "streaming"
	}
	return "not streaming"
}

// Compare is one line a report, side by side: what the demo prints. A dash is what nobody reported.
func Compare(reports ...*Report) *term.Table {
	named := false
	for _, p := range reports {
		named = named || p.Name != ""
	}
	columns := []term.Column{term.Right("hit rate"), term.Right("TTFT p50 ms"), term.Right("p95"), term.Right("p99"),
		term.Right("TPOT p50 ms"), term.Right("p95"), term.Right("total p50 ms"), term.Right("requests/s"),
		term.Right("largest share"), term.Right("answered"), term.Right("errors")}
	if named {
		columns = append([]term.Column{term.Left("set-up")}, columns...)
	}
	t := term.NewTable(columns...)
	for _, p := range reports {
		largest := "-"
		if len(p.Peers) > 0 {
			largest = percent(&p.LargestShare)
		}
		cells := []string{percent(p.HitRate), number(p.TTFT.P50), number(p.TTFT.P95), number(p.TTFT.P99), number(p.TPOT.P50),
			number(p.TPOT.P95), number(p.Total.P50), strconv.FormatFloat(p.PerSecond, 'f', 1, 64), largest,
			strconv.Itoa(p.OK), strconv.Itoa(p.Failed)}
		if named {
			cells = append([]string{p.Name}, cells...)
		}
		t.Row(cells...)
	}
	return t
}

func (p *Report) peers() *term.Table {
	t := term.NewTable(term.Left("peer"), term.Right("requests"), term.Right("share"), term.Right("hit rate"))
	for i := range p.Peers {
		s := &p.Peers[i]
		t.Row(s.Peer, strconv.Itoa(s.Requests), percent(&s.Share), percent(s.HitRate))
	}
	return t
}

func (p *Report) errors() *term.Table {
	t := term.NewTable(term.Left("error"), term.Right("before first byte"), term.Right("after it"), term.Left("for example"))
	for _, e := range p.Errors {
		t.Row(e.Kind, strconv.Itoa(e.BeforeFirstByte), strconv.Itoa(e.AfterFirstByte), e.Example)
	}
	return t
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v*100, 'f', 1, 64) + " %"
}

// number prints milliseconds with as many digits as mean something.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v < 10:
		return strconv.FormatFloat(*v, 'f', 2, 64)
	case *v < 100:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	}
	return strconv.FormatFloat(*v, 'f', 0, 64)
}
