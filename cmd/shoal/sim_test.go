package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/sim/study"
)

func runSim(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	c := simCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestSimFabricPrintsTablesJSONAndCSV(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	plots := filepath.Join(t.TempDir(), "plots")
	args := []string{"fabric", "--policy", "ecmp,ark,shoal", "--qps", "10,25", "--seeds", "2", "--requests", "40", "--dir", dir}
	out, _, err := runSim(t, append(args, "--plots", plots, "--workers", "1")...)
	if err != nil || !strings.Contains(out, "25   shoal") || !strings.Contains(out, "plot: "+filepath.Join(plots, "fct.svg")) {
		t.Fatalf("%v\n%s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(files) != 12 {
		t.Errorf("%d files, want one for each of 12 runs", len(files))
	}
	jsonText, _, err := runSim(t, append(args, "--output", "json", "--dir", "")...) // made anew
	var r study.Report
	if err != nil || json.Unmarshal([]byte(jsonText), &r) != nil || len(r.Groups) != 2 || r.Groups[1].Policies[2].Cuts == nil || !strings.Contains(out, "digest "+r.Digest) {
		t.Errorf("%v: %s", err, jsonText)
	}
	table, _, err := runSim(t, append(args, "--output", "csv")...)
	rows, csvErr := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || csvErr != nil || len(rows) != 7 {
		t.Errorf("%v, %v: %s", err, csvErr, table)
	}
}

func TestSimFabricReadsAScenarioAndFlagsCountMore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("policy: [ecmp, least]\nseeds: 2\nrequests: 30\nsweep: {field: loss, values: [0, 0.3]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := runSim(t, "fabric", "--seeds", "1", "--file", file, "--output", "json", "--dir", "")
	var r study.Report
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.Sweep != "loss" || r.Runs != 4 || r.Groups[1].Variant != "0.3" || r.Groups[1].Policies[1].Counts.Lost == 0 {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.WriteFile(file, []byte("polcy: ecmp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := runSim(t, "fabric", "--file", file); err == nil || !strings.Contains(err.Error(), `line 1: unknown field "polcy"`) {
		t.Error(err)
	}
}

func TestSimSaysWhatIsWrong(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --dely":               {"fabric", "--dely", "5ms"},
		`"--delay" flag: delay is "5": give`: {"fabric", "--delay", "5"},
		`model "clay" does not exist`:        {"fabric", "--model", "clay"},
		`policy "best" does not exist`:       {"fabric", "--policy", "best"},
		`--output "xml" is none of`:          {"fabric", "--output", "xml"},
		"no such file":                       {"fabric", "--file", "none.yaml"},
		"unknown command":                    {"fabric", "papr"},
		"1 to 1000":                          {"fabric", "paper", "--seeds", "0"},
		`to break is called "bones"`:         {"fabric", "break", "--what", "bones"},
		"no run has ended":                   {"fabric", "compare", "--lab", t.TempDir()},
		"--output table and json":            {"fabric", "compare", "--output", "csv"},
		"unknown flag: --scale":              {"fabric", "compare", "--scale", "10"},
		"unknown flag: --zipf":               {"fabric", "compare", "--zipf", "0.5"},
		"accepts 1 arg":                      {"fabric", "replay"},
		"neither text nor json":              {"fabric", "replay", "x", "--output", "csv"},
		"none.flows: no such file":           {"fabric", "replay", "none.flows"},
	} {
		if _, _, err := runSim(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %v", args, want, err)
		}
	}
}

func TestSimCompareDoesNotContradictTheLab(t *testing.T) {
	dir := t.TempDir()
	text := `{"run":{"format":1,"workload":"w","policy":"ecmp","setup":{"pods":1,"leaves":2,"hosts_per_leaf":8,"spines":4,"cores":0,"rate":50000000,"chunk":65536,"delay_us":0}}}` + "\n" + `{"end":{}}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "w,ecmp.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--rate is 100000000, and the results in " + dir + " were measured with 50000000": {"--rate", "100000000"},
		"w.flows: no such file": {"--rate", "50000000"},
	} {
		if _, _, err := runSim(t, append([]string{"fabric", "compare", "--lab", dir}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %v", args, want, err)
		}
	}
}

func TestSimReplayPrintsNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.flows")
	if err := os.WriteFile(file, []byte("0 8 10000 2000000 0\n0 9 10000 1000 500\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for transport, extra := range map[string][]string{"cc12": nil, "dcqcn": {"--mark-seed", "7"}} {
		out, errs, err := runSim(t, append([]string{"fabric", "replay", file, "--transport", transport}, extra...)...)
		if err != nil || errs != "" || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, "FCT 0 9 10000 100 1000 500 ") {
			t.Errorf("%v, %q: %q", err, errs, out)
		}
	}
	if out, _, err := runSim(t, "fabric", "replay", file, "--output", "json", "--spines", "2"); err != nil || !json.Valid([]byte(out)) {
		t.Errorf("%v: %q", err, out)
	}
}

func TestSimPaperWithPacketsShowsTheFluidsError(t *testing.T) {
	out, _, err := runSim(t, "fabric", "paper", "--model", "packets", "--scale", "300", "--qps", "25", "--seeds", "1", "--requests", "20", "--policy", "ecmp,ark", "--dir", "")
	if err != nil || !strings.Contains(out, "The fluid beside the packets") || !strings.Contains(out, "data packets") || !strings.Contains(out, "27.3 %") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The plots are those of the packets, whatever is printed.
func TestSimPaperDrawsThePackets(t *testing.T) {
	args := []string{"fabric", "paper", "--model", "packets", "--scale", "300", "--qps", "25", "--seeds", "1", "--requests", "20", "--policy", "ecmp,ark", "--dir", t.TempDir()}
	var drawn []string
	for _, output := range []string{"table", "json"} {
		plots := t.TempDir()
		out, errs, err := runSim(t, append(args, "--plots", plots, "--output", output)...)
		if err != nil || strings.Count(out+errs, "cdf.svg") != 1 {
			t.Fatalf("%v\n%s%s", err, out, errs)
		}
		b, err := os.ReadFile(filepath.Join(plots, "cdf.svg"))
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, string(b))
	}
	if drawn[0] != drawn[1] {
		t.Error("with JSON other plots than with tables")
	}
}

func TestSimBreakHasOneTableForEachTrouble(t *testing.T) {
	plots := t.TempDir()
	out, _, err := runSim(t, "fabric", "break", "--what", "loss,network", "--seeds", "1", "--requests", "20", "--dir", "", "--plots", plots)
	if err != nil || !strings.Contains(out, "in the data fabric") || !strings.Contains(out, "0.3 ") || strings.Count(out, "digest") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{"by-loss.svg", "by-control-plane.svg"} {
		if _, err := os.Stat(filepath.Join(plots, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestSimThatIsInterruptedSaysHowToGoOn(t *testing.T) {
	for dir, want := range map[string]string{t.TempDir(): "interrupted: 0 of 25 runs are kept in", "": "interrupted: 0 of 25 runs were made, and nothing was kept"} {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := simCommand()
		c.SetOut(&out)
		c.SetErr(&errs)
		c.SetArgs([]string{"fabric", "--dir", dir})
		if err := c.ExecuteContext(ctx); !errors.Is(err, context.Canceled) || out.Len() > 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v, %q, %q", err, out.String(), errs.String())
		}
	}
}
