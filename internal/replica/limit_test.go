package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"shoal/internal/peer"
)

// document gives a complete copy of a small document of that owner.
func documentOf(t *testing.T, owner peer.ID, n int) []*Delta {
	t.Helper()
	d := New(owner, born, newMemory(), Limits{})
	must(t, d.Change(blocks, addRange(1, n)))
	return d.Snapshot(owner)
}

func applyAll(d *Docs, deltas []*Delta, now time.Duration) (o Outcome) {
	for _, x := range deltas {
		o = d.Apply(x, now)
	}
	return o
}

func TestDocumentsAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{Documents: 4, Dead: 10})
	for i, id := range []peer.ID{"a", "b", "c"} {
		if i != 1 {
			d.Alive(id, 0)
		}
		if o := applyAll(d, documentOf(t, id, 1), time.Duration(i)); o != Applied {
			t.Fatalf("%s: %v", id, o)
		}
	}
	d.Alive("d", 0)
	if o := applyAll(d, documentOf(t, "d", 1), 9); o != Applied {
		t.Errorf("the dead one did not make room: %v", o)
	}
	if _, ok := d.Stamp("b"); ok {
		t.Error("the dead one is still there")
	}
	if o := applyAll(d, documentOf(t, "e", 1), 9); o != OverLimit {
		t.Errorf("a fifth document: %v", o)
	}
	if gone := d.Expire(10, nil); len(gone) != 1 || gone[0] != "b" {
		t.Errorf("the node hears of %v", gone)
	}
	d.audit(t)
}

func TestDeadDocumentsAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{Dead: 3})
	for i := range 5 { // the one first seen goes first
		applyAll(d, documentOf(t, peer.ID(fmt.Sprint("p", 9-i)), 1), time.Duration(i))
	}
	if got := fmt.Sprint(d.Owners(nil)); got != "[p5 p6 p7 self]" {
		t.Errorf("kept %s", got)
	}
	for i := range 5 {
		id := peer.ID(fmt.Sprint("q", i))
		d.Alive(id, 0)
		applyAll(d, documentOf(t, id, 1), 0)
	}
	for i := range 5 {
		d.Dead(peer.ID(fmt.Sprint("q", i)), time.Duration(100+i))
	}
	if got := fmt.Sprint(d.Owners(nil)); got != "[q2 q3 q4 self]" {
		t.Errorf("kept %s", got)
	}
	d.audit(t)
}

// pitfalls 17
func TestElementsAreBounded(t *testing.T) {
	const most = 100
	for _, c := range []struct {
		name string
		lim  Limits
		n    int
		want Outcome
	}{
		{"a section at its limit", Limits{Elements: most}, most, Applied},
		{"a section over its limit", Limits{Elements: most}, most + 1, OverLimit},
		{"all sections at their limit", Limits{TotalElements: most + 10}, most, Applied},
		{"all sections over their limit", Limits{TotalElements: most + 10}, most + 1, OverLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner := New("o", born, newMemory(), Limits{})
			must(t, owner.Change(blocks, addRange(1, 1)))
			d := New("self", born, newMemory(), c.lim)
			applyAll(d, documentOf(t, "x", 10), 0)
			d.Alive("x", 0)
			applyAll(d, owner.Snapshot("o"), 0) // grows by changes
			must(t, owner.Change(blocks, addRange(2, c.n-1)))
			owner.Commit()
			if o := applyAll(d, owner.own.log, 0); o != c.want {
				t.Errorf("by changes: %v, want %v", o, c.want)
			}
			d.audit(t)
			owner.dropCopies(owner.own)
			d = New("self", born, newMemory(), c.lim) // comes as a copy
			applyAll(d, documentOf(t, "x", 10), 0)
			if o := applyAll(d, owner.Snapshot("o"), 0); o != c.want {
				t.Errorf("as a copy: %v, want %v", o, c.want)
			}
			d.audit(t)
			if _, ok := d.Stamp("x"); !ok {
				t.Error("another document paid for it")
			}
			row := &Exchange{Begin: true, Summaries: []Summary{{Owner: "o", Stamp: Stamp{born, 9}}}}
			asks := func(now time.Duration) bool {
				out, _ := d.Answer("o", row, now, nil)
				return len(out.Wants) > 0
			}
			if refused := c.want == OverLimit; refused && asks(refuseFor-1) || refused && !asks(refuseFor) {
				t.Error("a document over a limit is not asked for again after a while, or at once")
			}
		})
	}
}

func TestOwnSectionAtItsLimitTakesNoMore(t *testing.T) {
	d := New("self", born, newMemory(), Limits{Elements: 10})
	must(t, d.Change(blocks, addRange(1, 10)))
	must(t, d.Change(blocks, addRange(1, 10)))
	err := d.Change(blocks, add(11))
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("error %v", err)
	}
	must(t, d.Change(blocks, append(removed(1), add(11)...)))
	d.audit(t)
}

func TestSectionsOfTheOwnDocumentAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{})
	sec := func(i int) Section { return Section{Kind: Kind(100 + i%100), Model: fmt.Sprint(i)} }
	for i := range MaxSections {
		must(t, d.Set(sec(i), i))
	}
	if d.Set(sec(MaxSections), 1) == nil || d.Change(blocks, add(1)) == nil {
		t.Error("one section too many")
	}
	must(t, d.Set(sec(3), "again"))
	d.Commit()
	if d.Set(sec(MaxSections), 1) == nil || d.Reset(blocks) == nil {
		t.Error("one section too many, after the commit")
	}
	d.Drop(sec(5))
	d.Commit()
	must(t, d.Set(sec(MaxSections), 1))
	parts := d.Snapshot("self")
	if len(parts) != MaxSections/MaxValues {
		t.Errorf("%d parts", len(parts))
	}
	r := New("r", born, newMemory(), Limits{})
	if o := applyAll(r, parts, 0); o != Applied {
		t.Errorf("a document of %d sections: %v", MaxSections, o)
	}
}

func TestStoreWithoutRoomRefuses(t *testing.T) {
	m := newMemory()
	m.room = 1
	d := New("self", born, m, Limits{})
	must(t, d.Change(blocks, add(1)))
	if d.Change(others, add(1)) == nil {
		t.Error("no error where the store has no room")
	}
	d.Commit()
	if o := applyAll(d, documentOf(t, "a", 1), 0); o != OverLimit {
		t.Errorf("a document without room in the store: %v", o)
	}
	d.audit(t)
}

func TestCommitTooLargeForADeltaTravelsAsACopy(t *testing.T) {
	for _, extra := range []int{0, 1} {
		s := newShoal(t, Limits{}, "a", "b")
		must(t, s.docs["a"].Set(info, "x"))
		s.round("a", "b")
		must(t, s.docs["a"].Change(blocks, addRange(1, MaxOps-versionCost+extra)))
		msgs := s.round("b", "a")
		if d := msgs[len(msgs)-1].Deltas; d[0].Complete() != (extra > 0) {
			t.Errorf("%d more than a log holds: complete %v", extra, d[0].Complete())
		}
		s.agree()
	}
}

func TestLogsTogetherAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{TotalLog: 20 * versionCost})
	for i, id := range []peer.ID{"a", "b", "c"} {
		o := New(id, born, newMemory(), Limits{})
		must(t, o.Set(load, 0))
		applyAll(d, o.Snapshot(id), 0)
		for k := range 10 + i {
			must(t, o.Set(load, k+1))
			o.Commit()
		}
		applyAll(d, o.own.log, 0)
		d.audit(t) // checks the limit
	}
	if d.Stats().LogCost < 10*versionCost {
		t.Errorf("logs cost %d of %d", d.Stats().LogCost, 20*versionCost)
	}
}

func TestStagedPartsAreBounded(t *testing.T) {
	parts := func(id peer.ID) []*Delta { return documentOf(t, id, 2*MaxOps) }
	d := New("self", born, newMemory(), Limits{Staged: 2 * MaxOps})
	a, b, c := parts("a"), parts("b"), parts("c")
	for i, p := range []*Delta{a[0], b[0], c[0]} {
		if o := d.Apply(p, time.Duration(i)); o != Staged {
			t.Fatalf("%s: %v", p.Owner, o)
		}
		d.audit(t)
	}
	if o := d.Apply(b[1], 9); o != Applied {
		t.Errorf("b: %v", o)
	}
	if o := d.Apply(a[1], 9); o != Staged {
		t.Errorf("a, which made room for c: %v", o)
	}
	if o := d.Apply(c[1], 9); o != Applied {
		t.Errorf("c: %v", o)
	}
	if n := d.Stats().Evicted; n != 1 {
		t.Errorf("%d dropped", n)
	}
	tight := New("self", born, newMemory(), Limits{Staged: MaxOps - 1})
	if o := tight.Apply(a[0], 0); o != OverLimit || tight.Stats().StagedOps != 0 {
		t.Errorf("a copy that never fits: %v", o)
	}
	// The number of incomplete copies is bounded too, however small their parts.
	d = New("self", born, newMemory(), Limits{})
	for i := range maxStaged + 5 {
		p := *a[0]
		p.Owner, p.Sets = peer.ID(fmt.Sprint("x", i)), nil
		d.Apply(&p, time.Duration(i))
	}
	if len(d.staged) != maxStaged || d.staged["x4"] != nil || d.staged["x5"] == nil {
		t.Errorf("%d incomplete copies", len(d.staged))
	}
}

func TestCopiesKeptForSendingAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{Copies: 250})
	for _, id := range []peer.ID{"a", "b", "c"} {
		applyAll(d, documentOf(t, id, 100), 0)
	}
	for _, id := range []peer.ID{"a", "b", "a", "c", "a"} { // b is the least recently used when c comes
		d.Snapshot(id)
		d.audit(t)
	}
	if n := d.Stats().Scans; n != 3 {
		t.Errorf("%d scans", n)
	}
	if d.Snapshot("b"); d.Stats().Scans != 4 || d.Stats().CopyOps != 200 {
		t.Errorf("%d scans, %d kept", d.Stats().Scans, d.Stats().CopyOps)
	}
	if parts := documentOf(t, "d", 300); applyAll(d, parts, 0) == Applied {
		if got := d.Snapshot("d"); got[0].OpCount() != 300 || d.Stats().CopyOps != 200 {
			t.Error("a copy larger than the limit is kept")
		}
	}
}

func TestTablesOfNamesAreBounded(t *testing.T) {
	d := New("self", born, newMemory(), Limits{})
	for i := range 2*MaxRows + 10 {
		id := peer.ID(fmt.Sprint("x", i))
		d.Alive(id, 0)
		d.refuse(id, 0)
	}
	if len(d.alive) > MaxRows || len(d.refused) > MaxRows {
		t.Errorf("%d alive, %d refused", len(d.alive), len(d.refused))
	}
	d.Expire(refuseFor, nil)
	if len(d.refused) != 0 {
		t.Error("refused for ever")
	}
}

func TestLimitsAreValidated(t *testing.T) {
	if err := (Limits{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	if err := Defaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for field, l := range map[string]Limits{
		"Documents": {Documents: MaxRows + 1}, "Elements": {Elements: MaxElements + 1}, "Log": {Log: MaxOps + 1}, "KeepDead": {KeepDead: -1}, "Answer": {Answer: -1},
	} {
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestDeltasOverTheProtocolsLimitsAreCorrupt(t *testing.T) {
	values := func(n int) []Value {
		v := make([]Value, n)
		for i := range v {
			v[i] = Value{Section: Section{Kind: 1, Model: fmt.Sprintf("%04d", i)}, Version: 1, Content: i}
		}
		return v
	}
	sets := func(n int) []SetOps {
		s := make([]SetOps, n)
		for i := range s {
			s[i].Section = Section{Kind: KindTextBlocks, Model: fmt.Sprintf("%04d", i)}
		}
		return s
	}
	ops := func(n int) []SetOps { return []SetOps{{Section: blocks, Ops: addRange(1, n)}} }
	long := []Value{{Section: Section{Kind: 1, Model: strings.Repeat("x", MaxName)}, Version: 1, Content: 1}}
	longer := []Value{{Section: Section{Kind: 1, Model: strings.Repeat("x", MaxName+1)}, Version: 1, Content: 1}}
	for _, c := range []struct {
		name string
		ok   bool
		d    Delta
	}{
		{"values at the limit", true, Delta{Parts: 1, Values: values(MaxValues)}},
		{"values over it", false, Delta{Parts: 1, Values: values(MaxValues + 1)}},
		{"sets at the limit", true, Delta{Parts: 1, Sets: sets(MaxSections)}},
		{"sets over it", false, Delta{Parts: 1, Sets: sets(MaxSections + 1)}},
		{"operations at the limit", true, Delta{Parts: 1, Sets: ops(MaxOps)}},
		{"operations over it", false, Delta{Parts: 1, Sets: ops(MaxOps + 1)}},
		{"parts at the limit", true, Delta{Part: MaxParts - 1, Parts: MaxParts}},
		{"parts over it", false, Delta{Parts: MaxParts + 1}},
		{"part beyond the last", false, Delta{Part: 1, Parts: 1}},
		{"a name at the limit", true, Delta{Parts: 1, Values: long}},
		{"a name over it", false, Delta{Parts: 1, Values: longer}},
		{"changes in parts", false, Delta{From: 1, To: 2, Parts: 2}},
		{"changes with a base", false, Delta{From: 1, To: 2, Parts: 1, Base: 1}},
		{"backwards", false, Delta{From: 3, To: 2, Parts: 1}},
	} {
		c.d.Owner = "a"
		if c.d.To == 0 {
			c.d.To = 1
		}
		if err := c.d.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
