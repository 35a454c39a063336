package probe

import (
	"errors"
	"slices"
	"time"
)

// State is whether a target's map may be used.
type State uint8

const (
	// Learning: there is no map that may be used yet, or any more. A configured model is in this state until answers
	// have confirmed it.
	Learning State = iota
	// Trusted: the last sample agreed with the map, or nobody answered.
	Trusted
	// Suspect: one answer contradicted the map. It is used on, and asked for again soon.
	Suspect
	// Aside: learning has failed. Transfers use plain ECMP, and it is tried again later.
	Aside
)

func (s State) String() string {
	switch s {
	case Learning:
		return "learning"
	case Trusted:
		return "trusted"
	case Suspect:
		return "suspect"
	case Aside:
		return "aside"
	}
	return "unknown"
}

// trust decides for one target what to do next. Its inputs are how Verify and Learn ended; its rules, in order:
//
//   - A lost probe is nothing. A sample of which nothing was answered says nothing; after blindRounds of them in a row
//     Blind is said once, and the map is used on: if it was right, it is likelier right than none.
//   - One answer against the map, or some ports that fall silent while others answer: Suspect; the next sample follows
//     after WatchConfig.Doubt. If it agrees, all is well.
//   - Two answers against the map, in one sample or while it is suspect: Mismatch. The map is used no more and is learned
//     again at once.
//   - The third Mismatch within flapWindow: the fabric moves flows by itself. Aside, with ErrUnstable.
//   - Learning fails (sprays, blind, unstable, unreachable): Aside, and again after Retry, twice that, and so on up to
//     MaxRetry. SteppedAside is said when it begins, and when its reason changes.
//   - Learning succeeds: Trusted. Learned the first time, Relearned afterwards.
type trust struct {
	state     State
	reason    error // of Aside
	had       bool  // there was a map before
	blind     int   // samples without an answer, in a row
	retry     time.Duration
	mismatch  []time.Duration // when, the last flaps of them
	saidBlind bool
}

const (
	blindRounds = 3
	flaps       = 3
	flapWindow  = 10 * time.Minute
)

// step is what follows from an input.
type step struct {
	event EventKind     // 0: nothing to say
	after time.Duration // until the next thing to do: to verify where there is a map, else to learn
}

// verified takes in a verdict at the time now.
func (t *trust) verified(now time.Duration, v *Verdict, c *WatchConfig) step {
	against := v.Against()
	if v.Answered == 0 && against == 0 && v.Asked > 0 {
		if t.blind++; t.blind >= blindRounds && !t.saidBlind {
			t.saidBlind = true
			return step{Blind, c.Interval}
		}
		return step{0, c.Interval}
	}
	t.blind, t.saidBlind = 0, false
	switch {
	case against == 0:
		t.state = Trusted
		return step{Verified, c.Interval}
	case against == 1 && t.state != Suspect:
		t.state = Suspect
		return step{0, c.Doubt}
	}
	t.mismatch = append(t.mismatch, now)
	t.mismatch = slices.DeleteFunc(t.mismatch, func(at time.Duration) bool { return now-at >= flapWindow })
	if len(t.mismatch) >= flaps {
		t.mismatch = t.mismatch[:0]
		t.state, t.reason = Aside, ErrUnstable
		return step{Mismatch, t.backOff(c)}
	}
	t.state = Learning
	return step{Mismatch, 0}
}

// learned takes in how a Learn ended; not one that was cut short.
func (t *trust) learned(err error, c *WatchConfig) step {
	t.blind, t.saidBlind = 0, false
	if err != nil {
		said := t.state == Aside && sameReason(t.reason, err)
		t.state, t.reason = Aside, err
		if after := t.backOff(c); said {
			return step{0, after}
		} else {
			return step{SteppedAside, after}
		}
	}
	t.state, t.reason, t.retry = Trusted, nil, 0
	had := t.had
	t.had = true
	if had {
		return step{Relearned, c.Interval}
	}
	return step{Learned, c.Interval}
}

// backOff is how long to wait now, and twice as long the next time.
func (t *trust) backOff(c *WatchConfig) time.Duration {
	t.retry = min(max(2*t.retry, c.Retry), c.MaxRetry)
	return t.retry
}

// sameReason says whether two errors are of one sort.
func sameReason(a, b error) bool {
	for _, sort := range []error{ErrBlind, ErrSprays, ErrUnstable, ErrUnreachable, ErrNoPorts} {
		if errors.Is(a, sort) || errors.Is(b, sort) {
			return errors.Is(a, sort) && errors.Is(b, sort)
		}
	}
	return a != nil && b != nil && a.Error() == b.Error()
}
