package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"shoal/internal/sim"
	"shoal/internal/sim/control"
)

// RunConfig is how a plan is run. None of it changes a result.
type RunConfig struct {
	// Dir keeps each run's result as soon as there is one. A run whose result is there is not made again. Empty: nothing
	// is kept.
	Dir string
	// Workers is how many runs are made at once; 0: as many as there are cores.
	Workers int
	// Progress is called about ten times a second, by one goroutine at a time; nil: not at all.
	Progress func(Progress)
	// simulate stands for the real models in tests.
	simulate func(p *Plan, at Point, tell tick) (*control.Result, error)
}

// Progress is how far a study has come.
type Progress struct {
	Points, Done int
	Kept         int    // of those that are done: from an earlier run
	Now          string // one that goes on
	Packets      int64  // data packets that were simulated
	Elapsed      time.Duration
	Left         time.Duration // about; 0: not known yet
}

// String is one line for people.
func (p Progress) String() string {
	s := fmt.Sprintf("run %d of %d", min(p.Done+1, p.Points), p.Points)
	if p.Kept > 0 {
		s += fmt.Sprintf(" (%d were there)", p.Kept)
	}
	if p.Now != "" {
		s += ": " + p.Now
	}
	if p.Packets > 0 && p.Elapsed > 0 {
		s += fmt.Sprintf("; %.2f million packets/s", float64(p.Packets)/p.Elapsed.Seconds()/1e6)
	}
	s += fmt.Sprintf("; %v", p.Elapsed.Round(time.Second))
	if p.Left > 0 {
		s += fmt.Sprintf(", about %v left", p.Left.Round(time.Second))
	}
	return s
}

// shownEvery is the time between two calls of RunConfig.Progress.
const shownEvery = 100 * time.Millisecond

// Run makes all runs of a plan that are not kept in Dir, and returns the results in the order of Plan.Points: nil where a
// run was not made. The error says why some are missing; where ctx has ended it is ctx's, and what is done is returned.
func Run(ctx context.Context, p *Plan, c RunConfig) ([]*Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("study: results: %w", err)
		}
	}
	if c.simulate == nil {
		c.simulate = simulate
	}
	points := p.Points()
	results := make([]*Result, len(points))
	m := newMeter(p, points, c.Progress)
	for i, at := range points { // the kept ones first: they say nothing about the time that is left
		r, err := p.kept(c.Dir, at)
		if err != nil {
			return nil, err
		}
		if r != nil {
			results[i] = r
			m.keep(i)
		}
	}
	err := sim.Each(ctx, len(points), c.Workers, func(ctx context.Context, i int) error {
		if results[i] != nil {
			return nil
		}
		r, err := one(ctx, p, points[i], &c, func(part float64, packets int64) { m.at(i, part, packets) })
		if err != nil {
			return err
		}
		results[i] = r
		m.done(i, r.End.Packets)
		return nil
	})
	return results, err
}

// one makes one run.
func one(ctx context.Context, p *Plan, at Point, c *RunConfig, tell func(float64, int64)) (*Result, error) {
	start := time.Now()
	defer func() { // a broken invariant: whose, and the stack follows
		if v := recover(); v != nil {
			panic(fmt.Sprintf("study: %s: %v", p.title(at), v))
		}
	}()
	res, err := c.simulate(p, at, func(part float64, packets int64) bool {
		tell(part, packets)
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("study: %s: %w", p.title(at), err)
	}
	v := &p.Variants[at.Variant]
	r := newResult(Header{Format: resultFormat, Key: p.key(at), Program: p.Program, Variant: v.Name, Workload: p.name(at), QPS: at.QPS, Seed: at.Seed,
		Policy: at.Policy, Model: v.Scenario.Model}, res, time.Since(start))
	if len(r.FCT) == 0 {
		return nil, fmt.Errorf("study: %s: %w", p.title(at), errors.New("a run without transfers"))
	}
	if c.Dir != "" {
		if err := r.save(p.fileOf(c.Dir, at)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// meter is a study's progress.
type meter struct {
	mu     sync.Mutex
	plan   *Plan
	points []Point
	tell   func(Progress)
	start  time.Time
	shown  time.Time
	part   []float64 // of each point, from 0 to 1
	packet []int64   // of each point
	kept   []bool
	p      Progress
}

func newMeter(p *Plan, points []Point, tell func(Progress)) *meter {
	return &meter{plan: p, points: points, tell: tell, start: time.Now(), part: make([]float64, len(points)), packet: make([]int64, len(points)), kept: make([]bool, len(points)), p: Progress{Points: len(points)}}
}

func (m *meter) keep(i int) {
	m.kept[i] = true
	m.p.Kept++
	m.p.Done++
}

func (m *meter) at(i int, part float64, packets int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.part[i] = part
	m.p.Packets += packets - m.packet[i]
	m.packet[i] = packets
	if time.Since(m.shown) >= shownEvery {
		m.show(i)
	}
}

func (m *meter) done(i int, packets int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.part[i] = 1
	m.p.Done++
	m.p.Packets += packets - m.packet[i]
	m.packet[i] = packets
	if m.p.Done == m.p.Points || time.Since(m.shown) >= shownEvery {
		m.show(i)
	}
}

func (m *meter) show(i int) {
	if m.tell == nil {
		return
	}
	m.shown = time.Now()
	m.p.Elapsed = m.shown.Sub(m.start)
	var done, all float64
	for k, at := range m.points {
		if !m.kept[k] {
			w := m.plan.weight(at)
			all += w
			done += w * m.part[k]
		}
	}
	m.p.Left = 0
	if done > 0.01*all && m.p.Elapsed > time.Second {
		m.p.Left = time.Duration(float64(m.p.Elapsed) * (all - done) / done)
	}
	m.p.Now = fmt.Sprintf("%s, %.0f %%", m.plan.title(m.points[i]), 100*m.part[i])
	m.tell(m.p)
}
