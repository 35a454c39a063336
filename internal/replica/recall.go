package replica

import (
	"cmp"
	"slices"
	"time"

	"shoal/internal/prefix"
)

// An agent that restarts beside a warm engine wants the document of its former life, which its peers have kept. They would
// replace it by the new one as soon as they see that. So the new document is held back: the agent does not list it, and to
// its peers it looks as if it lacked its own document, which they offer to it as they would any other.

// recallMisses is after how many messages that know of no former document the new one is held back no longer.
const recallMisses = 4

type recall struct {
	on     bool
	until  time.Duration
	misses int
	doc    *Document
}

// Document is one whole document at one stamp, apart from any Store.
type Document struct {
	Stamp  Stamp
	Values []Value  // ascending by section
	Sets   []SetOps // ascending by section; Ops are additions, ascending by hash
}

// Recall asks the peers for the own document of a former start. The new one is held back meanwhile: until the given time,
// or EndRecall, or a few messages of peers that have none, whichever comes first. Call it before the first round.
func (d *Docs) Recall(until time.Duration) { d.recall = recall{on: true, until: until} }

// Recalled is the newest older incarnation of the own document that has arrived, nil before one has.
func (d *Docs) Recalled() *Document { return d.recall.doc }

// EndRecall publishes the own document and forgets the recalled one.
func (d *Docs) EndRecall() {
	d.recall = recall{}
	d.unstage(d.self)
}

func (d *Docs) withheld(now time.Duration) bool {
	return d.recall.on && now < d.recall.until && d.recall.misses < recallMisses
}

// recalls reports whether a former own document with that stamp is one to ask for.
func (d *Docs) recalls(s Stamp) bool {
	return d.recall.on && s.Incarnation < d.own.stamp.Incarnation && (d.recall.doc == nil || d.recall.doc.Stamp.Less(s))
}

// noteRecall counts messages that know nothing of a former own document.
func (d *Docs) noteRecall(in *Exchange) {
	if !d.recall.on {
		return
	}
	former := func(s Summary) bool { return s.Owner == d.self && s.Stamp.Incarnation < d.own.stamp.Incarnation }
	for _, s := range in.Summaries {
		if former(s) {
			d.recall.misses = 0
			return
		}
	}
	for _, s := range in.Offers {
		if former(s) {
			d.recall.misses = 0
			return
		}
	}
	d.recall.misses++
}

// applyOwn takes in somebody's copy of the own document: never to replace it.
func (d *Docs) applyOwn(delta *Delta, now time.Duration) Outcome {
	own, s := d.own.stamp, delta.Stamp()
	switch {
	case !d.plausible(delta.Incarnation, now):
		return TooFar
	case own.Less(s) && s.Incarnation >= own.Incarnation:
		d.outbid(s.Incarnation, now)
		return Refused
	case d.continues(delta):
		next := d.recall.doc.after(delta)
		if digest, elements, ok := next.copyIn().outcome(nil, MaxElements); !ok || digest != delta.Digest || elements > MaxElements {
			return Corrupt // the copy stays: older, but whole
		}
		d.recall.doc = next
		return Recalled
	case s.Incarnation == own.Incarnation || !delta.Complete() || delta.Base != 0 || !d.recalls(s):
		return Stale
	}
	parts, o := d.stage(delta, now)
	if parts == nil {
		return o
	}
	c, ok := newCopyIn(parts)
	if !ok {
		return Corrupt
	}
	if digest, _, ok := c.outcome(nil, MaxElements); !ok || digest != c.digest {
		return Corrupt
	}
	d.recall.doc = c.document()
	d.recall.misses = 0
	return Recalled
}

// continues reports whether delta has changes that follow the recalled document: a copy that was made a while ago comes
// with those since.
func (d *Docs) continues(delta *Delta) bool {
	doc := d.recall.doc
	return doc != nil && !delta.Complete() && delta.Incarnation == doc.Stamp.Incarnation && delta.From <= doc.Stamp.Version &&
		doc.Stamp.Version < delta.To
}

// after is the document with these changes made.
func (doc *Document) after(delta *Delta) *Document {
	next := &Document{Stamp: delta.Stamp()}
	values, sets := map[Section]Value{}, map[Section]map[prefix.Hash]prefix.Change{}
	for _, v := range doc.Values {
		values[v.Section] = v
	}
	for _, s := range doc.Sets {
		sets[s.Section] = map[prefix.Hash]prefix.Change{}
		for _, c := range s.Ops {
			sets[s.Section][c.Hash] = c
		}
	}
	for _, v := range delta.Values {
		if v.Content == nil && v.Raw == nil {
			delete(values, v.Section)
			delete(sets, v.Section)
			continue
		}
		values[v.Section] = v
	}
	for _, s := range delta.Sets {
		if sets[s.Section] == nil || s.Reset {
			sets[s.Section] = map[prefix.Hash]prefix.Change{}
		}
		for _, c := range s.Ops {
			if c.Removed {
				delete(sets[s.Section], c.Hash)
			} else {
				sets[s.Section][c.Hash] = c
			}
		}
	}
	for _, v := range values {
		next.Values = append(next.Values, v)
	}
	slices.SortFunc(next.Values, func(a, b Value) int { return a.Section.Compare(b.Section) })
	for section, of := range sets {
		s := SetOps{Section: section, Ops: make([]prefix.Change, 0, len(of))}
		for _, c := range of {
			s.Ops = append(s.Ops, c)
		}
		slices.SortFunc(s.Ops, func(a, b prefix.Change) int { return cmp.Compare(a.Hash, b.Hash) })
		next.Sets = append(next.Sets, s)
	}
	slices.SortFunc(next.Sets, func(a, b SetOps) int { return a.Section.Compare(b.Section) })
	return next
}

// copyIn is the document as if it had come in one part.
func (doc *Document) copyIn() *copyIn {
	c := &copyIn{stamp: doc.Stamp, values: doc.Values}
	for _, s := range doc.Sets {
		in := setIn{section: s.Section, n: len(s.Ops)}
		if in.n > 0 {
			in.chunks = [][]prefix.Change{s.Ops}
		}
		c.sets = append(c.sets, in)
	}
	return c
}

// document joins the chunks.
func (c *copyIn) document() *Document {
	doc := &Document{Stamp: c.stamp, Values: c.values}
	for i := range c.sets {
		in := &c.sets[i]
		s := SetOps{Section: in.section}
		if len(in.chunks) == 1 {
			s.Ops = in.chunks[0]
		} else {
			for _, ops := range in.chunks {
				s.Ops = append(s.Ops, ops...)
			}
		}
		doc.Sets = append(doc.Sets, s)
	}
	return doc
}
