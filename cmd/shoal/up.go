package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"shoal/internal/up"
)

// upCommand is `shoal up`: a whole shoal on this machine, in the foreground.
func upCommand() *cobra.Command {
	cfg := up.Defaults()
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start agents and engines on this machine, until Ctrl-C",
		Long: `Start a shoal on this machine and stay in the foreground until Ctrl-C: agents, each with an engine beside it.

Without --engine and --emulated the engines are real llama.cpp servers with a small real model, installed into
--llama on first use (about 130 MB; later runs need no network). Agent a1 answers at --port, a2 at the next port, and
so on; the other ports are 1000 (peers), 2000 (gossip), 3000 (admin) and 4000 (engines) above those.`,
		Example: `  shoal up                                    3 real engines and 3 agents
  shoal up --engine http://127.0.0.1:8000 --engine http://127.0.0.1:8001
                                              your own engines, an agent each
  shoal up --emulated 4                       no download: emulated engines, which compute nothing`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("up: the path of this program, to start agents from: %w", err)
			}
			cfg.Exe = exe
			if cmd.Flags().Changed("agents") && cfg.Agents < 1 || cmd.Flags().Changed("emulated") && cfg.Emulated < 1 {
				return fmt.Errorf("up: --agents and --emulated are at least 1 where they are given")
			}
			u, err := up.New(cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupted(cmd.Context(), u.Kill)
			defer stop()
			return u.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Agents, "agents", 0, "agents to start; those beyond the engines only route (default one an engine, 3 with llama.cpp)")
	f.StringArrayVar(&cfg.Engines, "engine", nil, "`URL` of an engine of yours that runs already; give it once for each")
	f.IntVar(&cfg.Emulated, "emulated", 0, "how many agents get an emulated engine, which computes nothing")
	f.StringVar(&cfg.LlamaDir, "llama", cfg.LlamaDir, "`directory` where llama.cpp and its model are installed and kept")
	f.StringVar(&cfg.Policy, "policy", cfg.Policy, "routing policy: cost, longest-prefix, round-robin, random or local")
	f.IntVar(&cfg.Port, "port", cfg.Port, "API port of the first agent; 0 chooses one whose neighbours are free")
	f.StringVar(&cfg.RunDir, "run-dir", cfg.RunDir, "`directory` for logs and state files; removed again where it is ours")
	f.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "of the agents: debug, info, warn or error")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "show every line of every child here too, not only in its log file")
	f.StringArrayVar(&cfg.AgentArgs, "agent-arg", nil, "one more `argument` for every agent; give it once for each")
	f.DurationVar(&cfg.Drain, "drain", cfg.Drain, "how long requests in flight may take to end on Ctrl-C")
	f.DurationVar(&cfg.Ready, "ready-timeout", cfg.Ready, "how long to wait until all is ready; 0: for ever")
	return cmd
}

// untilInterrupted ends its context at the first of Ctrl-C, SIGTERM or SIGHUP, and calls hard at each further one.
func untilInterrupted(parent context.Context, hard func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case <-signals:
			case <-done:
				return
			}
			if first {
				cancel()
			} else {
				hard()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
