package study

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/internal/lab"
	"shoal/internal/sim"
	"shoal/internal/term"
)

// labDir is a directory as `shoal lab run` leaves it: two workloads, under each policy with times that are so many
// thousandths of the bytes, and the paths that fct says.
func labDir(t *testing.T, policies map[string]int64, change ...func(*lab.FlowResult)) string {
	t.Helper()
	dir := t.TempDir()
	cfg := lab.Defaults().Of(sim.DefaultWorkload())
	cfg.Requests = 30
	all, err := sim.GenerateAll(cfg, []float64{25}, []uint64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if err := w.Save(filepath.Join(dir, w.Name+".flows")); err != nil {
			t.Fatal(err)
		}
		for policy, part := range policies {
			var b bytes.Buffer
			put := func(name string, v any) {
				if err := json.NewEncoder(&b).Encode(map[string]any{name: v}); err != nil {
					t.Fatal(err)
				}
			}
			put("run", lab.Header{Format: 1, Workload: w.Name, Title: w.Title, Digest: w.Digest(), QPS: w.QPS, Seed: w.Seed, Policy: policy, Flows: len(w.Flows),
				Spines: []string{"spine0", "spine1", "spine2", "spine3"}})
			for i, f := range w.Flows {
				r := lab.FlowResult{ID: f.ID, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, AtUs: f.At.Microseconds(), FCTUs: f.Bytes * part / 1000, Paths: []int{i % 4}, Fallback: i%2 == 0}
				for _, c := range change {
					c(&r)
				}
				put("flow", r)
			}
			put("end", lab.End{})
			if err := os.WriteFile(filepath.Join(dir, w.Name+","+policy+".jsonl"), b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestFlowsOfTheLabTakeThePathsThatTheyTookThere(t *testing.T) {
	dir := labDir(t, map[string]int64{Base: 100, "ark": 80, "magic": 1})
	l, err := ReadLab(dir, LabScenario(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(l.Plan.Policies, l.Without, len(l.Plan.Recorded)); got != "[ecmp ark] [magic] 2" {
		t.Error(got)
	}
	s := LabScenario()
	topo, err := s.Topology()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range l.Plan.Points() {
		w, err := l.Plan.Workload(at)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range w.Flows {
			if at.Policy == "ark" && i%2 != 0 { // it was reserved
				if f.Port != 0 {
					t.Errorf("%s, flow %d: port %d was given where the policy decides", at.Policy, i, f.Port)
				}
				continue
			}
			if f.Port == 0 || topo.PathOf(f.Src, f.Dst, f.Port) != i%4 {
				t.Errorf("%s, flow %d: port %d leads to path %d, want %d", at.Policy, i, f.Port, topo.PathOf(f.Src, f.Dst, f.Port), i%4)
			}
		}
	}
}

// What a lab was is in its results; the titles of older ones tell the rate.
func TestTheLabsShapeIsThatOfItsResults(t *testing.T) {
	dir := labDir(t, map[string]int64{Base: 100, "shoal": 80})
	s, said, err := OfLab(dir)
	if err != nil || len(said) > 0 || s.Shape != LabScenario().Shape || s.Shape.Rate != 100_000_000 {
		t.Errorf("%+v, %v, %v", s.Shape, said, err)
	}
	// The files as they would be from a lab with these settings: members are added to the first line.
	set := func(policy, members string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*,"+policy+".jsonl"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut(string(text), "\n")
			head, _, _ = strings.Cut(strings.TrimSuffix(head, "}}"), `,"announced_us"`)
			if err := os.WriteFile(f, []byte(head+members+"}}\n"+rest), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	const setup = `,"setup":{"pods":2,"leaves":2,"hosts_per_leaf":4,"spines":2,"cores":6,"rate":50000000,"chunk":1234,"delay_us":7000}`
	set(Base, `,"announced_us":0`+setup)
	set("shoal", `,"announced_us":2500000`+setup)
	s, said, err = OfLab(dir)
	want := Shape{Pods: 2, Leaves: 2, Hosts: 4, Spines: 2, Cores: 6, Rate: 50_000_000, Delay: s.Shape.Delay}
	if err != nil || s.Shape != want || s.Control.Chunk != 1234 || s.Control.Notice != 2500*time.Millisecond || s.Control.Delay != 7500*time.Microsecond || len(said) != 8 {
		t.Errorf("%+v, %+v, %v, %v", s.Shape, s.Control, said, err)
	}
	set("shoal", `,"announced_us":0`+strings.Replace(setup, "1234", "4321", 1))
	if _, _, err := OfLab(dir); err == nil || !strings.Contains(err.Error(), "different labs") {
		t.Error(err)
	}
}

func TestTheLabAndTheSimulatorStandInOneTable(t *testing.T) {
	// The fake simulator saves 25 % under ark and 50 % under least.
	compare := func(policies map[string]int64) (*Comparison, string) {
		l, err := ReadLab(labDir(t, policies), LabScenario(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Compare(run(t, l.Plan, RunConfig{}))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		c.Write(term.New(&b))
		if err := c.WriteJSON(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
		return c, b.String()
	}
	if c, text := compare(map[string]int64{Base: 100, "ark": 72, "least": 54}); !c.Within || !c.SameRanking || !strings.Contains(text, "all cuts are within 5 points; the ranking is the same") || !strings.Contains(text, "-3.0") {
		t.Errorf("%+v\n%s", c, text)
	}
	if c, text := compare(map[string]int64{Base: 100, "ark": 60, "least": 70}); c.Within || c.SameRanking || !strings.Contains(text, "ark, least, ecmp in the lab, least, ark, ecmp in the simulator") {
		t.Errorf("%+v\n%s", c, text)
	}
}

// Whatever is asked for, cuts are against ecmp, and a verdict on nothing is an error.
func TestAComparisonIsAgainstECMPOrRefused(t *testing.T) {
	policies := map[string]int64{Base: 100, "ark": 72}
	l, err := ReadLab(labDir(t, policies), LabScenario(), []string{"ark"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Compare(run(t, l.Plan, RunConfig{}))
	if err != nil || len(c.Groups) != 1 || len(c.Groups[0].Policies) != 2 || c.Groups[0].Policies[1].LabCut.Mean < 0.27 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ReadLab(labDir(t, policies), LabScenario(), []string{Base}); err == nil || !strings.Contains(err.Error(), "cuts are against ecmp") {
		t.Errorf("ecmp alone: %v", err)
	}
	if _, err := ReadLab(labDir(t, map[string]int64{"ark": 72}), LabScenario(), nil); err == nil || !strings.Contains(err.Error(), "cuts are against ecmp") {
		t.Errorf("without ecmp: %v", err)
	}
	l, err = ReadLab(labDir(t, policies, func(f *lab.FlowResult) { f.Error = "lost" }), LabScenario(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := l.Compare(run(t, l.Plan, RunConfig{})); err == nil {
		t.Errorf("all flows failed: %+v", c)
	}
}

// The longest flows fail in the lab: without them the lab's times are short, and so have the simulator's to be.
func TestFlowsThatFailedInTheLabAreLeftOutOnBothSides(t *testing.T) {
	dir := labDir(t, map[string]int64{Base: 100, "ark": 75, "magic": 1}, func(f *lab.FlowResult) {
		if f.ID%3 == 0 {
			f.Error, f.FCTUs = "timed out", 1e9
		}
	})
	l, err := ReadLab(dir, LabScenario(), nil)
	if err != nil {
		t.Fatal(err)
	}
	results := run(t, l.Plan, RunConfig{})
	for _, r := range results { // those that failed take for ever here too
		for i := range r.FCT {
			if i%3 == 0 {
				r.FCT[i] = 1e15
			}
		}
	}
	c, err := l.Compare(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Groups[0].Policies {
		if b.Failed != 20 || b.SimMs.Mean > 1e6 || b.LabMs.Mean > 1e6 {
			t.Errorf("%+v, want 20 of 60 flows left out", b)
		}
	}
	var text, js bytes.Buffer
	c.Write(term.New(&text))
	if err := c.WriteJSON(&js); err != nil || !strings.Contains(text.String(), "20 flows of ark at 25 failed in the lab") || !strings.Contains(text.String(), "not simulated: magic") || !strings.Contains(js.String(), "\"not_simulated\": [\n    \"magic\"") {
		t.Errorf("%v\n%s\n%s", err, text.String(), js.String())
	}
}

func TestALabOfAnotherShapeIsRefused(t *testing.T) {
	dir := labDir(t, map[string]int64{Base: 100, "ark": 80})
	for want, set := range map[string][2]string{"has 4 spines, and the scenario 2": {"spines", "2"}, "goes from host": {"hosts", "2"}} {
		s := LabScenario()
		if err := FieldByName(set[0]).Set(&s, set[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLab(dir, s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := ReadLab(dir, LabScenario(), []string{"shoal"}); err == nil || !strings.Contains(err.Error(), "no run in") {
		t.Error(err)
	}
	if _, err := ReadLab(t.TempDir(), LabScenario(), nil); err == nil {
		t.Error("an empty directory")
	}
	if err := os.WriteFile(filepath.Join(dir, "qps25-seed1.flows"), []byte("0 8 0 1 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLab(dir, LabScenario(), nil); err == nil || !strings.Contains(err.Error(), "with other flows than") {
		t.Error(err)
	}
}

func TestAReplayPrintsFlowsAsTheyEnd(t *testing.T) {
	s := Defaults()
	s.Model = Packets
	w, err := sim.ReadWorkload(strings.NewReader("0 8 10000 2000000 0\n1 9 10001 1000 500\n"), "two.flows")
	if err != nil {
		t.Fatal(err)
	}
	done, err := Replay(t.Context(), s, w, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteCompletions(&b, done); err != nil {
		t.Fatal(err)
	}
	// Alone on four hops, N packets take N x 83 + 8265 ns.
	if want := "FCT 1 9 10001 100 1000 500 8348\nFCT 0 8 10000 100 2000000 0 174265\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	var list []map[string]int64
	if err := WriteCompletionsJSON(&b, done); err != nil || json.Unmarshal(b.Bytes(), &list) != nil || list[1]["fct_ns"] != 174265 {
		t.Errorf("%v: %s", err, b.String())
	}
	w.Flows[1].Dst = 16
	if _, err := Replay(t.Context(), s, w, 1); err == nil || !strings.Contains(err.Error(), "host 16") {
		t.Error(err)
	}
}
