// Package up runs a whole shoal on one machine: agents, and where wanted the engines beside them, as child processes
// of one foreground program. It is for trying, demonstrating and testing. It is not a supervisor for production (there
// each machine runs one agent under its own init), and it decides nothing about requests.
//
// The main type is Up: New checks a Config and plans names, ports and commands; Run starts the plan, waits until every
// agent sees all the others, says what to try, and returns when all has ended.
//
// Invariants. Whatever Run has started has ended when it returns; agents end before engines, so that no request loses
// its engine while its agent still drains. On Linux a child never outlives the program, even one that is killed outright
// (see process.go). Nothing is restarted silently, and no child more than a stated number of times.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"shoal/internal/term"
)

// Up is one run of a shoal. It is made by New and runs once.
type Up struct {
	cfg   Config
	plan  *plan
	out   *term.Output // results: addresses, what to try
	note  *term.Output // what happens on the way
	admin *Admin
	// engines readies the engines that this run starts (installs them where needed) and returns their specs.
	engines func(ctx context.Context, dir *runDir) ([]spec, error)
	hard    chan struct{} // closed by Kill
	once    sync.Once
}

// New checks cfg and plans. Results (addresses, what to try) are written to stdout, and everything that happens on the
// way, with the children's own lines, to stderr. Nothing is started yet.
func New(cfg Config, stdout, stderr io.Writer) (*Up, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	u := &Up{
		cfg: cfg, plan: p, out: term.New(stdout), note: term.New(stderr),
		admin: &Admin{Client: &http.Client{Timeout: 2 * time.Second}},
		hard:  make(chan struct{}),
	}
	u.engines = func(context.Context, *runDir) ([]spec, error) { return nil, nil }
	if p.llama {
		u.engines = u.llama
	}
	return u, nil
}

// Kill ends everything at once, without draining. It may be called at any time, more than once, from any goroutine.
func (u *Up) Kill() { u.once.Do(func() { close(u.hard) }) }

// Run starts the shoal and returns when all that it started has ended: nil after ctx was cancelled, an error where the
// shoal could not be started or none of it is left.
func (u *Up) Run(ctx context.Context) (err error) {
	if err := u.plan.checkPorts(); err != nil {
		return err
	}
	dir, err := openRunDir(filepath.Join(u.cfg.RunDir, fmt.Sprint(u.plan.base)), u.plan.keepState)
	if err != nil {
		return err
	}
	defer func() {
		if where := dir.close(err != nil); where != "" {
			u.say("logs are in %s", where)
		}
	}()
	specs, err := u.engines(ctx, dir)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	return u.supervise(ctx, specs, u.plan.agents(dir), dir.logs())
}

// supervise starts both groups and ends them in order.
func (u *Up) supervise(ctx context.Context, engineSpecs, agentSpecs []spec, logs string) error {
	st := newSpawner()
	defer st.close()
	engines, err := u.group(st, engineSpecs)
	if err != nil {
		return err
	}
	defer engines.close()
	agents, err := u.group(st, agentSpecs)
	if err != nil {
		return err
	}
	defer agents.close()

	u.say("%s", u.plan.starting())
	u.say("logs of all of them: %s", logs)
	engines.start()
	agents.start()

	err = u.attend(ctx, engines, agents)
	u.note.Progress("")
	if err != nil {
		u.say("ending all that was started, because of an error")
	} else {
		then := ""
		if n := len(engines.children); n > 0 {
			then = fmt.Sprintf(", then %d engines", n)
		}
		u.say("ending %d agents%s (once more to end them at once)", len(agents.children), then)
	}
	agents.stop()
	engines.stop()
	u.say("all has ended")
	return err
}

// attend waits for readiness, says so, and stays until ctx ends or nothing is left to attend to.
func (u *Up) attend(ctx context.Context, engines, agents *group) error {
	ready := make(chan readiness, 1)
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ready <- u.awaitReady(waitCtx) }()
	starting := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.hard:
			return nil
		case r := <-ready:
			if ctx.Err() != nil {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			starting = false
			engines.settled.Store(true)
			agents.settled.Store(true)
			u.note.Progress("")
			u.out.Printf("%s", u.plan.banner(r.statuses))
			if u.cfg.OnReady != nil {
				u.cfg.OnReady(u.plan.urls())
			}
		case c := <-engines.gaveUp:
			if starting {
				return fmt.Errorf("up: engine %s does not start: %w", c.spec.name, c.err)
			}
			u.say("%s is left stopped: %v; its agent goes on and forwards to the others", c.spec.name, c.err)
		case c := <-agents.gaveUp:
			if starting {
				return fmt.Errorf("up: agent %s does not start: %w", c.spec.name, c.err)
			}
			u.say("%s is left stopped: %v", c.spec.name, c.err)
			if agents.allGaveUp() {
				return errors.New("up: no agent is left; see the lines above for why each ended")
			}
		case c := <-agents.restarted:
			if !starting {
				go u.announceReturn(waitCtx, c)
			}
		}
	}
}

// announceReturn says when a restarted agent is ready again.
func (u *Up) announceReturn(ctx context.Context, c *child) {
	for poll(ctx, pollEvery) {
		if u.admin.Ready(ctx, c.spec.admin) == nil {
			u.say("%s is ready again", c.spec.name)
			return
		}
	}
}

// say writes one line about what happens.
func (u *Up) say(format string, a ...any) { u.note.Printf("shoal up: "+format, a...) }

// group makes the children of specs, without starting any.
func (u *Up) group(st starter, specs []spec) (*group, error) {
	g := newGroup(st, u.hard, u.say)
	for _, s := range specs {
		o, err := newOutput(s, u.cfg.Verbose, &g.settled, func(name, line string) { u.note.Printf("%s: %s", name, line) })
		if err != nil {
			g.close()
			return nil, err
		}
		g.add(&child{spec: s, out: o})
	}
	return g, nil
}
