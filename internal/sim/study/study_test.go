package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/sim"
	"shoal/internal/sim/control"
)

// quick is a draft of a few runs that take no time.
func quick() Draft {
	d := NewDraft()
	d.Scenario.Workload.Requests, d.Scenario.Workload.MaxTokens = 40, 3000
	return d
}

// small is a plan of them.
func small(policies ...string) *Plan {
	d := quick()
	d.Policies, d.QPS, d.Seeds = policies, []float64{10, 25}, 3
	p, err := d.Plan()
	if err != nil {
		panic(err)
	}
	return p
}

// fake stands for the models: times that follow from the workload and the policy, so that cuts are known. It counts its runs.
func fake(runs *atomic.Int64) func(*Plan, Point, tick) (*control.Result, error) {
	part := map[string]int64{Base: 100, "ark": 75, "least": 50, "shoal": 40, "spray": 60, Bound: 25}
	return func(p *Plan, at Point, tell tick) (*control.Result, error) {
		if runs != nil {
			runs.Add(1)
		}
		w, err := p.Workload(at)
		if err != nil {
			return nil, err
		}
		if !tell(0.5, 600) {
			return nil, control.ErrStopped
		}
		r := &control.Result{Policy: at.Policy, End: sim.Second, Packets: 1000, Counts: control.Counts{Messages: 7, Fallbacks: 2}}
		for _, f := range w.Flows {
			fct := time.Duration(f.Bytes/100*part[at.Policy]) * time.Duration(at.Seed+9) / 10
			r.Transfers = append(r.Transfers, control.Transfer{ID: f.ID, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Ready: f.At, Started: f.At + fct/4, Done: f.At + fct})
			r.Digest.Add(int64(fct))
		}
		if p.sampled(at) {
			for i := range 5 {
				r.Samples = append(r.Samples, control.Sample{At: time.Duration(i) * time.Second, Flows: make([]int, i), Queued: int64(1000 * i)})
			}
		}
		return r, nil
	}
}

func run(t testing.TB, p *Plan, c RunConfig) []*Result {
	t.Helper()
	if c.simulate == nil {
		c.simulate = fake(nil)
	}
	results, err := Run(t.Context(), p, c)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestTheDigestIsThatOfThePlanOnAnyNumberOfCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, model := range []string{Fluid, Packets} {
		p := small(Base, "ark", "shoal", Bound)
		s := &p.Variants[0].Scenario
		s.Workload.Requests = 40
		if s.Model = model; model == Packets {
			s.Transport, s.Control.Scale, s.Workload.Requests, p.QPS, p.Seeds = DCQCN, 300, 10, []float64{25}, []uint64{1, 2}
		}
		dir := t.TempDir()
		var first *Report
		same := func(how string, c RunConfig) {
			o := NewReport(p, run(t, p, c))
			if first == nil {
				first = o
			}
			if o.Digest != first.Digest || (o.Packets > 0) != (model == Packets) {
				t.Errorf("%s, %s: digest %s of %d packets, and %s of %d with one worker", model, how, o.Digest, o.Packets, first.Digest, first.Packets)
			}
		}
		for _, cores := range []int{1, 2, 4} {
			runtime.GOMAXPROCS(cores)
			same(fmt.Sprint(cores, " cores"), RunConfig{simulate: simulate})
		}
		same("one worker", RunConfig{simulate: simulate, Workers: 1})
		same("two workers", RunConfig{simulate: simulate, Workers: 2, Dir: dir})
		same("read again", RunConfig{Dir: dir, simulate: func(*Plan, Point, tick) (*control.Result, error) {
			return nil, errors.New("what is kept is not run again")
		}})
		for i := range p.Seeds {
			p.Seeds[i]++
		}
		if other := NewReport(p, run(t, p, RunConfig{simulate: simulate})); other.Digest == first.Digest {
			t.Errorf("%s: other seeds, the same digest", model)
		}
	}
}

func TestAStudyThatWasInterruptedGoesOn(t *testing.T) {
	p, dir := small(Base, "ark"), t.TempDir()
	var runs atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	c := RunConfig{Dir: dir, Workers: 1, simulate: func(p *Plan, at Point, tell tick) (*control.Result, error) {
		if runs.Load() == 5 {
			cancel() // while the sixth goes on
		}
		return fake(&runs)(p, at, tell)
	}}
	results, err := Run(ctx, p, c)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	done := 0
	for _, r := range results {
		if r != nil {
			done++
		}
	}
	if done != 5 {
		t.Fatalf("%d runs are done, want 5", done)
	}
	if o := NewReport(p, results); o.Missing != 7 || o.Runs != 5 {
		t.Errorf("the report has %d runs and misses %d", o.Runs, o.Missing)
	}
	var again atomic.Int64
	var last Progress
	results = run(t, p, RunConfig{Dir: dir, simulate: fake(&again), Progress: func(p Progress) { last = p }})
	if again.Load() != 7 || last.Kept != 5 || last.Done != 12 {
		t.Errorf("%d runs were made, and the progress says %+v", again.Load(), last)
	}
	whole := run(t, p, RunConfig{})
	if a, b := NewReport(p, results).Digest, NewReport(p, whole).Digest; a != b {
		t.Errorf("in two parts %s, in one %s", a, b)
	}
	if parts, _ := filepath.Glob(filepath.Join(dir, "*"+partSuffix)); len(parts) > 0 {
		t.Errorf("left over: %v", parts)
	}
}

func TestAnotherScenarioIsRunAnewInTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	run(t, small(Base), RunConfig{Dir: dir})
	for _, f := range Fields() {
		p := small(Base)
		before := p.key(p.Points()[0])
		s := &p.Variants[0].Scenario
		for _, value := range []string{"true", "3", "7ms", "0.5", "packets"} {
			if f.Get(s) != value && f.Set(s, value) == nil {
				break
			}
		}
		if p.key(p.Points()[0]) == before {
			t.Errorf("%s is %s, and that makes no difference", f.Name, f.Get(s))
		}
	}
	var runs atomic.Int64
	p := small(Base)
	p.Variants[0].Scenario.Control.Loss = 0.1
	run(t, p, RunConfig{Dir: dir, simulate: fake(&runs)})
	run(t, small(Base), RunConfig{Dir: dir, simulate: fake(&runs)})
	if runs.Load() != 6 {
		t.Errorf("%d runs, want 6: those of the other scenario", runs.Load())
	}
}

func TestADamagedResultIsNamed(t *testing.T) {
	p, dir := small(Base), t.TempDir()
	run(t, p, RunConfig{Dir: dir})
	file := p.fileOf(dir, p.Points()[0])
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for want, text := range map[string]string{
		"is not complete":  strings.Join(lines[:len(lines)-2], ""),
		"line 1":           strings.Join(lines[1:], ""),
		"line 2":           lines[0] + "{",
		"has format 9":     strings.Replace(string(whole), `"format":1`, `"format":9`, 1),
		"of another run":   strings.Replace(string(whole), p.key(p.Points()[0]), "0123456789abcdef", 1),
		"its end the last": string(whole) + lines[1],
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), p, RunConfig{Dir: dir, simulate: fake(nil)}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAFailureSaysWhichRun(t *testing.T) {
	p := small(Base)
	_, err := Run(t.Context(), p, RunConfig{Workers: 1, simulate: func(*Plan, Point, tick) (*control.Result, error) { return nil, errors.New("lost its way") }})
	if err == nil || !strings.Contains(err.Error(), "qps10-seed1, ecmp: lost its way") {
		t.Error(err)
	}
}

func TestAPanicSaysWhichRun(t *testing.T) {
	p := small(Base)
	defer func() {
		if got := fmt.Sprint(recover()); got != "study: qps10-seed1, ecmp: 3 is not 4" {
			t.Error(got)
		}
	}()
	one(t.Context(), p, p.Points()[0], &RunConfig{simulate: func(*Plan, Point, tick) (*control.Result, error) { panic("3 is not 4") }}, func(float64, int64) {})
}

// The workload follows from seed and rate alone: policies and variants play the same one.
func TestPoliciesAndVariantsPlayTheSameWorkload(t *testing.T) {
	d := quick()
	d.Seeds, d.QPS = 2, []float64{5, 25}
	d.Field, d.Values = "delay", []string{"0s", "50ms"}
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	for _, at := range p.Points() {
		w, err := p.Workload(at)
		if err != nil {
			t.Fatal(err)
		}
		name := p.name(at)
		if old := digests[name]; old != "" && old != w.Digest() {
			t.Errorf("%s is not the same for %s", name, p.title(at))
		}
		digests[name] = w.Digest()
	}
	if len(digests) != 4 {
		t.Errorf("%d workloads, want 4", len(digests))
	}
}

// With a scale the network sees smaller flows that come sooner, in the same order between the same hosts.
func TestScaleKeepsTheShapeOfAWorkload(t *testing.T) {
	p := small(Base)
	whole, _ := p.Workload(p.Points()[0])
	p.Variants[0].Scenario.Control.Scale = 10
	tenth, _ := p.Workload(p.Points()[0])
	for i, f := range whole.Flows {
		g := tenth.Flows[i]
		if g.Src != f.Src || g.Dst != f.Dst || g.Bytes != f.Bytes/10 {
			t.Fatalf("flow %d is %+v, and %+v in full size", i, g, f)
		}
		if late := f.At - 10*g.At; late.Abs() > 10*time.Duration(i+1)*time.Microsecond { // each gap is rounded to a microsecond
			t.Fatalf("flow %d comes %v too late", i, late)
		}
	}
}

func TestEveryFieldIsReadAsItIsWritten(t *testing.T) {
	for _, f := range Fields() {
		s := Defaults()
		if err := f.Set(&s, f.Get(&s)); err != nil {
			t.Error(err)
		}
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		if err := f.Set(&s, "…"); err == nil && f.Name != "model" && f.Name != "transport" && f.Name != "hosts-believe" && f.Name != "fail" {
			t.Errorf("%s takes anything", f.Name)
		}
		if FieldByName(f.Name) == nil || f.Help == "" {
			t.Errorf("%s has no help, or cannot be found", f.Name)
		}
	}
}

func TestWhatCannotBeIsRefusedByName(t *testing.T) {
	for want, set := range map[string][2]string{
		"model":                  {"model", "clay"},
		"transport":              {"transport", "tcp"},
		"payload":                {"payload", "9"},
		"hosts-believe":          {"hosts-believe", "gods"},
		"leaves":                 {"leaves", "1"},
		"cores is 4":             {"cores", "4"},
		"at most 4096":           {"hosts", "5000"},
		"9223372036854775807 of": {"spines", "9223372036854775807"},
		"4611686018427387904 of": {"hosts", "4611686018427387904"},
		"4294967296 of":          {"leaves", "4294967296"},
		"give 1 to 100000":       {"requests", "9223372036854775807"},
		"scale 1000 the rate":    {"scale", "1000"},
		"scale is 92233":         {"scale", "9223372036854775807"},
		"rate":                   {"rate", "5"},
		"link-delay":             {"link-delay", "-1s"},
		"load":                   {"load", "0"},
		"fail is \"spine7\"":     {"fail", "spine7"},
		"a loss of 1":            {"loss", "1"},
		"Zipf":                   {"zipf", "1"},
		"Lease":                  {"lease", "1ms"},
		"requests":               {"requests", "0"},
		"prefill":                {"prefill", "-1s"},
		"delay":                  {"delay", "1h"},
		"give a whole number":    {"seeds", "many"},
		"1 to 1000":              {"seeds", "0"},
		"give numbers":           {"qps", "1,x"},
		"qps 5 is given twice":   {"qps", "5,5"},
		"policy \"best\"":        {"policy", "best"},
		"\"ark\" is given twice": {"policy", "ark,ark"},
		"a field and its values": {"sweep", "delay"},
		"sweep over \"dely\"":    {"sweep", "dely=1ms"},
		"without values":         {"sweep", "delay="},
		"variant \"0.1\"":        {"sweep", "loss=0.1,0.10"},
		"in variant 2":           {"sweep", "loss=0,2"},
		"unknown field \"dely\"": {"dely", "1ms"},
		"with its unit":          {"delay", "5"},
	} {
		d := NewDraft()
		err := d.Set(set[0], set[1])
		if err == nil {
			_, err = d.Plan()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", set, err, want)
		}
	}
}

// What a plan plays is checked at its own rates: many requests are no matter at a high one.
func TestRequestsAreCheckedAtTheRatesOfThePlan(t *testing.T) {
	for qps, ok := range map[string]bool{"25": true, "1": false, "1,25": false} {
		d := NewDraft()
		if err := errors.Join(d.Set("requests", "50000"), d.Set("qps", qps)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Plan(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "50000 requests at qps 1;") {
			t.Errorf("50000 requests at %s: %v", qps, err)
		}
	}
}

func TestAllPoliciesHaveAName(t *testing.T) {
	d := NewDraft()
	if err := d.Set("policy", "all"); err != nil || !slices.Equal(d.Policies, Policies()) {
		t.Errorf("%v, %v", d.Policies, err)
	}
	if _, err := d.Plan(); err != nil {
		t.Error(err)
	}
}

func TestAScenarioFile(t *testing.T) {
	load := func(text string) (Draft, error) {
		file := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d := NewDraft()
		return d, d.Load(file)
	}
	d, err := load("title: a test\npolicy: [ecmp, ark]\nqps: [5, 25]\nseeds: 7\nmodel: packets\nin-fabric: true\nmice: 0.1\nsweep:\n  field: delay\n  values: [0s, 5ms]\n")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(d.Title, d.Policies, d.QPS, d.Seeds, d.Scenario.Model, d.Scenario.Control.InFabric, d.Scenario.Control.Mice.Share, d.Field, d.Values)
	if want := "a test [ecmp ark] [5 25] 7 packets true 0.1 delay [0s 5ms]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := load(""); err != nil {
		t.Error(err)
	}
	for want, text := range map[string]string{
		`line 2: unknown field "dely"`:       "qps: 5\ndely: 3ms\n",
		"line 1: delay is \"5\"":             "delay: 5\n",
		"line 2: qps is given twice":         "qps: 5\nqps: 6\n",
		"unknown field sweep.value":          "sweep: {field: delay, value: 3}\n",
		"sweep without a field":              "sweep: {values: [3]}\n",
		"not a list of fields":               "- 3\n",
		"neither a value nor a list":         "qps: {a: 3}\n",
		"a list of something else":           "qps: [[3]]\n",
		"a second YAML document":             "qps: 5\n---\nqps: 6\n",
		"s.yaml: line 1: did not find":       "qps: [5\n",
		"line 1: loss is \"much\": give a n": "loss: much",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
