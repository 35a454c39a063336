package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shoal/internal/ecmp"
)

// MaxTargets is how many targets one Watcher keeps.
const MaxTargets = 4096

// ErrTooMany says that a Watcher has MaxTargets.
var ErrTooMany = errors.New("probe: too many targets")

// WatchConfig is how a Watcher watches.
type WatchConfig struct {
	// Options of every target; Models is what Want is given.
	Options Options
	// Sample is how many ports of a map are asked for in a round (8). More notices sooner that a few of many paths have
	// changed.
	Sample int
	// Interval is between two rounds of a target (10 s). A round of 8 ports in a two-tier fabric is 17 probes: with the
	// Prober's 500 a second, more than 290 targets make the rounds longer.
	Interval time.Duration
	// Doubt is the time until a round that follows on a single contradiction (1 s).
	Doubt time.Duration
	// Retry and MaxRetry bound how long a target is left aside before it is learned again (1 and 15 min).
	Retry, MaxRetry time.Duration
	// Event is told what happens, one call at a time; it must not wait, nor call the Watcher. Nil: nobody is.
	Event func(Event)
}

func (c WatchConfig) withDefaults() WatchConfig {
	set := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Interval, 10*time.Second)
	set(&c.Doubt, time.Second)
	set(&c.Retry, time.Minute)
	set(&c.MaxRetry, 15*time.Minute)
	if c.Sample == 0 {
		c.Sample = 8
	}
	return c
}

// Validate names the field that is out of its bounds.
func (c WatchConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Sample < 2 || c.Sample > MaxSample:
		return fmt.Errorf("probe: Sample is %d; it must be from 2 to %d", c.Sample, MaxSample)
	case c.Interval <= 0 || c.Doubt <= 0 || c.Retry <= 0:
		return errors.New("probe: Interval, Doubt and Retry must be positive")
	case c.MaxRetry < c.Retry:
		return fmt.Errorf("probe: MaxRetry is %s, less than Retry, %s", c.MaxRetry, c.Retry)
	}
	return c.Options.Validate()
}

// EventKind is what has happened.
type EventKind uint8

const (
	Learned      EventKind = iota + 1 // a target has its first map
	Relearned                         // a target has a map again
	Verified                          // a sample agreed with the map
	Mismatch                          // answers contradict the map; it is used no more
	SteppedAside                      // there is no map: transfers use plain ECMP; Err says why
	Blind                             // nobody answers any more; the map is used on
)

func (k EventKind) String() string {
	if k < Learned || k > Blind {
		return "unknown"
	}
	return [...]string{"learned", "relearned", "verified", "mismatch", "stepped aside", "blind"}[k-1]
}

// Event is one thing that has happened to a target.
type Event struct {
	Kind   EventKind
	Target Target
	Map    *Map    // Learned, Relearned: the new one; Mismatch: the one that was wrong
	Wrong  []Wrong // Mismatch
	Err    error   // SteppedAside; Mismatch where the target is left aside because of it
}

func (e Event) String() string {
	s := fmt.Sprintf("%s: %s", e.Target, e.Kind)
	switch {
	case e.Kind == Mismatch && len(e.Wrong) > 0:
		w := e.Wrong[0]
		for h, seen := range w.Seen {
			if seen.IsValid() && seen != w.Expected[h] {
				s += fmt.Sprintf(": port %d goes by %s at hop %d, not by %s", w.Port, seen, h+1, w.Expected[h])
				break
			}
		}
	case e.Map != nil && e.Kind != Mismatch:
		s += fmt.Sprintf(": %d paths, %s with %d probes", len(e.Map.Paths), e.Map.How, e.Map.Probes)
		if e.Map.Refuted > 0 && e.Map.How != Modelled {
			s += "; the configured model is wrong"
		}
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Watcher keeps the maps of many targets true: it learns them, verifies a sample of each again and again, and learns anew
// what has changed (trust.go has the rules). While Run runs, its other methods may be called concurrently.
type Watcher struct {
	p    *Prober
	c    WatchConfig
	wake chan struct{} // holds one call to look at the targets again

	mu      sync.Mutex
	targets map[Target]*watched
	busy    int
	telling sync.Mutex // one event at a time
}

// watched is one target.
type watched struct {
	t      Target
	models []*ecmp.Route
	trust  trust
	m      *Map // nil: none that may be used
	turn   int  // of samples
	due    time.Duration
	busy   bool
	cancel context.CancelFunc // of the work that is being done
	gone   bool
}

// NewWatcher prepares a Watcher; Run makes it work.
func NewWatcher(p *Prober, c WatchConfig) (*Watcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Watcher{p: p, c: c.withDefaults(), wake: make(chan struct{}, 1), targets: map[Target]*watched{}}, nil
}

// Want has a target learned and watched from now on. Models are routes to it in configured fabrics, which are checked
// before they are trusted. Wanting it again changes nothing, unless the models are others: then it starts anew.
func (w *Watcher) Want(t Target, models ...*ecmp.Route) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if o := (Options{Models: models}); o.Validate() != nil {
		return o.Validate()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.targets[t]; e != nil {
		if slices.Equal(e.models, models) {
			return nil
		}
		w.remove(e)
	}
	if len(w.targets) == MaxTargets {
		return fmt.Errorf("%w: %s would be one more than %d", ErrTooMany, t, MaxTargets)
	}
	w.targets[t] = &watched{t: t, models: slices.Clone(models), due: w.p.now()}
	w.look()
	return nil
}

// Drop forgets a target.
func (w *Watcher) Drop(t Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.targets[t]; e != nil {
		w.remove(e)
	}
}

func (w *Watcher) remove(e *watched) {
	e.gone = true
	if e.cancel != nil {
		e.cancel()
	}
	delete(w.targets, e.t)
}

// look makes Run look at the targets again.
func (w *Watcher) look() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Map is the target's map now; nil: step aside, and use plain ECMP.
func (w *Watcher) Map(t Target) *Map {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.targets[t]; e != nil {
		return e.m
	}
	return nil
}

// Status is how a target stands.
type Status struct {
	Target Target
	State  State
	Map    *Map  // nil: none that may be used
	Err    error // why it is Aside
}

// Status are all targets, sorted by address.
func (w *Watcher) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Status, 0, len(w.targets))
	for _, e := range w.targets {
		s := Status{Target: e.t, State: e.trust.state, Map: e.m}
		if s.State == Aside {
			s.Err = e.trust.reason
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Target.compare(b.Target) })
	return out
}

// Relearn has a target learned again at once, whatever is known of it.
func (w *Watcher) Relearn(t Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.targets[t]; e != nil && !e.busy {
		e.m, e.trust.state, e.due = nil, Learning, w.p.now()
		w.look()
	}
}

// Run watches until ctx ends or the Prober is closed; nothing of it runs any more when it returns.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(w.begin(ctx, &work))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.p.ended:
			return w.p.failure()
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// begin starts what is due, MaxConcurrent at once, and says how long there is nothing to do then.
func (w *Watcher) begin(ctx context.Context, work *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy < MaxConcurrent {
		var e *watched
		for _, o := range w.targets {
			if !o.busy && (e == nil || o.due < e.due || o.due == e.due && o.t.compare(e.t) < 0) {
				e = o
			}
		}
		if e == nil {
			return time.Hour
		}
		if wait := e.due - w.p.now(); wait > 0 {
			return wait
		}
		var own context.Context
		own, e.cancel = context.WithCancel(ctx)
		e.busy = true
		w.busy++
		work.Go(func() { w.work(own, e) })
	}
	return time.Hour // until somebody has finished
}

// work verifies or learns a target once.
func (w *Watcher) work(ctx context.Context, e *watched) {
	w.mu.Lock()
	m, o, turn := e.m, w.c.Options, e.turn
	o.Models = e.models
	w.mu.Unlock()
	event := Event{Target: e.t, Map: m}
	var err error
	var v Verdict
	learn := m == nil
	if learn {
		event.Map, err = w.p.Learn(ctx, e.t, o)
	} else {
		v, err = w.p.Verify(ctx, m, m.Sample(turn, w.c.Sample))
	}

	w.mu.Lock()
	cut := err != nil && (ctx.Err() != nil || w.p.failure() != nil)
	now := w.p.now()
	var s step
	switch {
	case e.gone || cut:
		s.after = w.c.Retry
	case learn:
		s = e.trust.learned(err, &w.c)
		e.m, event.Err = event.Map, err
	case err != nil: // nothing could be sent, which says nothing of the map
		s.after = w.c.Interval
	default:
		e.turn++
		s = e.trust.verified(now, &v, &w.c)
		event.Wrong = v.Wrong
		if s.event == Mismatch {
			e.m = nil
			if e.trust.state == Aside {
				event.Err = e.trust.reason
			}
		}
	}
	e.due = now + s.after
	event.Kind = s.event
	w.mu.Unlock()
	w.tell(event) // before anything else can happen to the target

	w.mu.Lock()
	e.cancel()
	e.busy, e.cancel = false, nil
	w.busy--
	w.mu.Unlock()
	w.look()
}

func (w *Watcher) tell(e Event) {
	if e.Kind == 0 || w.c.Event == nil {
		return
	}
	w.telling.Lock()
	defer w.telling.Unlock()
	w.c.Event(e)
}
