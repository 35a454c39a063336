package replica

import (
	"time"

	"shoal/internal/peer"
)

// maxAsk bounds the complete copies asked for in one message, so that several peers share the work for one that is new.
const maxAsk = 32

// Start makes the first message of a round: one line for every document.
func (d *Docs) Start(now time.Duration) *Exchange {
	d.Commit()
	x := &Exchange{Begin: true, Summaries: make([]Summary, 0, len(d.order))}
	for _, doc := range d.order {
		if doc == d.own && (doc.stamp.Version == 0 || d.withheld(now)) {
			continue
		}
		x.Summaries = append(x.Summaries, doc.summary())
	}
	return x
}

func (doc *document) summary() Summary {
	return Summary{Owner: doc.owner, Stamp: doc.stamp, Digest: doc.digest(), Dead: !doc.alive}
}

// Answer takes in a message from a peer and gives the answer, nil where none is to be sent. What it did to the documents
// is appended to ev. The message may be shared with other peers of this process, and is not changed.
func (d *Docs) Answer(from peer.ID, in *Exchange, now time.Duration, ev []Event) (*Exchange, []Event) {
	d.Commit()
	d.noteRecall(in)
	for _, delta := range in.Deltas {
		o := d.Apply(delta, now)
		e := Event{Outcome: o}
		if delta != nil {
			e.Owner, e.Stamp = delta.Owner, delta.Stamp()
		}
		ev = append(ev, e)
	}
	if !in.Asks() {
		return nil, ev
	}
	a := answer{Docs: d, to: from, now: now, out: &Exchange{}}
	if in.Begin {
		a.compare(in.Summaries)
	} else {
		for i := range in.Offers {
			a.consider(&in.Offers[i], true)
		}
	}
	a.serve(in.Wants)
	d.turn++
	return a.out, ev
}

// answer is one answer in the making.
type answer struct {
	*Docs
	to    peer.ID
	now   time.Duration
	out   *Exchange
	ops   int // in out.Deltas
	asks  int // complete copies asked for
	trees int // in out.Wants
}

// compare goes through the other side's list and ours side by side. A list out of order is garbage, and not answered.
func (a *answer) compare(rows []Summary) {
	for i := 1; i < len(rows); i++ {
		if rows[i-1].Owner >= rows[i].Owner {
			return
		}
	}
	var late []lateness
	i := 0
	for _, doc := range a.order {
		for i < len(rows) && rows[i].Owner < doc.owner {
			a.consider(&rows[i], false)
			i++
		}
		if i == len(rows) || rows[i].Owner != doc.owner {
			a.offer(doc)
			continue
		}
		row := &rows[i]
		i++
		switch {
		case doc.stamp.Less(row.Stamp) || doc == a.own && a.recalls(row.Stamp):
			a.consider(row, false)
		case row.Stamp == doc.stamp:
			a.confirm(doc, row)
		case row.Stamp.Incarnation == doc.stamp.Incarnation && a.mayGive(doc) && doc.reaches(row.Stamp.Version):
			late = append(late, lateness{doc, row.Stamp.Version})
		default:
			a.offer(doc)
		}
	}
	for ; i < len(rows); i++ {
		a.consider(&rows[i], false)
	}
	for i := range late { // begins elsewhere each time, so that a tight limit starves nobody
		l := late[(i+a.turn)%len(late)]
		a.send(l.doc.since(l.version))
	}
}

// lateness is a document that the other side holds at an older version, from which the log leads on.
type lateness struct {
	doc     *document
	version uint64
}

// mayGive reports whether the other side may have this document from us: the living's, and to a peer its own.
func (a *answer) mayGive(doc *document) bool {
	switch {
	case doc.stamp.Version == 0 || doc.suspect():
		return false
	case doc == a.own:
		return !a.withheld(a.now)
	}
	return doc.alive || doc.owner == a.to
}

// offer tells the other side of a document that it lacks and that only a complete copy can bring.
func (a *answer) offer(doc *document) {
	if a.mayGive(doc) {
		s := doc.summary()
		s.Dead = false // it may be asked for, by this peer
		a.out.Offers = append(a.out.Offers, s)
	}
}

// send adds deltas, all or none; false where the message is full. The first ones always fit.
func (a *answer) send(deltas []*Delta) bool {
	ops := 0
	for _, delta := range deltas {
		ops += logCost(delta)
	}
	if a.ops > 0 && a.ops+ops > a.lim.Answer {
		return false
	}
	a.ops += ops
	a.out.Deltas = append(a.out.Deltas, deltas...)
	for _, delta := range deltas {
		switch {
		case !delta.Complete():
			a.stats.Changes++
		case delta.Part == 0:
			a.stats.Snapshots++
			if delta.Base != 0 {
				a.stats.Patches++
			}
		}
	}
	return true
}

// consider asks for a document that the other side holds and we lack; offered says that only a complete copy will do.
func (a *answer) consider(row *Summary, offered bool) {
	if row.Stamp.Version == 0 || row.Owner.Validate() != nil {
		return
	}
	if !a.plausible(row.Stamp.Incarnation, a.now) {
		a.stats.Implausible++
		return
	}
	if row.Owner == a.self {
		switch {
		case a.recalls(row.Stamp):
			a.ask(Want{Owner: a.self})
		case a.own.stamp.Less(row.Stamp):
			a.outbid(row.Stamp.Incarnation, a.now)
		}
		return
	}
	if until, no := a.refused[row.Owner]; row.Dead || no && a.now < until {
		return
	}
	doc := a.docs[row.Owner]
	switch {
	case doc == nil:
		a.ask(Want{Owner: row.Owner})
	case doc.stamp == row.Stamp && offered && row.Digest != doc.digest():
		a.repair(doc, row)
	case !doc.stamp.Less(row.Stamp):
	case doc.stamp.Incarnation == row.Stamp.Incarnation && !offered:
		a.want(Want{Owner: row.Owner, Have: doc.stamp})
	default:
		a.askBetter(doc)
	}
}

// confirm compares digests at the same stamp. They differ only where somebody is at fault; the owner is right.
func (a *answer) confirm(doc *document, row *Summary) {
	if row.Owner == a.to && !row.Dead {
		doc.heard = a.now
	}
	if row.Digest == doc.digest() {
		return
	}
	a.stats.Disagreed++
	if !a.repair(doc, row) {
		a.offer(doc)
	}
}

// repair asks for what the other side holds at the same stamp, where that is right and what we hold is not.
func (a *answer) repair(doc *document, row *Summary) bool {
	if doc == a.own || row.Dead || row.Owner != a.to && !(doc.suspect() && row.Digest == doc.declared) {
		return false
	}
	a.askBetter(doc)
	return true
}

func (a *answer) want(w Want) bool {
	if len(a.out.Wants) >= MaxRows {
		return false
	}
	a.out.Wants = append(a.out.Wants, w)
	return true
}

// ask asks for a complete copy, where nobody else has just been asked for it.
func (a *answer) ask(w Want) {
	if until, ok := a.asked[w.Owner]; ok && a.now < until {
		return
	}
	if a.asks >= maxAsk || len(a.asked) >= MaxRows {
		return
	}
	if a.want(w) {
		a.asks++
		a.asked[w.Owner] = a.now + a.lim.AskAgain
	}
}

// askBetter asks for a copy of a document that is held in an older or a wrong state, most of which may still be good.
func (a *answer) askBetter(doc *document) {
	w := Want{Owner: doc.owner, Have: doc.stamp, Digest: doc.digest()}
	if doc.elements >= patchFrom {
		if t := doc.trees(); a.trees+len(t) <= MaxTrees {
			w.Trees = t
			a.trees += len(t)
		}
	}
	a.ask(w)
}

// serve answers wants: by changes where the log leads on from what the other side has, else by complete copies, which are
// made for all of them in one pass over the store.
func (a *answer) serve(wants []Want) {
	var plans []copyPlan
	planned := 0
	for i := range wants {
		w := &wants[i]
		doc := a.docs[w.Owner]
		if doc == nil || !a.mayGive(doc) || i > 0 && wants[i-1].Owner >= w.Owner {
			continue // wants ascend: no document twice
		}
		repair := w.Have == doc.stamp && w.Digest != 0 && w.Digest != doc.digest()
		switch {
		case !w.Have.Less(doc.stamp) && !repair:
		case !repair && w.Have.Incarnation == doc.stamp.Incarnation && doc.reaches(w.Have.Version):
			a.send(doc.since(w.Have.Version))
		default:
			p := doc.plan(w)
			if c := a.heldFor(doc, p.base); c != nil && !repair {
				a.send(c.deltas(doc))
			} else if cost := p.cost(); a.ops+planned == 0 || a.ops+planned+cost <= a.lim.Answer {
				plans = append(plans, p)
				planned += cost + versionCost
			}
		}
	}
	for i, c := range a.makeCopies(plans) {
		a.send(c.deltas(plans[i].doc))
	}
}
