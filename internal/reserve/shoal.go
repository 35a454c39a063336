package reserve

import (
	"slices"
	"time"
)

// The shoal policy: one transfer a NIC and a path, the shortest first, by a schedule that every peer reckons for itself.
//
//	Inputs: of every transfer its two ends, its bytes and when they are ready, known before the first byte from its Intent; of
//	every Active one its links and its predicted end; the paths between any two peers (SetPaths); the wall clock.
//	Rules, gone through whenever the table changes, at each predicted end, and when an Intent becomes ready, by peers that have an
//	Intent which is ready or nearly so (Table.lead); what cannot change the outcome is left out (Table.weigh):
//	       1. What is Active takes the NIC of its owner for sending, the NIC of its destination for receiving, and its links,
//	          until its predicted end: then it counts as gone, its RELEASE heard or not, since waiting for that costs more than
//	          it saves. Own ones are no exception, but nothing starts before the own NIC has really done; and what has ended here
//	          before its time counts until the others know, so that all peers look at the same.
//	       2. All that wait (Intents that are ready) are gone through in the order of Ready + Aging x length, where the length is
//	          what the transfer takes by the rate of its NICs: shortest first, and whoever waits moves up.
//	       3. A waiter is admitted where both its NICs and all links of a path are free; it takes the path of the lowest index,
//	          and while its NICs are faster than that further free ones, up to Legs. What it takes is taken for all that follow,
//	          also where it is another peer's and nobody has heard yet that it has started: for as long as it would last.
//	       4. Each peer starts its own, and keeps in mind whose turn has come of the others, and when.
//	A waiter holds nothing, and gets all or nothing: nobody can wait in a circle. One that is older than MaxWait keeps those
//	after it off its two NICs, and where only its paths are taken off the one that is free first: since all that come
//	later are after it in the end, nobody waits for ever.
//	Of unknown paths only the two ends count. Flows of one request go together, over the paths that it gets.
//	Messages: INTENT when the bytes are known, best when prefill starts; START with the path and the predicted end; the end
//	anew when it is off by more than Correct; RELEASE.
//	Prediction: bytes by the rate of the NICs, times the efficiency that long undisturbed own transfers had, and what short ones
//	took beyond that.
//	Conflicts: two that start at once on old news: who has the greater key moves to the free path of the highest index at its next
//	chunk boundary, since those who start take the lowest, and else shares.
//	Tie-break: owner, then ID. Peers with equal tables come out at the same schedule, whatever their clocks differ: the
//	order does not depend on the time.
//	Parameters: Config.Aging, MaxWait, GiveUp, MaxDelay, Correct, MaxSlowdown, Distrust, Legs, Capacity.
//	Fallback: least, without waiting, where the news are too old to wait by (the control delay's 99th percentile is beyond MaxDelay;
//	it ends below three quarters of that), the replica is stale (Table.Stale), more than MaxWaiters wait, or the map of the paths
//	is not to be trusted: a few transfers were slow although nobody else was known to take anything of theirs (doubt.go), or
//	transfers, the own ones or all others', took longer than predicted by more than MaxSlowdown on average. Then for Distrust,
//	doubled while that is not enough, and longer while there is doubt. A single transfer starts so after GiveUp.
//	What starts so says a predicted end too: who waits does not wait for it longer than for others.
func (t *Table) shoal(a *asked) {
	req, at := a.req, a.wall.Microseconds()
	ready := req.Ready
	if ready == 0 || req.Phase == Active {
		ready = at
	}
	ready = max(ready, at-t.giveUp, 1)
	if ready <= at && t.Mode(a.now) != Waiting {
		t.unwaited(a)
		return
	}
	o := t.begin(a.now)
	if o == nil {
		t.unwaited(a)
		return
	}
	o.rate = t.nominal(req)
	rate := o.rate
	length := t.predict(req.Bytes, rate)
	t.intend(a, o, ready, min(ready+length, MaxTime))
	o.rate = rate
	o.alive += t.cfg.GiveUp
	t.queue(a.now, a.wall, o)
	if ready <= at {
		a.intent = o
		t.tryTurn(a, o)
	}
	if a.grant.Queued {
		t.say(o, a.now)
	}
}

// queue puts an own Intent into the schedule.
func (t *Table) queue(now, wall time.Duration, o *own) {
	if o.turn = t.enqueue(now, wall, t.self, t.selfNIC, o.nic, &o.entry); o.turn != nil {
		o.turn.asked, o.turn.lane = true, t.lane(o.set.paths)
	}
}

// shoalStart begins an Intent if it is its turn, or if there is nothing to wait by.
func (t *Table) shoalStart(a *asked, o *own) {
	at := a.wall.Microseconds()
	if o.entry.Ready > at { // the bytes are there sooner
		t.postpone(a.now, a.wall, o, at)
	}
	if t.Mode(a.now) == Waiting && at-o.entry.Ready < t.giveUp && o.turn != nil {
		t.tryTurn(a, o)
		return
	}
	if t.Mode(a.now) == Waiting {
		t.stats.GivenUp++
	}
	t.unwaited(a)
	if a.intent != nil {
		t.end(o)
	}
}

// unwaited has least decide.
// Its predicted end is said all the same, for those who wait: they shall not wait for it longer than for another.
func (t *Table) unwaited(a *asked) {
	t.stats.Unwaited++
	rate := t.nominal(a.req)
	a.end = min(a.wall.Microseconds()+t.predict(a.req.Bytes, rate), MaxTime)
	t.choose(a)
}

// tryTurn starts an own waiter if the schedule says so; else it stays queued.
func (t *Table) tryTurn(a *asked, o *own) {
	if t.planned != t.version || a.now >= t.due {
		t.plan(a.now, a.wall)
	}
	if o.turn == nil || !o.turn.called || t.sending > 0 {
		a.grant.ID, a.grant.Queued = o.entry.ID, true
		return
	}
	a.grant.ID, a.grant.Queued = 0, false
	t.stats.Scheduled++
	t.stats.Waited += a.wall - time.Duration(o.entry.Ready)*time.Microsecond
	t.begun(a, o)
	if a.intent != nil {
		t.end(o)
	}
}

// begun reserves the paths that the schedule has given.
func (t *Table) begun(a *asked, o *own) {
	s := a.req.Set
	if !t.use(s) {
		t.choose(a)
		return
	}
	paths, n := o.turn.paths, min(o.turn.n, MaxPerOwner-t.ownCount()+1)
	if n == 0 { // its paths did not fit the schedule
		paths[0], n = uint16(t.cheapest(s)), 1
	}
	var total uint64
	for _, p := range paths[:n] {
		total += uint64(s.width(int(p)))
	}
	req := a.req
	a.rate, a.ready = o.rate, o.entry.Ready
	a.length = t.predict(req.Bytes, min(o.rate, int64(min(total, MaxCapacity))))
	a.end = min(a.wall.Microseconds()+1+a.length, MaxTime)
	if flows := req.Flows; flows > 1 {
		for i := range flows {
			t.reserve(a, int(paths[i%n]), share(req.Bytes, i, flows))
		}
		return
	}
	a.several = n > 1
	left := req.Bytes
	for i, p := range paths[:n] {
		w, part := uint64(s.width(int(p))), left
		if i < n-1 {
			part = portion(left, w, total)
		}
		t.reserve(a, int(p), part)
		left -= part
		total -= w
	}
}

// shoalAgain is where the loser of a conflict goes: the free path of the highest index, since those who start take the
// lowest.
func (t *Table) shoalAgain(o *own, wall time.Duration) (int, bool) {
	at, l := wall.Microseconds(), t.lane(o.set.paths)
	if l == nil {
		return 0, false
	}
	defer func() { l.holds-- }()
	t.round++
	t.planned = 0
	t.occupyActive(at, o)
	if !slices.ContainsFunc(l.path(o.path), t.taken) {
		o.contested = false
		return 0, false
	}
	for _, w := range t.waiters {
		if w.called && w.until > at {
			t.stands(w)
		}
	}
	for p := len(l.paths) - 1; p >= 0; p-- {
		if !slices.ContainsFunc(l.path(p), t.taken) {
			return p, true
		}
	}
	return 0, false
}

// width is the capacity of the path's narrowest link, in bit/s.
func (s *Set) width(path int) int64 {
	w := int64(MaxCapacity)
	for _, c := range s.caps[path] {
		w = min(w, c)
	}
	return w
}

// nominal is the rate in bit/s at which a transfer is expected to move: what its NICs allow, or where nobody says that, the
// widest of its paths. One without links, within a leaf, says nothing of that.
func (t *Table) nominal(req *Request) int64 {
	if req.Rate > 0 {
		return req.Rate
	}
	var widest int64
	for p, path := range req.Set.paths {
		if len(path.Links) > 0 {
			widest = max(widest, req.Set.width(p))
		}
	}
	if widest == 0 {
		return t.cfg.Capacity
	}
	return widest
}

// Ready says when the bytes of an Intent will be ready, where that has turned out to be sooner or later than it said, in us
// of wall time. It is false where the Intent has ended or begun. An Intent that nobody starts lapses a lease later, or with
// policy shoal a lease after Config.GiveUp.
func (t *Table) Ready(now, wall time.Duration, id uint64, ready int64) bool {
	o := t.find(id)
	if o == nil || o.entry.Phase != Intent {
		return false
	}
	t.postpone(now, wall, o, max(1, min(ready, (wall+MaxReady).Microseconds())))
	return true
}

func (t *Table) postpone(now, wall time.Duration, o *own, ready int64) {
	scheduled, length := o.turn != nil, o.entry.End-o.entry.Ready
	t.unaim(o)
	o.entry.Ready = ready
	o.alive = max(now, later(now, wall, ready))
	t.aim(o)
	if scheduled {
		o.entry.End = ready + length
		o.alive += t.cfg.GiveUp
		t.queue(now, wall, o)
	}
	t.say(o, now)
}

// Resume makes a reservation anew for a leg whose lease has ended: its bytes have moved again, or still do, so that it waits
// for nobody. One leg stays one: policies that would spread it or have it wait take a path as least does. req says what
// Reserve was asked, its Bytes what this leg has left.
func (t *Table) Resume(now, wall time.Duration, req *Request, leg *Leg) error {
	r, g := *req, Grant{}
	r.Flows, r.Phase = 0, Active
	if r.Policy == Split || r.Policy == Shoal {
		r.Policy = Least
	}
	if err := t.Reserve(now, wall, &r, &g); err != nil {
		return err
	}
	leg.ID, leg.Path, leg.Reserved = g.Legs[0].ID, g.Legs[0].Path, g.Legs[0].Reserved
	return nil
}
