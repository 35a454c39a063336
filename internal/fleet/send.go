package fleet

import (
	"context"
	"fmt"
	"time"

	"shoal/internal/lab"
	"shoal/internal/sim"
)

// Sender has the agents play a lab's workload: every flow is a transfer that its source's agent is asked for.
type Sender struct {
	f    *Fleet
	from map[string]int64 // counters at Reset
}

// Sender is a lab.Sender over these agents.
func (f *Fleet) Sender() *Sender { return &Sender{f: f} }

// resetWithin bounds how long what an earlier run reserved may take to end everywhere.
const resetWithin = 30 * time.Second

// Reset waits until no agent knows of a reservation.
func (s *Sender) Reset(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, resetWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, x := range s.f.hosts {
		for {
			t, err := s.f.Table(ctx, x.Name)
			if err != nil {
				return err
			}
			if len(t.Entries) == 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("fleet: %s still knows of %d reservations, %s's %d first", x.Name, len(t.Entries), t.Entries[0].Owner, t.Entries[0].ID)
			case <-tick.C:
			}
		}
	}
	var err error
	s.from, err = s.f.Counters(ctx)
	return err
}

// Send moves one flow.
func (s *Sender) Send(ctx context.Context, policy string, f sim.Flow, at func(paths ...int)) (lab.Sent, error) {
	r, err := s.f.Move(ctx, policy, s.f.hosts[f.Src].Name, s.f.hosts[f.Dst].Name, f.Bytes, at)
	return lab.Sent{Fallback: r.Fallback, Moves: r.Moves}, err
}

// SendAt moves one flow whose bytes are there at ready.
func (s *Sender) SendAt(ctx context.Context, policy string, f sim.Flow, ready time.Time, at func(paths ...int)) (lab.Sent, error) {
	r, err := s.f.MoveAt(ctx, policy, s.f.hosts[f.Src].Name, s.f.hosts[f.Dst].Name, f.Bytes, ready, at)
	return lab.Sent{Fallback: r.Fallback, Moves: r.Moves}, err
}

// Counts are what happened since Reset.
func (s *Sender) Counts(ctx context.Context) (lab.Counts, error) {
	c, err := s.f.Counters(ctx)
	if err != nil {
		return lab.Counts{}, err
	}
	since := func(name string) int64 { return c[name] - s.from[name] }
	return lab.Counts{Conflicts: since("path_conflicts"), Fallbacks: since("path_flows_unreserved") + since("path_aside"), Moves: since("path_moves")}, nil
}

var _ lab.Announcer = (*Sender)(nil)
