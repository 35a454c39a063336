// Command transfer measures how fast agents move bytes on loopback, and what it costs, beside the two that people know:
// iperf3, which moves one buffer over and over and checks nothing, and Mooncake's transfer engine over TCP, which writes
// from one process's memory into another's. Every end is a process of its own.
//
//	iperf3    -c -n BYTES, with 1 stream and with 4
//	shoal     zeros into nothing, likewise: the same work, and a CRC32C of every byte at both ends
//	mooncake  one GiB of memory into another's, with its connection pool, with 1 lane and with 4
//	shoal     the same from memory into memory
//
// The rounds run all of them in an order drawn anew each time, so that what else the machine does hits all alike; what
// counts is the median over the rounds. CPU is user and system time of each process as the kernel accounts for it, while
// it transfers; of iperf3 over its whole life, which is little more. Whatever is not installed is named as absent:
//
//	apt-get install iperf3
//	python3 -m venv DIR && DIR/bin/pip install mooncake-transfer-engine-non-cuda   (needs libibverbs1, librdmacm1, libnuma1)
//	go run ./bench/transfer -python DIR/bin/python
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"shoal/internal/term"
)

type options struct {
	rounds int
	mib    int
	seed   uint64
	output string
	iperf3 string
	python string
}

// cell is one thing that is measured.
type cell struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Streams int    `json:"streams"`
	run     func(context.Context) (sample, error)
	samples []sample
}

// sample is one run of it.
type sample struct {
	Bytes   int64         `json:"bytes"`
	Took    time.Duration `json:"took_ns"`
	Send    time.Duration `json:"send_cpu_ns"` // CPU time of the sending process
	Receive time.Duration `json:"receive_cpu_ns"`
}

func (s sample) rate() float64       { return float64(s.Bytes) / 1e9 / s.Took.Seconds() }
func (s sample) sendCPU() float64    { return s.Send.Seconds() * 1e9 / float64(s.Bytes) }
func (s sample) receiveCPU() float64 { return s.Receive.Seconds() * 1e9 / float64(s.Bytes) }

func main() {
	var opts options
	role := flag.String("role", "", "be one end: receive or send (used by the command itself)")
	flag.IntVar(&opts.rounds, "rounds", 5, "rounds; medians are over them")
	flag.IntVar(&opts.mib, "mib", 8192, "MiB of each transfer of iperf3 and shoal; a quarter of it for what moves memory")
	flag.Uint64Var(&opts.seed, "seed", 1, "of orders and ports")
	flag.StringVar(&opts.output, "output", "text", "text or json")
	flag.StringVar(&opts.iperf3, "iperf3", "iperf3", "the iperf3 program")
	flag.StringVar(&opts.python, "python", "python3", "a Python that has mooncake-transfer-engine")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch *role {
	case "receive":
		err = receive(os.Stdin, os.Stdout)
	case "send":
		err = send(ctx, os.Stdin, os.Stdout)
	case "":
		if err = opts.validate(flag.Args()); err == nil {
			err = measure(ctx, opts, os.Stdout)
		}
	default:
		err = fmt.Errorf("unknown role %q", *role)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func (o *options) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unknown argument %q", args[0])
	case o.rounds < 1 || o.rounds > 1000:
		return fmt.Errorf("%d rounds; give 1 to 1000", o.rounds)
	case o.mib < 64 || o.mib > 1<<20:
		return fmt.Errorf("%d MiB; give 64 to %d", o.mib, 1<<20)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("output %q; give text or json", o.output)
	}
	return nil
}

func measure(ctx context.Context, opts options, w io.Writer) error {
	dir, err := os.MkdirTemp("", "shoal-transfer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	random := rand.New(rand.NewPCG(opts.seed, 0))
	cells, absent, err := plan(ctx, opts, dir, random)
	if err != nil {
		return err
	}
	screen := term.New(os.Stderr)
	for round := range opts.rounds {
		for _, i := range random.Perm(len(cells)) {
			c := cells[i]
			screen.Progress(fmt.Sprintf("round %d of %d: %s, %s", round+1, opts.rounds, c.Name, c.What))
			s, err := c.run(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.Name, c.What, err)
			}
			c.samples = append(c.samples, s)
		}
	}
	screen.Progress("")
	r := report(opts, cells, absent)
	if opts.output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	r.write(w)
	return nil
}

// plan finds out what can be measured.
func plan(ctx context.Context, opts options, dir string, random *rand.Rand) (cells []*cell, absent []string, err error) {
	bytes := int64(opts.mib) << 20
	iperf3, err := exec.LookPath(opts.iperf3)
	if err != nil {
		absent = append(absent, "iperf3: "+err.Error())
	}
	script := filepath.Join(dir, "mooncake_end.py")
	if err := os.WriteFile(script, mooncakeScript, 0o600); err != nil {
		return nil, nil, err
	}
	mooncake := true
	if out, err := exec.CommandContext(ctx, opts.python, "-c", "import mooncake.engine").CombinedOutput(); err != nil {
		mooncake = false
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		absent = append(absent, fmt.Sprintf("mooncake-transfer-engine: %s: %v %s", opts.python, err, lines[len(lines)-1]))
	}
	for _, n := range []int{1, 4} {
		if iperf3 != "" {
			cells = append(cells, &cell{Name: "iperf3", What: "one buffer, into nothing", Streams: n,
				run: func(ctx context.Context) (sample, error) { return runIperf3(ctx, iperf3, n, bytes) }})
		}
		cells = append(cells, &cell{Name: "shoal", What: "zeros, into nothing", Streams: n,
			run: func(ctx context.Context) (sample, error) {
				return runOurs(ctx, order{Streams: n, Bytes: bytes}, random)
			}})
		if mooncake {
			cells = append(cells, &cell{Name: "mooncake", What: "memory to memory", Streams: n,
				run: func(ctx context.Context) (sample, error) { return runMooncake(ctx, opts.python, script, n, bytes/4) }})
		}
		cells = append(cells, &cell{Name: "shoal", What: "memory to memory", Streams: n,
			run: func(ctx context.Context) (sample, error) {
				return runOurs(ctx, order{Streams: n, Bytes: bytes / 4, Memory: true}, random)
			}})
	}
	return cells, absent, nil
}

// results is what is printed.
type results struct {
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Seed    uint64   `json:"seed"`
	Rounds  int      `json:"rounds"`
	Absent  []string `json:"absent"`
	Cells   []result `json:"cells"`
}

type result struct {
	cell
	Rate       float64   `json:"gb_per_s"`
	Rates      []float64 `json:"gb_per_s_each"`
	SendCPU    float64   `json:"send_cpu_s_per_gb"`
	ReceiveCPU float64   `json:"receive_cpu_s_per_gb"`
}

func report(opts options, cells []*cell, absent []string) results {
	r := results{Commit: "unknown", Machine: machine(), Seed: opts.seed, Rounds: opts.rounds, Absent: absent}
	if out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	for _, c := range cells {
		over := func(f func(sample) float64) (all []float64) {
			for _, s := range c.samples {
				all = append(all, f(s))
			}
			return all
		}
		rates := over(sample.rate)
		r.Cells = append(r.Cells, result{cell: *c, Rate: median(rates), Rates: rates,
			SendCPU: median(over(sample.sendCPU)), ReceiveCPU: median(over(sample.receiveCPU))})
	}
	return r
}

func (r *results) write(w io.Writer) {
	fmt.Fprintf(w, "Commit %s, seed %d, %d rounds, %s. Loopback; medians over the rounds, lowest to highest in brackets.\n\n", r.Commit, r.Seed, r.Rounds, r.Machine)
	fmt.Fprintln(w, "| what | streams | by | GB/s | CPU s/GB sending | receiving |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, c := range r.Cells {
		fmt.Fprintf(w, "| %s | %d | %s | %.2f (%.2f to %.2f) | %.2f | %.2f |\n", c.What, c.Streams, c.Name, c.Rate, slices.Min(c.Rates), slices.Max(c.Rates), c.SendCPU, c.ReceiveCPU)
	}
	fmt.Fprintln(w)
	for _, line := range r.verdicts() {
		fmt.Fprintln(w, line)
	}
	for _, a := range r.Absent {
		fmt.Fprintf(w, "ABSENT %s\n", a)
	}
}

// verdicts compare ours with the other of the same work. Those that move one buffer and those that move memory are
// different work.
func (r *results) verdicts() (lines []string) {
	for _, c := range r.Cells {
		if c.Name == "shoal" {
			continue
		}
		for _, o := range r.Cells {
			if o.Name == "shoal" && o.Streams == c.Streams && (o.What == "memory to memory") == (c.What == "memory to memory") {
				lines = append(lines, fmt.Sprintf("shoal moves %.2f times what %s does with %d streams (%s).", o.Rate/c.Rate, c.Name, c.Streams, c.What))
			}
		}
	}
	return lines
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// machine says what it was measured on.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
