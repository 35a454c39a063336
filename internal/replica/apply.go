package replica

import (
	"slices"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// refuseFor is for how long a document that did not fit the limits is not asked for again.
const refuseFor = time.Minute

// Apply takes in one delta; Answer calls it for each.
func (d *Docs) Apply(delta *Delta, now time.Duration) Outcome {
	o := d.apply(delta, now)
	d.stats.Deltas[o]++
	return o
}

func (d *Docs) apply(delta *Delta, now time.Duration) Outcome {
	if delta.Validate() != nil {
		return Corrupt
	}
	if delta.Owner == d.self {
		return d.applyOwn(delta, now)
	}
	if !d.plausible(delta.Incarnation, now) {
		return TooFar
	}
	if delta.Complete() {
		return d.applyPart(delta, now)
	}
	doc := d.docs[delta.Owner]
	switch {
	case doc == nil || doc.stamp.Incarnation < delta.Incarnation:
		return Gap
	case doc.stamp.Incarnation > delta.Incarnation || delta.To <= doc.stamp.Version:
		return Stale
	case delta.From > doc.stamp.Version:
		return Gap
	}
	return d.applyChanges(doc, delta, now)
}

// plausible reports whether an incarnation could be the start of an agent whose clock is about right. One that is not
// would beat all later starts of its owner.
func (d *Docs) plausible(incarnation uint64, now time.Duration) bool {
	return incarnation <= d.born+uint64((now+d.lim.Ahead)/time.Millisecond)
}

// applyChanges applies a delta that begins at or before what is held.
func (d *Docs) applyChanges(doc *document, delta *Delta, now time.Duration) Outcome {
	for i := range delta.Values {
		v := &delta.Values[i]
		if v.Content == nil {
			d.close(doc, v.Section)
			continue
		}
		sec := d.open(doc, v.Section)
		sec.value = *v
		doc.digested = 0
	}
	for i := range delta.Sets {
		s := &delta.Sets[i]
		if s.Reset {
			d.close(doc, s.Section)
		}
		sec := d.open(doc, s.Section)
		if sec == nil {
			return d.refuse(doc.owner, now)
		}
		d.doAll(doc, sec, s.Ops)
	}
	if d.outgrown(doc) {
		return d.refuse(doc.owner, now)
	}
	doc.stamp, doc.declared, doc.heard = delta.Stamp(), delta.Digest, now
	d.appendLog(doc, delta)
	if doc.suspect() {
		return Diverged
	}
	return Applied
}

// refuse drops a document that does not fit, and keeps it away for a while: its owner's limits are not ours, and asking
// for it each round would move it each round.
func (d *Docs) refuse(owner peer.ID, now time.Duration) Outcome {
	if doc := d.docs[owner]; doc != nil {
		d.remove(doc)
	}
	if len(d.refused) < MaxRows {
		d.refused[owner] = now + refuseFor
	}
	return OverLimit
}

// install replaces a document by a complete copy, all or nothing; of a patch's sets the unmarked buckets stay.
func (d *Docs) install(c *copyIn, now time.Duration) Outcome {
	doc := d.docs[c.owner]
	if o := d.check(c, doc); o != Applied {
		if o == OverLimit {
			return d.refuse(c.owner, now)
		}
		return o
	}
	if doc == nil {
		if !d.room() {
			return d.refuse(c.owner, now)
		}
		doc = d.insert(c.owner, now)
	}
	if doc.stamp.Incarnation != c.stamp.Incarnation {
		doc.deadAt = max(doc.deadAt, now) // a new life, even where membership has not told yet
	}
	for _, s := range slices.Clone(doc.sections) { // a patch keeps the sets that it names, everything else is new
		if in := c.find(s.id); s.set == nil || in == nil || in.patch == nil {
			d.close(doc, s.id)
		}
	}
	for i := range c.values {
		d.open(doc, c.values[i].Section).value = c.values[i]
	}
	for i := range c.sets {
		in := &c.sets[i]
		sec := d.open(doc, in.section)
		if sec == nil {
			return d.refuse(c.owner, now)
		}
		if in.patch != nil {
			d.sweepBuckets(doc, sec, in)
		}
		for _, ops := range in.chunks {
			d.doAll(doc, sec, ops)
		}
	}
	d.clearLog(doc)
	d.dropCopies(doc)
	doc.stamp, doc.declared, doc.heard, doc.digested = c.stamp, c.digest, now, 0
	delete(d.asked, c.owner)
	if d.outgrown(doc) { // a patch tells only what it brings
		return d.refuse(c.owner, now)
	}
	d.limitDead()
	if doc.suspect() {
		return Diverged
	}
	return Applied
}

// check decides whether a copy may be installed, before anything is changed.
func (d *Docs) check(c *copyIn, doc *document) Outcome {
	held := 0
	if doc != nil {
		held = doc.elements
		if c.base != 0 && doc.digest() != c.base {
			return Gap
		}
	} else if c.base != 0 {
		return Gap
	}
	digest, elements, ok := c.outcome(doc, d.lim.Elements)
	switch {
	case !ok || elements > MaxElements || len(c.values)+len(c.sets) > MaxSections || d.stats.Elements-held+elements > d.lim.TotalElements:
		return OverLimit
	case digest != c.digest:
		return Corrupt
	}
	return Applied
}

// sweepBuckets removes what the marked buckets of a patch no longer hold.
func (d *Docs) sweepBuckets(doc *document, sec *section, in *setIn) {
	var old []prefix.Hash
	d.stats.Scans++
	d.store.Each([]Set{sec.set}, func(_ int, e prefix.Element) {
		if b, _ := bucketOf(e.Hash); in.patch.Has(b) && !in.has(e.Hash) {
			old = append(old, e.Hash)
		}
	})
	slices.Sort(old)
	for _, h := range old {
		d.do(doc, sec, prefix.Change{Element: prefix.Element{Hash: h}, Removed: true})
	}
}
