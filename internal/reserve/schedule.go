package reserve

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// schedule is what policy shoal reckons by: see shoal.go.
type schedule struct {
	// Who and what can be taken.
	nics       map[peer.ID]*nic
	idleNICs   int // of them, those of which nothing is held
	selfNIC    *nic
	lanes      map[*ecmp.Path]*lanes
	lanePaths  int // of all lanes
	pathsOf    func(src, dst peer.ID) []ecmp.Path
	capacityOf func(ecmp.LinkID) int64

	// Who wants it, and who has it.
	waiters     []*waiter // in their order
	freeWaiters []*waiter
	ownWaiters  int     // of waiters
	sending     int     // own reservations that are Active
	ended       []ended // own ones that the others do not know of yet

	// The last round.
	version uint64        // counts what can change a round's outcome
	planned uint64        // the version that it looked at
	due     time.Duration // when the next one is, though nothing changes; 0: never
	round   uint64        // its number, which nics and links bear that are taken
	looks   int           // paths that it has looked at
	soonest int64         // us of wall time: the same as due
	mine    bool          // an own one may start

	maxWait, giveUp int64 // us: Config's

	// Whether it can be relied upon; see trust.go.
	delays               delays
	stale                bool
	distrust, distrusted time.Duration // until when, and for how long the last time
	slow, othersSlow     slowdown      // of own transfers, and of the others'

	// What transfers are predicted by.
	overhead   int64 // us that each takes beyond its bytes
	efficiency int64 // of the NICs' rate; 0: not learned yet
}

func newSchedule(cfg *Config) schedule {
	return schedule{nics: map[peer.ID]*nic{}, lanes: map[*ecmp.Path]*lanes{}, version: 1,
		maxWait: cfg.MaxWait.Microseconds(), giveUp: cfg.GiveUp.Microseconds()}
}

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
	// called: its turn has come, and nobody has heard yet that it has started. It is taken to move until then, in us of wall
	// time, over the n paths of these indices.
	called bool
	until  int64
	paths  [MaxLegs]uint16
	n      int
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
	var w *waiter
	if n := len(t.freeWaiters); n > 0 {
		w, t.freeWaiters = t.freeWaiters[n-1], t.freeWaiters[:n-1]
	} else {
		w = new(waiter)
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

// Admit gives the own Intents of policy shoal whose turn it is: the driver calls Start for each at once, or Release, or
// Ready with a later time. It is to be called after whatever changes the table, and at next, the local time from which on
// the answer may be another one although nothing is heard; 0: there is none. It costs next to nothing where this peer has
// no Intent, or nothing has changed and next has not come.
func (t *Table) Admit(now, wall time.Duration, dst []uint64) (admitted []uint64, next time.Duration) {
	if t.ownWaiters == 0 {
		return dst, 0
	}
	at, waits := wall.Microseconds(), t.Mode(now) == Waiting
	if waits && (t.planned != t.version || t.due > 0 && now >= t.due) {
		t.plan(now, wall)
	}
	if t.planned == t.version && !t.mine {
		return dst, t.due
	}
	soonest := int64(math.MaxInt64)
	for _, w := range t.waiters {
		switch {
		case !w.own:
		case w.ready > at:
			soonest = min(soonest, w.ready)
		case !waits, at-w.ready >= t.giveUp, w.called && t.sending == 0:
			dst = append(dst, w.id)
		}
	}
	if !waits {
		return dst, later(now, wall, soonest)
	}
	return dst, t.due
}

// later is the local time at which the wall clock shows so many us; 0: never.
func later(now, wall time.Duration, us int64) time.Duration {
	if us == math.MaxInt64 {
		return 0
	}
	return now + max(0, time.Duration(us)*time.Microsecond-wall)
}

// plan is one round of the schedule: it calls those whose turn it is, and finds when to look again.
func (t *Table) plan(now, wall time.Duration) {
	t.round++
	t.looks, t.mine = 0, false
	at := wall.Microseconds()
	t.soonest = math.MaxInt64
	t.occupyActive(at, nil)
	for _, w := range t.waiters {
		if w.called && w.until > at && !t.stands(w) {
			w.called = false
		}
	}
	for _, w := range t.waiters {
		age := at - w.ready
		switch {
		case age < 0:
			t.wake(w.ready)
			continue
		case w.called && w.until > at:
			t.mine = t.mine || w.own
			continue
		case age > 2*t.giveUp, w.called && !w.own:
			t.mine = t.mine || w.own
			continue // its owner would have started it, or has, and it is over
		case w.own:
			w.called = false
			if age >= t.giveUp {
				t.mine = true
			} else {
				t.wake(w.ready + t.giveUp)
			}
		}
		if age < t.maxWait {
			t.wake(w.ready + t.maxWait)
		}
		taken := w.src.sending == t.round || w.dst.receiving == t.round
		switch {
		case !taken && t.assign(w, at+w.length):
			w.called, w.until = true, at+w.length
			t.wake(w.until)
			w.src.sending, w.dst.receiving = t.round, t.round
			t.mine = t.mine || w.own
		case age >= t.maxWait:
			w.src.sending, w.dst.receiving = t.round, t.round
			if !taken {
				t.keepLane(w.lane)
			}
		}
	}
	t.planned, t.due = t.version, later(now, wall, t.soonest)
}

// wake has the next round at a wall time in us, at the latest.
func (t *Table) wake(at int64) { t.soonest = min(t.soonest, at) }

// occupyActive takes the NICs and links of what moves: of what is Active and has not passed its predicted end. Own ones are
// no exception (apart from one), and what has ended here before its time stays until the others know: all peers look at the
// same.
func (t *Table) occupyActive(at int64, but *own) {
	for i := range t.held {
		if h := &t.held[i]; h.owner != nil && h.entry.Phase == Active && t.lasts(at, h.entry.End) {
			t.occupy(h.owner.nic, h.nic, h.links[:len(h.entry.Links)], h.entry.End)
		}
	}
	for i := range t.own {
		if o := &t.own[i]; o != but && o.live && o.entry.Phase == Active && t.lasts(at, o.entry.End) {
			t.occupy(t.selfNIC, o.nic, o.set.links(o.path), o.entry.End)
			t.occupy(t.selfNIC, o.nic, o.set.common, o.entry.End)
		}
	}
	for i := len(t.ended) - 1; i >= 0; i-- {
		if e := &t.ended[i]; t.lasts(at, e.until) {
			t.occupy(t.selfNIC, e.nic, e.links, e.until)
		} else {
			t.forgetEnded(i)
		}
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
	at := wall.Microseconds()
	until := min(o.entry.End, at+t.delays.p99().Microseconds())
	if o.length == 0 || until <= at || len(t.ended) >= MaxLegs {
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

func (t *Table) forgetEnded(i int) {
	e := &t.ended[i]
	t.leave(e.nic)
	for _, l := range e.links {
		t.unhold(l)
	}
	last := len(t.ended) - 1
	t.ended[i], t.ended[last] = t.ended[last], *e
	t.ended = t.ended[:last]
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
	w.n = 0
	if w.lane == nil {
		return true
	}
	var sum int64
	for p := range w.lane.paths {
		if t.looks++; t.looks > maxLooks {
			break
		}
		links := w.lane.path(p)
		if slices.ContainsFunc(links, t.taken) {
			continue
		}
		for _, l := range links {
			l.occupy(t.round, until)
		}
		w.paths[w.n] = uint16(p)
		w.n++
		if sum += t.width(links); sum >= w.rate || w.n >= t.cfg.Legs {
			break
		}
	}
	return w.n > 0
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
