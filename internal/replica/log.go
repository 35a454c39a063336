package replica

import (
	"slices"
	"sort"
)

// The log of a document is the deltas that made it, so that whoever lacks the last few versions gets these and not the
// whole. It is kept of other peers' documents too: their deltas are relayed as they came, by the same pointer.

// mergedLimit bounds how many differently late peers are remembered to have been given the same merged deltas.
const mergedLimit = 64

func (d *Docs) clearLog(doc *document) {
	d.logCost -= doc.logCost
	doc.log, doc.logCost, doc.merged = nil, 0, nil
}

func logCost(delta *Delta) int { return delta.OpCount() + versionCost }

// appendLog adds the delta that has just brought the document to its stamp, and keeps the logs within their limits.
func (d *Docs) appendLog(doc *document, delta *Delta) {
	doc.merged = nil
	cost := logCost(delta)
	if cost > d.lim.Log {
		d.clearLog(doc)
		return
	}
	doc.log = append(doc.log, delta)
	doc.logCost += cost
	d.logCost += cost
	d.trimLog(doc, d.lim.Log)
	for d.logCost > d.lim.TotalLog {
		longest := d.order[0]
		for _, o := range d.order {
			if o.logCost > longest.logCost {
				longest = o
			}
		}
		d.trimLog(longest, longest.logCost/2)
	}
}

// trimLog drops the oldest deltas until the log costs at most so much.
func (d *Docs) trimLog(doc *document, most int) {
	n := 0
	for doc.logCost > most {
		cost := logCost(doc.log[n])
		doc.logCost -= cost
		d.logCost -= cost
		n++
	}
	if n > 0 {
		doc.log = slices.Delete(doc.log, 0, n)
		doc.merged = nil
	}
}

// reaches reports whether the log brings a holder of that version of the same incarnation to the document's stamp.
func (doc *document) reaches(version uint64) bool {
	if version == doc.stamp.Version {
		return true
	}
	i := doc.logIndex(version)
	return i < len(doc.log) && doc.log[i].From <= version
}

// logIndex is the first delta of the log that says anything new to a holder of that version.
func (doc *document) logIndex(version uint64) int {
	return sort.Search(len(doc.log), func(i int) bool { return doc.log[i].To > version })
}

// since gives the deltas that bring a holder of that version to the document's stamp; the log must reach it. A single
// delta is the log's own, whatever else it repeats; several are merged, as few as their limits allow.
func (doc *document) since(version uint64) []*Delta {
	if version == doc.stamp.Version {
		return nil
	}
	i := doc.logIndex(version)
	if i == len(doc.log)-1 {
		return doc.log[i:]
	}
	if m, ok := doc.merged[version]; ok {
		return m
	}
	out := merge(doc.log[i:])
	if doc.merged == nil || len(doc.merged) >= mergedLimit {
		doc.merged = make(map[uint64][]*Delta)
	}
	doc.merged[version] = out
	return out
}

// merge joins deltas, each of which begins at or before the end of the one before, into as few as the limits of a delta
// allow.
func merge(log []*Delta) []*Delta {
	var out []*Delta
	for len(log) > 0 {
		n, ops, values := 1, log[0].OpCount(), len(log[0].Values)
		for n < len(log) {
			ops += log[n].OpCount()
			values += len(log[n].Values)
			if ops > MaxOps {
				break
			}
			if values > MaxValues { // most versions write the same few sections again
				if values = distinctValues(log[:n+1]); values > MaxValues {
					break
				}
			}
			n++
		}
		out = append(out, mergeAll(log[:n]))
		log = log[n:]
	}
	return out
}

func distinctValues(log []*Delta) int {
	seen := make(map[Section]struct{}, MaxValues+1)
	for _, d := range log {
		for i := range d.Values {
			seen[d.Values[i].Section] = struct{}{}
		}
	}
	return len(seen)
}

// mergeAll joins deltas into one. For each section only the last word counts: the last value; of a set what followed its
// last removal or reset.
func mergeAll(log []*Delta) *Delta {
	if len(log) == 1 {
		return log[0]
	}
	last := log[len(log)-1]
	m := &Delta{Owner: last.Owner, Incarnation: last.Incarnation, From: log[0].From, To: last.To, Digest: last.Digest, Parts: 1}
	for _, d := range log {
		for i := range d.Values {
			m.mergeValue(&d.Values[i])
		}
		for i := range d.Sets {
			m.mergeSet(&d.Sets[i])
		}
	}
	return m
}

func (d *Delta) mergeValue(v *Value) {
	if v.Section.Kind.IsSet() { // its removal
		if i, ok := d.findSet(v.Section); ok {
			d.Sets = slices.Delete(d.Sets, i, i+1)
		}
	}
	i, ok := d.findValue(v.Section)
	if ok {
		d.Values[i] = *v
	} else {
		d.Values = slices.Insert(d.Values, i, *v)
	}
}

func (d *Delta) mergeSet(s *SetOps) {
	reset := s.Reset
	if i, ok := d.findValue(s.Section); ok {
		d.Values = slices.Delete(d.Values, i, i+1)
		reset = true
	}
	i, ok := d.findSet(s.Section)
	if !ok {
		d.Sets = slices.Insert(d.Sets, i, SetOps{Section: s.Section, Reset: reset})
	}
	t := &d.Sets[i]
	if reset {
		t.Reset, t.Ops = true, nil
	}
	t.Ops = append(t.Ops, s.Ops...)
}

func (d *Delta) findValue(s Section) (int, bool) {
	return slices.BinarySearchFunc(d.Values, s, func(a Value, b Section) int { return a.Section.Compare(b) })
}

func (d *Delta) findSet(s Section) (int, bool) {
	return slices.BinarySearchFunc(d.Sets, s, func(a SetOps, b Section) int { return a.Section.Compare(b) })
}
