package replica

import (
	"cmp"
	"slices"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// A complete copy needs a pass over the store, which may hold everybody's elements. So copies are made for all that ask in
// one message in one pass, and kept for the next who ask: an older copy, and the deltas that follow it in the log, are as
// good as a new one.

// maxCopies bounds the copies kept of one document: the whole one, and patches for different bases.
const maxCopies = 4

// patchFrom is the number of elements from which on trees (2 KiB each) are sent to save what is unchanged.
const patchFrom = 1024

// heldCopy is a copy kept for sending.
type heldCopy struct {
	base    uint64
	version uint64
	parts   []*Delta
	ops     int
	used    uint64
}

// copyPlan is a copy to be made.
type copyPlan struct {
	doc   *document
	base  uint64
	marks map[Section]*Marks // of a patch, for the sets that the other side has
}

// held finds a kept copy from which the log leads on to the present.
func (d *Docs) heldFor(doc *document, base uint64) *heldCopy {
	for _, c := range doc.copies {
		if c.base == base && doc.reaches(c.version) {
			d.clock++
			c.used = d.clock
			return c
		}
	}
	return nil
}

// deltas are the copy's parts and what follows them.
func (c *heldCopy) deltas(doc *document) []*Delta {
	return append(slices.Clip(c.parts), doc.since(c.version)...)
}

// make makes the planned copies in one pass over the store, keeps them, and gives them in the order of the plans.
func (d *Docs) makeCopies(plans []copyPlan) []*heldCopy {
	var sets []Set
	var marks []*Marks
	for _, p := range plans {
		for _, s := range p.doc.sections {
			if s.set != nil {
				sets = append(sets, s.set)
				marks = append(marks, p.marks[s.id])
			}
		}
	}
	elements := make([][]prefix.Change, len(sets))
	if len(sets) > 0 {
		for i := range sets {
			if marks[i] == nil {
				elements[i] = make([]prefix.Change, 0, sets[i].Len())
			}
		}
		d.stats.Scans++
		d.store.Each(sets, func(i int, e prefix.Element) {
			if marks[i] != nil {
				if b, _ := bucketOf(e.Hash); !marks[i].Has(b) {
					return
				}
			}
			elements[i] = append(elements[i], prefix.Change{Element: e})
		})
	}
	out := make([]*heldCopy, len(plans))
	n := 0
	for i := range plans {
		p := &plans[i]
		c := &heldCopy{base: p.base, version: p.doc.stamp.Version}
		sections := 0
		for _, s := range p.doc.sections {
			if s.set != nil {
				sections++
			}
		}
		c.parts, c.ops = cut(p, elements[n:n+sections])
		n += sections
		d.keepCopy(p.doc, c)
		out[i] = c
	}
	return out
}

// cut makes the parts of a copy from the elements of its sets. Where it cuts depends on the content alone.
func cut(p *copyPlan, elements [][]prefix.Change) (parts []*Delta, ops int) {
	var values []Value
	for _, s := range p.doc.sections {
		if s.set == nil {
			values = append(values, s.value)
		}
	}
	for _, e := range elements {
		slices.SortFunc(e, func(a, b prefix.Change) int { return cmp.Compare(a.Hash, b.Hash) })
		ops += len(e)
	}
	n := max(1, (ops+MaxOps-1)/MaxOps, (len(values)+MaxValues-1)/MaxValues)
	parts = make([]*Delta, n)
	for i := range parts {
		parts[i] = &Delta{
			Owner: p.doc.owner, Incarnation: p.doc.stamp.Incarnation, To: p.doc.stamp.Version, Base: p.base,
			Digest: p.doc.declared, Part: uint16(i), Parts: uint16(n),
			Values: values[:min(MaxValues, len(values))],
		}
		values = values[len(parts[i].Values):]
	}
	part, room, set := 0, MaxOps, 0
	for _, s := range p.doc.sections {
		if s.set == nil {
			continue
		}
		e := elements[set]
		set++
		for first := true; first || len(e) > 0; first = false {
			if room == 0 && len(e) > 0 {
				part, room = part+1, MaxOps
			}
			k := min(room, len(e))
			parts[part].Sets = append(parts[part].Sets, SetOps{Section: s.id, Patch: p.marks[s.id], Ops: e[:k:k]})
			e, room = e[k:], room-k
		}
	}
	return parts, ops
}

// keepCopy keeps a copy for others who ask, within the limits.
func (d *Docs) keepCopy(doc *document, c *heldCopy) {
	if c.ops > d.lim.Copies {
		return
	}
	doc.copies = slices.DeleteFunc(doc.copies, func(o *heldCopy) bool {
		gone := o.base == c.base || !doc.reaches(o.version)
		if gone {
			d.copyOps -= o.ops
		}
		return gone
	})
	if len(doc.copies) >= maxCopies {
		d.copyOps -= doc.copies[0].ops
		doc.copies = slices.Delete(doc.copies, 0, 1)
	}
	for d.copyOps+c.ops > d.lim.Copies {
		d.dropOldestCopy()
	}
	d.clock++
	c.used = d.clock
	doc.copies = append(doc.copies, c)
	d.copyOps += c.ops
}

func (d *Docs) dropOldestCopy() {
	var in *document
	at := 0
	for _, doc := range d.order {
		for i, c := range doc.copies {
			if in == nil || c.used < in.copies[at].used {
				in, at = doc, i
			}
		}
	}
	d.copyOps -= in.copies[at].ops
	in.copies = slices.Delete(in.copies, at, at+1)
}

func (d *Docs) dropCopies(doc *document) {
	for _, c := range doc.copies {
		d.copyOps -= c.ops
	}
	doc.copies = nil
}

// plan says how a complete copy for that want is to be made: as a patch where trees tell that most of it is there.
func (doc *document) plan(w *Want) copyPlan {
	whole := copyPlan{doc: doc}
	if w.Digest == 0 || len(w.Trees) == 0 {
		return whole
	}
	p := copyPlan{doc: doc, base: w.Digest, marks: make(map[Section]*Marks)}
	var all, marked int
	for _, s := range doc.sections {
		if s.set == nil {
			continue
		}
		all += s.set.Len()
		i := slices.IndexFunc(w.Trees, func(t Tree) bool { return t.Section == s.id && t.Sums != nil })
		if i < 0 {
			marked += s.set.Len()
			continue
		}
		m := new(Marks)
		n := 0
		for b, sum := range w.Trees[i].Sums {
			if sum != s.sums[b] {
				m.Add(uint8(b))
				n++
			}
		}
		marked += s.set.Len() * n / Buckets
		p.marks[s.id] = m
	}
	if marked*4 > all*3 { // hardly anything spared: the whole copy serves others too
		return whole
	}
	return p
}

// cost estimates the elements of a planned copy.
func (p *copyPlan) cost() int {
	n := 0
	for _, s := range p.doc.sections {
		if s.set == nil {
			continue
		}
		k := s.set.Len()
		if m := p.marks[s.id]; m != nil {
			k = k * m.count() / Buckets
		}
		n += k
	}
	return n
}

// Snapshot gives the parts of a complete copy of a document, nil where it is unknown: for a state file. The copy may be
// older than the document by the deltas that follow it in the list.
func (d *Docs) Snapshot(owner peer.ID) []*Delta {
	d.Commit()
	doc := d.docs[owner]
	if doc == nil || doc.stamp.Version == 0 {
		return nil
	}
	c := d.heldFor(doc, 0)
	if c == nil {
		c = d.makeCopies([]copyPlan{{doc: doc}})[0]
	}
	return c.deltas(doc)
}
