package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"shoal/internal/term"
)

// result is a run of flows with these times in seconds.
func result(policy, workload string, qps float64, times ...float64) *Result {
	r := &Result{Header: Header{Workload: workload, Digest: workload, QPS: qps, Policy: policy, Flows: len(times), Fabric: "f",
		Spines: []string{"spine0", "spine1"}, Uplinks: []string{"leaf0->spine0", "leaf0->spine1", "leaf2->spine1"}}}
	for i, s := range times {
		f := FlowResult{ID: i, FCTUs: int64(s * 1e6)}
		if s < 0 {
			f.Error = "broken"
			r.End.Failed++
		}
		r.FlowResults = append(r.FlowResults, f)
	}
	for i := range 20 {
		r.Samples = append(r.Samples, Sample{AtMs: int64(i+1) * 100, Bytes: []int64{100, 200, 100}, Flows: []int{i % 3, 1}})
	}
	return r
}

func TestReportComparesTheSameWorkloads(t *testing.T) {
	results := []*Result{
		result("ark", "b", 25, 1, 1, 1, 1),
		result("ark", "a", 25, 3, 3, 3, 3),
		result("ecmp", "a", 25, 4, 4, 4, 4),
		result("ecmp", "b", 25, 2, 2, 2, 2),
		result("ecmp", "c", 25, 100, 100, 100, 100), // ark has not run it: no part of the comparison
		result("least", "a", 25, 1, 2, -1, 6),
		result("ecmp", "replayed", 0, 1),
		result("ark", "five", 5, 1),
	}
	results[1].End.Counts = Counts{Conflicts: 5, Fallbacks: 6, Moves: 7}
	p := NewReport(results)
	var labels []string
	for _, g := range p.Groups {
		for _, o := range g.Policies {
			labels = append(labels, g.Label+" "+o.Name)
		}
	}
	if got, want := strings.Join(labels, ", "), "replayed ecmp, 5 ark, 25 ecmp, 25 ark, 25 least"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	ark := p.Groups[2].Policies[1]
	if g := ark.MeanGain; g == nil || fmt.Sprint(*g) != "{0.3333 0.25 0.5 2}" {
		t.Errorf("mean gain %+v", g)
	}
	if g := ark.P95Gain; g == nil || fmt.Sprint(*g) != "{0.25 0.25 0.5 2}" {
		t.Errorf("P95 gain %+v", g)
	}
	if *ark.PaperMean != 0.273 || *ark.PaperP95 != 0.34 || ark.Counts != (Counts{5, 6, 7}) || ark.PeakFlows != 2 || *ark.Imbalance != 1.5 {
		t.Errorf("%+v", ark)
	}
	least := p.Groups[2].Policies[2]
	if *least.MeanMs != 3000 || *least.P50Ms != 2000 || *least.P95Ms != 6000 || least.Failed != 1 || least.PaperMean != nil {
		t.Errorf("%+v", least)
	}
	if o := p.Groups[1].Policies[0]; o.MeanGain != nil || o.PaperMean != nil {
		t.Errorf("a gain against nothing: %+v", o)
	}
	var text bytes.Buffer
	p.Write(term.New(&text))
	for _, want := range []string{
		"25        ark        2   2.000    3.000    3.000  33.3 % (25 to 50)     25.0 % (25 to 50)  27.3 / 34.0 %          5          6      7      1.50     2       0",
		"Failed flows: 1",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	text.Reset()
	if err := p.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text.Bytes(), &again); err != nil || *again.Groups[2].Policies[1].MeanGain != *ark.MeanGain || again.Groups[2].Policies[1].Conflicts != 5 {
		t.Errorf("read again: %v, %+v", err, again)
	}
}

func TestRunsWithoutFlowsThatArrivedAreReported(t *testing.T) {
	r := result("ecmp", "a", 25, -1, -1)
	r.Samples = nil
	p := NewReport([]*Result{r, result("ark", "a", 25, -1)})
	for _, o := range p.Groups[0].Policies {
		if o.MeanMs != nil || o.MeanGain != nil || o.Failed != o.Flows {
			t.Errorf("%+v", o)
		}
	}
	if !strings.Contains(p.Table().String(), "-") {
		t.Error("no dashes")
	}
	if files, err := WritePlots(t.TempDir(), []*Result{r}); err != nil || len(files) != 0 {
		t.Errorf("plots of nothing: %v, %v", files, err)
	}
}

func TestPlotsAreDrawn(t *testing.T) {
	dir := t.TempDir()
	files, err := WritePlots(dir, []*Result{
		result("ecmp", "a", 5, 1, 2), result("ecmp", "b", 25, 4, 5), result("ecmp", "c", 25, 6, 7),
		result("ark", "a", 5, 1, 1), result("ark", "b", 25, 2, 3),
	})
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, want := range [][]string{{"mean flow completion time", "P95 flow completion time", ">ecmp<", ">ark<", "flows per second"}, {"ecmp: to each spine (b)", "ark: flows on each spine", ">spine1<"}} {
		b, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !bytes.Contains(b, []byte(w)) {
				t.Errorf("%s does not say %q", files[i], w)
			}
		}
	}
}

// 100, 200 and 100 bytes every 100 ms, the second and third to spine1: 8 and 24 kb/s.
func TestRatesOverTimeAreThoseOfTheCounters(t *testing.T) {
	r := result("ecmp", "a", 25, 1)
	for k, want := range []float64{0.008, 0.024} {
		rate, flows := r.overTime(k)
		if len(rate) != 4 || rate[0].X != 0.25 || fmt.Sprintf("%.4f", rate[3].Y) != fmt.Sprintf("%.4f", want) || len(flows) != 20 {
			t.Errorf("spine %d: %v", k, rate)
		}
	}
}
