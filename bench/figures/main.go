// Command figures measures the figures that the project keeps, each from a benchmark in the tree, and prints one line for
// each: "figure NAME VALUE UNIT". `make figures` runs them all, `make figure-NAME` one alone.
//
// It measures nothing itself. A figure of a package is BenchmarkFigure_NAME, wherever it stands, which reports a metric
// called like the figure's unit; the figures of the gateway's overhead come from bench/overhead. What was measured (commit,
// seed, limit, time) goes to the standard error, so that the lines can be read by programs. A limit that does not hold
// is said there and is no failure of the command: a busy machine is not a broken one.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// figure is one line of the list. Issues add theirs here.
type figure struct {
	name  string
	unit  string  // and the name of the metric that the benchmark reports
	limit float64 // the value is to be at most this; unlimited where nothing is promised
	least float64 // where more is better: the value is to be at least this, and limit says nothing
	runs  int     // of the benchmark; the median counts. 0: the usual number
	best  bool    // not the median but the best run counts, where other work on the machine can only make it worse
	time  string  // -benchtime; empty: the usual one
	from  string  // command that prints it; empty: a benchmark
}

const (
	unlimited = -1
	usualRuns = 3
	overhead  = "./bench/overhead"
	// slow is what one figure alone may take, with what it needs already built; beyond it the command says so.
	slow = 60 * time.Second
	// patience bounds one figure, building included.
	patience = 10 * time.Minute
)

var figures = []figure{
	{name: "match_512x16_us", unit: "us", limit: 10},
	{name: "match_512x1000_us", unit: "us", limit: 20},
	{name: "index_bytes_per_entry", unit: "bytes", limit: 40, runs: 1, time: "1x"}, // 30,000,000 entries: once is enough, and the same every time
	{name: "index_insert_ns", unit: "ns", limit: 500},
	{name: "index_remove_ns", unit: "ns", limit: 500},
	{name: "hash_10k_tokens_us", unit: "us", limit: 20},
	{name: "body_to_blocks_100kb_us", unit: "us", limit: 150},
	{name: "decision_allocs_per_peer", unit: "allocs", limit: 0},
	{name: "path_k4_ns", unit: "ns", limit: 100},
	{name: "path_k1000_ns", unit: "ns", limit: 500},
	{name: "map_65536_us", unit: "us", limit: 500},
	{name: "map_kernel_65536_us", unit: "us", limit: 1500},
	{name: "map_crc_65536_us", unit: "us", limit: unlimited},
	{name: "ports_lazy_us", unit: "us", limit: 20},
	{name: "maps_1000_peers_mb", unit: "mb", limit: 64, runs: 1},
	{name: "sim_packets_per_s", unit: "packets/s", least: 1_600_000, runs: 5, best: true},
	{name: "fct_cut_q25_mean_percent", unit: "percent", least: 60, runs: 1, time: "1x"}, // simulated: the same every time
	{name: "fct_cut_q25_p95_percent", unit: "percent", least: 65, runs: 1, time: "1x"},
	{name: "fct_cut_q30_mean_percent", unit: "percent", least: 55, runs: 1, time: "1x"},
	{name: "fct_cut_q30_p95_percent", unit: "percent", least: 55, runs: 1, time: "1x"},
	{name: "ark_cut_q25_mean_percent", unit: "percent", limit: unlimited, runs: 1, time: "1x"},
	{name: "gateway_added_p50_us", unit: "us", limit: unlimited, from: overhead},
	{name: "hop_added_p50_us", unit: "us", limit: unlimited, from: overhead},
	{name: "gateway_cpu_us_per_request", unit: "us", limit: unlimited, from: overhead},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	wanted, err := choose(names)
	if err != nil {
		return err
	}
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	m := measurer{root: strings.TrimSpace(root), commands: map[string]string{}}
	commit := m.commit(ctx)
	var errs []error
	for _, f := range wanted {
		start := time.Now()
		value, seed, err := m.measure(ctx, f)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", f.name, err)
			errs = append(errs, errors.New(f.name+" could not be measured"))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		fmt.Printf("figure %s %s %s\n", f.name, format(value), f.unit)
		fmt.Fprintf(os.Stderr, "%s: commit %s, %s, %s, %s\n", f.name, commit, seed, f.verdict(value), took(time.Since(start)))
	}
	return errors.Join(errs...)
}

func choose(names []string) ([]figure, error) {
	if len(names) == 0 {
		return figures, nil
	}
	var out []figure
	for _, n := range names {
		i := slices.IndexFunc(figures, func(f figure) bool { return f.name == n })
		if i < 0 {
			var known []string
			for _, f := range figures {
				known = append(known, f.name)
			}
			return nil, fmt.Errorf("no figure is called %q; there are %s", n, strings.Join(known, ", "))
		}
		out = append(out, figures[i])
	}
	return out, nil
}

func (f *figure) verdict(value float64) string {
	switch {
	case f.limit == unlimited:
		return "no limit"
	case f.least > 0 && value >= f.least:
		return "at least " + format(f.least) + ": holds"
	case f.least > 0:
		return "at least " + format(f.least) + ": IS MISSED"
	case value <= f.limit:
		return "limit " + format(f.limit) + " holds"
	}
	return "limit " + format(f.limit) + " IS EXCEEDED"
}

func took(d time.Duration) string {
	s := fmt.Sprintf("%.1f s", d.Seconds())
	if d > slow {
		s += " (more than the minute that one figure may take, unless it was building)"
	}
	return s
}

// measurer runs benchmarks and commands of one checkout.
type measurer struct {
	root     string
	commands map[string]string // output of commands that print several figures
}

func (m *measurer) measure(ctx context.Context, f figure) (value float64, seed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if f.from != "" {
		return m.command(ctx, f)
	}
	dir, err := m.find(f.name)
	if err != nil {
		return 0, "", err
	}
	runs := f.runs
	if runs == 0 {
		runs = usualRuns
	}
	args := []string{"test", "-run", "^$", "-bench", "^BenchmarkFigure_" + f.name + "$", "-count", strconv.Itoa(runs)}
	if f.time != "" {
		args = append(args, "-benchtime", f.time)
	}
	out, err := output(ctx, m.root, "go", append(args, dir)...)
	if err != nil {
		return 0, "", err
	}
	values := metrics(out, "BenchmarkFigure_"+f.name, f.unit)
	if len(values) != runs {
		return 0, "", fmt.Errorf("%d runs of the benchmark in %s gave %d values in %q:\n%s", runs, dir, len(values), f.unit, out)
	}
	slices.Sort(values)
	value, which := values[len(values)/2], "median"
	if f.best {
		which = "best"
		if value = values[0]; f.least > 0 {
			value = values[len(values)-1]
		}
	}
	return value, fmt.Sprintf("seed fixed in %s, %s of %d", dir, which, runs), nil
}

// command runs a program that prints several figures; it runs once for all of them.
func (m *measurer) command(ctx context.Context, f figure) (float64, string, error) {
	out, ok := m.commands[f.from]
	if !ok {
		// Built and not "go run": that would not pass on the signal by which the program ends what it has started.
		dir, err := os.MkdirTemp("", "shoal-figures-")
		if err != nil {
			return 0, "", err
		}
		defer os.RemoveAll(dir)
		program := filepath.Join(dir, filepath.Base(f.from))
		if _, err := output(ctx, m.root, "go", "build", "-o", program, f.from); err != nil {
			return 0, "", err
		}
		if out, err = output(ctx, m.root, program, "-figures"); err != nil {
			return 0, "", err
		}
		m.commands[f.from] = out
	}
	seed := "seed unknown"
	value, found := 0.0, false
	for line := range strings.Lines(out) {
		w := strings.Fields(line)
		switch {
		case len(w) == 2 && w[0] == "seed":
			seed = "seed " + w[1]
		case len(w) == 4 && w[0] == "figure" && w[1] == f.name && w[3] == f.unit:
			v, err := strconv.ParseFloat(w[2], 64)
			value, found = v, err == nil
		}
	}
	if !found {
		return 0, "", fmt.Errorf("%s printed no %s:\n%s", f.from, f.name, out)
	}
	return value, seed, nil
}

// find is the package that holds a figure's benchmark, as a path from the root.
func (m *measurer) find(name string) (string, error) {
	declaration := []byte("func BenchmarkFigure_" + name + "(")
	dir := ""
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n := d.Name(); d.IsDir() && path != m.root && (n[0] == '.' || n[0] == '_' || n == "testdata" || n == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, declaration) {
			dir = filepath.Dir(path)
			return filepath.SkipAll
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if dir == "" {
		return "", fmt.Errorf("no package holds %s)", declaration)
	}
	rel, err := filepath.Rel(m.root, dir)
	return "./" + filepath.ToSlash(rel), err
}

// commit names what is measured, with a mark where files differ from it.
func (m *measurer) commit(ctx context.Context) string {
	c, err := output(ctx, m.root, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(c)
}

// metrics reads the values of one metric from the output of `go test -bench`.
func metrics(out, benchmark, unit string) []float64 {
	var values []float64
	for line := range strings.Lines(out) {
		w := strings.Fields(line)
		if len(w) < 4 || w[0] != benchmark && !strings.HasPrefix(w[0], benchmark+"-") {
			continue
		}
		for i := 2; i+1 < len(w); i += 2 { // name, iterations, then pairs of value and unit
			if v, err := strconv.ParseFloat(w[i], 64); err == nil && w[i+1] == unit {
				values = append(values, v)
			}
		}
	}
	return values
}

// format prints a value without digits that mean nothing.
func format(v float64) string {
	digits := 3
	switch {
	case v >= 1000:
		digits = 0
	case v >= 100:
		digits = 1
	case v >= 10:
		digits = 2
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// output runs a command in dir and returns what it prints; where it fails, the error holds the end of what it said.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // so that it can end what it has started
	c.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		said := strings.TrimSpace(stdout.String() + stderr.String())
		if len(said) > 4000 {
			said = "…" + said[len(said)-4000:]
		}
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said)
	}
	return stdout.String(), nil
}
