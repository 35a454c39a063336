package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// ErrStopped is what Run returns where Progress ended it.
var ErrStopped = errors.New("control: stopped")

// patience is how long after the last arrival a run may last, in the control plane's time: transfers that stand still for
// longer never end.
const patience = 30 * time.Minute

// askEvery is how many steps come between two calls of Progress.
const askEvery = 1024

// wallAtZero is what clocks that are right show at the start of a run.
const wallAtZero = 1_700_000_000 * time.Second

// run is one run under way.
type run struct {
	cfg   Config
	net   fabric.Network
	w     *sim.Workload
	truth *fabric.Topology // of the hashes as they are now; its paths may be fewer than the network's
	// pathOf maps a path index of truth to one of the network, by source and destination leaf; nil: they are the same.
	pathOf func(src, dst, path int) int
	down   []bool // links of the network that a failure has cut

	timers sim.Queue[timer]
	hosts  []host
	sinks  []int // hosts that receive
	jobs   []job
	legs   []leg // by fabric.ID
	done   int
	steps  int // since Progress was asked: events, and messages heard

	losses, delays, mice, routes *rand.Rand

	messages messages
	miceGap  float64 // mean time between two mice, ps
	sampling time.Duration
	res      *Result
}

// job is one transfer on its way.
type job struct {
	waiting bool // it is announced or queued
	begun   bool
	legs    int // flows of it that have not ended
	// believed is the network in which its paths have their numbers.
	believed *fabric.Topology
}

// leg is one flow in the network.
type leg struct {
	live    bool
	src     int
	dst     int
	job     int    // -1: a mouse
	id      uint64 // of its reservation; 0: none
	port    uint16
	path    int // of the network
	spread  fabric.Spread
	watched bool
}

// timer is what is due at a time.
type timer struct {
	kind timerKind
	host int32
	n    int32 // transfer, message or flow
}

type timerKind uint8

const (
	announce  timerKind = iota // transfer n will be ready
	ready                      // transfer n is
	deliver                    // message n to a host; -1: to all that it is for
	poll                       // a host looks at its waiters
	boundary                   // flow n is at the end of a chunk
	beat                       // all senders say how far they are, and tables look at leases
	round                      // a round of anti-entropy
	section                    // what a host has been told in a round
	mouse                      // the next one
	reassign                   // the central scheduler of hedera
	failed                     // the switch goes down
	converged                  // the other switches know
	learned                    // the hosts know
	sample
)

// Run plays the workload and returns when all its transfers have ended. The network is new; it is used up afterwards.
// progress may be nil.
func Run(net fabric.Network, w *sim.Workload, cfg Config, progress Progress) (*Result, error) {
	r, err := newRun(net, w, cfg)
	if err != nil {
		return nil, err
	}
	limit := r.at(time.Duration(int64(w.Flows[len(w.Flows)-1].At)*cfg.Scale) + patience)
	for r.steps = askEvery; r.done < len(r.jobs); r.steps++ {
		if r.steps >= askEvery && progress != nil {
			if r.steps = 0; !progress(r.done, len(r.jobs), net.Now()) {
				return nil, ErrStopped
			}
		}
		e, ok := net.Step(min(r.timers.Next(), limit))
		switch {
		case ok && e.Kind == fabric.Done:
			r.ended(e.ID)
		case ok:
			r.arrived(e.Tag)
		case net.Now() >= limit:
			return nil, r.stuck()
		case r.res.Counts.Mice > 2*MaxMice:
			return nil, fmt.Errorf("control: %s: more than %d mice, and %d of %d transfers have ended; give a smaller share of mice, larger ones, or transfers that come over a longer time", cfg.Policy, 2*MaxMice, r.done, len(r.jobs))
		default:
			_, t := r.timers.Pop()
			r.due(t)
		}
	}
	return r.finish()
}

// newRun is a run at its start.
func newRun(net fabric.Network, w *sim.Workload, cfg Config) (*run, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, net: net, w: w, truth: net.Topology(), down: make([]bool, len(net.Topology().Links)), jobs: make([]job, len(w.Flows)),
		losses: sim.Stream(cfg.Seed, "losses"), delays: sim.Stream(cfg.Seed, "delays"), mice: sim.Stream(cfg.Seed, "mice"), routes: sim.Stream(cfg.Seed, "routes"),
		res: &Result{Policy: cfg.Policy, Transfers: make([]Transfer, len(w.Flows))}}
	return r, r.prepare()
}

// prepare makes the hosts and everything that is known to happen.
func (r *run) prepare() error {
	if len(r.w.Flows) == 0 {
		return errors.New("control: the workload has no flows")
	}
	if err := r.w.Fits(r.truth.Hosts()); err != nil {
		return err
	}
	for i := range r.w.Flows {
		f := &r.w.Flows[i]
		if !r.truth.Connected(f.Src, f.Dst) {
			return fmt.Errorf("control: flow %d goes from host %d to host %d, and there is no way", f.ID, f.Src, f.Dst)
		}
		if !slices.Contains(r.sinks, f.Dst) {
			r.sinks = append(r.sinks, f.Dst)
		}
		r.res.Transfers[i] = Transfer{ID: i, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes * r.cfg.Scale, Ready: time.Duration(int64(f.At) * r.cfg.Scale)}
		at := sim.Of(f.At)
		if lead := r.at(r.cfg.Notice); r.announces() && lead > 0 {
			r.timers.Push(max(0, at-lead), timer{kind: announce, n: int32(i)})
		}
		r.timers.Push(at, timer{kind: ready, n: int32(i)})
	}
	slices.Sort(r.sinks)
	if err := r.makeHosts(); err != nil {
		return err
	}
	if r.tables() {
		r.timers.Push(r.at(r.cfg.Renew), timer{kind: beat})
		r.timers.Push(r.at(r.cfg.Round), timer{kind: round})
	}
	if r.cfg.Policy == "hedera" {
		r.timers.Push(r.at(r.cfg.Hedera), timer{kind: reassign})
	}
	if r.sampling = r.cfg.Sample; r.sampling > 0 {
		r.timers.Push(0, timer{kind: sample})
	}
	if f := r.cfg.Failure; f.Switch != "" {
		if err := r.checkFailure(); err != nil {
			return err
		}
		r.timers.Push(r.at(f.At), timer{kind: failed})
		r.timers.Push(r.at(f.At+f.Converge), timer{kind: converged})
		r.timers.Push(r.at(f.At+f.Learn), timer{kind: learned})
	}
	return r.startMice()
}

// at is the network's time for one of the control plane.
func (r *run) at(d time.Duration) sim.Time { return sim.Of(d) / sim.Time(r.cfg.Scale) }

// after is the network's time that long from now.
func (r *run) after(d time.Duration) sim.Time { return r.net.Now() + r.at(d) }

// now is the control plane's time.
func (r *run) now() time.Duration {
	return time.Duration(int64(r.net.Now()) * r.cfg.Scale / int64(sim.Nanosecond))
}

// tables says whether hosts reserve under this policy.
func (r *run) tables() bool {
	return slices.Contains(production, r.cfg.Policy) && r.cfg.Policy != "ecmp" && !r.cfg.Blind
}

// announces says whether transfers are made known before they are ready.
func (r *run) announces() bool { return r.cfg.Policy == "shoal" && r.tables() }

func (r *run) due(t timer) {
	switch t.kind {
	case announce:
		r.announce(int(t.n))
	case ready:
		r.ready(int(t.n))
	case deliver:
		r.deliver(t.n, int(t.host))
	case poll:
		h := &r.hosts[t.host]
		h.polls = sim.Never
		r.look(h)
	case boundary:
		r.boundary(fabric.ID(t.n))
	case beat:
		r.beat()
		r.timers.Push(r.after(r.cfg.Renew), t)
	case round:
		r.round()
		r.timers.Push(r.after(r.cfg.Round), t)
	case section:
		r.merge(t.n, &r.hosts[t.host])
	case mouse:
		r.mouse()
	case reassign:
		r.reassign()
		r.timers.Push(r.after(r.cfg.Hedera), t)
	case failed:
		r.takeDown()
	case converged:
		r.converge()
	case learned:
		r.learn()
	case sample:
		r.sample()
		r.timers.Push(r.after(r.sampling), t)
	}
}

// begin starts one flow of a transfer, or a mouse (job -1), on a source port.
func (r *run) begin(job, src, dst int, bytes int64, port uint16, spread fabric.Spread) fabric.ID {
	path := r.path(src, dst, port)
	f := fabric.Flow{Src: src, Dst: dst, Bytes: bytes, Paths: []int{path}, Spread: spread, Back: r.back(src, dst, port)}
	if spread != fabric.First {
		for p := range r.truth.Paths(src, dst) { // those that are left, the one that its hash gives first
			if p = r.numbered(src, dst, p); p != path {
				f.Paths = append(f.Paths, p)
			}
		}
	}
	id := r.net.Start(f)
	for int(id) >= len(r.legs) {
		r.legs = append(r.legs, leg{})
	}
	r.legs[id] = leg{live: true, src: src, dst: dst, job: job, port: port, path: path, spread: spread}
	if job >= 0 {
		j := &r.jobs[job]
		if !j.begun {
			j.begun = true
			r.res.Transfers[job].Started = r.now()
		}
		j.legs++
	}
	return id
}

// ended is told of a flow's last acknowledgement.
func (r *run) ended(id fabric.ID) {
	l := &r.legs[id]
	l.live = false
	if l.job < 0 {
		return
	}
	t, j := &r.res.Transfers[l.job], &r.jobs[l.job]
	if l.id != 0 {
		r.release(&r.hosts[t.Src], id, l.id)
	}
	if j.legs--; j.legs == 0 {
		t.Done = r.now()
		r.done++
	}
}

// stuck names a transfer that does not end.
func (r *run) stuck() error {
	for i := range r.jobs {
		if t := &r.res.Transfers[i]; t.Done == 0 {
			state := "is under way"
			if !r.jobs[i].begun {
				state = "has not begun"
			}
			return fmt.Errorf("control: %s: transfer %d from host %d to host %d, ready at %v, %s %v after the last arrival; %d of %d have ended",
				r.cfg.Policy, i, t.Src, t.Dst, t.Ready, state, patience, r.done, len(r.jobs))
		}
	}
	panic("control: all transfers have ended")
}

// finish looks whether everything has come to its end.
func (r *run) finish() (*Result, error) {
	if err := r.net.Check(); err != nil {
		return nil, fmt.Errorf("control: %s: %w", r.cfg.Policy, err)
	}
	for i := range r.hosts {
		h := &r.hosts[i]
		if h.table == nil {
			continue
		}
		if s := h.table.Section(); len(s.Entries) > 0 {
			return nil, fmt.Errorf("control: %s: all transfers have ended, and %s still holds %d reservations, the first %+v", r.cfg.Policy, h.id, len(s.Entries), s.Entries[0])
		}
		s := h.table.Stats()
		r.res.Counts.Conflicts += int64(s.Conflicts)
		r.res.Counts.Fallbacks += int64(s.Fallbacks)
	}
	r.res.End = r.net.Now()
	if n, ok := r.net.(interface{ Packets() int64 }); ok {
		r.res.Packets = n.Packets()
	}
	r.res.Digest = r.res.digest(r.net.Digest())
	return r.res, nil
}

// digest is of what happened in the network and of what hosts saw of it.
func (r *Result) digest(d sim.Digest) sim.Digest {
	for i := range r.Transfers {
		t := &r.Transfers[i]
		fallback := int64(0)
		if t.Fallback {
			fallback = 1
		}
		d.Add(int64(t.Dst), int64(t.Started), int64(t.Done), int64(t.Moves), fallback)
	}
	c := &r.Counts
	d.Add(c.Messages, c.MessageBytes, c.Lost, c.Conflicts, c.Moves, c.Fallbacks, c.Waited, c.Mispathed, c.Mice)
	return d
}

// sample notes what is under way.
func (r *run) sample() {
	if all := r.res.Samples; len(all) == MaxSamples {
		for i := range MaxSamples / 2 {
			all[i] = all[2*i]
		}
		r.res.Samples = all[:MaxSamples/2]
		r.sampling *= 2
	}
	s := Sample{At: r.now()}
	for i := range r.legs {
		l := &r.legs[i]
		if !l.live || l.job < 0 {
			continue
		}
		for l.path >= len(s.Flows) {
			s.Flows = append(s.Flows, 0)
		}
		s.Flows[l.path]++
	}
	for i := range r.jobs {
		if t := &r.res.Transfers[i]; !r.jobs[i].begun && t.Ready <= s.At {
			s.Waits++
		}
	}
	for l := range r.net.Topology().Links {
		_, queued := r.net.Load(fabric.LinkIndex(l))
		s.Queued = max(s.Queued, queued)
	}
	r.res.Samples = append(r.res.Samples, s)
}
