package load

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"
)

const (
	// pauseAfterError keeps a closed loop from spinning through all its requests while an endpoint refuses them.
	pauseAfterError = 50 * time.Millisecond
	progressEvery   = 200 * time.Millisecond
)

// run is one run under way.
type run struct {
	cfg     *Config
	client  *client
	planned int
	digest  string
	start   time.Time

	mu      sync.Mutex
	next    int // index of the next request to send
	state   Snapshot
	results []Result
	elapsed time.Duration
	ended   Ended
}

// Ended says what ended a run.
type Ended string

const (
	Done        Ended = "done"        // every request was sent and has ended
	TimeLimit   Ended = "time-limit"  // Config.Duration
	Interrupted Ended = "interrupted" // the caller's context
)

func newRun(cfg *Config, c *client, planned int) *run {
	return &run{cfg: cfg, client: c, planned: planned, digest: Digest(cfg.Workload, planned), state: Snapshot{Planned: planned}}
}

// drive sends everything and returns when the last answer has come, or one of the bounds is reached.
func (r *run) drive(ctx context.Context) {
	r.start = time.Now()
	limited, cancel := context.WithTimeout(ctx, r.cfg.Duration)
	defer cancel()
	reported := r.watch()
	if arrivals, open := r.arrivals(); open {
		r.open(limited, arrivals)
	} else {
		r.closed(limited)
	}
	r.elapsed = time.Since(r.start)
	switch {
	case ctx.Err() != nil:
		r.ended = Interrupted
	case limited.Err() != nil:
		r.ended = TimeLimit
	default:
		r.ended = Done
	}
	reported()
	sort.Slice(r.results, func(i, j int) bool { return r.results[i].Index < r.results[j].Index })
}

// arrivals returns when request i is due since the start, and false for a closed loop.
func (r *run) arrivals() (func(i int, req *Request) time.Duration, bool) {
	if r.cfg.Rate > 0 {
		gaps := source(r.cfg.Seed, "arrivals", 0)
		at := 0.0
		return func(int, *Request) time.Duration { // called once for each i, in order
			at += gaps.ExpFloat64() / r.cfg.Rate
			return time.Duration(at * float64(time.Second))
		}, true
	}
	if r.cfg.Clients == 0 && r.cfg.Workload.Timed() {
		return func(_ int, req *Request) time.Duration { return req.At }, true
	}
	return nil, false
}

// clients is the number of clients of a closed loop.
func (c *Config) clients() int {
	if c.Clients > 0 {
		return c.Clients
	}
	return DefaultClients
}

func (c *Config) describeArrivals() string {
	switch {
	case c.Rate > 0:
		return fmt.Sprintf("Poisson, %g requests/s", c.Rate)
	case c.Clients == 0 && c.Workload.Timed():
		return "as recorded"
	}
	return fmt.Sprintf("closed loop, %d clients", c.clients())
}

// open sends each request when it is due. While InFlight are under way the next one waits, and the ones after it: their
// times count from when they were due, so the waiting shows.
func (r *run) open(ctx context.Context, arrival func(int, *Request) time.Duration) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, r.cfg.InFlight)
	for {
		i, ok := r.take()
		if !ok {
			return
		}
		req := r.cfg.Workload.Request(i)
		due := r.start.Add(arrival(i, &req))
		if !wait(ctx, time.Until(due)) {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			r.one(ctx, i, req, due)
		})
	}
}

// closed has every client send its next request when the last one has ended.
func (r *run) closed(ctx context.Context) {
	var wg sync.WaitGroup
	for range min(r.cfg.clients(), r.planned) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i, ok := r.take()
				if !ok {
					return
				}
				if ok := r.one(ctx, i, r.cfg.Workload.Request(i), time.Now()); !ok {
					wait(ctx, pauseAfterError)
				}
			}
		})
	}
	wg.Wait()
}

// take claims the next request of the workload.
func (r *run) take() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == r.planned {
		return 0, false
	}
	r.next++
	return r.next - 1, true
}

// one sends one request and keeps its result; false where it failed.
func (r *run) one(ctx context.Context, i int, req Request, due time.Time) bool {
	r.mu.Lock()
	r.state.Sent++
	r.state.InFlight++
	r.mu.Unlock()

	res := r.client.do(ctx, req, r.target(i), due)
	res.Index, res.Due = i, due.Sub(r.start)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	r.state.InFlight--
	switch res.Kind {
	case OK:
		r.state.OK++
		if res.counted() {
			r.state.Prompt += res.Prompt
			r.state.Cached += res.Cached
		}
	case Unfinished:
	default:
		r.state.Failed++
	}
	return res.Kind == OK
}

// target is the index of the target that request i goes to.
func (r *run) target(i int) int {
	n := len(r.client.targets)
	if r.cfg.Assign == Random {
		return source(r.cfg.Seed, "targets", uint64(i)).IntN(n)
	}
	return i % n
}

// watch reports the state until the function it returns is called, and once more then.
func (r *run) watch() (stop func()) {
	if r.cfg.Progress == nil {
		return func() {}
	}
	report := func() {
		r.mu.Lock()
		s := r.state
		r.mu.Unlock()
		s.Elapsed = time.Since(r.start)
		r.cfg.Progress(s)
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				report()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-gone
		report()
	}
}

// wait returns after d, or false as soon as ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
