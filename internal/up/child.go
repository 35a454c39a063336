package up

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// How a child that ended by itself is started again. The wait doubles from the first to the last; a child that lived
// for healthy starts over. Before the shoal has been ready once, fewer tries: then the cause is more often a wrong flag
// than an accident, and the user is waiting.
const (
	firstBackoff  = 500 * time.Millisecond
	lastBackoff   = 8 * time.Second
	healthy       = 30 * time.Second
	tries         = 5
	startingTries = 2
)

// group is the agents, or the engines, of one run: started together, ended together.
type group struct {
	children  []*child
	gaveUp    chan *child // a sender never waits: there is room for every child
	restarted chan *child // told where there is room
	settled   atomic.Bool // the shoal has been ready once
	hard      <-chan struct{}
	starter   starter
	say       func(format string, a ...any)
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
}

// child is one process that is kept running.
type child struct {
	spec spec
	out  *output
	err  error // why it is left stopped; to be read after it came out of gaveUp
	done atomic.Bool
}

func newGroup(st starter, hard <-chan struct{}, say func(string, ...any)) *group {
	g := &group{gaveUp: make(chan *child, MaxAgents), restarted: make(chan *child, MaxAgents), hard: hard, starter: st, say: say}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// add is for before start; at most MaxAgents children.
func (g *group) add(c *child) { g.children = append(g.children, c) }

// start lets every child run; it does not wait for any of them.
func (g *group) start() {
	for _, c := range g.children {
		g.wg.Go(func() { g.keep(c) })
	}
}

// stop ends every child, and returns when all have ended. It may be called without start, and again.
func (g *group) stop() {
	g.cancel()
	g.wg.Wait()
}

// close is stop, and gives the logs back.
func (g *group) close() {
	g.stop()
	for _, c := range g.children {
		c.out.close()
	}
}

func (g *group) allGaveUp() bool {
	for _, c := range g.children {
		if !c.done.Load() {
			return false
		}
	}
	return true
}

// ending reports whether no child is to be started any more.
func (g *group) ending() bool {
	select {
	case <-g.hard:
		return true
	case <-g.ctx.Done():
		return true
	default:
		return false
	}
}

// keep runs one child until the group is stopped, or it has ended too often.
func (g *group) keep(c *child) {
	for failures := 0; !g.ending(); {
		began := time.Now()
		pid, err := g.runOnce(c)
		if g.ending() {
			return
		}
		lived := time.Since(began)
		if lived >= healthy {
			failures = 0
		}
		failures++
		most := tries
		if !g.settled.Load() {
			most = startingTries
		}
		what := how(err)
		if pid == 0 {
			what = fmt.Sprintf("cannot be started (%v)", err)
		}
		if failures > most {
			g.sayEnd(c, pid, what, lived, fmt.Sprintf("not started again: it has ended %d times in a row", failures))
			c.err = fmt.Errorf("%s %s, %d times in a row", c.spec.name, what, failures)
			if last := c.out.last(); last != "" {
				c.err = fmt.Errorf("%w; its last line: %s", c.err, last)
			}
			c.done.Store(true)
			g.gaveUp <- c
			return
		}
		wait := min(firstBackoff<<(failures-1), lastBackoff)
		g.sayEnd(c, pid, what, lived, fmt.Sprintf("starting it again in %v (try %d of %d)", wait, failures, most))
		select {
		case <-time.After(wait):
		case <-g.hard:
		case <-g.ctx.Done():
		}
		select {
		case g.restarted <- c:
		default: // its return is announced already
		}
	}
}

// runOnce runs the child from its start to its end, which it brings about where the group is stopped.
func (g *group) runOnce(c *child) (pid int, err error) {
	p, err := g.starter.Start(c.spec, c.out)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err = <-ended:
		return p.PID(), err
	case <-g.hard:
		p.Kill()
		return p.PID(), <-ended
	case <-g.ctx.Done():
	}
	p.Terminate()
	select {
	case err = <-ended:
	case <-g.hard:
		p.Kill()
		err = <-ended
	case <-time.After(c.spec.drain):
		g.say("%s (pid %d) has not ended within %v; killing it", c.spec.name, p.PID(), c.spec.drain)
		p.Kill()
		err = <-ended
	}
	return p.PID(), err
}

// sayEnd says that a child ended by itself, with its last lines where they have not been shown.
func (g *group) sayEnd(c *child, pid int, what string, lived time.Duration, next string) {
	who := c.spec.name
	if pid != 0 {
		who += fmt.Sprintf(" (pid %d)", pid)
	}
	g.say("%s %s after %v; %s", who, what, lived.Round(time.Millisecond), next)
	c.out.showUnseen()
}
