package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// paperNetwork is the paper's fabric without packets: every look finds a thousand bytes more on every link.
type paperNetwork struct {
	mu    sync.Mutex
	looks uint64
	err   error // from the third look on
}

func (n *paperNetwork) Describe() ecmp.Config {
	p := newPlan(Defaults())
	return p.describe(p.seeds())
}

func (n *paperNetwork) SwitchCounters() ([]Count, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	if n.looks > 2 && n.err != nil {
		return nil, n.err
	}
	var counts []Count
	for _, l := range n.Describe().Links {
		counts = append(counts, Count{From: l.From, To: l.To, Bytes: 1000 * n.looks, Packets: n.looks}, Count{From: l.To, To: l.From})
	}
	return counts, nil
}

// script is a sender whose flows take a second each, on path ID mod 4, and fail where it says so.
type script struct {
	mu    sync.Mutex
	began map[int]time.Time
	log   []string // policies, by run
	fail  func(f sim.Flow) error
	take  func(f sim.Flow) time.Duration
}

func (s *script) Reset(_ context.Context, policy string) error {
	if policy == "unknown" {
		return errors.New("no such policy")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.log = map[int]time.Time{}, append(s.log, policy)
	return nil
}

func (s *script) Counts(context.Context) (Counts, error) { return Counts{1, 2, 3}, nil }

func (s *script) Send(ctx context.Context, _ string, f sim.Flow, at func(paths ...int)) (Sent, error) {
	s.mu.Lock()
	s.began[f.ID] = time.Now()
	s.mu.Unlock()
	at(f.ID % 4)
	d := time.Second
	if s.take != nil {
		d = s.take(f)
	}
	if err := pause(ctx, d); err != nil {
		return Sent{}, err
	}
	if s.fail != nil {
		return Sent{}, s.fail(f)
	}
	return Sent{Port: 50_000, Moves: 1, Fallback: f.ID == 1}, nil
}

// comparison is six flows, one every half second from 0.5 s on, under ecmp and ark.
func comparison(t *testing.T) (RunConfig, *script, *paperNetwork) {
	w := &sim.Workload{Name: "six", Title: "six flows", QPS: 2, Seed: 1}
	for i := range 6 {
		w.Flows = append(w.Flows, sim.Flow{ID: i, At: time.Duration(i+1) * time.Second / 2, Src: i, Dst: 8 + i, Bytes: 1000})
	}
	second := *w
	second.Name, second.Seed = "six-again", 2
	c, s, n := DefaultRun(), &script{}, &paperNetwork{}
	c.Network, c.Sender, c.Policies, c.Workloads, c.Dir = n, s, []string{"ecmp", "ark"}, []*sim.Workload{w, &second}, filepath.Join(t.TempDir(), "results")
	return c, s, n
}

func TestFlowsStartAtTheirTimesAndAreTimedFromThere(t *testing.T) {
	c, s, _ := comparison(t)
	synctest.Test(t, func(t *testing.T) {
		if err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if d := s.began[i+1].Sub(s.began[i]); d != time.Second/2 {
				t.Errorf("flow %d began %v after the one before", i+1, d)
			}
		}
	})
	if got := strings.Join(s.log, " "); got != "ecmp ark ark ecmp" {
		t.Errorf("the policies ran in the order %s", got)
	}
	results, err := ReadResults(c.Dir)
	if err != nil || len(results) != 4 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	r := results[0]
	if r.Policy != "ark" || r.Workload != "six" || r.QPS != 2 || r.End.Counts != (Counts{1, 2, 3}) || r.End.Seconds != 4 || len(r.FlowResults) != 6 {
		t.Errorf("got %+v, %+v", r.Header, r.End)
	}
	for i, f := range r.FlowResults {
		if f.ID != i || f.FCTUs != 1e6 || f.Port != 50_000 || f.Moves != 1 || f.Fallback != (i == 1) || f.AtUs != int64(i+1)*5e5 {
			t.Errorf("flow %+v", f)
		}
	}
	// at 1.2 s flows 0 and 1 are under way; the uplinks are those of leaf0, where the sources are
	s12 := r.Samples[11]
	if s12.AtMs != 1200 || fmt.Sprint(s12.Flows) != "[1 1 0 0]" || fmt.Sprint(s12.Bytes) != "[1000 1000 1000 1000]" || s12.Unplaced != 0 {
		t.Errorf("sample %+v", s12)
	}
	if got := strings.Join(r.Uplinks, " "); got != "leaf0->spine0 leaf0->spine1 leaf0->spine2 leaf0->spine3" {
		t.Errorf("uplinks %s", got)
	}
}

func TestWhatIsThereIsNotRunAgain(t *testing.T) {
	c, s, _ := comparison(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second) // in the second run
		defer cancel()
		if err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(c.Dir, "*"+partSuffix)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		var kept []string
		c.Progress = func(p Progress) {
			if p.Kept {
				kept = append(kept, p.String())
			}
		}
		if err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(kept, "\n"); got != "run 1 of 4: six under ecmp: there already" {
			t.Errorf("kept: %s", got)
		}
	})
	if got := strings.Join(s.log, " "); got != "ecmp ark ark ark ecmp" {
		t.Errorf("the policies ran in the order %s", got)
	}
	c.Workloads[0].Flows[0].Bytes++
	if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "comes from another workload") {
		t.Errorf("another workload of the name: %v", err)
	}
}

// announcing is a script that is told ahead, and begins when the bytes are there.
type announcing struct{ *script }

func (a announcing) SendAt(ctx context.Context, policy string, f sim.Flow, ready time.Time, at func(paths ...int)) (Sent, error) {
	if err := pause(ctx, time.Until(ready)); err != nil {
		return Sent{}, err
	}
	return a.Send(ctx, policy, f, at)
}

// The result of another announcement is another result; the time limit counts from when the flows are ready.
func TestAnnouncementAndSetupAreOfTheResult(t *testing.T) {
	c, s, _ := comparison(t)
	c.Sender, c.Policies, c.Workloads = announcing{s}, []string{"ecmp", "shoal"}, c.Workloads[:1]
	c.Announce, c.Limit = 5*time.Second, 2*time.Second
	c.Setup = Defaults().Setup(64<<10, time.Millisecond)
	again := func() error {
		var err error
		synctest.Test(t, func(t *testing.T) { err = Run(t.Context(), c) })
		return err
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	results, err := ReadResults(c.Dir)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, want := range []int64{0, 5_000_000} {
		if r := results[i]; *r.AnnouncedUs != want || *r.Setup != *c.Setup || r.Setup.Rate != 100_000_000 || r.Setup.DelayUs != 1000 {
			t.Errorf("%s: announced %d us ahead, setup %+v", r.Policy, *r.AnnouncedUs, *r.Setup)
		}
	}
	if err := again(); err != nil {
		t.Error(err)
	}
	c.Announce = time.Second
	if err := again(); err == nil || !strings.Contains(err.Error(), "six,shoal.jsonl comes from flows that were announced 5s ahead, not 1s") {
		t.Error(err)
	}
	c.Setup = Defaults().Setup(32<<10, time.Millisecond)
	if err := again(); err == nil || !strings.Contains(err.Error(), "six,ecmp.jsonl comes from another setup") {
		t.Error(err)
	}
	// Files from before say nothing of either.
	for _, r := range results {
		path := filepath.Join(c.Dir, fileName(r.Workload, r.Policy))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(text), "\n")
		at := strings.Index(head, `,"announced_us"`)
		if at < 0 {
			t.Fatal(head)
		}
		if err := os.WriteFile(path, []byte(head[:at]+"}}\n"+rest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

func TestFailedFlowsAreCountedAndNamed(t *testing.T) {
	c, s, _ := comparison(t)
	s.fail = func(f sim.Flow) error {
		if f.ID == 2 {
			return errors.New("connection reset")
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		err := Run(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "lab: six under ecmp: 1 of 6 flows failed; the first: flow 2, host 2 to host 10: connection reset") {
			t.Errorf("got %v", err)
		}
	})
	results, err := ReadResults(c.Dir)
	if err != nil || len(results) != 4 { // it went on
		t.Fatalf("%d results, %v", len(results), err)
	}
	o := NewReport(results).Groups[0].Policies[0]
	if o.Failed != 2 || o.Flows != 12 || *o.MeanMs != 1000 {
		t.Errorf("%+v", o)
	}
}

func TestARunWhoseFlowsFailEndsTheComparison(t *testing.T) {
	c, s, _ := comparison(t)
	c.Limit = time.Second
	s.take = func(f sim.Flow) time.Duration { return time.Duration(f.ID) * time.Second } // flows 3 to 5 for longer than 4 s
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Run(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "3 of 6 flows failed") || !strings.Contains(err.Error(), "time limit, 1s after the last arrival") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("it took %v", d)
		}
	})
	if len(s.log) != 1 {
		t.Errorf("it went on: %v", s.log)
	}
}

func TestALostFabricEndsTheRun(t *testing.T) {
	c, _, n := comparison(t)
	n.err = errors.New("no such namespace")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Run(t.Context(), c); !errors.Is(err, n.err) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
	if _, err := ReadResults(c.Dir); err == nil {
		t.Error("there is a result")
	}
}

func TestComparisonsOutOfRangeAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*RunConfig)
	}{
		{"without a network", func(c *RunConfig) { c.Network = nil }},
		{"0 policies", func(c *RunConfig) { c.Policies = nil }},
		{"17 policies", func(c *RunConfig) { c.Policies = make([]string, MaxPolicies+1) }},
		{"1001 workloads", func(c *RunConfig) { c.Workloads = make([]*sim.Workload, MaxWorkloads+1) }},
		{"no directory", func(c *RunConfig) { c.Dir = "" }},
		{"time limit", func(c *RunConfig) { c.Limit = 0 }},
		{"announced -1ns ahead", func(c *RunConfig) { c.Announce = -1 }},
		{"announced 10.000000001s ahead", func(c *RunConfig) { c.Announce = MaxAnnounce + 1 }},
		{"samples", func(c *RunConfig) { c.Sample = MinSample - 1 }},
		{"workload name", func(c *RunConfig) { c.Workloads[1] = c.Workloads[0] }},
		{"workload name", func(c *RunConfig) { c.Workloads[0].Name = "../x" }},
		{"hosts 0 to 15", func(c *RunConfig) { c.Workloads[0].Flows[5].Dst = 16 }},
		{"the policy", func(c *RunConfig) { c.Policies[1] = "ecmp" }},
		{"the policy", func(c *RunConfig) { c.Policies[1] = "a,b" }},
		{"no such policy", func(c *RunConfig) { c.Policies[0] = "unknown" }},
	} {
		cfg, _, _ := comparison(t)
		c.change(&cfg)
		if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

func TestBadResultsAreRefusedByLine(t *testing.T) {
	head := `{"run":{"format":1,"workload":"w","policy":"p","spines":["s"],"uplinks":["l->s"]}}` + "\n"
	end := `{"end":{}}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "the last line is not the end"},
		{head, "the last line is not the end"},
		{end, "line 1: the run's description"},
		{head + head + end, "line 2: the run's description"},
		{head + end + end, "line 3: after the end"},
		{head + "{}\n" + end, "line 2: neither"},
		{head + "x\n" + end, "line 2: invalid"},
		{head + `{"sample":{"bytes":[1],"flows":[]}}` + "\n" + end, "line 2: a sample of 1 uplinks and 0 spines"},
		{strings.Replace(head, `"format":1`, `"format":2`, 1) + end, "line 1: format 2"},
		{head + strings.Repeat("x", maxResultLine+1), "line 2: "},
		{head + strings.Repeat(`{"flow":{}}`+"\n", sim.MaxFlows+1) + end, "more than 100000 flows"},
	} {
		if _, err := parseResult([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := parseResult([]byte(head + strings.Repeat(`{"flow":{}}`+"\n", sim.MaxFlows) + end)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w,p"+resultSuffix), []byte(head+"x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadResults(dir); err == nil || !strings.Contains(err.Error(), "w,p.jsonl, line 2") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadResults(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no run has ended") {
		t.Errorf("got %v", err)
	}
}

func FuzzParseResult(f *testing.F) {
	f.Add([]byte(`{"run":{"format":1,"spines":["s"],"uplinks":["l->s"]}}` + "\n" + `{"sample":{"bytes":[1],"flows":[2]}}` + "\n" + `{"end":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseResult(b); err == nil { // whatever is read can be reported and drawn
			NewReport([]*Result{r}).Table()
			spinePlots([]*Result{r, r})
		}
	})
}
