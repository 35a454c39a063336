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
	waiters     []*waiter // that are ready, in their order
	coming      []*waiter // that are not: a heap, who is ready first is on top
	ours        []*waiter // own ones among both, in their order
	fresh       []*waiter // of waiters, those that a round takes in
	freeWaiters []*waiter
	active      []uint32 // places in Table.held of what is Active
	sending     int      // own reservations that are Active
	ended       []ended  // own ones that the others do not know of yet

	// The last round.
	version uint64        // counts what can change a round's outcome
	planned uint64        // the version that it looked at; 0: its marks are gone
	due     time.Duration // when the next one is, though nothing changes
	round   uint64        // its number: nics and links are marked with it that are taken
	looks   int           // paths that it has looked at beyond what it had to
	soonest int64         // us of wall time when its outcome changes by itself, apart from who becomes ready
	keeps   bool          // a waiter beyond MaxWait keeps others off
	mine    bool          // an own one may start
	follow  int64         // us of wall time before which there are no rounds; 0: to be reckoned

	maxWait, giveUp int64 // us: Config's

	// Whether it can be relied upon; see trust.go.
	delays               delays
	stale                bool
	distrust, distrusted time.Duration // until when, and for how long the last time
	slow, othersSlow     slowdown      // of own transfers, and of the others'
	probation            time.Duration // until when the least doubt is enough
	doubt                int           // see Table.testify
	slowEnds             [2]*nic       // of the last that was slow

	// What transfers are predicted by.
	overhead   int64 // us that each takes beyond its bytes
	efficiency int64 // of the NICs' rate; 0: not learned yet
}

func newSchedule(cfg *Config) schedule {
	return schedule{nics: map[peer.ID]*nic{}, lanes: map[*ecmp.Path]*lanes{}, version: 1, due: never,
		maxWait: cfg.MaxWait.Microseconds(), giveUp: cfg.GiveUp.Microseconds()}
}

// waiter is one transfer in the schedule of policy shoal: an Intent, an own one or another peer's.
type waiter struct {
	// What each round looks at comes first: it lies together.
	ready int64 // us of wall time
	// called: its turn has come, and nobody has heard yet that it has started. It is taken to move until then, in us of wall
	// time, over the n paths of these indices.
	until  int64
	src    *nic
	dst    *nic
	called bool
	own    bool
	asked  bool   // for its lane
	lane   *lanes // nil: its paths are unknown
	length int64  // us that it takes once it moves
	rate   int64  // bit/s that its two NICs allow
	turn   int64  // its place: the lesser comes first
	owner  peer.ID
	id     uint64
	place  int // in Table.coming; -1: it is ready
	n      int
	paths  [MaxLegs]uint16
}

// maxLength is the longest transfer that the schedule takes in.
const maxLength = int64(time.Hour / time.Microsecond)

// never is no local time.
const never = time.Duration(math.MaxInt64)

func (w *waiter) compare(v *waiter) int {
	return cmp.Or(cmp.Compare(w.turn, v.turn), cmp.Compare(w.owner, v.owner), cmp.Compare(w.id, v.id))
}

// waiting is how many there are, of all peers.
func (t *Table) waiting() int { return len(t.waiters) + len(t.coming) }

// enqueue makes a waiter of an Intent, where it is one of the schedule and there is room. The next round takes it in, at the
// time when it is ready.
func (t *Table) enqueue(now, wall time.Duration, owner peer.ID, src *nic, dst *nic, e *Entry) *waiter {
	length := e.End - e.Ready
	if own := owner == t.self; e.Ready <= 0 || length <= 0 || length > maxLength || !own && t.waiting()-len(t.ours) >= MaxWaiters {
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
	t.await(w)
	t.due = min(t.due, later(now, wall, w.ready))
	if w.own {
		t.ours, t.follow = place(t.ours, w), 0
	}
	return w
}

func (t *Table) dequeue(w *waiter) {
	if w.place >= 0 {
		t.unawait(w)
	} else {
		t.waiters = remove(t.waiters, w)
	}
	if w.own {
		t.ours, t.follow = remove(t.ours, w), 0
	}
	t.leaveLane(w)
	w.src, w.dst = nil, nil
	t.freeWaiters = append(t.freeWaiters, w)
}

// place puts a waiter where it belongs.
func place(in []*waiter, w *waiter) []*waiter {
	at, _ := slices.BinarySearchFunc(in, w, (*waiter).compare)
	return slices.Insert(in, at, w)
}

func remove(from []*waiter, w *waiter) []*waiter {
	at, found := slices.BinarySearchFunc(from, w, (*waiter).compare)
	if !found {
		panic("reserve: a waiter is not among the waiters: " + string(w.owner))
	}
	return slices.Delete(from, at, at+1)
}

// await puts a waiter among those that are not ready.
func (t *Table) await(w *waiter) {
	w.place = len(t.coming)
	t.coming = append(t.coming, w)
	t.rise(w)
}

// unawait takes it out.
func (t *Table) unawait(w *waiter) {
	last := t.coming[len(t.coming)-1]
	t.coming = t.coming[:len(t.coming)-1]
	if last != w {
		last.place = w.place
		t.coming[last.place] = last
		t.rise(last)
		t.sink(last)
	}
	w.place = -1
}

func (t *Table) rise(w *waiter) {
	for i := w.place; i > 0; {
		up := (i - 1) / 2
		if t.coming[up].ready <= w.ready {
			return
		}
		t.swap(i, up)
		i = up
	}
}

func (t *Table) sink(w *waiter) {
	for i := w.place; ; {
		down := 2*i + 1
		if down+1 < len(t.coming) && t.coming[down+1].ready < t.coming[down].ready {
			down++
		}
		if down >= len(t.coming) || w.ready <= t.coming[down].ready {
			return
		}
		t.swap(i, down)
		i = down
	}
}

func (t *Table) swap(i, j int) {
	c := t.coming
	c[i], c[j] = c[j], c[i]
	c[i].place, c[j].place = i, j
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
	if len(t.ours) == 0 {
		return dst, 0
	}
	at := wall.Microseconds()
	if t.Mode(now) != Waiting {
		next = never
		for _, w := range t.ours {
			if w.ready > at {
				next = min(next, later(now, wall, w.ready))
			} else {
				dst = append(dst, w.id)
			}
		}
		return dst, some(next)
	}
	if t.follow == 0 {
		t.follow = t.lead()
	}
	if at < t.follow {
		return dst, some(later(now, wall, t.follow))
	}
	if t.planned != t.version || now >= t.due {
		t.plan(now, wall)
	}
	if t.mine {
		for _, w := range t.ours {
			if age := at - w.ready; age >= t.giveUp || age >= 0 && w.called && t.sending == 0 {
				dst = append(dst, w.id)
			}
		}
	}
	return dst, some(t.due)
}

// some is a time, or 0 for never.
func some(at time.Duration) time.Duration {
	if at == never {
		return 0
	}
	return at
}

// lead is from when on this peer follows the schedule, in us of wall time: before, nothing in it concerns its own waiters.
// What others begin until then it has heard of when it matters, and where that got lost, heard again by a renewal.
func (t *Table) lead() int64 {
	first := int64(math.MaxInt64)
	for _, w := range t.ours {
		first = min(first, w.ready)
	}
	return max(1, first-(2*t.delays.p99()+t.cfg.Lease/3).Microseconds())
}

// later is the local time at which the wall clock shows so many us.
func later(now, wall time.Duration, us int64) time.Duration {
	if us > int64(never/time.Microsecond) {
		return never
	}
	ahead := max(0, time.Duration(us)*time.Microsecond-wall)
	if ahead > never-now {
		return never
	}
	return now + ahead
}

// weigh counts what has been heard of an entry as a change, unless the last round would come out the same: where the entry takes
// what it took before, or nothing as before. e is what it becomes, nil where it goes; what has just been inserted took nothing.
func (t *Table) weigh(now, wall time.Duration, place uint32, e *Entry) {
	h, at := &t.held[place], wall.Microseconds()
	var links []ecmp.LinkID
	takes, until := false, int64(0)
	switch w := h.turn; {
	case h.entry.ID == 0:
	case h.entry.Phase == Active:
		links, until = h.entry.Links, h.entry.End
		takes = until == 0 || until > at
	case w != nil && w.called && w.until > at:
		takes = true
		if w.n == 1 {
			links, until = w.lane.paths[w.paths[0]].Links, w.until
		}
	}
	will := e != nil && e.Phase == Active && (e.End == 0 || e.End > at)
	switch {
	case !takes && !will && !(t.keeps && h.turn != nil):
	case takes && will && until > 0 && e.End > 0 && !t.keeps && e.Dst == h.entry.Dst && slices.Equal(links, e.Links):
		t.wake(e.End)
		t.due = min(t.due, later(now, wall, e.End))
	default:
		t.version++
	}
}
