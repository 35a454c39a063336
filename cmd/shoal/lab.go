package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/fleet"
	"shoal/internal/lab"
	"shoal/internal/reserve"
	"shoal/internal/sim"
	"shoal/internal/term"
)

// labCommand is `shoal lab`: a real network on this machine, to see the path policies on.
func labCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "A leaf-spine network of network namespaces with kernel ECMP, and the path policies on it",
		Long: `Brings up a leaf-spine network (or a three-tier one) on this machine: every host and every switch is a Linux network
namespace, every cable is shaped, and the switches choose among equal paths by the kernel's own ECMP hash. An agent runs in
every host. run plays the workload of the ARK paper under one path policy after the other, with real packets.

Needs Linux and root. Nothing outside the lab's own namespaces is touched.`,
		Example: `  sudo shoal lab run --policy ecmp,ark,least --qps 25 --seeds 1 --requests 100     # up, play, report, down
  sudo shoal lab up                                # leave it up, with an agent in every host
  sudo ip netns exec shoal-lab-h0 shoal paths map h8 --admin /run/shoal/lab-shoal-lab/h0/admin.sock
  sudo shoal lab verify --packets 1000             # does the kernel choose as the model says?
  sudo shoal lab down`,
	}
	c.AddCommand(labUpCommand(), labRunCommand(), labVerifyCommand(), labReportCommand(), labDownCommand())
	return c
}

// labFlags are those that describe the fabric and its agents.
type labFlags struct {
	cfg   lab.Config
	fleet fleet.Config
}

func (l *labFlags) name(c *cobra.Command) {
	c.SilenceUsage, c.SilenceErrors = true, true
	l.cfg, l.fleet = lab.Defaults(), fleet.Defaults()
	f := c.Flags()
	f.StringVar(&l.cfg.Name, "name", l.cfg.Name, "`prefix` of its namespaces; two labs at once have two")
	f.StringVar(&l.cfg.RunDir, "run-dir", "", "directory for its state and logs (default /run/shoal/lab-NAME)")
}

func (l *labFlags) bind(c *cobra.Command) {
	l.name(c)
	f := c.Flags()
	f.IntVar(&l.cfg.Leaves, "leaves", l.cfg.Leaves, "leaf switches (of a pod)")
	f.IntVar(&l.cfg.Spines, "spines", l.cfg.Spines, "spine switches (of a pod)")
	f.IntVar(&l.cfg.HostsPerLeaf, "hosts", l.cfg.HostsPerLeaf, "hosts at each leaf")
	f.IntVar(&l.cfg.Pods, "pods", l.cfg.Pods, "2 and more: three tiers")
	f.IntVar(&l.cfg.Cores, "cores", l.cfg.Cores, "core switches, with two pods and more")
	f.Int64Var(&l.cfg.Rate, "rate", l.cfg.Rate, "of every link, in bit/s")
	f.Uint64Var(&l.cfg.Seed, "fabric-seed", l.cfg.Seed, "of the switches' hash seeds")
	f.BoolVar(&l.fleet.Described, "described", l.fleet.Described, "tell the agents the network and its hash seeds; false: they learn it by probes")
	f.StringVar(&l.fleet.Probe, "probe", l.fleet.Probe, "auto, on or off: do the agents probe (on with --described=false)")
	f.IntVar(&l.fleet.Chunk, "chunk", l.fleet.Chunk, "bytes of a transfer between two looks at its path")
	f.DurationVar(&l.fleet.Delay, "control-delay", 0, "hold the datagrams about reservations back for so long")
	f.DurationVar(&l.fleet.Lease, "lease", l.fleet.Lease, "of a reservation")
}

// up brings the lab up with its agents. down ends both.
func (l *labFlags) up(ctx context.Context, o *term.Output) (fabric *lab.Fabric, agents *fleet.Fleet, down func(), err error) {
	if !l.fleet.Described && l.fleet.Probe == "off" {
		l.fleet.Probe = "on"
	}
	say := func(s string) { o.Progress("lab: " + s) }
	start := time.Now()
	fabric, err = lab.Up(ctx, l.cfg, say)
	if err != nil {
		o.Progress("")
		return nil, nil, nil, err
	}
	down = func() {
		if agents != nil {
			agents.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also after Ctrl-C
		defer cancel()
		if err := fabric.Down(ctx, say); err != nil {
			o.Println("lab:", err)
		}
		o.Progress("")
	}
	if agents, err = fleet.Start(ctx, fabric, l.fleet, say); err != nil {
		down()
		return nil, nil, nil, err
	}
	o.Progress("")
	o.Printf("lab: %s is up after %.1f s: %d hosts with an agent each; its files are in %s\n", l.cfg.Name, time.Since(start).Seconds(), len(fabric.Hosts()), fabric.Dir())
	return fabric, agents, down, nil
}

func labUpCommand() *cobra.Command {
	var l labFlags
	c := &cobra.Command{Use: "up", Short: "Bring the network up, with an agent in every host, until Ctrl-C", Args: cobra.NoArgs,
		Example: "  sudo shoal lab up --spines 2 --hosts 2\n  sudo shoal lab up --pods 2 --leaves 2 --spines 2 --cores 4 --hosts 2 --described=false"}
	l.bind(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		o := term.New(cmd.ErrOrStderr())
		fabric, agents, down, err := l.up(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer down()
		for _, h := range fabric.Hosts() {
			o.Printf("  %-5s %s at %s; ip netns exec %s-%s sh; shoal paths table --admin %s\n", h.Name, h.Addr, h.Leaf, l.cfg.Name, h.Name, filepath.Join(fabric.Dir(), h.Name, "admin.sock"))
		}
		o.Println("lab: Ctrl-C, or `shoal lab down`, ends it")
		select {
		case <-cmd.Context().Done():
			return nil
		case name := <-agents.Ended():
			return fmt.Errorf("lab: the agent of %s has ended, so the lab does (`shoal lab down`, perhaps)", name)
		}
	}
	return c
}

func labRunCommand() *cobra.Command {
	var l labFlags
	w := sim.DefaultWorkload()
	var policies, rates, output, dir string
	var seeds int
	var scale int64
	var files []string
	var announce time.Duration
	c := &cobra.Command{Use: "run", Short: "Play the paper's workload under one policy after the other, and report", Args: cobra.NoArgs,
		Long: `Brings a lab up, plays the same workloads under every policy, interleaved, and reports flow completion times. What has been
measured is kept in --dir: a run that was interrupted goes on where it was.

The workload is that of the ARK paper: prompts of 1,000 to 51,200 tokens by Zipf 0.7, Poisson arrivals, hosts of the left
half to hosts of the right one. Links of 100 Mb/s and sizes divided by 1,000 leave the times as they are at 100 Gb/s.`,
		Example: `  sudo shoal lab run --policy ecmp,ark,least,split,shoal --qps 5,15,25,30 --seeds 5 --dir lab-results   # about 50 minutes
  sudo shoal lab run --policy ecmp,least --replay lab-results/qps25-seed1.flows`}
	l.bind(c)
	f := c.Flags()
	f.StringVar(&policies, "policy", "ecmp,ark,least", "policies to compare")
	f.StringVar(&rates, "qps", "25", "arrivals a second; several with commas")
	f.IntVar(&seeds, "seeds", 1, "workloads for each rate: seeds 1 to so many")
	f.IntVar(&w.Requests, "requests", w.Requests, "transfers of one workload")
	f.Int64Var(&scale, "scale", 0, "sizes are divided by this; 0: by as much as the links are slower than 100 Gb/s")
	f.DurationVar(&announce, "announce", lab.DefaultRun().Announce, "how long before its bytes are there a transfer is known to policy shoal: a prefill")
	f.StringArrayVar(&files, "replay", nil, "play this saved workload (repeatable) instead of making some")
	f.StringVar(&dir, "dir", "lab-results", "directory for results, workloads and plots")
	f.StringVar(&output, "output", "table", "table or json")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if output != "table" && output != "json" {
			return fmt.Errorf("lab: --output %q is neither table nor json", output)
		}
		names := strings.Split(policies, ",")
		for _, n := range names {
			var p reserve.Policy
			if err := p.UnmarshalText([]byte(n)); err != nil {
				return fmt.Errorf("lab: --policy: %w", err)
			}
		}
		workloads, err := labWorkloads(l.workload(w, scale), rates, seeds, files)
		if err != nil {
			return err
		}
		return l.run(cmd, names, workloads, announce, dir, output)
	}
	return c
}

// workload is w on the lab; scale divides its sizes, where it is not 0.
func (l *labFlags) workload(w sim.WorkloadConfig, scale int64) sim.WorkloadConfig {
	if w = l.cfg.Of(w); scale != 0 {
		w.Scale = scale
	}
	return w
}

// labWorkloads reads the saved workloads, or makes them.
func labWorkloads(w sim.WorkloadConfig, rates string, seeds int, files []string) ([]*sim.Workload, error) {
	var all []*sim.Workload
	for _, file := range files {
		x, err := sim.LoadWorkload(file)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	if len(files) > 0 {
		return all, nil
	}
	var qps []float64
	for _, s := range strings.Split(rates, ",") {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("lab: --qps: %q is no number", s)
		}
		qps = append(qps, v)
	}
	if seeds < 1 || seeds > 1000 {
		return nil, fmt.Errorf("lab: --seeds is %d; give 1 to 1000", seeds)
	}
	var list []uint64
	for i := range seeds {
		list = append(list, uint64(i+1))
	}
	return sim.GenerateAll(w, qps, list)
}

func (l *labFlags) run(cmd *cobra.Command, policies []string, workloads []*sim.Workload, announce time.Duration, dir, output string) error {
	o := term.New(cmd.ErrOrStderr())
	fabric, agents, down, err := l.up(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer down()
	r := lab.DefaultRun()
	r.Network, r.Sender, r.Policies, r.Workloads, r.Dir, r.Announce = fabric, agents.Sender(), policies, workloads, dir, announce
	r.Setup = l.cfg.Setup(l.fleet.Chunk, l.fleet.Delay)
	last := 0
	r.Progress = func(p lab.Progress) {
		o.Progress(fmt.Sprintf("lab: run %d of %d: %s under %s: %d of %d arrived, %d under way, %d failed, %.0f s", p.Run, p.Runs, p.Workload, p.Policy,
			p.Done, p.Flows, p.Sent-p.Done-p.Failed, p.Failed, p.Elapsed.Seconds()))
		if !o.Terminal() && p.Run != last {
			last = p.Run
			o.Printf("lab: run %d of %d: %s under %s\n", p.Run, p.Runs, p.Workload, p.Policy)
		}
	}
	err = lab.Run(cmd.Context(), r)
	o.Progress("")
	if err != nil && (errors.Is(err, context.Canceled) || !hasResults(dir)) {
		return err
	}
	return errors.Join(err, labReport(cmd, dir, output))
}

func hasResults(dir string) bool {
	results, err := lab.ReadResults(dir)
	return err == nil && len(results) > 0
}

// labReport prints what is in dir, and draws it.
func labReport(cmd *cobra.Command, dir, output string) error {
	results, err := lab.ReadResults(dir)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return fmt.Errorf("lab: no results in %s", dir)
	}
	report := lab.NewReport(results)
	if output == "json" {
		return report.WriteJSON(cmd.OutOrStdout())
	}
	o := term.New(cmd.OutOrStdout())
	report.Write(o)
	plots, err := lab.WritePlots(dir, results)
	for _, p := range plots {
		o.Println("plot:", p)
	}
	return err
}

func labReportCommand() *cobra.Command {
	var dir, output string
	c := &cobra.Command{Use: "report", Short: "Report again what `lab run` has measured", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Example: "  shoal lab report --dir lab-results --output json"}
	c.Flags().StringVar(&dir, "dir", "lab-results", "directory of the results")
	c.Flags().StringVar(&output, "output", "table", "table or json")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return labReport(cmd, dir, output) }
	return c
}

func labVerifyCommand() *cobra.Command {
	var l labFlags
	var packets int
	var seed uint64
	c := &cobra.Command{Use: "verify", Short: "Compare the kernel's choices with the model's, packet by packet", Args: cobra.NoArgs,
		Long:    "Brings up a network without agents, sends packets of random 5-tuples, and compares the links that each takes with those that\nthe model of the kernel's hash predicts.",
		Example: "  sudo shoal lab verify --packets 1000"}
	l.bind(c)
	c.Flags().IntVar(&packets, "packets", 1000, "5-tuples to try")
	c.Flags().Uint64Var(&seed, "seed", 1, "of the 5-tuples")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		o := term.New(cmd.ErrOrStderr())
		say := func(s string) { o.Progress("lab: " + s) }
		fabric, err := lab.Up(cmd.Context(), l.cfg, say)
		if err != nil {
			o.Progress("")
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			fabric.Down(ctx, say)
			o.Progress("")
		}()
		v, err := fabric.Verify(cmd.Context(), packets, seed)
		o.Progress("")
		if err != nil {
			return err
		}
		out := term.New(cmd.OutOrStdout())
		counted := "the links' counters agree"
		if !v.Counted {
			counted = "the links' counters do not agree"
		}
		out.Println(fmt.Sprintf("%d of %d 5-tuples took the links that the model predicts, %d were lost; %s", v.Right, v.Sent, v.Lost, counted))
		for _, m := range v.Mistakes {
			out.Println(fmt.Sprintf("  %s: predicted %s, seen %s", m.Tuple, strings.Join(m.Predicted, " "), strings.Join(m.Seen, " ")))
		}
		if !v.OK() {
			return fmt.Errorf("lab: %d of %d were not predicted", v.Sent-v.Right, v.Sent)
		}
		return nil
	}
	return c
}

func labDownCommand() *cobra.Command {
	var l labFlags
	c := &cobra.Command{Use: "down", Short: "Remove what a lab has made, also after a crash; nothing else", Args: cobra.NoArgs,
		Example: "  sudo shoal lab down"}
	l.name(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		o := term.New(cmd.ErrOrStderr())
		last := l.cfg.Name + " is down"
		err := lab.Down(cmd.Context(), l.cfg.Name, l.cfg.RunDir, func(s string) { last = s; o.Progress("lab: " + s) })
		o.Progress("")
		if err == nil {
			o.Println("lab:", last)
		}
		return err
	}
	return c
}
