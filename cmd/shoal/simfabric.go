package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"shoal/internal/sim/study"
	"shoal/internal/term"
)

// simFabricCommand is `shoal sim fabric`: path policies on a simulated fabric.
func simFabricCommand() *cobra.Command {
	var f simFlags
	defaults := study.NewDraft()
	c := &cobra.Command{Use: "fabric", Short: "Path policies for KV transfers on a simulated fabric", Args: cobra.NoArgs,
		Long: `Plays the ARK paper's workload on a simulated leaf-spine fabric (or a fat tree) under several path policies and reports flow
completion times. Every simulated host decides by the product's own code, from its own table, and hears of the others by
messages that take time and get lost.

Two models of the network: fluid (max-min shares; a run takes a moment) and packets (packet by packet, with queues, PFC, ECN
and DCQCN). Every policy plays the same workloads, one for each seed. Results are kept in --dir: a run that was interrupted
goes on, and what was simulated once is not simulated again.`,
		Example: `  shoal sim fabric --policy ecmp,ark,least,shoal --qps 25,30 --seeds 20 --plots plots
  shoal sim fabric --policy ecmp,shoal --sweep delay=0s,5ms,50ms --output csv
  shoal sim fabric --model packets --transport dcqcn --scale 10 --seeds 1 --policy ecmp,shoal
  shoal sim fabric --file scenario.yaml            # policy: [ecmp, ark], qps: 25, mice: 0.1, sweep: {field: loss, values: [0, 0.1]}
  shoal sim fabric paper                           # the paper's evaluation, its figures beside ours
  shoal sim fabric break --what delay,loss         # what makes the gains go away
  shoal sim fabric compare --lab lab-results       # the lab's own workloads, real packets beside simulated ones
  shoal sim fabric replay list.flows --transport cc12`}
	f.bind(c, defaults)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.draft(defaults)
		if err != nil {
			return err
		}
		p, err := d.Plan()
		if err != nil {
			return err
		}
		r, err := f.report(cmd, p)
		if err != nil {
			return err
		}
		return f.write(cmd, r.Write, r)
	}
	c.AddCommand(simPaperCommand(), simBreakCommand(), simCompareCommand(), simReplayCommand())
	return c
}

// simPaperCommand is the paper's evaluation.
func simPaperCommand() *cobra.Command {
	var f simFlags
	defaults := study.NewDraft()
	defaults.Policies, defaults.QPS, defaults.Seeds = study.PaperPolicies(), study.PaperQPS(), 20
	c := &cobra.Command{Use: "paper", Short: "The ARK paper's table and figures, its own beside ours", Args: cobra.NoArgs,
		Long: `Runs the ARK paper's evaluation: 16 hosts, 2 leaves, 4 spines, 100 Gb/s; QPS 1 to 30, 1,000 requests a run, 20 seeds; the
paper's two policies, the product's others, baselines, and the bound. The paper's figures stand beside ours, with whether
they are within the range of single runs.

With --model packets, unless told otherwise: QPS 1, 25 and 30, 3 seeds, and --scale 10 (sizes and the control plane's times
divided by 10, arrivals ten times as fast); the fluid is run as well, and its error is printed.`,
		Example: `  shoal sim fabric paper --plots plots
  shoal sim fabric paper --model packets                                                     # hours
  shoal sim fabric paper --model packets --scale 1 --qps 25 --seeds 1 --policy ecmp,ark      # one pair of full size`}
	f.bind(c, defaults, "sweep", "file")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.draft(defaults)
		if err != nil {
			return err
		}
		d.Title = "The ARK paper's evaluation, as a fluid"
		if d.Scenario.Model == study.Packets {
			f.packets(&d)
			d.Title = fmt.Sprintf("The ARK paper's evaluation, packet by packet (%s, %d bytes), sizes / %d", d.Scenario.Transport, d.Scenario.Payload, d.Scenario.Control.Scale)
		}
		p, err := d.Plan()
		if err != nil {
			return err
		}
		r, err := f.report(cmd, p)
		if err != nil {
			return err
		}
		if d.Scenario.Model != study.Packets {
			return f.write(cmd, r.Write, r)
		}
		d.Scenario.Model, d.Title = study.Fluid, "The same as a fluid"
		if p, err = d.Plan(); err != nil {
			return err
		}
		fluid, err := f.report(cmd, p)
		if err != nil {
			return err
		}
		err = f.print(cmd, func(o *term.Output) {
			r.Write(o)
			o.Println()
			o.Println(o.Bold("The fluid beside the packets, on the same workloads"))
			o.Println()
			o.Table(study.ModelTable(r, fluid))
		}, r, fluid)
		if err != nil {
			return err
		}
		return f.draw(cmd, r)
	}
	return c
}

// packets sets what takes too long otherwise, unless the command line says it.
func (f *simFlags) packets(d *study.Draft) {
	if !f.given("qps") {
		d.QPS = []float64{1, 25, 30}
	}
	if !f.given("seeds") {
		d.Seeds = 3
	}
	if !f.given("scale") {
		d.Scenario.Control.Scale = 10
	}
}

// simBreakCommand looks for what makes the gains go away.
func simBreakCommand() *cobra.Command {
	var f simFlags
	var what []string
	defaults := study.NewDraft()
	defaults.Policies, defaults.Seeds = study.BreakPolicies(), 10
	var help []string
	for _, b := range study.Breaks() {
		help = append(help, fmt.Sprintf("  %-8s %s", b.Name, b.Help))
	}
	c := &cobra.Command{Use: "break", Short: "What makes the gains of path policies go away", Args: cobra.NoArgs,
		Long: `Makes the policies' life harder step by step, and reports their gains against ecmp under the same circumstances: one table
and one plot for each kind of trouble.

` + strings.Join(help, "\n") + `

Larger fabrics get the paper's load: n times its uplinks from the sending half, n times its rate. Of requests they get n times
as many up to 4, and beyond that they arrive for a shorter time.`,
		Example: "  shoal sim fabric break --plots plots\n  shoal sim fabric break --what delay,loss --policy ecmp,least,shoal --seeds 20"}
	c.Flags().StringSliceVar(&what, "what", study.BreakNames(), "kinds of trouble")
	f.bind(c, defaults, "sweep", "file")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.draft(defaults)
		if err != nil {
			return err
		}
		plans, err := d.BreakPlans(what)
		if err != nil {
			return err
		}
		var reports []*study.Report
		for _, p := range plans {
			r, err := f.report(cmd, p)
			if err != nil {
				return err
			}
			reports = append(reports, r)
		}
		return f.write(cmd, func(o *term.Output) {
			for _, r := range reports {
				r.WriteBreak(o)
				o.Println()
			}
			o.Println("A cut is against ecmp under the same circumstances, seed by seed, with its 95 % confidence interval (Student's t).")
			o.Println("Fallbacks and mispathed are of a mean run, in the order of the policies.")
		}, reports...)
	}
	return c
}

// simCompareCommand puts a lab's measurements beside the simulator.
func simCompareCommand() *cobra.Command {
	var f simFlags
	var from string
	defaults := study.NewDraft()
	defaults.Scenario = study.LabScenario()
	defaults.Policies = nil
	c := &cobra.Command{Use: "compare", Short: "A lab's measurements beside the simulator, on the same workloads", Args: cobra.NoArgs,
		Long: `Reads what shoal lab run has left in its --dir, plays the same workloads under the same policies in the simulator, and prints
both. Flows of ecmp, and those for which no path was reserved, take the paths that they took in the lab. The lab's shape and
settings are those that its results tell; of results from before they did, give the shape where it is not the default one.`,
		Example: "  shoal sim fabric compare --lab lab-results\n  shoal sim fabric compare --lab lab-results --policy ecmp,ark,shoal --model packets --output json"}
	c.Flags().StringVar(&from, "lab", "lab-results", "`directory` of the lab's results")
	// The workloads are the lab's, at its size, and what is compared is FCT.
	f.bind(c, defaults, "sweep", "file", "qps", "seeds", "requests", "load", "scale", "min-tokens", "max-tokens", "zipf", "token-bytes", "prefill", "decode-step", "plots")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.output == "csv" {
			return fmt.Errorf("sim: compare has --output table and json")
		}
		d, err := f.labDraft(from)
		if err != nil {
			return err
		}
		l, err := study.ReadLab(from, d.Scenario, d.Policies)
		if err != nil {
			return err
		}
		results, err := f.run(cmd, l.Plan)
		if err != nil {
			return err
		}
		both, err := l.Compare(results)
		if err != nil {
			return err
		}
		if f.output == "json" {
			return both.WriteJSON(cmd.OutOrStdout())
		}
		both.Write(term.New(cmd.OutOrStdout()))
		return nil
	}
	return c
}

// labDraft is the lab's own scenario with the settings of the command line, which may not contradict what the results say.
func (f *simFlags) labDraft(dir string) (study.Draft, error) {
	own := study.NewDraft()
	own.Policies = nil
	var said []string
	var err error
	if own.Scenario, said, err = study.OfLab(dir); err != nil {
		return own, err
	}
	d, err := f.draft(own)
	if err != nil {
		return d, err
	}
	for _, name := range said {
		field := study.FieldByName(name)
		if is, was := field.Get(&d.Scenario), field.Get(&own.Scenario); is != was {
			return d, fmt.Errorf("sim: --%s is %s, and the results in %s were measured with %s; leave it out", name, is, dir, was)
		}
	}
	return d, nil
}
