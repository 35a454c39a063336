package reserve

import (
	"fmt"
	"slices"
	"time"

	"shoal/internal/peer"
)

// slotBits of an own ID are its place in Table.own; the rest counts up.
const slotBits = 10

// own is one reservation of this peer.
type own struct {
	entry     Entry // as last said
	set       *Set
	policy    Policy
	flows     int // of an Intent
	path      int
	left      int64         // bytes, as the transfer last told
	alive     time.Duration // when bytes last moved, or an Intent last gave a sign of life; an Intent's Ready
	saidAt    time.Duration
	waiting   int32 // place in Table.out and 1; 0: nothing of it waits
	live      bool
	told      bool // somebody may know of it
	contested bool // it lost a conflict and has not moved since
	moves     int

	nic  *nic    // of the destination
	turn *waiter // of an Intent in the schedule
	rate int64   // bit/s that both NICs allow, nominally
	// What was predicted of a transfer that began at its turn; length 0: it did not.
	total     int64 // bytes
	foreseen  int64 // of them, moved when the end was last looked at; 0: it was not
	first     int64 // of them, moved when that was first told, at firstAt
	firstAt   time.Duration
	length    int64         // us
	began     time.Duration // local time
	learned   bool          // by what was learned from others before
	several   bool          // it has further flows
	disturbed bool          // it lost a conflict
	alone     bool          // nobody else was known to take anything of it when it began
	promised  int64         // us of wall time, the end as it was first said
	foretold  int64         // us that it was said to take, where that can be judged; 0: it cannot
}

// MaxReady is how far ahead an Intent may lie.
const MaxReady = 10 * time.Minute

// Request asks for the paths of one transfer.
type Request struct {
	Dst    peer.ID // who receives the bytes
	Bytes  int64   // of the whole transfer
	Set    *Set    // the paths there
	Policy Policy
	Flows  int    // of one tensor-parallel transfer, spread over paths together; 0 is 1
	Group  uint64 // joins them with those of other requests; 0: a transfer of several flows gets one of its own
	// Phase is Active where the bytes move at once. An Intent only says that they will, at Ready; Start begins it.
	Phase Phase
	Ready int64 // us of wall time; 0: unknown, and with policy shoal now
	// Rate is what the NICs at both ends allow, in bit/s: policy shoal predicts by it. 0: the narrowest link of the widest path.
	Rate int64
}

func (r *Request) validate(wall time.Duration) error {
	switch {
	case r.Dst.Validate() != nil:
		return fmt.Errorf("reserve: the destination: %w", r.Dst.Validate())
	case r.Set == nil:
		return fmt.Errorf("reserve: no paths to %s; register them with Paths first", r.Dst)
	case r.Bytes < 0 || r.Bytes > MaxBytes:
		return fmt.Errorf("reserve: %d bytes to %s; give 0 to %d", r.Bytes, r.Dst, int64(MaxBytes))
	case r.Flows < 0 || r.Flows > MaxFlows:
		return fmt.Errorf("reserve: %d flows to %s; give 1 to %d", r.Flows, r.Dst, MaxFlows)
	case !r.Policy.known():
		return fmt.Errorf("reserve: policy %d does not exist; use one of %v", uint8(r.Policy), policyNames)
	case r.Phase > Intent:
		return fmt.Errorf("reserve: phase %d does not exist", uint8(r.Phase))
	case r.Ready != 0 && (r.Ready < 0 || r.Ready > (wall+MaxReady).Microseconds()):
		return fmt.Errorf("reserve: ready at %d us; give a time since 1970, at most %v ahead, or 0", r.Ready, MaxReady)
	case r.Rate < 0 || r.Rate > MaxCapacity:
		return fmt.Errorf("reserve: a rate of %d bit/s; give 1 to %d, or 0", r.Rate, int64(MaxCapacity))
	}
	return nil
}

// Leg is one flow of a transfer.
type Leg struct {
	ID       uint64 // of its reservation: for Renew, Move and Release; 0: it has none
	Path     int    // index in the set
	Share    int64  // bytes of the transfer
	Reserved bool
}

// Grant is the answer. It belongs to the caller, who may use it for the next request: all of it is overwritten, and the
// memory of Legs is kept.
type Grant struct {
	// ID is that of the first reservation; 0: there is none. All flows that belong together have a Group in the table.
	ID uint64
	// Queued: nothing may move yet. ID is an Intent: Start it at its time, with policy shoal when Admit gives it. Legs is empty.
	Queued bool
	// Fallback: the policy found no path to reserve for at least one flow, which takes a random one.
	Fallback bool
	Legs     []Leg
	Lease    time.Duration // Renew each reservation when bytes have moved, some times within it
}

func (g *Grant) reset(lease time.Duration) {
	g.ID, g.Queued, g.Fallback, g.Legs, g.Lease = 0, false, false, g.Legs[:0], lease
}

// asked is one request on its way through a policy.
type asked struct {
	now, wall time.Duration
	req       *Request
	group     uint64
	grant     *Grant
	intent    *own  // that turns Active: its ID goes to the first reservation
	several   bool  // flows: they get a Group
	length    int64 // us that it takes, predicted; 0: it is not
	ready     int64
	rate      int64
	end       int64 // us of wall time, what is said of it
}

// Reserve chooses the paths of a transfer and records them. Whatever happens bytes can move: where nothing can be
// reserved, or the policy does not, the legs say a path without a reservation. An error is the request's.
func (t *Table) Reserve(now, wall time.Duration, req *Request, g *Grant) error {
	g.reset(t.cfg.Lease)
	if err := req.validate(wall); err != nil {
		return err
	}
	var a asked // a literal would be made aside and copied
	a.now, a.wall, a.req, a.group, a.grant, a.ready = now, wall, req, req.Group, g, req.Ready
	if req.Policy == Shoal {
		t.shoal(&a)
		return nil
	}
	if req.Phase == Active || req.Policy == ECMP {
		t.choose(&a)
		return nil
	}
	o := t.begin(now)
	if o == nil {
		t.choose(&a) // nobody can be told: it starts when it likes
		return nil
	}
	t.intend(&a, o, req.Ready, 0)
	t.say(o, now)
	return nil
}

// intend records an Intent; nobody hears of it yet.
func (t *Table) intend(a *asked, o *own, ready, end int64) {
	req := a.req
	o.entry = Entry{ID: o.entry.ID, Stamp: t.clock.next(a.wall), Phase: Intent, Dst: req.Dst, Bytes: req.Bytes, Group: req.Group, Ready: ready, End: end}
	o.set, o.policy, o.flows, o.left, o.rate = req.Set, req.Policy, req.Flows, req.Bytes, req.Rate
	o.alive = max(a.now, later(a.now, a.wall, ready)) // Ready 0 lies in the past
	t.aim(o)
	a.grant.ID, a.grant.Queued = o.entry.ID, true
}

// aim counts the bytes of a reservation towards its destination.
func (t *Table) aim(o *own) {
	if o.nic == nil || o.nic.id != o.entry.Dst {
		if o.nic != nil {
			t.leave(o.nic)
		}
		o.nic = t.nic(o.entry.Dst)
	}
	o.nic.owed += o.entry.Bytes
	t.version++
}

// unaim takes them back, and the reservation out of the schedule.
func (t *Table) unaim(o *own) {
	o.nic.owed -= o.entry.Bytes
	t.version++
	if o.turn != nil {
		t.dequeue(o.turn)
		o.turn = nil
	}
}

// Start turns an Intent into Active, and chooses its paths now: the table is as fresh as it can be. It is false where
// the Intent has ended, released or lapsed: the transfer reserves anew. Of what is Active already it tells the leg.
func (t *Table) Start(now, wall time.Duration, id uint64, g *Grant) bool {
	g.reset(t.cfg.Lease)
	o := t.find(id)
	if o == nil {
		return false
	}
	if o.entry.Phase == Active {
		g.ID, g.Legs = id, append(g.Legs, Leg{id, o.path, o.left, true})
		return true
	}
	req := Request{Dst: o.entry.Dst, Bytes: o.left, Set: o.set, Policy: o.policy, Flows: o.flows, Ready: o.entry.Ready, Rate: o.rate}
	a := asked{now: now, wall: wall, req: &req, group: o.entry.Group, grant: g, intent: o, ready: req.Ready}
	if o.policy == Shoal {
		t.shoalStart(&a, o)
		return true
	}
	t.choose(&a)
	if a.intent != nil { // no leg has taken it over
		t.end(o)
	}
	return true
}

// choose asks the policy.
func (t *Table) choose(a *asked) {
	if !t.use(a.req.Set) {
		t.ecmp(a)
		a.grant.Fallback = true
		t.stats.Fallbacks += uint64(len(a.grant.Legs))
		return
	}
	switch a.req.Policy {
	case ECMP:
		t.ecmp(a)
	case Ark:
		t.ark(a)
	case Split:
		t.split(a)
	default:
		t.least(a)
	}
}

// unreserved adds a flow on a random path, of which nobody is told.
func (t *Table) unreserved(a *asked, share int64) {
	a.grant.Legs = append(a.grant.Legs, Leg{Path: t.rng.IntN(a.req.Set.Len()), Share: share})
}

// fallback is unreserved where the policy wanted a reservation.
func (t *Table) fallback(a *asked, share int64) {
	t.unreserved(a, share)
	a.grant.Fallback = true
	t.stats.Fallbacks++
}

// reserve adds a flow on the path, and records it.
func (t *Table) reserve(a *asked, path int, share int64) {
	o := a.intent
	if o == nil {
		if o = t.begin(a.now); o == nil {
			t.fallback(a, share)
			return
		}
	}
	if a.intent != nil {
		t.unaim(o)
		a.intent = nil
	}
	e := &o.entry
	if a.group == 0 && (a.several || a.req.Flows > 1) {
		a.group = e.ID
	}
	e.Stamp, e.Phase, e.Links = t.clock.next(a.wall), Active, a.req.Set.paths[path].Links
	e.Dst, e.Bytes, e.Group, e.Ready, e.End = a.req.Dst, share, a.group, a.ready, a.end
	o.set, o.policy, o.path, o.left, o.alive = a.req.Set, a.req.Policy, path, share, a.now
	if o.length = a.length; o.length > 0 {
		o.rate, o.total, o.began, o.learned, o.several, o.disturbed, o.foreseen = a.rate, share, a.now, t.efficiency > 0, a.several || a.req.Flows > 1, false, 0
	}
	t.aim(o)
	t.sending++
	t.selfNIC.sends++
	o.nic.receives++
	t.carry(o.set, path, 1, share)
	if o.foretold, o.alone = 0, false; a.end > 0 && t.efficiency > 0 && !a.several && a.req.Flows <= 1 {
		o.total, o.began, o.promised, o.foretold, o.alone = share, a.now, a.end, a.end-a.wall.Microseconds(), t.aloneOwn(o)
	}
	t.say(o, a.now)
	if a.grant.ID == 0 {
		a.grant.ID = e.ID
	}
	a.grant.Legs = append(a.grant.Legs, Leg{e.ID, path, share, true})
}

// begin gives a place and an ID, nil where MaxPerOwner is reached.
func (t *Table) begin(now time.Duration) *own {
	var slot int
	if n := len(t.freeOwn); n > 0 {
		slot = int(t.freeOwn[n-1])
		t.freeOwn = t.freeOwn[:n-1]
	} else if len(t.own) < MaxPerOwner {
		slot = len(t.own)
		t.own = append(t.own, own{})
	} else {
		return nil
	}
	t.count++
	t.stats.Reserved++
	o := &t.own[slot]
	o.entry.ID = t.count<<slotBits | uint64(slot)
	o.live, o.alive = true, now
	return o
}

// find is the own reservation with the ID, nil where it has ended.
func (t *Table) find(id uint64) *own {
	slot := id & (1<<slotBits - 1)
	if slot >= uint64(len(t.own)) || !t.own[slot].live || t.own[slot].entry.ID != id {
		return nil
	}
	return &t.own[slot]
}

// Holds reports whether the own reservation with the ID stands: it was neither released, nor has it lapsed.
func (t *Table) Holds(id uint64) bool { return t.find(id) != nil }

// Renew says that bytes have moved and how many are left: the lease begins anew. It is false where the reservation has
// ended: the transfer reserves anew. The others hear of it every third of a lease.
func (t *Table) Renew(now, wall time.Duration, id uint64, left int64) bool {
	o := t.find(id)
	if o == nil {
		return false
	}
	o.left = max(0, min(left, MaxBytes))
	o.alive = max(o.alive, now)
	end, wrong := t.foresee(now, wall, o)
	if wrong {
		o.entry.End = min(end, MaxTime)
		t.stats.Corrected++
		t.version++
	}
	if wrong || now-o.saidAt >= t.cfg.Lease/3 {
		t.restate(o)
		t.say(o, now)
	}
	return true
}

// restate makes what is said of the bytes what is true of them.
func (t *Table) restate(o *own) {
	if o.entry.Phase == Active {
		t.carry(o.set, o.path, 0, o.left-o.entry.Bytes)
	}
	o.nic.owed += o.left - o.entry.Bytes
	o.entry.Bytes = o.left
}

// Release ends a reservation: its bytes have moved, or never will. It is false where it has ended already.
func (t *Table) Release(now, wall time.Duration, id uint64) bool {
	o := t.find(id)
	if o == nil {
		return false
	}
	t.attest(now, o)
	t.learn(now, o)
	t.linger(wall, o)
	t.end(o)
	t.stats.Released++
	return true
}

// Move is asked at a chunk boundary, when the transfer can change its path. Where the reservation has lost a conflict
// and another path is strictly better, it is recorded there, the others are told, and the leg says where the bytes go
// from now on. Otherwise it is false, and costs next to nothing while there is no conflict.
func (t *Table) Move(now, wall time.Duration, id uint64) (Leg, bool) {
	o := t.find(id)
	if o == nil || !o.contested {
		return Leg{}, false
	}
	if o.moves >= t.cfg.Moves {
		o.contested = false
		t.stats.MovesRefused++
		return Leg{}, false
	}
	t.carry(o.set, o.path, -1, -o.entry.Bytes)
	to, better := t.again(o, wall)
	if !better {
		t.carry(o.set, o.path, 1, o.entry.Bytes)
		return Leg{}, false
	}
	o.path, o.contested = to, false
	o.moves++
	o.nic.owed += o.left - o.entry.Bytes
	o.entry.Stamp, o.entry.Links, o.entry.Bytes = t.clock.next(wall), o.set.paths[to].Links, o.left
	t.carry(o.set, to, 1, o.left)
	t.version++
	t.say(o, now)
	t.stats.Moves++
	return Leg{id, to, o.left, true}, true
}

// again asks the policy of a reservation that has been taken off its path whether another is strictly better.
func (t *Table) again(o *own, wall time.Duration) (int, bool) {
	t.refresh(o.set)
	if o.length > 0 {
		return t.shoalAgain(o, wall)
	}
	if o.policy == Ark {
		return t.arkAgain(o.set, o.path)
	}
	return t.leastAgain(o)
}

// contest marks own reservations that cross the link and lose against what has just been heard on it.
func (t *Table) contest(link *link, wall time.Duration, owner peer.ID, e *Entry) {
	at := wall.Microseconds()
	for i := range t.own {
		o := &t.own[i]
		if o.live && !o.contested && o.entry.Phase == Active && (o.length == 0 || e.End == 0 || e.End > at) && e.before(owner, &o.entry, t.self) && slices.Contains(o.set.links(o.path), link) {
			o.contested, o.disturbed = true, true
			t.stats.Conflicts++
		}
	}
}
