package reserve

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"shoal/internal/peer"
)

// waiter is one transfer in the schedule of policy shoal: an Intent, an own one or another peer's.
type waiter struct {
	turn   int64 // its place: the lesser comes first
	ready  int64 // us of wall time
	length int64 // us that it takes once it moves
	rate   int64 // bit/s that its two NICs allow
	owner  peer.ID
	id     uint64
	src    *nic
	dst    *nic
	lane   *lanes // nil: its paths are unknown
	own    bool
	// called: another's turn has come, at the local time calledAt, and nobody has heard yet that it has started.
	called   bool
	calledAt time.Duration
}

// maxLength is the longest transfer that the schedule takes in.
const maxLength = int64(time.Hour / time.Microsecond)

// maxLooks bounds the paths that one round looks at; beyond it those that are left wait for the next.
const maxLooks = 1 << 18

func (w *waiter) compare(v *waiter) int {
	return cmp.Or(cmp.Compare(w.turn, v.turn), cmp.Compare(w.owner, v.owner), cmp.Compare(w.id, v.id))
}

// enqueue makes a waiter of an Intent, where it is one of the schedule and there is room.
func (t *Table) enqueue(owner peer.ID, src *nic, dst *nic, e *Entry) *waiter {
	length := e.End - e.Ready
	if own := owner == t.self; e.Ready <= 0 || length <= 0 || length > maxLength || !own && len(t.waiters)-t.ownWaiters >= MaxWaiters {
		return nil
	}
	w := &waiter{}
	if n := len(t.freeWaiters); n > 0 {
		w, t.freeWaiters = t.freeWaiters[n-1], t.freeWaiters[:n-1]
	}
	*w = waiter{turn: e.Ready + length*t.cfg.Aging/1000, ready: e.Ready, length: length, rate: rateOf(e.Bytes, length), owner: owner, id: e.ID, src: src, dst: dst,
		own: owner == t.self}
	at, _ := slices.BinarySearchFunc(t.waiters, w, (*waiter).compare)
	t.waiters = slices.Insert(t.waiters, at, w)
	if w.own {
		t.ownWaiters++
	}
	return w
}

func (t *Table) dequeue(w *waiter) {
	at, found := slices.BinarySearchFunc(t.waiters, w, (*waiter).compare)
	if !found {
		panic("reserve: a waiter is not among the waiters: " + string(w.owner))
	}
	t.waiters = slices.Delete(t.waiters, at, at+1)
	if w.own {
		t.ownWaiters--
	}
	t.leaveLane(w)
	w.src, w.dst = nil, nil
	t.freeWaiters = append(t.freeWaiters, w)
}

// lengthOf is how long bytes take at a rate in bit/s, in us, rounded up.
func lengthOf(bytes, rate int64) int64 {
	hi, lo := bits.Mul64(uint64(bytes), 8_000_000)
	if hi >= uint64(rate) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(rate))
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// rateOf is the rate in bit/s that moves bytes in so many us.
func rateOf(bytes, us int64) int64 {
	return min(lengthOf(bytes, us), MaxCapacity) // the same quotient
}

// turn is the outcome of a round: which own waiter may start, and over which paths.
type turn struct {
	id    uint64 // 0: none
	paths [MaxLegs]int
	n     int
}

// Admit gives the own Intents of policy shoal whose turn it is: the driver calls Start for each at once, or Release, or
// Ready with a later time. It is to be called after whatever changes the table, and at next, the local time from which on
// the answer may be another one although nothing is heard; 0: there is none. It costs next to nothing where this peer has
// no waiter, or sends, or nothing has changed and next has not come.
func (t *Table) Admit(now, wall time.Duration, dst []uint64) (admitted []uint64, next time.Duration) {
	if t.ownWaiters == 0 {
		return dst, 0
	}
	at, soonest := wall.Microseconds(), int64(math.MaxInt64)
	if waits := t.Mode(now) == Waiting; !waits || t.sending > 0 {
		for _, w := range t.waiters {
			switch {
			case !w.own:
			case w.ready > at:
				soonest = min(soonest, w.ready)
			case !waits || at-w.ready >= t.giveUp:
				dst = append(dst, w.id)
			default:
				soonest = min(soonest, w.ready+t.giveUp)
			}
		}
		return dst, later(now, wall, soonest)
	}
	if t.planned == t.version && (t.due == 0 || now < t.due) {
		return dst, t.due
	}
	t.planned = t.version
	if first := t.firstReady(); first > at {
		t.due = later(now, wall, first)
		return dst, t.due
	}
	t.due = t.plan(now, wall)
	for _, w := range t.waiters {
		if w.own && w.ready <= at && (w.id == t.turn.id || at-w.ready >= t.giveUp) {
			dst = append(dst, w.id)
			t.planned = t.version - 1 // whoever does not start it is told again
		}
	}
	return dst, t.due
}

// firstReady is when the first own waiter is ready, in us of wall time; there is one.
func (t *Table) firstReady() int64 {
	first := int64(math.MaxInt64)
	for _, w := range t.waiters {
		if w.own {
			first = min(first, w.ready)
		}
	}
	return first
}

// later is the local time at which the wall clock shows so many us; 0: never.
func later(now, wall time.Duration, us int64) time.Duration {
	if us == math.MaxInt64 {
		return 0
	}
	return now + max(0, time.Duration(us)*time.Microsecond-wall)
}

// plan is one round of the schedule. It leaves in t.turn which own waiter may start now, and returns when to look again.
func (t *Table) plan(now, wall time.Duration) (next time.Duration) {
	t.round++
	t.turn.id, t.looks = 0, 0
	at := wall.Microseconds()
	soonest := t.occupy(at)
	left := t.ownWaiters
	for _, w := range t.waiters {
		if left == 0 {
			break
		}
		if w.own {
			left--
		}
		age := at - w.ready
		switch {
		case age < 0:
			if w.own {
				soonest = min(soonest, w.ready)
			}
			continue
		case w.own:
			if age < t.giveUp {
				soonest = min(soonest, w.ready+t.giveUp)
			}
		case age > 2*t.giveUp, w.called && (now-w.calledAt).Microseconds() >= w.length:
			continue // its owner would have started it, or has, and it is over
		}
		if w.src.sending == t.round || w.dst.receiving == t.round {
			w.called = false
			if age >= t.maxWait {
				w.src.sending, w.dst.receiving = t.round, t.round
			}
			continue
		}
		if !t.assign(w, at+w.length) {
			w.called = false
			if age >= t.maxWait {
				w.src.sending, w.dst.receiving = t.round, t.round
				t.keepLane(w.lane)
			}
			continue
		}
		w.src.sending, w.dst.receiving = t.round, t.round
		if w.own {
			t.turn.id = w.id
			break // the NIC sends: no other own one can follow
		}
		if !w.called {
			w.called, w.calledAt = true, now
		}
		soonest = min(soonest, at+w.length-(now-w.calledAt).Microseconds())
	}
	return later(now, wall, soonest)
}

// occupy marks the NICs and links of what moves: of what is Active and has not passed its predicted end. It returns the
// first of these ends.
func (t *Table) occupy(at int64) (soonest int64) {
	soonest = math.MaxInt64
	for i := range t.held {
		h := &t.held[i]
		if h.owner == nil || h.entry.Phase != Active {
			continue
		}
		until := h.entry.End
		switch {
		case until == 0:
			until = math.MaxInt64
		case until <= at:
			continue // gone, heard or not: waiting for the RELEASE costs more than it saves
		default:
			soonest = min(soonest, until)
		}
		h.owner.nic.sending, h.nic.receiving = t.round, t.round
		for _, l := range h.links[:len(h.entry.Links)] {
			l.occupy(t.round, until)
		}
	}
	return soonest
}

// occupy takes the link for this round, until a wall time.
func (l *link) occupy(round uint64, until int64) {
	if l.round != round {
		l.round, l.until = round, 0
	}
	l.until = max(l.until, until)
}

// assign takes the free paths of the lowest indices for a waiter whose NICs are free: one, or more while the NICs are faster
// than the paths together. It is false where none is free. Unknown paths are taken for free.
func (t *Table) assign(w *waiter, until int64) bool {
	var sum int64
	n := 0
	if w.own {
		t.turn.n = 0
	}
	if w.lane == nil {
		return true
	}
	for p := range w.lane.paths {
		if t.looks++; t.looks > maxLooks {
			break
		}
		links := w.lane.path(p)
		if slices.ContainsFunc(links, func(l *link) bool { return l.round == t.round }) {
			continue
		}
		for _, l := range links {
			l.occupy(t.round, until)
		}
		if w.own {
			t.turn.paths[n] = p
		}
		n++
		if sum += t.width(links); sum >= w.rate || n >= t.cfg.Legs {
			break
		}
	}
	if w.own {
		t.turn.n = n
	}
	return n > 0
}

// keepLane keeps later ones off the path that is free first: else two that take turns on its two halves could keep a waiter
// out for ever.
func (t *Table) keepLane(l *lanes) {
	best, first := -1, int64(math.MaxInt64)
	for p := range l.paths {
		var until int64
		for _, x := range l.path(p) {
			if x.round == t.round {
				until = max(until, x.until)
			}
		}
		if best < 0 || until < first {
			best, first = p, until
		}
	}
	for _, x := range l.path(best) {
		x.occupy(t.round, first)
	}
}
