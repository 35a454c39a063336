package replica

import (
	"slices"
	"sort"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// A complete copy that does not fit one delta comes in parts. They are kept aside until all are there, so that half a copy
// is never taken for the whole, and then installed at once. Parts may come in any order and from several peers: how a copy
// is cut depends on nothing but its content.

// maxStaged bounds the incomplete copies.
const maxStaged = 256

// staged is an incomplete copy.
type staged struct {
	first *Delta // says which copy it is
	parts []*Delta
	have  int
	ops   int
	until time.Duration
}

func (s *staged) same(d *Delta) bool {
	return s.first.Stamp() == d.Stamp() && s.first.Base == d.Base && s.first.Digest == d.Digest && s.first.Parts == d.Parts
}

// applyPart takes in a complete copy of somebody else's document, or a part of one.
func (d *Docs) applyPart(delta *Delta, now time.Duration) Outcome {
	doc := d.docs[delta.Owner]
	if doc != nil && !doc.stamp.Less(delta.Stamp()) && !d.repairs(doc, delta) {
		return Stale
	}
	if delta.Base != 0 && (doc == nil || doc.digest() != delta.Base) {
		return Gap
	}
	parts, o := d.stage(delta, now)
	if parts == nil {
		return o
	}
	c, ok := newCopyIn(parts)
	if !ok {
		return Corrupt
	}
	return d.install(c, now)
}

// repairs reports whether a copy at the stamp that is held is one to put right what is held: it is known to be wrong, or
// its owner has another digest and was asked for its copy.
func (d *Docs) repairs(doc *document, delta *Delta) bool {
	_, asked := d.asked[doc.owner]
	return doc.stamp == delta.Stamp() && doc.digest() != delta.Digest && (asked || doc.suspect())
}

// stage keeps a part; it gives the parts once all are there.
func (d *Docs) stage(delta *Delta, now time.Duration) ([]*Delta, Outcome) {
	if delta.Parts == 1 {
		d.unstage(delta.Owner)
		return []*Delta{delta}, 0
	}
	s := d.staged[delta.Owner]
	if s != nil && !s.same(delta) {
		if delta.Stamp().Less(s.first.Stamp()) {
			return nil, Stale
		}
		d.unstage(delta.Owner)
		s = nil
	}
	if s == nil {
		s = &staged{first: delta, parts: make([]*Delta, delta.Parts)}
	}
	if s.parts[delta.Part] != nil {
		return nil, Stale
	}
	if s.have == len(s.parts)-1 { // the last one is not kept, and needs no room
		s.parts[delta.Part] = delta
		d.unstage(delta.Owner)
		return s.parts, 0
	}
	ops := delta.OpCount()
	if !d.stageRoom(ops, delta.Owner) {
		d.unstage(delta.Owner)
		return nil, OverLimit
	}
	s.parts[delta.Part] = delta
	s.have++
	s.ops += ops
	d.stageOps += ops
	s.until = now + d.lim.KeepStaged
	d.staged[delta.Owner] = s
	return nil, Staged
}

func (d *Docs) unstage(owner peer.ID) {
	if s := d.staged[owner]; s != nil {
		d.stageOps -= s.ops
		delete(d.staged, owner)
	}
}

// stageRoom makes room for so many more elements, by dropping the copies of other documents that would expire first.
func (d *Docs) stageRoom(ops int, owner peer.ID) bool {
	for d.stageOps+ops > d.lim.Staged || d.staged[owner] == nil && len(d.staged) >= maxStaged {
		var victim peer.ID
		for id, s := range d.staged {
			if id == owner {
				continue
			}
			if v := d.staged[victim]; v == nil || s.until < v.until || s.until == v.until && id < victim {
				victim = id
			}
		}
		if victim == "" {
			return d.stageOps+ops <= d.lim.Staged
		}
		d.unstage(victim)
		d.stats.Evicted++
	}
	return true
}

// copyIn is a complete copy with all its parts.
type copyIn struct {
	owner  peer.ID
	stamp  Stamp
	base   uint64
	digest uint64
	values []Value // ascending
	sets   []setIn // ascending
}

// setIn is one set section of it.
type setIn struct {
	section Section
	patch   *Marks
	chunks  [][]prefix.Change // ascending by hash, over all of them
	n       int
}

// newCopyIn joins the parts; false where they do not fit together.
func newCopyIn(parts []*Delta) (*copyIn, bool) {
	first := parts[0]
	c := &copyIn{owner: first.Owner, stamp: first.Stamp(), base: first.Base, digest: first.Digest}
	for _, p := range parts {
		for i := range p.Values {
			if n := len(c.values); n > 0 && c.values[n-1].Section.Compare(p.Values[i].Section) >= 0 {
				return nil, false
			}
			c.values = append(c.values, p.Values[i])
		}
		for i := range p.Sets {
			if !c.addSet(&p.Sets[i]) {
				return nil, false
			}
		}
	}
	return c, true
}

func (c *copyIn) addSet(s *SetOps) bool {
	if n := len(c.sets); n == 0 || c.sets[n-1].section.Compare(s.Section) < 0 {
		c.sets = append(c.sets, setIn{section: s.Section, patch: s.Patch})
	} else if t := &c.sets[n-1]; t.section != s.Section || (t.patch == nil) != (s.Patch == nil) || s.Patch != nil && *t.patch != *s.Patch {
		return false
	}
	t := &c.sets[len(c.sets)-1]
	if len(s.Ops) == 0 {
		return true
	}
	if n := len(t.chunks); n > 0 {
		if last := t.chunks[n-1]; last[len(last)-1].Hash >= s.Ops[0].Hash {
			return false
		}
	}
	t.chunks = append(t.chunks, s.Ops)
	t.n += len(s.Ops)
	return true
}

func (c *copyIn) find(s Section) *setIn {
	i, ok := slices.BinarySearchFunc(c.sets, s, func(a setIn, b Section) int { return a.section.Compare(b) })
	if !ok {
		return nil
	}
	return &c.sets[i]
}

func (s *setIn) has(h prefix.Hash) bool {
	for _, ops := range s.chunks {
		if ops[len(ops)-1].Hash < h {
			continue
		}
		i := sort.Search(len(ops), func(i int) bool { return ops[i].Hash >= h })
		return ops[i].Hash == h
	}
	return false
}

// outcome is the digest that the document will have, computed before anything is changed, and how many elements come with
// the copy; false where a set has more than most of them, or a patch names a set that is not there.
func (c *copyIn) outcome(doc *document, most int) (digest uint64, elements int, ok bool) {
	var sum uint64
	for i := range c.values {
		sum += valueDigest(c.values[i].Section.tag(), c.stamp.Incarnation, c.values[i].Version)
	}
	for i := range c.sets {
		in := &c.sets[i]
		var sums [Buckets]uint64
		if in.patch != nil {
			sec := doc.section(in.section)
			if sec == nil {
				return 0, 0, false
			}
			for b, s := range sec.sums {
				if !in.patch.Has(uint8(b)) {
					sums[b] = s
				}
			}
		}
		for _, ops := range in.chunks {
			for _, op := range ops {
				b, m := bucketOf(op.Hash)
				sums[b] += m
			}
		}
		if in.n > most {
			return 0, 0, false
		}
		elements += in.n
		sum += setDigest(in.section.tag(), &sums)
	}
	return finishDigest(sum), elements, true
}
