// Command overhead measures what an agent costs: an emulated engine with zero delays, asked directly, through Go's plain
// httputil.ReverseProxy (the floor of any proxy in Go), through one agent, and through one hop (an agent without an
// engine that forwards to the agent beside it). Prompts of 0.5, 10 and 100 kB, streaming and not; added p50 and p99, requests
// a second in a closed loop, CPU per request and per stream chunk. Everything is a process of its own on loopback, with
// the defaults that a user gets and `cost` routing on.
//
// The set-ups are measured interleaved, in rounds, in an order drawn anew each time, so that what else the machine does
// hits all alike; what counts is the median over the rounds of the difference within a round. Every answer is checked.
// With -figures it prints the three figures of `make figures` within a minute, else a Markdown table. It needs Linux: CPU
// time is read from /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	shoal       string        // path of the program; empty: built from the tree
	figures     bool          // print the figures only
	seed        uint64        // of prompts and orders
	rounds      int           // more of them: steadier medians
	blocks      int           // of each latency measurement within a round
	perBlock    int           // requests of a set-up in a row
	load        time.Duration // of one throughput measurement
	clients     int           // of the closed loop
	maxTokens   int           // chunks of an answer
	burst       int           // chunks of an answer where the cost of chunks is measured
	sizes       []int         // of prompts, in bytes
	paced       int           // clients of the measurement with one write a chunk
	pacedTokens int
	pace        time.Duration // between chunks there
}

func main() {
	var proxy proxyFlags
	opts := options{sizes: []int{500, 10_000, 100_000}}
	flag.StringVar(&opts.shoal, "shoal", "", "the program to measure (default: built from this tree)")
	flag.BoolVar(&opts.figures, "figures", false, "print three figures within a minute")
	flag.Uint64Var(&opts.seed, "seed", 1, "of prompts and orders")
	flag.IntVar(&opts.rounds, "rounds", 5, "rounds; medians are over them")
	flag.IntVar(&opts.blocks, "blocks", 8, "interleaved blocks of each latency measurement in a round")
	flag.IntVar(&opts.perBlock, "per-block", 25, "requests of one set-up in a block")
	flag.DurationVar(&opts.load, "load", time.Second, "time of one throughput measurement")
	flag.IntVar(&opts.clients, "clients", 64, "clients of the closed loop")
	flag.IntVar(&opts.maxTokens, "max-tokens", 16, "tokens of an answer")
	flag.IntVar(&opts.burst, "burst-tokens", 512, "tokens of an answer that measures the cost of chunks")
	flag.IntVar(&opts.paced, "paced-clients", 48, "clients where every chunk is paced")
	flag.IntVar(&opts.pacedTokens, "paced-tokens", 64, "tokens of a paced answer")
	flag.DurationVar(&opts.pace, "pace", 10*time.Millisecond, "time between paced chunks")
	flag.StringVar(&proxy.listen, "floor-listen", "", "be the floor: a plain reverse proxy on this address (used by the command itself)")
	flag.StringVar(&proxy.engine, "floor-engine", "", "the engine of -floor-listen")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case proxy.listen != "":
		err = proxy.serve(ctx)
	case flag.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", flag.Arg(0))
	case opts.figures:
		err = figures(ctx, opts, os.Stdout)
	default:
		err = table(ctx, opts, os.Stdout)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

// figures measures prompts of 10 kB with plain answers only, in the shorter of the two ways that the table is made.
func figures(ctx context.Context, opts options, w io.Writer) error {
	opts.sizes = []int{figureSize}
	s, err := start(ctx, opts, false)
	if err != nil {
		return err
	}
	defer s.stop()
	m := newMeasurement(opts, s, os.Stderr)
	for round := range opts.rounds {
		if err := m.latency(ctx, round, figureSize, false); err != nil {
			return err
		}
		if err := m.throughput(ctx, round, figureSize, false); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "seed %d\n", opts.seed)
	key := cell{figureSize, false}
	fmt.Fprintf(w, "figure gateway_added_p50_us %.1f us\n", m.added(agent, key, 50))
	fmt.Fprintf(w, "figure hop_added_p50_us %.1f us\n", m.added(hop, key, 50))
	fmt.Fprintf(w, "figure gateway_cpu_us_per_request %.1f us\n", m.cpu(agent, key))
	return nil
}

// figureSize is the prompt of the figures, in bytes.
const figureSize = 10_000

func table(ctx context.Context, opts options, w io.Writer) error {
	s, err := start(ctx, opts, true)
	if err != nil {
		return err
	}
	defer s.stop()
	m := newMeasurement(opts, s, os.Stderr)
	order := rand.New(rand.NewPCG(opts.seed, 1))
	for round := range opts.rounds {
		var cells []cell
		for _, size := range opts.sizes {
			cells = append(cells, cell{size, false}, cell{size, true})
		}
		order.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		for _, c := range cells {
			if err := errors.Join(m.latency(ctx, round, c.size, c.stream), m.throughput(ctx, round, c.size, c.stream)); err != nil {
				return err
			}
		}
		if err := errors.Join(m.bursts(ctx, round), m.pacedChunks(ctx, round)); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d done\n", round+1, opts.rounds)
	}
	fmt.Fprintf(w, "Commit %s, seed %d, %d rounds, %s. Medians over the rounds; each set-up is a process of its own on loopback.\n\n",
		s.commit, opts.seed, opts.rounds, machine())
	m.write(w)
	return nil
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
