package replica

import (
	"fmt"
	"slices"
	"time"

	"shoal/internal/prefix"
)

// pending is what happened to one own section since the last Commit. Values are published by Commit; elements are in the
// store at once, since the own peer routes by them.
type pending struct {
	section Section
	content any  // of a value
	removed bool // the section is gone
	reset   bool // a set: emptied before ops
	created bool // a set: not in the version before
	ops     []prefix.Change
}

func (d *Docs) pend(s Section) *pending {
	i, ok := slices.BinarySearchFunc(d.pending, s, func(a *pending, b Section) int { return a.section.Compare(b) })
	if !ok {
		d.pending = slices.Insert(d.pending, i, &pending{section: s})
	}
	return d.pending[i]
}

// Set replaces an own value section; others see it from the next Commit on. Nobody changes content after that.
func (d *Docs) Set(s Section, content any) error {
	if s.Kind.IsSet() || content == nil {
		return fmt.Errorf("replica: section %v cannot be set to a %T: Set is for value sections and content that is not nil", s, content)
	}
	if err := d.mayOpen(s); err != nil {
		return err
	}
	p := d.pend(s)
	p.content, p.removed = content, false
	return nil
}

// mayOpen reports why an own section cannot be, nil where it can.
func (d *Docs) mayOpen(s Section) error {
	if _, ok := d.own.find(s); ok {
		return nil
	}
	if err := s.validate(); err != nil {
		return err
	}
	n := len(d.own.sections)
	for _, p := range d.pending {
		if p.content != nil && d.own.section(p.section) == nil && p.section != s {
			n++
		}
	}
	if n >= MaxSections {
		return fmt.Errorf("replica: section %v would be the own document's %dth; at most %d", s, n+1, MaxSections)
	}
	return nil
}

// Change adds and removes elements of an own set section, which it creates where need be. The slice is copied. Where the
// section is full the additions that do not fit are left out, and the error says so: what is published is then a part of
// what is there.
func (d *Docs) Change(s Section, changes []prefix.Change) error {
	sec, p, err := d.ownSet(s)
	if err != nil {
		return err
	}
	full := 0
	for i, c := range changes {
		if i%ExpectAhead == 0 {
			sec.set.Expect(changes[i:min(i+ExpectAhead, len(changes))])
		}
		if !c.Removed && (sec.set.Len() >= d.lim.Elements || d.own.elements >= MaxElements) && !sec.set.Has(c.Hash) {
			full++
			continue
		}
		if d.do(d.own, sec, c) {
			p.ops = append(p.ops, c)
		}
	}
	if full > 0 {
		return fmt.Errorf("replica: section %v is full with %d elements; %d left out; lower the number of blocks remembered, or raise the limit Elements", s, sec.set.Len(), full)
	}
	return nil
}

// ownSet opens an own set section and what is pending of it.
func (d *Docs) ownSet(s Section) (*section, *pending, error) {
	if !s.Kind.IsSet() {
		return nil, nil, fmt.Errorf("replica: section %v is a value, not a set; use Set", s)
	}
	if err := d.mayOpen(s); err != nil {
		return nil, nil, err
	}
	known := d.own.section(s) != nil
	sec := d.open(d.own, s)
	if sec == nil {
		return nil, nil, fmt.Errorf("replica: the store has no room for section %v", s)
	}
	p := d.pend(s)
	if !known {
		if p.removed { // dropped and made again within one version
			p.removed, p.reset = false, true
		} else {
			p.created = true
		}
	}
	return sec, p, nil
}

// Reset empties an own set section, which it creates where need be.
func (d *Docs) Reset(s Section) error {
	sec, p, err := d.ownSet(s)
	if err != nil || sec.set.Len() == 0 {
		return err
	}
	created := p.created
	d.close(d.own, s)
	if sec = d.open(d.own, s); sec == nil {
		*p = pending{section: s, removed: true}
		return fmt.Errorf("replica: the store has no room for section %v", s)
	}
	*p = pending{section: s, created: created, reset: true}
	return nil
}

// Drop removes an own section, of either sort.
func (d *Docs) Drop(s Section) {
	known := d.own.section(s) != nil
	p := d.pend(s)
	published := known && !p.created || p.removed
	if s.Kind.IsSet() {
		d.close(d.own, s)
	}
	*p = pending{section: s, removed: published}
}

// Commit makes a new version of what changed since the last Commit; changed is false where nothing did. The stamp is the
// own document's: what happened before Commit is covered by it. Start, Answer and Snapshot commit first.
func (d *Docs) Commit() (s Stamp, changed bool) {
	own := d.own
	delta := &Delta{Owner: d.self, Incarnation: own.stamp.Incarnation, From: own.stamp.Version, To: own.stamp.Version + 1, Parts: 1}
	for _, p := range d.pending {
		switch {
		case p.removed:
			d.close(own, p.section)
			delta.Values = append(delta.Values, Value{Section: p.section, Version: delta.To})
		case p.content != nil:
			sec := d.open(own, p.section)
			sec.value = Value{Section: p.section, Version: delta.To, Content: p.content}
			delta.Values = append(delta.Values, sec.value)
			own.digested = 0
		case len(p.ops) > 0 || p.reset || p.created:
			delta.Sets = append(delta.Sets, SetOps{Section: p.section, Reset: p.reset, Ops: slices.Clip(p.ops)})
		}
	}
	clear(d.pending)
	d.pending = d.pending[:0]
	if len(delta.Values)+len(delta.Sets) == 0 {
		return own.stamp, false
	}
	own.stamp.Version++
	delta.Digest = own.digest()
	own.declared = delta.Digest
	if delta.From == 0 || delta.OpCount() > MaxOps || len(delta.Values) > MaxValues {
		d.clearLog(own) // the first version, and one too large for a delta, travel as complete copies
	} else {
		d.appendLog(own, delta)
	}
	return own.stamp, true
}

// outbid raises the own incarnation above one under which somebody else holds a document of ours: the clock has gone back
// since the last start, or a second agent uses this ID. The second case would have both raise for ever, so it is done
// once in outbidEvery.
func (d *Docs) outbid(incarnation uint64, now time.Duration) {
	if now < d.outbidAt || incarnation < d.own.stamp.Incarnation {
		return
	}
	d.Commit()
	d.outbidAt = now + outbidEvery
	d.own.stamp.Incarnation = incarnation + 1
	d.own.digested = 0
	d.own.declared = d.own.digest()
	d.clearLog(d.own)
	d.dropCopies(d.own)
	d.stats.Outbid++
}

const outbidEvery = time.Minute
