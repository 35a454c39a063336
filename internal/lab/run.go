package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/reserve"
	"shoal/internal/sim"
)

// Sender carries flows: the agents of the fabric, or Plain.
type Sender interface {
	// Reset prepares a run under this policy: nothing of an earlier run holds a path or counts any more.
	Reset(ctx context.Context, policy string) error
	// Send moves a flow and returns when the receiver has confirmed its last byte. It is called from many goroutines at once.
	// Whenever the flow takes other paths, Send calls at with all that it has then, as indexes among those of its pair; never
	// after it has returned. Not to call it costs the count of flows a spine, and nothing else.
	Send(ctx context.Context, policy string, f sim.Flow, at func(paths ...int)) (Sent, error)
	// Counts are what happened since Reset, over all hosts. It is called when all flows have ended.
	Counts(ctx context.Context) (Counts, error)
}

// Announcer is a Sender that can be told of a flow before its bytes are there, as a prefill tells of its KV cache.
type Announcer interface {
	Sender
	// SendAt is Send of a flow whose bytes are there at ready.
	SendAt(ctx context.Context, policy string, f sim.Flow, ready time.Time, at func(paths ...int)) (Sent, error)
}

// Sent is how a flow went. The zero value tells nothing.
type Sent struct {
	Port     uint16 // its (first) source port; 0 unknown
	Fallback bool   // no path was reserved for it
	Moves    int    // to another path, after a conflict was lost or for any other reason
}

// Counts are a policy's own counts of a run.
type Counts struct {
	Conflicts int64 `json:"conflicts"` // reservations that lost to another one
	Fallbacks int64 `json:"fallbacks"` // flows that went without a reservation
	Moves     int64 `json:"moves"`     // of flows to other paths
}

// Network is what a run looks at: a *Fabric.
type Network interface {
	Describe() ecmp.Config
	SwitchCounters() ([]Count, error)
}

// RunConfig is a comparison: every policy on every workload. Start from DefaultRun.
type RunConfig struct {
	Network   Network
	Sender    Sender
	Policies  []string
	Workloads []*sim.Workload
	// Dir is where every run leaves a file, and every workload. A run whose file is there is not run again, so that what
	// was interrupted goes on; what was made from another workload, fabric, announcement or setup is an error.
	Dir string
	// Limit is how long a run may take after its last arrival. Flows that are under way then have failed.
	Limit time.Duration
	// Sample is the time between two looks at the counters. Fewer show shorter bursts, and take time from the packets.
	Sample time.Duration
	// Announce is how long before its arrival a flow is told to an Announcer, under policy shoal; 0: it is not. The others make
	// nothing of it.
	Announce time.Duration
	// Setup goes into the results, for those who read them; nil: nothing.
	Setup *Setup
	// Progress is called about ten times a second, by one goroutine; nil: not at all.
	Progress func(Progress)
}

// Progress is how far a comparison has come.
type Progress struct {
	Run, Runs int // this one, from 1, and all
	Workload  string
	Policy    string
	Sent      int // flows that have begun
	Done      int // flows that have arrived
	Failed    int
	Flows     int
	Elapsed   time.Duration // of this run
	Kept      bool          // this run's result was there already
}

// String is one line for people.
func (p Progress) String() string {
	run := fmt.Sprintf("run %d of %d: %s under %s", p.Run, p.Runs, p.Workload, p.Policy)
	if p.Kept {
		return run + ": there already"
	}
	line := fmt.Sprintf("%s  %.1f s  %d of %d flows arrived, %d under way", run, p.Elapsed.Seconds(), p.Done, p.Flows, p.Sent-p.Done-p.Failed)
	if p.Failed > 0 {
		line += fmt.Sprintf(", %d failed", p.Failed)
	}
	return line
}

// Limits of a comparison.
const (
	MaxPolicies  = 16
	MaxWorkloads = 1000
	MinSample    = 10 * time.Millisecond
	MaxAnnounce  = 10 * time.Second
)

// DefaultRun leaves open what has no default: network, sender, policies, workloads and directory.
func DefaultRun() RunConfig {
	return RunConfig{Limit: 5 * time.Minute, Sample: 100 * time.Millisecond, Announce: 840 * time.Millisecond}
}

// Validate reports the first field that is out of its range.
func (c *RunConfig) Validate() error {
	switch {
	case c.Network == nil || c.Sender == nil:
		return errors.New("lab: run: without a network or a sender")
	case len(c.Policies) == 0 || len(c.Policies) > MaxPolicies:
		return fmt.Errorf("lab: run: %d policies; give 1 to %d", len(c.Policies), MaxPolicies)
	case len(c.Workloads) == 0 || len(c.Workloads) > MaxWorkloads:
		return fmt.Errorf("lab: run: %d workloads; give 1 to %d", len(c.Workloads), MaxWorkloads)
	case c.Dir == "":
		return errors.New("lab: run: no directory for the results")
	case c.Limit < time.Second || c.Limit > 24*time.Hour:
		return fmt.Errorf("lab: run: a time limit of %v; give 1s to 24h", c.Limit)
	case c.Sample < MinSample || c.Sample > time.Minute:
		return fmt.Errorf("lab: run: samples every %v; give %v to 1m", c.Sample, MinSample)
	case c.Announce < 0 || c.Announce > MaxAnnounce:
		return fmt.Errorf("lab: run: flows are announced %v ahead; give 0 to %v", c.Announce, MaxAnnounce)
	}
	names := map[string]bool{}
	for _, w := range c.Workloads {
		if !validFile(w.Name) || names[w.Name] {
			return fmt.Errorf("lab: run: the workload name %q is used twice, or is no name of at most 64 of a-z, A-Z, 0-9, '.', '-' and '_'", w.Name)
		}
		names[w.Name] = true
		if err := w.Fits(len(c.Network.Describe().Hosts)); err != nil {
			return err
		}
	}
	for i, p := range c.Policies {
		if !validFile(p) || slices.Contains(c.Policies[:i], p) {
			return fmt.Errorf("lab: run: the policy %q is given twice, or is no name", p)
		}
	}
	return nil
}

func validFile(s string) bool {
	return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`).MatchString(s)
}

// Run plays every workload under every policy: a workload's runs one after the other, and the policies in another order
// from workload to workload, so that whatever drifts on the machine hits all of them. The results are files; see ReadResults.
// Flows that fail are in the results, and an error at the end; where half of a run's flows fail, Run stops.
func Run(ctx context.Context, c RunConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("lab: run: %w", err)
	}
	ways, err := newWays(c.Network.Describe(), c.Workloads)
	if err != nil {
		return err
	}
	var failures []error
	for i, w := range c.Workloads {
		if err := w.Save(filepath.Join(c.Dir, w.Name+".flows")); err != nil {
			return err
		}
		for j := range c.Policies {
			r := &run{cfg: &c, ways: ways, w: w, policy: c.Policies[(i+j)%len(c.Policies)],
				progress: Progress{Run: i*len(c.Policies) + j + 1, Runs: len(c.Workloads) * len(c.Policies)}}
			failed, err := r.do(ctx)
			if err != nil {
				return err
			}
			if failed > 0 {
				err := fmt.Errorf("lab: %s under %s: %d of %d flows failed; the first: %w", w.Name, r.policy, failed, len(w.Flows), r.firstErr)
				if 2*failed >= len(w.Flows) {
					return errors.Join(append(failures, err)...)
				}
				failures = append(failures, err)
			}
		}
	}
	return errors.Join(failures...)
}

// run is one policy on one workload.
type run struct {
	cfg    *RunConfig
	ways   *ways
	w      *sim.Workload
	policy string
	out    *recorder
	start  time.Time
	// announcer hears of flows so long before their bytes are there; nil: nobody does.
	announcer Announcer
	lead      time.Duration

	mu       sync.Mutex
	progress Progress
	firstErr error
	late     time.Duration // of the worst start
	active   map[int][]int // by flow: its paths, as far as they are known
}

// do is the whole of a run; failed counts its flows that did not arrive.
func (r *run) do(ctx context.Context) (failed int, err error) {
	r.progress.Workload, r.progress.Policy, r.progress.Flows = r.w.Name, r.policy, len(r.w.Flows)
	if a, ok := r.cfg.Sender.(Announcer); ok && r.policy == reserve.Shoal.String() && r.cfg.Announce > 0 {
		r.lead, r.announcer = r.cfg.Announce, a
	}
	h := r.header()
	path := filepath.Join(r.cfg.Dir, fileName(r.w.Name, r.policy))
	switch kept, err := readHeader(path); {
	case err == nil && kept.differs(h) != "":
		return 0, fmt.Errorf("lab: run: %s comes from %s; give another directory for the results, or remove it", path, kept.differs(h))
	case err == nil:
		r.progress.Kept = true
		r.report()
		return 0, nil
	case !errors.Is(err, os.ErrNotExist):
		return 0, err
	}
	if err := r.cfg.Sender.Reset(ctx, r.policy); err != nil {
		return 0, fmt.Errorf("lab: run: preparing %s: %w", r.policy, err)
	}
	if r.out, err = newRecorder(path); err != nil {
		return 0, err
	}
	defer r.out.abandon()
	h.Started = time.Now().UTC()
	r.out.put(line{Run: h})
	if err := r.play(ctx); err != nil {
		return 0, err
	}
	return r.progress.Failed, r.out.finish()
}

// play sends the flows, and samples meanwhile.
func (r *run) play(ctx context.Context) error {
	last := r.w.Flows[len(r.w.Flows)-1].At
	limited, cancel := context.WithTimeoutCause(ctx, r.lead+last+r.cfg.Limit, fmt.Errorf("not done within the time limit, %v after the last arrival", r.cfg.Limit))
	defer cancel()
	limited, stop := context.WithCancelCause(limited)
	defer stop(nil)
	r.active = map[int][]int{}
	first, err := r.cfg.Network.SwitchCounters()
	if err != nil {
		return err
	}
	r.start = time.Now().Add(r.lead)
	sampled := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		err := r.sample(first, over)
		if err != nil {
			stop(err) // without counters the run is for nothing
		}
		sampled <- err
	}()
	var flows sync.WaitGroup
	for _, f := range r.w.Flows {
		if pause(limited, time.Until(r.start.Add(f.At-r.lead))) != nil {
			break
		}
		flows.Go(func() { r.send(limited, f) })
	}
	flows.Wait()
	elapsed := time.Since(r.start)
	close(over)
	if err := <-sampled; err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lab: run: %w", err)
	}
	counts, err := r.cfg.Sender.Counts(ctx)
	if err != nil {
		return fmt.Errorf("lab: run: counts of %s: %w", r.policy, err)
	}
	after, err := r.cfg.Network.SwitchCounters()
	if err != nil {
		return err
	}
	r.out.put(line{End: &End{Seconds: elapsed.Seconds(), Failed: r.progress.Failed, LateMs: r.late.Milliseconds(), Counts: counts, Links: difference(first, after)}})
	return nil
}

// send carries one flow. Its time runs from its arrival in the workload, so that whatever delays its start counts.
func (r *run) send(ctx context.Context, f sim.Flow) {
	due := r.start.Add(f.At)
	r.mu.Lock()
	r.progress.Sent++
	r.late = max(r.late, time.Since(due.Add(-r.lead)))
	r.active[f.ID] = nil
	r.mu.Unlock()
	at := func(paths ...int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.active[f.ID] = slices.Clone(paths)
	}
	var sent Sent
	var err error
	if r.announcer != nil {
		sent, err = r.announcer.SendAt(ctx, r.policy, f, due, at)
	} else {
		sent, err = r.cfg.Sender.Send(ctx, r.policy, f, at)
	}
	fct := time.Since(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &FlowResult{ID: f.ID, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, AtUs: f.At.Microseconds(), FCTUs: fct.Microseconds(),
		Port: sent.Port, Paths: r.active[f.ID], Fallback: sent.Fallback, Moves: sent.Moves}
	delete(r.active, f.ID)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		l.Error = err.Error()
		r.progress.Failed++
		if r.firstErr == nil {
			r.firstErr = fmt.Errorf("flow %d, host %d to host %d: %w", f.ID, f.Src, f.Dst, err)
		}
	} else {
		r.progress.Done++
	}
	r.out.put(line{Flow: l})
}

// sample looks at counters and flows until over is closed, and once more then.
func (r *run) sample(before []Count, over <-chan struct{}) error {
	ticks := time.NewTicker(r.cfg.Sample)
	defer ticks.Stop()
	shown := time.Time{}
	for ended := false; !ended; {
		select {
		case <-ticks.C:
		case <-over:
			ended = true
		}
		now, err := r.cfg.Network.SwitchCounters()
		if err != nil {
			return err
		}
		s := &Sample{AtMs: time.Since(r.start).Milliseconds(), Bytes: r.ways.uplinkBytes(before, now), Flows: make([]int, len(r.ways.spines))}
		before = now
		r.mu.Lock()
		for id, paths := range r.active {
			f := r.w.Flows[id]
			placed := r.ways.spinesOf(f.Src, f.Dst, paths)
			for _, k := range placed {
				s.Flows[k]++
			}
			if len(placed) == 0 {
				s.Unplaced++
			}
		}
		r.progress.Elapsed = time.Since(r.start)
		r.mu.Unlock()
		r.out.put(line{Sample: s})
		if ended || time.Since(shown) >= 100*time.Millisecond {
			shown = time.Now()
			r.report()
		}
	}
	return nil
}

func (r *run) report() {
	if r.cfg.Progress == nil {
		return
	}
	r.mu.Lock()
	p := r.progress
	r.mu.Unlock()
	r.cfg.Progress(p)
}

func (r *run) header() *Header {
	return &Header{Format: resultFormat, Workload: r.w.Name, Title: r.w.Title, Digest: r.w.Digest(), QPS: r.w.QPS, Seed: r.w.Seed, Policy: r.policy,
		Flows: len(r.w.Flows), Fabric: r.ways.digest, Spines: r.ways.spines, Uplinks: r.ways.uplinks, SampleMs: r.cfg.Sample.Milliseconds(),
		AnnouncedUs: new(r.lead.Microseconds()), Setup: r.cfg.Setup}
}

// pause waits for d, or for the end of ctx, which is an error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lab: %w", ctx.Err())
	}
}
