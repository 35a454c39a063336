package main

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"shoal/internal/emulate"
	"shoal/internal/engine"
)

func engineCommand() *cobra.Command {
	cfg := emulate.Defaults()
	listen, zero := "127.0.0.1:8000", false
	c := &cobra.Command{
		Use:   "engine",
		Short: "Run an emulated engine: it takes the time that an engine takes, and computes nothing",
		Long: `Runs an emulated engine on its own, with the OpenAI API: a block cache, continuous batching, a time for each uncached prompt
token and each decode step. It is for trying and measuring what stands in front of engines. It says that it is emulated in
its model list, its headers, its metrics and its answers.`,
		Example: `  shoal engine --listen 127.0.0.1:8000 --model tiny --prefill 500us
  shoal engine --zero                     # answers at once
  shoal agent --engine http://127.0.0.1:8000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if zero {
				cfg.Overhead, cfg.Prefill, cfg.Decode, cfg.DecodeEach = 0, 0, 0, 0
			}
			if err := cfg.Validate(); err != nil {
				return err
			}
			return runEngine(cmd.Context(), cfg, listen)
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", listen, "address; loopback only, since there is no authentication")
	f.BoolVar(&zero, "zero", false, "no delays at all")
	f.StringVar(&cfg.Model, "model", cfg.Model, "name of its model")
	f.IntVar(&cfg.Context, "context", cfg.Context, "tokens of prompt and answer together")
	f.IntVar(&cfg.Running, "running", cfg.Running, "sequences in one step")
	f.IntVar(&cfg.Waiting, "waiting", cfg.Waiting, "requests in its queue")
	f.IntVar(&cfg.StepTokens, "step-tokens", cfg.StepTokens, "tokens in one step")
	f.IntVar(&cfg.CacheTokens, "cache-tokens", cfg.CacheTokens, "tokens in its cache")
	f.IntVar(&cfg.BlockTokens, "block-tokens", cfg.BlockTokens, "tokens in a block of its cache")
	f.IntVar(&cfg.Output, "output", cfg.Output, "tokens of an answer whose request sets no limit")
	f.DurationVar(&cfg.Overhead, "overhead", cfg.Overhead, "time before a request is scheduled")
	f.DurationVar(&cfg.Prefill, "prefill", cfg.Prefill, "time of an uncached prompt token")
	f.DurationVar(&cfg.Decode, "decode", cfg.Decode, "time of a decode step")
	f.DurationVar(&cfg.DecodeEach, "decode-each", cfg.DecodeEach, "further time of a step for each sequence in it")
	return c
}

func runEngine(ctx context.Context, cfg emulate.Config, listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		l.Close()
		return fmt.Errorf("engine: %s is reachable beyond this machine, and an emulated engine has no authentication; use 127.0.0.1", listen)
	}
	s, err := engine.NewServer(cfg)
	if err != nil {
		l.Close()
		return err
	}
	fmt.Printf("emulated engine, model %s, at http://%s\n", cfg.Model, l.Addr())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return s.Close()
	}
}
