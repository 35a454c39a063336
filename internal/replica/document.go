package replica

import (
	"slices"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// document is what is held of one peer.
type document struct {
	owner    peer.ID
	stamp    Stamp
	sections []*section // ascending
	elements int        // of all sets
	digested uint64     // the digest, 0 where it must be computed anew
	declared uint64     // the owner's digest at this stamp
	heard    time.Duration
	alive    bool
	deadAt   time.Duration // since when it is not alive: it died, or was first held

	log     []*Delta // each begins at or before the end of the one before; the last ends at stamp
	logCost int
	merged  map[uint64][]*Delta // what brings a peer from a version to this one, made before
	copies  []*heldCopy
}

// section is one section; sums and set are nil for values.
type section struct {
	id    Section
	tag   uint64
	value Value
	set   Set
	sums  *[Buckets]uint64
}

func (doc *document) find(s Section) (int, bool) {
	return slices.BinarySearchFunc(doc.sections, s, func(a *section, b Section) int { return a.id.Compare(b) })
}

func (doc *document) section(s Section) *section {
	if i, ok := doc.find(s); ok {
		return doc.sections[i]
	}
	return nil
}

// open gives the section, which it makes where need be; nil where the store has no room for its set. The caller has
// checked that the document may have one more.
func (d *Docs) open(doc *document, s Section) *section {
	i, ok := doc.find(s)
	if ok {
		return doc.sections[i]
	}
	sec := &section{id: s, tag: s.tag()}
	if s.Kind.IsSet() {
		if sec.set = d.store.Open(doc.owner, s); sec.set == nil {
			return nil
		}
		sec.sums = new([Buckets]uint64)
	}
	doc.sections = slices.Insert(doc.sections, i, sec)
	doc.digested = 0
	return sec
}

// close removes a section where it is there.
func (d *Docs) close(doc *document, s Section) {
	i, ok := doc.find(s)
	if !ok {
		return
	}
	d.release(doc, doc.sections[i])
	doc.sections = slices.Delete(doc.sections, i, i+1)
	doc.digested = 0
}

func (d *Docs) closeAll(doc *document) {
	for _, s := range doc.sections {
		d.release(doc, s)
	}
	doc.sections, doc.digested = nil, 0
}

func (d *Docs) release(doc *document, s *section) {
	if s.set == nil {
		return
	}
	n := s.set.Len()
	doc.elements -= n
	d.stats.Elements -= n
	s.set.Close()
	s.set = nil
}

// do performs one operation on a set section and keeps its sums; false where it changed nothing.
func (d *Docs) do(doc *document, s *section, c prefix.Change) bool {
	b, m := bucketOf(c.Hash)
	if c.Removed {
		if !s.set.Remove(c.Hash) {
			return false
		}
		s.sums[b] -= m
		doc.elements--
		d.stats.Elements--
	} else {
		if !s.set.Add(c.Element) {
			return false
		}
		s.sums[b] += m
		doc.elements++
		d.stats.Elements++
	}
	doc.digested = 0
	return true
}

// doAll does many changes.
func (d *Docs) doAll(doc *document, s *section, changes []prefix.Change) {
	for i, c := range changes {
		if i%ExpectAhead == 0 {
			s.set.Expect(changes[i:min(i+ExpectAhead, len(changes))])
		}
		d.do(doc, s, c)
	}
}

// insert puts a new document into the table.
func (d *Docs) insert(owner peer.ID, now time.Duration) *document {
	_, alive := d.alive[owner]
	doc := &document{owner: owner, alive: alive || owner == d.self, deadAt: now, heard: now}
	i, _ := d.findDoc(owner)
	d.order = slices.Insert(d.order, i, doc)
	d.docs[owner] = doc
	return doc
}

func (d *Docs) findDoc(owner peer.ID) (int, bool) {
	return slices.BinarySearchFunc(d.order, owner, func(a *document, b peer.ID) int {
		switch {
		case a.owner < b:
			return -1
		case a.owner > b:
			return 1
		}
		return 0
	})
}

// remove forgets a document; the next Expire tells the node.
func (d *Docs) remove(doc *document) {
	d.closeAll(doc)
	d.clearLog(doc)
	d.dropCopies(doc)
	i, _ := d.findDoc(doc.owner)
	d.order = slices.Delete(d.order, i, i+1)
	delete(d.docs, doc.owner)
	if len(d.gone) < MaxRows {
		d.gone = append(d.gone, doc.owner)
	}
}

// outgrown reports whether the document is larger than the limits allow.
func (d *Docs) outgrown(doc *document) bool {
	if len(doc.sections) > MaxSections || doc.elements > MaxElements || d.stats.Elements > d.lim.TotalElements {
		return true
	}
	for _, s := range doc.sections {
		if s.set != nil && s.set.Len() > d.lim.Elements {
			return true
		}
	}
	return false
}
