package study

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"shoal/internal/term"
)

func TestSpreadsAreWhatABookSays(t *testing.T) {
	// 20 values 1 to 20: mean 10.5, deviation 5.916, t(19) 2.093, so 2.769 to both sides; percentiles at 0.475 and 18.525.
	var v []float64
	for i := range 20 {
		v = append(v, float64(20-i))
	}
	s := newSpread(v)
	if math.Abs(s.Mean-10.5) > 1e-9 || math.Abs(s.Half()-2.769) > 1e-3 || math.Abs(*s.SingleLow-1.475) > 1e-6 || math.Abs(*s.SingleHigh-19.525) > 1e-6 {
		t.Errorf("%v, %v, %v to %v", s.Mean, s.Half(), *s.SingleLow, *s.SingleHigh)
	}
	if one := newSpread([]float64{3}); one.Low != nil || one.SingleLow != nil || one.Mean != 3 {
		t.Errorf("of one run: %+v", one)
	}
	if two := newSpread([]float64{1, 3}); two.SingleLow != nil || math.Abs(two.Half()-12.706) > 1e-3 {
		t.Errorf("of two runs: %+v", two)
	}
	for freedom, want := range map[int]float64{1: 12.706, 19: 2.093, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980, 1000: 1.962} {
		if got := tQuantile(freedom); math.Abs(got-want) > 0.0025 {
			t.Errorf("t(%d) is %.4f, want %.3f", freedom, got, want)
		}
	}
}

func TestCutsArePairedSeedBySeed(t *testing.T) {
	p := small(Base, "ark", "shoal", Bound)
	o := NewReport(p, run(t, p, RunConfig{}))
	if len(o.Groups) != 2 || o.Groups[1].QPS != 25 || o.Runs != 24 {
		t.Fatalf("%d groups, %d runs", len(o.Groups), o.Runs)
	}
	// The times differ by a tenth and more from seed to seed, the cuts not at all.
	for name, want := range map[string]float64{"ark": 0.25, "shoal": 0.6, Bound: 0.75} {
		c := o.find(0, 25, name).Cuts
		if math.Abs(c.Mean.Mean-want) > 1e-4 || math.Abs(c.P95.Mean-want) > 1e-4 || c.Mean.Half() > 1e-4 {
			t.Errorf("%s: a mean cut of %v ± %v, and P95 %v; want %v", name, c.Mean.Mean, c.Mean.Half(), c.P95.Mean, want)
		}
		if c.TTFTMean.Mean >= c.Mean.Mean || c.TTFTMean.Mean <= 0 {
			t.Errorf("%s: a cut of TTFT of %v, which has prefill in it", name, c.TTFTMean.Mean)
		}
	}
	base := o.find(0, 25, Base)
	if base.Cuts != nil || math.Abs(base.Times.TTFTMean.Mean-base.Times.Mean.Mean-850) > 1e-6 {
		t.Errorf("ecmp: TTFT %v ms with an FCT of %v ms", base.Times.TTFTMean.Mean, base.Times.Mean.Mean)
	}
	if w := base.WaitMs / base.Times.Mean.Mean; math.Abs(w-0.25) > 1e-3 {
		t.Errorf("a part of %v was waiting, want a quarter", w)
	}
	if base.Counts.Messages != 21 {
		t.Errorf("%d messages in three runs of 7", base.Counts.Messages)
	}
	alone := small("ark")
	if o := NewReport(alone, run(t, alone, RunConfig{})); o.Groups[0].Policies[0].Cuts != nil {
		t.Error("cuts against a policy that was not run")
	}
}

func TestThePapersFiguresStandBesideOurs(t *testing.T) {
	d := quick()
	d.Policies, d.QPS, d.Seeds = []string{Base, "ark"}, PaperQPS(), 6
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	o := NewReport(p, run(t, p, RunConfig{}))
	if len(o.Published) != 9 {
		t.Fatalf("%d figures of the paper, want 9", len(o.Published))
	}
	for _, f := range o.Published { // every run has a cut of 25 %, so that no other figure is inside
		if f.Inside == nil || *f.Inside {
			t.Errorf("%+v is said to be inside", f)
		}
	}
	d.Seeds = 2
	p, _ = d.Plan()
	if f := NewReport(p, run(t, p, RunConfig{})).Published[0]; f.Inside != nil {
		t.Errorf("two runs have no band: %+v", f)
	}
	d.Scenario.Shape.Spines = 8
	p, _ = d.Plan()
	if f := NewReport(p, run(t, p, RunConfig{})).Published; len(f) > 0 {
		t.Errorf("another fabric is compared with the paper's: %+v", f)
	}
}

func TestReportsForPeopleAndPrograms(t *testing.T) {
	p := small(Base, "ark", "least")
	p.Program = "v2"
	results := run(t, p, RunConfig{})
	results[0].Program = "v1"
	results[5] = nil
	o := NewReport(p, results)
	var text bytes.Buffer
	o.Write(term.New(&text))
	for _, want := range []string{"25   ark", "25.0 ± 0.0 %", "fallbacks", "27.3 %", "digest " + o.Digest + " of 17 runs, 17000 data packets", "1 of 18 runs are missing", "another version of this program: v1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	for _, name := range []string{"lost", "mice"} {
		if strings.Contains(o.CountTable().String(), name) {
			t.Errorf("nothing was counted of %s, and it has a column", name)
		}
	}
	var b bytes.Buffer
	if err := WriteCSV(&b, o, o); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 1+2*6 || rows[1][3] != Base || rows[2][3] != "ark" {
		t.Errorf("%v, %d rows: %v", err, len(rows), rows)
	}
	b.Reset()
	if err := WriteJSON(&b, o); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Digest string
		Groups []struct {
			Policies []struct {
				Name string
				Cuts map[string]struct {
					Mean      float64
					SingleLow *float64 `json:"single_low"`
				}
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Digest != o.Digest || back.Groups[1].Policies[1].Cuts["mean"].Mean != 0.25 {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestPlotsAreDrawnOfWhatThereIs(t *testing.T) {
	p := small(Base, "ark", "shoal", Bound)
	names := func(o *Report) string {
		dir := t.TempDir()
		files, err := o.WritePlots(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			b, err := os.ReadFile(f)
			if err != nil || !bytes.Contains(b, []byte("<svg")) || bytes.Contains(b, []byte("NaN")) {
				t.Errorf("%s: %v", f, err)
			}
			files[i] = strings.TrimPrefix(f, dir+"/")
		}
		return fmt.Sprint(files)
	}
	if got := names(NewReport(p, run(t, p, RunConfig{}))); got != "[fct.svg cuts.svg cdf.svg spines.svg queues.svg]" {
		t.Error(got)
	}
	d := quick()
	d.Policies, d.Seeds = []string{Base, "ark", "least"}, 2
	d.Scenario.Control.Sample = 0
	d.Field, d.Values = "hosts-believe", []string{Truth, WrongSeed, Nothing}
	sweep, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if got := names(NewReport(sweep, run(t, sweep, RunConfig{}))); got != "[by-hosts-believe.svg]" {
		t.Error(got)
	}
}

func TestABreakIsOneLineForEachVariant(t *testing.T) {
	d := quick()
	d.Policies, d.Seeds = BreakPolicies(), 2
	plans, err := d.BreakPlans([]string{"delay"})
	if err != nil {
		t.Fatal(err)
	}
	o := NewReport(plans[0], run(t, plans[0], RunConfig{}))
	var text bytes.Buffer
	o.WriteBreak(term.New(&text))
	if got := o.BreakTable(); got.Len() != 6 || !strings.Contains(text.String(), "500µs") || !strings.Contains(text.String(), "60.0 ± 0.0 %") {
		t.Errorf("%d lines\n%s", got.Len(), text.String())
	}
}

// A spine dies while transfers come, however few of them there are.
func TestASpineDiesAfterAQuarterOfTheTransfers(t *testing.T) {
	for _, c := range []struct {
		requests int
		qps      []float64
		want     time.Duration
	}{{1000, []float64{25}, 10 * time.Second}, {20, []float64{25}, 200 * time.Millisecond}, {100, []float64{1, 50}, 500 * time.Millisecond}} {
		d := NewDraft()
		d.Scenario.Workload.Requests, d.QPS = c.requests, c.qps
		plans, err := d.BreakPlans([]string{"spine"})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range plans[0].Variants {
			if at := v.Scenario.Control.Failure.At; i > 0 && at != c.want {
				t.Errorf("%d requests at %v: %v, want %v", c.requests, c.qps, at, c.want)
			}
		}
	}
	d := NewDraft()
	d.QPS = nil
	if _, err := d.BreakPlans([]string{"spine"}); err == nil {
		t.Error("no rate")
	}
}

// Whatever is broken, the plan can be run, begins with what is not broken, and loads an uplink as the paper does.
func TestBreaksLoadTheUplinksAsThePaperDoes(t *testing.T) {
	d := NewDraft()
	d.Policies = BreakPolicies()
	plans, err := d.BreakPlans(BreakNames())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		for _, v := range p.Variants {
			s := &v.Scenario
			w := s.workload(25, 1)
			sending := s.Shape.Pods * s.Shape.Leaves / 2
			load := w.QPS / float64(sending*s.Shape.Spines)
			want := 25.0 / 4
			if v.X == 1000 { // more uplinks than hosts: the hosts' own links have the paper's load
				load, want = w.QPS/float64(w.Sources), 25.0/8
			}
			if math.Abs(load-want) > 1e-9 {
				t.Errorf("%s, %s: %g requests a second for each uplink or host, want %g", p.Title, v.Name, load, want)
			}
			if horizon := min(1000*w.QPS/25, 1000*MaxGrowth); math.Abs(float64(w.Requests)-horizon) > 64 {
				t.Errorf("%s, %s: %d requests, want %g", p.Title, v.Name, w.Requests, horizon)
			}
		}
	}
	d.Field = "delay"
	if _, err := d.BreakPlans(BreakNames()); err == nil {
		t.Error("a sweep of a sweep")
	}
	d.Field = ""
	if _, err := d.BreakPlans([]string{"bones"}); err == nil || !strings.Contains(err.Error(), `"bones"`) {
		t.Error(err)
	}
}
