package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// Prober watches one engine: it probes it gently, tells when it goes down or comes back, and hands out its reports. Make
// it with NewProber and give it a goroutine with Run.
type Prober struct {
	engine Engine
	cfg    ProberConfig
	kick   chan struct{}
	status atomic.Pointer[Status]
}

// ProberConfig says how often to ask and whom to tell. Zero fields take the values in brackets.
type ProberConfig struct {
	// Interval between probes [1 s]. It is never below 1 s while the engine is up: more has made engines unresponsive.
	Interval time.Duration
	// Timeout of a probe [3 s].
	Timeout time.Duration
	// Fall is how many probes in a row must time out before a slow engine counts as down [3]. A refused connection
	// counts at once.
	Fall int
	// OnReport is told of each successful probe, OnChange of each change between up and down, the first status included.
	// Both are called from Run's goroutine, OnChange first, and hold up the next probe.
	OnReport func(Report)
	OnChange func(Status)
}

// Status is what the prober knows. The zero value: nothing yet.
type Status struct {
	Up      bool
	Report  Report    // of the last successful probe
	Err     error     // of the last probe, where it failed
	Checked time.Time // when it ended
	Changed time.Time // since when it is up or down
}

// NewProber makes a prober that is not running yet.
func NewProber(e Engine, cfg ProberConfig) *Prober {
	return &Prober{engine: e, cfg: cfg, kick: make(chan struct{}, 1)}
}

// Run probes until ctx ends. Call it once.
func (p *Prober) Run(ctx context.Context) { <-ctx.Done() }

// Failed says that a request failed as if the engine were dead: it is probed at once. Never blocks; many calls in a row
// are one probe.
func (p *Prober) Failed(error) {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Status is the last known state, never nil.
func (p *Prober) Status() *Status {
	if s := p.status.Load(); s != nil {
		return s
	}
	return &Status{}
}
