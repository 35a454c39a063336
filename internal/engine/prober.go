package engine

import (
	"cmp"
	"context"
	"errors"
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
	slow   int           // probes in a row that took too long
	wait   time.Duration // until the next probe while the engine is down
}

// ProberConfig says how often to ask and whom to tell. Zero fields take the values in brackets.
type ProberConfig struct {
	// Interval between probes of an engine that is up [1 s]. Less than 1 s counts as 1 s: engines have been slowed down by
	// being asked more often.
	Interval time.Duration
	// Timeout of a probe [3 s]. Lower: a hung engine is noticed sooner. Higher: a busy one passes.
	Timeout time.Duration
	// Fall is how many probes in a row must take too long before an engine that was up counts as down [3]. A connection
	// that is refused or lost counts at once.
	Fall int
	// OnChange is told of the first status and of each change between up and down, OnReport of each successful probe. Both
	// are called from Run's goroutine, OnChange first, and hold up the next probe. Either may be nil.
	OnChange func(Status)
	OnReport func(Report)
}

const (
	// While the engine is down the wait between probes doubles from downFirst to downMost, so that an engine that comes
	// back is in service again within two seconds.
	downFirst = 250 * time.Millisecond
	downMost  = time.Second
	// kickGap is the least time between two probes however many requests fail.
	kickGap = 100 * time.Millisecond
)

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
	cfg.Interval = max(cfg.Interval, time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 3*time.Second)
	cfg.Fall = max(cmp.Or(cfg.Fall, 3), 1)
	p := &Prober{engine: e, cfg: cfg, kick: make(chan struct{}, 1)}
	p.status.Store(&Status{})
	return p
}

// Run probes at once and then until ctx ends. Call it once.
func (p *Prober) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.kick:
			s := p.Status()
			if !s.Up && !s.Checked.IsZero() {
				continue // it is being looked for already
			}
			if early := kickGap - time.Since(s.Checked); early > 0 {
				timer.Reset(early)
				continue
			}
		}
		p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		timer.Reset(p.next())
	}
}

// next is the wait after a probe.
func (p *Prober) next() time.Duration {
	if p.Status().Up {
		p.wait = 0
		return p.cfg.Interval
	}
	p.wait = min(max(2*p.wait, downFirst), downMost)
	return p.wait
}

func (p *Prober) probe(ctx context.Context) {
	pctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	report, err := p.engine.Probe(pctx)
	cancel()
	if ctx.Err() != nil {
		return
	}
	was := p.Status()
	s := &Status{Up: err == nil, Report: report, Err: err, Checked: time.Now(), Changed: was.Changed}
	if err != nil {
		s.Report = was.Report
		if p.slow++; !tooSlow(err) {
			p.slow = p.cfg.Fall
		}
		s.Up = was.Up && p.slow < p.cfg.Fall
	} else {
		p.slow = 0
	}
	changed := s.Up != was.Up || was.Checked.IsZero()
	if changed {
		s.Changed = s.Checked
	}
	p.status.Store(s)
	if changed && p.cfg.OnChange != nil {
		p.cfg.OnChange(*s)
	}
	if err == nil && p.cfg.OnReport != nil {
		p.cfg.OnReport(report)
	}
}

func tooSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrSilent)
}

// Failed says that a request failed as if the engine were dead (see Dead): it is probed at once. It never blocks; many
// calls in a row are one probe.
func (p *Prober) Failed(error) {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Status is the last known state, never nil. Its contents are not changed any more.
func (p *Prober) Status() *Status { return p.status.Load() }
