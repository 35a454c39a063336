// Package demo shows what routing by prefix is worth: the same workload over the same engines under one policy after the
// other, each time with fresh engines and agents, and one table at the end.
//
// It measures nothing itself: up starts the shoal, load sends the requests and counts. Its main function is Run. Invariant:
// whatever a set-up starts has ended before the next one begins, so that no policy inherits another's cache.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"shoal/internal/load"
	"shoal/internal/term"
	"shoal/internal/up"
)

// Config is one demonstration. Start from Defaults.
type Config struct {
	Up       up.Config // Policy and OnReady are set for each set-up
	Policies []string
	Workload load.FewShotConfig
	Requests int
	// Clients is how many wait for their answers at once. More load queues; one shows the engine alone.
	Clients   int
	MaxTokens int
	Seed      uint64
}

// Defaults is three real engines and a few-shot workload that takes them about two minutes a policy on two cores. The
// common system prompt is a first block that all requests share: routing by the longest prefix alone then sends
// everything to one peer.
func Defaults() Config {
	w := load.DefaultFewShot()
	w.Subjects, w.PrefixTokens, w.SystemTokens, w.QuestionMin, w.QuestionMax = 6, 400, 100, 20, 60
	return Config{Up: up.Defaults(), Policies: []string{"round-robin", "longest-prefix", "cost"}, Workload: w,
		Requests: 150, Clients: 2, MaxTokens: 8, Seed: 1}
}

// Run runs every policy and returns their reports in order. Progress goes to note.
func Run(ctx context.Context, cfg Config, note *term.Output) ([]*load.Report, error) {
	w, err := load.NewFewShot(cfg.Workload)
	if err != nil {
		return nil, err
	}
	var reports []*load.Report
	for i, policy := range cfg.Policies {
		note.Printf("demo: %d of %d: %s, with fresh engines", i+1, len(cfg.Policies), policy)
		r, err := one(ctx, cfg, policy, w, note)
		if err != nil {
			return reports, fmt.Errorf("demo: %s: %w", policy, err)
		}
		if ctx.Err() != nil {
			return reports, nil
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// one runs the workload under one policy.
func one(ctx context.Context, cfg Config, policy string, w load.Workload, note *term.Output) (*load.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan []string, 1)
	uc := cfg.Up
	uc.Policy, uc.Port = policy, 0
	uc.OnReady = func(urls []string) { ready <- urls }
	u, err := up.New(uc, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	var urls []string
	select {
	case urls = <-ready:
	case err := <-ended:
		if err == nil {
			err = errors.New("the shoal ended before it was ready")
		}
		return nil, err
	}
	lc := load.DefaultConfig()
	lc.Name, lc.Targets, lc.Workload = policy, urls, w
	lc.Requests, lc.Clients, lc.MaxTokens, lc.Seed = cfg.Requests, cfg.Clients, cfg.MaxTokens, cfg.Seed
	lc.Duration = 10 * time.Minute
	lc.Progress = func(s load.Snapshot) {
		note.Progress(fmt.Sprintf("%s: %d of %d requests, %d failed", policy, s.OK+s.Failed, s.Planned, s.Failed))
	}
	// One request goes ahead, as in any service that has run for a minute: then one peer holds what all prompts share.
	first := lc
	first.Requests, first.Clients, first.Progress = 1, 1, nil
	if _, err := load.Run(ctx, first); err != nil {
		cancel()
		return nil, errors.Join(err, <-ended)
	}
	r, err := load.Run(ctx, lc)
	note.Progress("")
	cancel()
	return r, errors.Join(err, <-ended)
}
