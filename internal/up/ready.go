package up

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shoal/internal/agent"
	"shoal/internal/peer"
)

const (
	pollEvery = 250 * time.Millisecond
	sayEvery  = 10 * time.Second // a wait that goes on is said again this often
)

// readiness is the end of the wait: every agent's view of the shoal, in the plan's order, or why it ended without.
type readiness struct {
	statuses []*agent.Status
	err      error
}

// awaitReady waits until every agent is ready and sees all the others, their engines up and their models known: then
// a request at any of them can be served by any other. It says what it waits for.
func (u *Up) awaitReady(ctx context.Context) readiness {
	began := time.Now()
	said, saidAt := "", began
	for {
		statuses, missing := u.look(ctx)
		if len(missing) == 0 {
			return readiness{statuses: statuses}
		}
		waited := time.Since(began)
		if u.cfg.Ready > 0 && waited > u.cfg.Ready {
			return readiness{err: fmt.Errorf("up: not ready within %v (--ready-timeout): %s", u.cfg.Ready, strings.Join(missing, "; "))}
		}
		what := strings.Join(missing, "; ")
		if u.note.Terminal() {
			u.note.Progress(fmt.Sprintf("waiting (%d s) for %s", int(waited.Seconds()), what))
		} else if waited > time.Second && (what != said || time.Since(saidAt) > sayEvery) {
			u.say("waiting for %s", what)
			said, saidAt = what, time.Now()
		}
		if !poll(ctx, pollEvery) {
			return readiness{err: ctx.Err()}
		}
	}
}

// look asks every agent once, and returns what is still missing.
func (u *Up) look(ctx context.Context) (statuses []*agent.Status, missing []string) {
	for i := range u.plan.peers {
		q := &u.plan.peers[i]
		s, err := u.admin.Status(ctx, q.admin)
		if err != nil {
			missing = append(missing, q.id+" to start")
			statuses = append(statuses, nil)
			continue
		}
		statuses = append(statuses, s)
		if m := u.plan.missing(q, s); m != "" {
			missing = append(missing, m)
		} else if err := u.admin.Ready(ctx, q.admin); err != nil {
			missing = append(missing, q.id+" to be ready")
		}
	}
	return statuses, missing
}

// missing is what q's agent lacks yet by its own view of the shoal; empty: nothing.
func (p *plan) missing(q *peerPlan, s *agent.Status) string {
	if s.Self != peer.ID(q.id) {
		return fmt.Sprintf("%s, but agent %s answers at %s: end it, or choose other ports with --port", q.id, s.Self, q.admin)
	}
	var unseen, down []string
	for i := range p.peers {
		other := &p.peers[i]
		at := slices.IndexFunc(s.Peers, func(ps agent.PeerStatus) bool { return ps.ID == peer.ID(other.id) })
		switch {
		case at < 0 || !s.Peers[at].Alive:
			if other.id != q.id {
				unseen = append(unseen, other.id)
			}
		case other.hasEngine() && (!s.Peers[at].Load.Up || len(s.Peers[at].Models) == 0):
			down = append(down, other.id)
		}
	}
	switch {
	case slices.Contains(down, q.id):
		return q.id + "'s engine" + p.engineHint(q)
	case len(unseen) > 0:
		return fmt.Sprintf("%s to see %s", q.id, strings.Join(unseen, ", "))
	case len(down) > 0:
		return fmt.Sprintf("%s to hear of the engine of %s", q.id, strings.Join(down, ", "))
	}
	return ""
}

// engineHint says where to look for an engine that is not ours.
func (p *plan) engineHint(q *peerPlan) string {
	if p.llama || q.emulated {
		return ""
	}
	return " (does " + q.engineURL + " answer?)"
}

// poll waits for d; false: ctx has ended instead.
func poll(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
