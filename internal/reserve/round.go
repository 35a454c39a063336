package reserve

import (
	"math"
	"slices"
	"time"
)

// maxLooks bounds the paths that one round looks at for further legs, and to keep one for who has waited for long. The first
// path of each waiter is found whatever it takes: together that is no more than MaxSetPaths.
const maxLooks = 1 << 18

// plan is one round of the schedule: it calls those whose turn it is, and finds when to look again. Where nothing has changed
// since the last one but that some have become ready, these alone are looked at: who is after them has found no room before,
// and finds no more with them.
func (t *Table) plan(now, wall time.Duration) {
	at := wall.Microseconds()
	if t.planned != t.version || t.keeps || at >= t.soonest {
		t.whole(at)
	} else {
		t.newcomers(at)
	}
	t.planned, t.due = t.version, later(now, wall, t.soonest)
	if len(t.coming) > 0 {
		t.due = min(t.due, later(now, wall, t.coming[0].ready))
	}
}

// whole looks at all that are ready.
func (t *Table) whole(at int64) {
	t.round++
	t.looks, t.mine, t.keeps = 0, false, false
	t.soonest = math.MaxInt64
	for len(t.coming) > 0 && t.coming[0].ready <= at {
		w := t.coming[0]
		t.unawait(w)
		t.waiters = place(t.waiters, w)
	}
	t.occupyActive(at, nil)
	for _, w := range t.waiters {
		if w.called && w.until > at && !t.stands(w) {
			w.called = false
		}
	}
	for _, w := range t.waiters {
		t.look(w, at)
	}
}

// newcomers looks at those that have become ready.
func (t *Table) newcomers(at int64) {
	from := len(t.fresh)
	for len(t.coming) > 0 && t.coming[0].ready <= at {
		w := t.coming[0]
		t.unawait(w)
		t.waiters = place(t.waiters, w)
		t.fresh = append(t.fresh, w)
	}
	slices.SortFunc(t.fresh[from:], (*waiter).compare)
	for _, w := range t.fresh[from:] {
		t.look(w, at)
	}
	t.fresh = t.fresh[:from]
}

// look calls a waiter if it is its turn.
func (t *Table) look(w *waiter, at int64) {
	age := at - w.ready
	switch {
	case age < 0: // the clock has been set back
		t.wake(w.ready)
		return
	case w.called && w.until > at:
		t.mine = t.mine || w.own
		return
	case age > 2*t.giveUp, w.called && !w.own:
		t.mine = t.mine || w.own
		return // its owner would have started it, or has, and it is over
	case w.own:
		w.called = false
		if age >= t.giveUp {
			t.mine = true
		} else {
			t.wake(w.ready + t.giveUp)
		}
	}
	old := age >= t.maxWait
	if old {
		t.wake(w.ready + 2*t.giveUp + 1)
	} else {
		t.wake(w.ready + t.maxWait)
	}
	if taken := w.src.sending == t.round || w.dst.receiving == t.round; !taken {
		if t.assign(w, at+w.length) {
			w.called, w.until = true, at+w.length
			t.wake(w.until)
			w.src.sending, w.dst.receiving = t.round, t.round
			t.mine = t.mine || w.own
			return
		}
		if old {
			t.keepLane(w.lane)
		}
	}
	if old {
		w.src.sending, w.dst.receiving, t.keeps = t.round, t.round, true
	}
}

// wake has the next round at a wall time in us, at the latest.
func (t *Table) wake(at int64) { t.soonest = min(t.soonest, at) }

// occupyActive takes the NICs and links of what moves: of what is Active and has not passed its predicted end. Own ones are
// no exception (apart from one), and what has ended here before its time stays until the others know: all peers look at the
// same.
func (t *Table) occupyActive(at int64, but *own) {
	for _, i := range t.active {
		if h := &t.held[i]; t.lasts(at, h.entry.End) {
			t.occupy(h.owner.nic, h.nic, h.links[:len(h.entry.Links)], h.entry.End)
		}
	}
	for i := range t.own {
		if o := &t.own[i]; o != but && o.live && o.entry.Phase == Active && t.lasts(at, o.entry.End) {
			t.occupy(t.selfNIC, o.nic, o.set.links(o.path), o.entry.End)
			t.occupy(t.selfNIC, o.nic, o.set.common, o.entry.End)
		}
	}
	t.forgetEnded(at)
	for i := range t.ended {
		e := &t.ended[i]
		t.wake(e.until)
		t.occupy(t.selfNIC, e.nic, e.links, e.until)
	}
}

// lasts reports whether what ends then counts; 0 is unknown.
func (t *Table) lasts(at, end int64) bool {
	if end == 0 {
		return true
	}
	if end <= at {
		return false // gone, heard or not: waiting for the RELEASE costs more than it saves
	}
	t.wake(end)
	return true
}

func (t *Table) occupy(src, dst *nic, links []*link, until int64) {
	src.sending, dst.receiving = t.round, t.round
	if until == 0 {
		until = math.MaxInt64
	}
	for _, l := range links {
		l.occupy(t.round, until)
	}
}

// occupy takes the link for this round, until a wall time.
func (l *link) occupy(round uint64, until int64) {
	if l.round != round {
		l.round, l.until = round, 0
	}
	l.until = max(l.until, until)
}

// ended is an own transfer that has ended before its predicted end.
type ended struct {
	nic   *nic
	links []*link
	until int64
}

// linger keeps what a transfer has taken until the others know that it has ended.
func (t *Table) linger(wall time.Duration, o *own) {
	if o.length == 0 {
		return
	}
	at := wall.Microseconds()
	t.forgetEnded(at)
	until := min(o.entry.End, at+t.delays.p99().Microseconds())
	if until <= at || len(t.ended) >= MaxLegs {
		return
	}
	n := len(t.ended)
	if n < cap(t.ended) {
		t.ended = t.ended[:n+1]
	} else {
		t.ended = append(t.ended, ended{})
	}
	e := &t.ended[n]
	e.nic, e.until, e.links = o.nic, until, append(append(e.links[:0], o.set.links(o.path)...), o.set.common...)
	o.nic.holds++
	for _, l := range e.links {
		l.holds++
	}
}

// forgetEnded forgets those that the others know to have ended.
func (t *Table) forgetEnded(at int64) {
	for i := len(t.ended) - 1; i >= 0; i-- {
		e := &t.ended[i]
		if e.until > at {
			continue
		}
		t.leave(e.nic)
		for _, l := range e.links {
			t.unhold(l)
		}
		last := len(t.ended) - 1
		t.ended[i], t.ended[last] = t.ended[last], *e
		t.ended = t.ended[:last]
	}
}

// stands reports whether one that was called may still be moving: nobody else was heard to move where it would. What it
// takes is taken for this round.
func (t *Table) stands(w *waiter) bool {
	if w.src.sending == t.round || w.dst.receiving == t.round {
		return false
	}
	for _, p := range w.paths[:w.n] {
		if slices.ContainsFunc(w.lane.path(int(p)), t.taken) {
			return false
		}
	}
	w.src.sending, w.dst.receiving = t.round, t.round
	for _, p := range w.paths[:w.n] {
		for _, l := range w.lane.path(int(p)) {
			l.occupy(t.round, w.until)
		}
	}
	t.wake(w.until)
	return true
}

func (t *Table) taken(l *link) bool { return l.round == t.round }

// assign takes the free paths of the lowest indices for a waiter whose NICs are free: one, or more while the NICs are faster
// than the paths together. It is false where none is free. Unknown paths are taken for free.
func (t *Table) assign(w *waiter, until int64) bool {
	l := t.laneOf(w)
	w.n = 0
	if l == nil {
		return true
	}
	if l.round != t.round {
		l.round, l.full = t.round, 0
	}
	for ; l.full < len(l.paths) && slices.ContainsFunc(l.path(l.full), t.taken); l.full++ {
	}
	var sum int64
	for p := l.full; p < len(l.paths); p++ {
		links := l.path(p)
		if w.n > 0 {
			if t.looks++; t.looks > maxLooks {
				break
			}
			if slices.ContainsFunc(links, t.taken) {
				continue
			}
		}
		for _, x := range links {
			x.occupy(t.round, until)
		}
		w.paths[w.n] = uint16(p)
		w.n++
		if sum += t.width(links); sum >= w.rate || w.n >= t.cfg.Legs {
			break
		}
	}
	return w.n > 0
}

// laneOf finds a waiter's lane when it is first needed.
func (t *Table) laneOf(w *waiter) *lanes {
	if !w.asked {
		w.asked, w.lane = true, t.lane(t.pathsBetween(w.owner, w.dst.id))
	}
	return w.lane
}

// keepLane keeps later ones off the path that is free first: else two that take turns on its two halves could keep a waiter
// out for ever.
func (t *Table) keepLane(l *lanes) {
	if t.looks += len(l.paths); t.looks > maxLooks {
		return
	}
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
