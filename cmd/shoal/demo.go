package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"shoal/internal/demo"
	"shoal/internal/load"
	"shoal/internal/term"
)

func demoCommand() *cobra.Command {
	cfg := demo.Defaults()
	output := "table"
	c := &cobra.Command{
		Use:   "demo",
		Short: "Compare routing policies: the same workload, the same engines, one policy after the other",
		Long: `Starts real llama.cpp engines and agents for each policy in turn, with empty caches, sends the same few-shot workload through
all agents, and prints hit rate (from the engines' own counts), TTFT and the largest share of one peer, side by side.`,
		Example: `  shoal demo
  shoal demo --emulated 4 --requests 400 --clients 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("demo: --output is table or json, not %q", output)
			}
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("demo: the path of this program: %w", err)
			}
			cfg.Up.Exe = exe
			out, note := term.New(cmd.OutOrStdout()), term.New(cmd.ErrOrStderr())
			reports, err := demo.Run(cmd.Context(), cfg, note)
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return errors.Join(err, e.Encode(reports))
			}
			if len(reports) > 0 {
				out.Printf("%s; seed %d; version %s", reports[0].Workload, cfg.Seed, buildVersion())
				out.Table(load.Compare(reports...))
			}
			return err // after what was measured before it
		},
	}
	f := c.Flags()
	f.StringSliceVar(&cfg.Policies, "policies", cfg.Policies, "policies to compare, in this order")
	f.IntVar(&cfg.Up.Emulated, "emulated", 0, "emulated engines instead of real ones: nothing is installed, and answers mean nothing")
	f.StringVar(&cfg.Up.LlamaDir, "llama", cfg.Up.LlamaDir, "`directory` where llama.cpp and its model are installed and kept")
	f.StringVar(&cfg.Up.RunDir, "run-dir", cfg.Up.RunDir, "`directory` for logs")
	f.IntVar(&cfg.Requests, "requests", cfg.Requests, "requests a policy")
	f.IntVar(&cfg.Clients, "clients", cfg.Clients, "clients that each wait for their answer")
	f.IntVar(&cfg.MaxTokens, "max-tokens", cfg.MaxTokens, "tokens of an answer")
	f.IntVar(&cfg.Workload.Subjects, "subjects", cfg.Workload.Subjects, "different prefixes")
	f.IntVar(&cfg.Workload.PrefixTokens, "prefix-tokens", cfg.Workload.PrefixTokens, "tokens of a prefix")
	f.Float64Var(&cfg.Workload.Skew, "skew", cfg.Workload.Skew, "Zipf exponent of the prefixes' popularity")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "of the run")
	f.StringVarP(&output, "output", "o", output, "table or json")
	return c
}
