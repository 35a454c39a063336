package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"shoal/internal/sim"
	"shoal/internal/sim/study"
)

// simReplayCommand plays a list of flows as it stands: to compare the model with other simulators.
func simReplayCommand() *cobra.Command {
	var f simFlags
	var seed uint64
	defaults := study.NewDraft()
	defaults.Scenario.Model = study.Packets
	c := &cobra.Command{Use: "replay FILE.flows", Short: "Completion times of a list of flows, as other packet simulators print them", Args: cobra.ExactArgs(1),
		Long: `Reads a list of flows, a line each: src dst sport bytes start_ns, in order of their starts; # begins a remark. Every flow takes
the path that the switches' hashes (MurmurHash3, the switch's number as the seed) give its source port. Prints a line for each
flow, in the order in which they end: FCT src dst sport dport bytes start_ns fct_ns.`,
		Example: "  shoal sim fabric replay list.flows --transport cc12 | cmp - list.out\n  shoal sim fabric replay list.flows --transport dcqcn --mark-seed 7 --spines 8 --output json"}
	f.fields(c, defaults, "model", "transport", "payload", "leaves", "hosts", "spines", "pods", "cores", "rate", "link-delay")
	c.Flags().Uint64Var(&seed, "mark-seed", 1, "of the random marks of dcqcn")
	c.Flags().StringVar(&f.output, "output", "text", "text or json")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f.output != "text" && f.output != "json" {
			return fmt.Errorf("sim: --output %q is neither text nor json", f.output)
		}
		d := defaults
		for _, s := range f.settings {
			if err := d.Set(s.name, s.value); err != nil {
				return err
			}
		}
		w, err := sim.LoadWorkload(args[0])
		if err != nil {
			return err
		}
		done, err := study.Replay(cmd.Context(), d.Scenario, w, seed)
		if err != nil {
			return err
		}
		if f.output == "json" {
			return study.WriteCompletionsJSON(cmd.OutOrStdout(), done)
		}
		return study.WriteCompletions(cmd.OutOrStdout(), done)
	}
	return c
}
