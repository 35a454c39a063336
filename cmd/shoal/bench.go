package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shoal/internal/load"
	"shoal/internal/term"
)

// defaultTarget is where an agent listens unless told otherwise.
const defaultTarget = "http://127.0.0.1:8080"

// benchFlags is what the command line says; workload and run settings have their own defaults in package load.
type benchFlags struct {
	run      load.Config
	shots    load.FewShotConfig
	trace    load.TraceConfig
	file     string // of the trace; empty: the few-shot workload
	question string
	assign   string
	output   string
	results  string
	plain    bool
}

func benchCommand() *cobra.Command {
	f := benchFlags{run: load.DefaultConfig(), shots: load.DefaultFewShot(), trace: load.DefaultTrace()}
	c := &cobra.Command{
		Use:   "bench [flags] [URL...]",
		Short: "Send a workload to OpenAI endpoints and report hit rate, TTFT, TPOT and shares",
		Long: `Sends chat requests to any OpenAI endpoint: an agent, several agents of one shoal, or an engine directly;
without a URL, to the agent at ` + defaultTarget + `.

The built-in workload asks questions on many subjects, each below the same worked examples of its subject, the subjects'
popularity by Zipf's law. A Mooncake trace (JSON lines of timestamp, input_length, output_length, hash_ids) is played with
texts that share exactly the recorded prefixes. Either way the seed decides everything that is sent.

Requests arrive by a Poisson process (--rate), or from clients that wait for their answers (--clients, 4 unless told
otherwise), or at a trace's own times. The hit rate is the engines' own count of reused tokens over all prompt tokens.
Whichever of --requests and --duration is reached first ends the run; so does Ctrl-C, and what was done is reported.

Only this machine is a target unless --remote is given. An API key is taken from --api-key or SHOAL_API_KEY.`,
		Example: `  shoal bench http://127.0.0.1:8001
  shoal bench --rate 8 --requests 500 http://127.0.0.1:8001 http://127.0.0.1:8002 http://127.0.0.1:8003
  shoal bench --clients 16 --subjects 57 --prefix-tokens 900 --zipf 2 --output json http://127.0.0.1:8001 > run.json
  shoal bench --trace conversation_trace.jsonl --block-tokens 16 --speed 4 --limit 1000 http://127.0.0.1:8001
  shoal bench --remote --model my-model --duration 10m https://gpu1.example.com`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.run.Targets = args; len(args) == 0 {
				f.run.Targets = []string{defaultTarget}
			}
			return f.bench(cmd)
		},
	}
	f.bind(c)
	return c
}

func (f *benchFlags) bind(c *cobra.Command) {
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.run.Model, "model", "", "model to ask for (default: the first that the first target lists)")
	s.StringVar(&f.run.APIKey, "api-key", "", "API key of the targets (default: $SHOAL_API_KEY)")
	s.BoolVar(&f.run.Remote, "remote", false, "allow targets that are not this machine")
	s.StringVar(&f.assign, "assign", "rotate", "how requests are spread over several targets: rotate or random")
	s.IntVar(&f.run.Requests, "requests", f.run.Requests, "send at most this many requests")
	s.DurationVar(&f.run.Duration, "duration", f.run.Duration, "end after this time at the latest")
	s.Float64Var(&f.run.Rate, "rate", 0, "Poisson arrivals, in requests a second")
	s.IntVar(&f.run.Clients, "clients", 0, fmt.Sprintf("clients that each wait for their answer (default %d without --rate)", load.DefaultClients))
	s.IntVar(&f.run.InFlight, "in-flight", f.run.InFlight, "bound on requests under way with --rate or a trace's times; waiting for it counts as latency")
	s.BoolVar(&f.plain, "no-stream", false, "ask for plain answers: TTFT and TPOT cannot be seen")
	s.IntVar(&f.run.MaxTokens, "max-tokens", f.run.MaxTokens, "bound on the output of a request; 0: as the workload and the engine say")
	s.DurationVar(&f.run.Timeout, "timeout", f.run.Timeout, "bound on one request")
	s.Uint64Var(&f.run.Seed, "seed", f.run.Seed, "decides the workload, the arrivals and the assignment")

	s.IntVar(&f.shots.Subjects, "subjects", f.shots.Subjects, "few-shot: number of subjects, each with a prefix of its own")
	s.IntVar(&f.shots.PrefixTokens, "prefix-tokens", f.shots.PrefixTokens, "few-shot: length of a subject's prefix, in tokens")
	s.IntVar(&f.shots.SystemTokens, "system-tokens", f.shots.SystemTokens, "few-shot: lengthen the system prompt common to all by this many tokens")
	s.StringVar(&f.question, "question-tokens", fmt.Sprintf("%d-%d", f.shots.QuestionMin, f.shots.QuestionMax), "few-shot: length of a question, in tokens, MIN-MAX")
	s.Float64Var(&f.shots.Skew, "zipf", f.shots.Skew, "few-shot: exponent of the subjects' popularity; 0: uniform")

	s.StringVar(&f.file, "trace", "", "play this Mooncake trace file in place of the few-shot workload")
	s.Float64Var(&f.trace.Speed, "speed", f.trace.Speed, "trace: how many times faster than recorded")
	s.IntVar(&f.trace.BlockTokens, "block-tokens", f.trace.BlockTokens, "trace: tokens for each hash ID; fewer than the recorded 512 shrink all prompts in proportion")
	s.IntVar(&f.trace.Limit, "limit", 0, "trace: use its first requests only; 0: all that --requests allows")

	s.StringVar(&f.output, "output", "table", "table or json, on the standard output")
	s.StringVar(&f.results, "results", "", "also write one JSON line for every request to this file")
}

func (f *benchFlags) bench(cmd *cobra.Command) error {
	if err := f.settle(cmd); err != nil {
		return err
	}
	screen := term.New(cmd.ErrOrStderr())
	f.run.Progress = func(s load.Snapshot) { screen.Progress(progressLine(s)) }
	report, results, err := load.RunResults(cmd.Context(), f.run)
	screen.Progress("")
	if err != nil {
		return err
	}
	if f.results != "" {
		if err := writeResults(f.results, results); err != nil {
			return err
		}
	}
	if f.output == "json" {
		err = report.WriteJSON(cmd.OutOrStdout())
	} else {
		report.Write(term.New(cmd.OutOrStdout()))
	}
	if err == nil && report.OK == 0 && report.Failed > 0 {
		return fmt.Errorf("bench: all of %d requests failed", report.Failed)
	}
	return err
}

// settle turns the flags into the configuration of a run.
func (f *benchFlags) settle(cmd *cobra.Command) error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("bench: --output %q is unknown; give table or json", f.output)
	}
	switch f.assign {
	case "rotate":
		f.run.Assign = load.Rotate
	case "random":
		f.run.Assign = load.Random
	default:
		return fmt.Errorf("bench: --assign %q is unknown; give rotate or random", f.assign)
	}
	f.run.Stream = !f.plain
	if f.run.APIKey == "" {
		f.run.APIKey = os.Getenv("SHOAL_API_KEY")
	}
	f.shots.Seed, f.trace.Seed = f.run.Seed, f.run.Seed
	low, high, _ := strings.Cut(f.question, "-")
	var errs [2]error
	f.shots.QuestionMin, errs[0] = strconv.Atoi(low)
	f.shots.QuestionMax, errs[1] = strconv.Atoi(high)
	if errors.Join(errs[:]...) != nil {
		return fmt.Errorf("bench: --question-tokens %q is not MIN-MAX, such as 40-160", f.question)
	}
	if f.file == "" {
		for _, name := range []string{"speed", "block-tokens", "limit"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("bench: --%s is about a trace; give one with --trace FILE", name)
			}
		}
		w, err := load.NewFewShot(f.shots)
		if err != nil {
			return err
		}
		f.run.Workload = w
		return f.run.Validate()
	}
	w, err := load.OpenTrace(f.file, f.trace)
	if err != nil {
		return err
	}
	f.run.Workload = w
	if !cmd.Flags().Changed("requests") && f.trace.Limit > 0 {
		f.run.Requests = min(f.trace.Limit, load.MaxRequests)
	}
	return f.run.Validate()
}

func progressLine(s load.Snapshot) string {
	parts := []string{fmt.Sprintf("%d of %d sent", s.Sent, s.Planned), fmt.Sprintf("%d in flight", s.InFlight), fmt.Sprintf("%d answered", s.OK)}
	if s.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", s.Failed))
	}
	if s.Prompt > 0 {
		parts = append(parts, fmt.Sprintf("hit rate %.1f %%", 100*float64(s.Cached)/float64(s.Prompt)))
	}
	return fmt.Sprintf("%.1f s  %s", s.Elapsed.Seconds(), strings.Join(parts, ", "))
}

func writeResults(path string, results []load.Result) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer file.Close()
	e := json.NewEncoder(file)
	for i := range results {
		if err := e.Encode(&results[i]); err != nil {
			return fmt.Errorf("bench: writing %s: %w", path, err)
		}
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("bench: writing %s: %w", path, err)
	}
	return nil
}
