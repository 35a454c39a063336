package replica

import (
	"testing"

	"shoal/internal/peer"
)

func TestCommitMakesAVersionOnlyOfChanges(t *testing.T) {
	d := New("a", born, newMemory(), Limits{})
	step := func(name string, want uint64, do func()) {
		t.Helper()
		before, _ := d.Stamp("a")
		do()
		s, changed := d.Commit()
		if s != (Stamp{born, want}) || changed != (want != before.Version) {
			t.Errorf("%s: %v, changed %v; want version %d", name, s, changed, want)
		}
		d.audit(t)
	}
	step("nothing yet", 0, func() {})
	step("a value", 1, func() { must(t, d.Set(info, "x")) })
	step("nothing", 1, func() {})
	step("the same value is a new version all the same", 2, func() { must(t, d.Set(info, "x")) })
	step("a new set, empty", 3, func() { must(t, d.Change(blocks, nil)) })
	step("elements", 4, func() { must(t, d.Change(blocks, add(1, 2))) })
	step("elements that are there", 4, func() { must(t, d.Change(blocks, add(1, 2))) })
	step("removal of what is not there", 4, func() { must(t, d.Change(blocks, removed(7))) })
	step("reset", 5, func() { must(t, d.Reset(blocks)) })
	step("reset of an empty set", 5, func() { must(t, d.Reset(blocks)) })
	step("dropping what was never published", 5, func() { must(t, d.Change(others, add(1))); d.Drop(others) })
	step("dropping what is not there", 5, func() { d.Drop(load) })
	step("dropping a set", 6, func() { d.Drop(blocks) })
	step("dropping and making again", 7, func() { must(t, d.Change(blocks, add(1))) })
	step("dropping, making and dropping within one version", 8, func() { d.Drop(blocks); must(t, d.Change(blocks, add(2))); d.Drop(blocks) })
	step("several of them", 9, func() { must(t, d.Set(load, 1)); must(t, d.Set(load, 2)); must(t, d.Change(others, add(5))) })
	if d.Content("a", load) != 2 || d.Content("a", info) != "x" {
		t.Error("wrong contents")
	}
}

func TestWrongSortOfSectionIsAnError(t *testing.T) {
	d := New("a", born, newMemory(), Limits{})
	if d.Set(blocks, 1) == nil || d.Set(info, nil) == nil || d.Change(info, nil) == nil || d.Reset(load) == nil || d.Set(Section{}, 1) == nil {
		t.Error("no error")
	}
	if _, changed := d.Commit(); changed {
		t.Error("something was published")
	}
}

func TestElementsAreInTheStoreAtOnceAndPublishedWithCommit(t *testing.T) {
	m := newMemory()
	d := New("a", born, m, Limits{})
	must(t, d.Change(blocks, add(1)))
	if s, _ := d.Stamp("a"); s.Version != 0 {
		t.Errorf("published before Commit: %v", s)
	}
	if set := m.open["a "+blocks.String()]; set == nil || !set.Has(1) {
		t.Error("not in the store")
	}
	// A round commits, so that what is sent is always one whole version.
	if x := d.Start(0); len(x.Summaries) != 1 || x.Summaries[0].Stamp.Version != 1 {
		t.Errorf("%+v", x)
	}
}

func TestQueriesOfAnUnknownDocument(t *testing.T) {
	d := New("a", born, newMemory(), Limits{})
	if _, ok := d.Stamp("b"); ok || d.Content("b", info) != nil || d.Digest("b") != 0 || d.Digest("a") != 0 || d.Snapshot("b") != nil || d.Snapshot("a") != nil {
		t.Error("something is known of nothing")
	}
	if _, ok := d.DigestTree("a", blocks); ok {
		t.Error("a tree of no section")
	}
	if _, ok := d.Heard("b"); ok {
		t.Error("heard of nobody")
	}
	for range d.sections("b") {
		t.Error("sections of nothing")
	}
	must(t, d.Change(blocks, add(1)))
	must(t, d.Set(info, 1))
	d.Commit()
	tree, ok := d.DigestTree("a", blocks)
	b, m := bucketOf(1)
	if !ok || tree[b] != m {
		t.Error("wrong tree")
	}
	var got []Section
	for s := range d.sections("a") {
		got = append(got, s)
	}
	if len(got) != 2 || got[0] != info || got[1] != blocks {
		t.Errorf("sections %v", got)
	}
	if d.Self() != "a" || len(d.Owners(nil)) != 1 {
		t.Error("self")
	}
}

func (d *Docs) sections(owner peer.ID) func(func(Section) bool) {
	return func(yield func(Section) bool) { d.Sections(owner, yield) }
}
