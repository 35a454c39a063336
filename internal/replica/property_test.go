package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/peer"
)

// small makes limits tight enough for a few operations to reach them.
func small(t *rapid.T) Limits {
	return Limits{
		Log:      rapid.SampledFrom([]int{2 * versionCost, 5 * versionCost, MaxOps}).Draw(t, "log"),
		TotalLog: rapid.SampledFrom([]int{6 * versionCost, 1 << 20}).Draw(t, "total log"),
		Copies:   rapid.SampledFrom([]int{1, 40, 1 << 20}).Draw(t, "copies"),
		Answer:   rapid.SampledFrom([]int{1, 100, 1 << 20}).Draw(t, "answer"),
	}
}

// mutate does one random thing to a peer's own document.
func mutate(t *rapid.T, d *Docs, i int) {
	sec := rapid.SampledFrom([]Section{blocks, others}).Draw(t, "section")
	from := rapid.IntRange(1, 40).Draw(t, "from")
	n := rapid.IntRange(0, 12).Draw(t, "n")
	switch rapid.IntRange(0, 9).Draw(t, "mutation") {
	case 0, 1, 2, 3:
		d.Change(sec, addRange(from, n))
	case 4, 5:
		c := addRange(from, n)
		for i := range c {
			c[i].Removed = i%3 != 2
		}
		d.Change(sec, c)
	case 6:
		d.Set(rapid.SampledFrom([]Section{info, load}).Draw(t, "value"), i+1)
	case 7:
		d.Reset(sec)
	case 8:
		d.Drop(rapid.SampledFrom([]Section{blocks, others, info, load}).Draw(t, "dropped"))
	case 9:
		d.Commit()
	}
}

// After any history of changes, restarts, lost messages and deltas delivered late, twice and out of order, rounds of
// anti-entropy make everybody hold the same.
func TestAntiEntropyHealsLossDuplicationAndReordering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := small(t)
		s := newShoal(t, lim, "a", "b", "c", "d")
		s.lose = func(int) bool { return rapid.IntRange(0, 3).Draw(t, "lose") == 0 }
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			a := rapid.SampledFrom(s.ids()).Draw(t, "peer")
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1, 2, 3:
				mutate(t, s.docs[a], i)
			case 4, 5:
				if b := rapid.SampledFrom(s.ids()).Draw(t, "with"); b != a {
					s.round(a, b)
				}
			case 6: // something that was sent before comes again, to anybody
				if len(s.sent) > 0 {
					for _, d := range rapid.SampledFrom(s.sent).Draw(t, "old").Deltas {
						s.docs[a].Apply(d, s.now)
					}
				}
			case 7:
				if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
					s.start(a, born+uint64(i), lim)
				}
			}
			s.docs[a].audit(t)
		}
		s.lose = nil
		for range 12 { // a tight Answer needs more rounds
			s.now += 2 * time.Second
			for _, a := range s.ids() {
				for _, b := range s.ids() {
					if a != b {
						s.round(a, b)
					}
				}
			}
		}
		s.agree()
		for _, id := range s.ids() {
			s.docs[id].audit(t)
			if st := s.docs[id].Stats(); st.Disagreed+st.Deltas[Diverged]+st.Deltas[Corrupt]+st.Deltas[Refused] > 0 {
				t.Fatalf("%s: %+v", id, st)
			}
		}
	})
}

// history is the states of one document, by version, and complete copies of each.
func history(t *rapid.T) (states []string, copies [][]*Delta, log []*Delta) {
	d := New("owner", born, newMemory(), Limits{Copies: 1})
	states, copies = append(states, ""), append(copies, nil)
	for i := range rapid.IntRange(2, 12).Draw(t, "mutations") {
		mutate(t, d, i)
		if _, changed := d.Commit(); changed {
			states = append(states, d.dump("owner"))
			d.dropCopies(d.own)
			copies = append(copies, d.Snapshot("owner"))
		}
	}
	return states, copies, d.own.log
}

// Merging complete copies is taking the newest: idempotent, commutative and associative.
func TestMergeOfCopiesIsASemilattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states, copies, _ := history(t)
		if len(states) < 2 {
			t.Skip()
		}
		order := rapid.SliceOfN(rapid.IntRange(1, len(states)-1), 1, 8).Draw(t, "order")
		d := New("reader", born, newMemory(), Limits{})
		for _, v := range order {
			for _, part := range copies[v] {
				d.Apply(part, 0)
			}
			d.audit(t)
		}
		if got, want := d.dump("owner"), states[slices.Max(order)]; got != want {
			t.Fatalf("after copies %v:\n%s\nwant\n%s", order, got, want)
		}
	})
}

// Applying what the log gives to any version that it reaches gives the present, whichever versions the pieces repeat.
func TestLogLeadsFromAnyVersionToThePresent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states, copies, log := history(t)
		if len(states) < 2 {
			t.Skip()
		}
		d := New("reader", born, newMemory(), Limits{})
		v := rapid.IntRange(1, len(states)-1).Draw(t, "from")
		for _, part := range copies[v] {
			d.Apply(part, 0)
		}
		doc := &document{owner: "owner", stamp: Stamp{born, uint64(len(states) - 1)}, log: log}
		for int(mustStamp(t, d).Version) < len(states)-1 {
			// any delta that begins at or before what is held will do
			at := mustStamp(t, d).Version
			from := rapid.Uint64Range(max(1, at-min(at, 3)), at).Draw(t, "begin")
			if !doc.reaches(from) {
				from = at
			}
			i := doc.logIndex(from)
			n := rapid.IntRange(1, len(log)-i).Draw(t, "n")
			for _, delta := range merge(log[i : i+n]) {
				if o := d.Apply(delta, 0); o != Applied && o != Stale {
					t.Fatalf("%d to %d at %d: %v", delta.From, delta.To, at, o)
				}
			}
			if now := mustStamp(t, d).Version; d.dump("owner") != states[now] {
				t.Fatalf("at version %d:\n%s\nwant\n%s", now, d.dump("owner"), states[now])
			}
			d.audit(t)
		}
	})
}

func mustStamp(t *rapid.T, d *Docs) Stamp {
	s, ok := d.Stamp("owner")
	if !ok {
		t.Fatalf("no document")
	}
	return s
}

// A new incarnation replaces the older one wholly, in whatever order their deltas come.
func TestNewIncarnationReplacesTheOlderWholly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var deltas []*Delta
		var last string
		for life := range 3 {
			d := New("owner", born+uint64(life), newMemory(), Limits{})
			for i := range rapid.IntRange(1, 4).Draw(t, "mutations") {
				mutate(t, d, i)
				d.Set(info, fmt.Sprint("life ", life))
				d.Commit()
				deltas = append(deltas, d.Snapshot("owner")...)
			}
			deltas = append(deltas, d.own.log...)
			d.dropCopies(d.own)
			deltas = append(deltas, d.Snapshot("owner")...)
			last = d.dump("owner")
		}
		r := New("reader", born, newMemory(), Limits{})
		for _, i := range rapid.Permutation(indices(len(deltas))).Draw(t, "order") {
			r.Apply(deltas[i], 0)
			r.audit(t)
		}
		for _, d := range deltas[len(deltas)-1:] {
			r.Apply(d, 0)
		}
		if got := r.dump("owner"); got != last {
			t.Fatalf("got\n%s\nwant\n%s", got, last)
		}
	})
}

func indices(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// A patch turns the old document into the new one, for any two sets, and refuses every other base.
func TestPatchTurnsAnyOldDocumentIntoTheNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		elements := rapid.SliceOfN(rapid.IntRange(1, 400), 0, 20)
		older := New("owner", born, newMemory(), Limits{})
		older.Change(blocks, addRange(1, rapid.IntRange(1, 200).Draw(t, "held")))
		older.Change(others, addRange(1, rapid.IntRange(0, 3).Draw(t, "held too")))
		r := New("reader", born, newMemory(), Limits{})
		for _, d := range older.Snapshot("owner") {
			r.Apply(d, 0)
		}
		o := New("owner", born+1, newMemory(), Limits{})
		for _, c := range older.Snapshot("owner")[0].Sets {
			o.Change(c.Section, c.Ops)
		}
		o.Change(blocks, removed(elements.Draw(t, "gone")...))
		o.Change(rapid.SampledFrom([]Section{blocks, others}).Draw(t, "section"), add(elements.Draw(t, "new")...))
		o.Set(info, "new")
		o.Commit()
		w := Want{Owner: "owner", Have: older.own.stamp, Digest: r.Digest("owner"), Trees: r.docs["owner"].trees()}
		p := o.own.plan(&w)
		patch := o.makeCopies([]copyPlan{p})[0].parts[0]
		other := New("other", born, newMemory(), Limits{})
		if outcome := other.Apply(patch, 0); patch.Base != 0 && outcome != Gap {
			t.Fatalf("a patch without its base: %v", outcome)
		}
		if outcome := r.Apply(patch, 0); outcome != Applied {
			t.Fatalf("patch: %v", outcome)
		}
		r.audit(t)
		if got, want := r.dump("owner"), o.dump("owner"); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// Whatever a peer sends, nothing panics, and the own document stays as it is.
func TestGarbageDeltasHarmNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New("a", born, newMemory(), Limits{})
		d.Change(blocks, add(1, 2, 3))
		d.Commit()
		own := d.dump("a")
		section := rapid.Custom(func(t *rapid.T) Section {
			return Section{Kind: Kind(rapid.SampledFrom([]int{0, 1, 2, 16, 17, 200}).Draw(t, "kind")), Model: rapid.SampledFrom([]string{"", "m"}).Draw(t, "model")}
		})
		for range rapid.IntRange(1, 10).Draw(t, "deltas") {
			g := &Delta{
				Owner: rapid.SampledFrom([]peer.ID{"a", "b", "c", "", "!"}).Draw(t, "owner"), Incarnation: rapid.SampledFrom([]uint64{0, 1, born, born + 1, 1 << 60}).Draw(t, "incarnation"),
				From: rapid.Uint64Range(0, 3).Draw(t, "from"), To: rapid.Uint64Range(0, 4).Draw(t, "to"),
				Base: rapid.Uint64Range(0, 1).Draw(t, "base"), Digest: rapid.Uint64().Draw(t, "digest"),
				Part: rapid.Uint16Range(0, 3).Draw(t, "part"), Parts: rapid.Uint16Range(0, 3).Draw(t, "parts"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "values") {
				g.Values = append(g.Values, Value{Section: section.Draw(t, "section"), Version: rapid.Uint64Range(0, 4).Draw(t, "version"), Content: rapid.SampledFrom([]any{nil, 1}).Draw(t, "content")})
			}
			for range rapid.IntRange(0, 3).Draw(t, "sets") {
				s := SetOps{Section: section.Draw(t, "section"), Reset: rapid.Bool().Draw(t, "reset"), Ops: add(rapid.SliceOfN(rapid.IntRange(0, 9), 0, 4).Draw(t, "ops")...)}
				if rapid.Bool().Draw(t, "patch") {
					s.Patch = &Marks{rapid.Uint64().Draw(t, "marks")}
				}
				for i := range s.Ops {
					s.Ops[i].Removed = rapid.Bool().Draw(t, "removed")
				}
				g.Sets = append(g.Sets, s)
			}
			x := &Exchange{Begin: rapid.Bool().Draw(t, "begin"), Deltas: []*Delta{g, nil}}
			for range rapid.IntRange(0, 3).Draw(t, "rows") {
				row := Summary{Owner: g.Owner, Stamp: g.Stamp(), Digest: g.Digest, Dead: rapid.Bool().Draw(t, "dead")}
				x.Summaries = append(x.Summaries, row)
				x.Offers = append(x.Offers, row)
				x.Wants = append(x.Wants, Want{Owner: g.Owner, Have: g.Stamp(), Digest: g.Base, Trees: []Tree{{Section: blocks}}})
			}
			d.Answer("b", x, 0, nil)
			d.audit(t)
		}
		if d.dump("a") != own {
			t.Fatalf("the own document has changed")
		}
	})
}
