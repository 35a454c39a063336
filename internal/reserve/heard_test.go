package reserve

import (
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// entry is an Active one on path 0 of spread(…, 0, 1), with ID and Seq as given.
func entry(id, seq uint64) Entry {
	return Entry{ID: id, Seq: seq, Stamp: StampAt(noon), Dst: "dst", Bytes: 1000, Links: []ecmp.LinkID{up(0, 0), down(1, 0)}}
}

func TestWhatIsHeardIsJudged(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	paths(t, x, spread(4, 0, 1))
	with := func(e Entry, f func(*Entry)) Entry { f(&e); return e }
	for _, c := range []struct {
		name string
		from peer.ID
		m    Message
		want Verdict
	}{
		{"a reservation", "b", Message{"b", 2, false, entry(1, 10)}, Accepted},
		{"the same again", "b", Message{"b", 2, false, entry(1, 10)}, Duplicate},
		{"what it was before", "b", Message{"b", 2, false, entry(1, 9)}, Old},
		{"from an earlier life", "b", Message{"b", 1, false, entry(2, 99)}, Old},
		{"of somebody else", "c", Message{"b", 2, false, entry(3, 11)}, NotOwner},
		{"of this peer", "x", Message{"x", 2, false, entry(3, 11)}, NotOwner},
		{"by nobody", "", Message{"", 2, false, entry(3, 11)}, Malformed},
		{"just not too far ahead", "b", Message{"b", 2, false, with(entry(4, 12), func(e *Entry) { e.Stamp = StampAt(noon+MaxAhead) | 0xffff })}, Accepted},
		{"too far ahead", "b", Message{"b", 2, false, with(entry(4, 13), func(e *Entry) { e.Stamp = StampAt(noon + MaxAhead + time.Millisecond) })}, TooFarAhead},
		{"a release", "b", Message{"b", 2, true, Entry{ID: 1, Seq: 14}}, Accepted},
		{"the release again", "b", Message{"b", 2, true, Entry{ID: 1, Seq: 14}}, Duplicate},
		{"released meanwhile", "b", Message{"b", 2, false, entry(1, 13)}, Old},
		{"reserved anew", "b", Message{"b", 2, false, entry(1, 15)}, Accepted},
		{"a release before that", "b", Message{"b", 2, true, Entry{ID: 1, Seq: 14}}, Old},
		{"no ID", "b", Message{"b", 2, false, entry(0, 16)}, Malformed},
		{"a release without ID", "b", Message{"b", 2, true, Entry{Seq: 16}}, Malformed},
		{"no Seq", "b", Message{"b", 2, false, entry(5, 0)}, Malformed},
		{"no destination", "b", Message{"b", 2, false, with(entry(5, 16), func(e *Entry) { e.Dst = "" })}, Malformed},
		{"no phase", "b", Message{"b", 2, false, with(entry(5, 16), func(e *Entry) { e.Phase = 2 })}, Malformed},
		{"a link twice", "b", Message{"b", 2, false, with(entry(5, 16), func(e *Entry) { e.Links = []ecmp.LinkID{1, 1} })}, Malformed},
		{"an Intent with links", "b", Message{"b", 2, false, with(entry(5, 16), func(e *Entry) { e.Phase = Intent })}, Malformed},
		{"as many bytes as can be", "b", Message{"b", 2, false, with(entry(5, 16), func(e *Entry) { e.Bytes = MaxBytes })}, Accepted},
		{"more", "b", Message{"b", 2, false, with(entry(6, 17), func(e *Entry) { e.Bytes = MaxBytes + 1 })}, Malformed},
		{"less than nothing", "b", Message{"b", 2, false, with(entry(6, 17), func(e *Entry) { e.Bytes = -1 })}, Malformed},
		{"ready before there was time", "b", Message{"b", 2, false, with(entry(6, 17), func(e *Entry) { e.Ready = -1 })}, Malformed},
		{"without end", "b", Message{"b", 2, false, with(entry(6, 17), func(e *Entry) { e.End = MaxTime + 1 })}, Malformed},
		{"as many links as can be", "b", Message{"b", 2, false, with(entry(6, 17), func(e *Entry) { e.Links = []ecmp.LinkID{1, 2, 3, 4, 5, 6, 7, 8} })}, Accepted},
		{"one more", "b", Message{"b", 2, false, with(entry(7, 18), func(e *Entry) { e.Links = []ecmp.LinkID{1, 2, 3, 4, 5, 6, 7, 8, 9} })}, Malformed},
		{"the end of it", "b", Message{"b", 2, true, Entry{ID: 1, Seq: 20}}, Accepted},
		{"a new life", "b", Message{"b", 3, false, entry(1, 1)}, Accepted},
	} {
		before := x.Stats().Verdicts[c.want]
		if got := x.Heard(0, noon, c.from, &c.m); got != c.want || x.Stats().Verdicts[c.want] != before+1 {
			t.Errorf("%s: %v, want %v, counted", c.name, got, c.want)
		}
		x.audit(t, nil)
	}
}

func TestEveryVerdictPhaseAndPolicyHasAWord(t *testing.T) {
	seen := map[string]bool{}
	check := func(s string) {
		if s == "" || strings.ContainsAny(s, " (") || seen[s] {
			t.Errorf("%q is no word, or one of two", s)
		}
		seen[s] = true
	}
	for v := range verdicts {
		check(v.String())
	}
	check(Active.String())
	check(Intent.String())
	for p := range Policy(len(policyNames)) {
		check(p.String())
		text, err := p.MarshalText()
		var back Policy
		if err != nil || back.UnmarshalText(text) != nil || back != p {
			t.Errorf("%v: %q, %v, back %v", p, text, err, back)
		}
	}
	if got := Verdict(99).String() + Phase(99).String() + Policy(99).String(); got != "verdict(99)phase(99)policy(99)" {
		t.Error(got)
	}
	var p Policy
	_, err := Policy(99).MarshalText()
	for _, err := range []error{err, p.UnmarshalText([]byte("best"))} {
		if err == nil || !strings.HasPrefix(err.Error(), "reserve: ") || !strings.Contains(err.Error(), "least") {
			t.Errorf("error %v; want one that lists the policies", err)
		}
	}
}

func TestASectionIsAllThatItsOwnerHolds(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	for _, e := range []Entry{entry(1, 1), entry(2, 2), entry(3, 9)} {
		x.Heard(0, noon, "b", &Message{"b", 1, false, e})
	}
	s := &Section{Seq: 5, Entries: []Entry{entry(2, 2), entry(4, 4)}}
	if v := x.Merge(0, noon, "b", 1, s); v != Accepted {
		t.Fatal(v)
	}
	ids := func() (ids []uint64) {
		for _, r := range x.Rows(nil) {
			ids = append(ids, r.Entry.ID)
		}
		return ids
	}
	if got := ids(); !slices.Equal(got, []uint64{2, 3, 4}) { // 1 is gone, 3 is newer than the section
		t.Errorf("after the section %v", got)
	}
	if v := x.Merge(0, noon, "b", 1, s); v != Duplicate {
		t.Errorf("again: %v", v)
	}
	if v := x.Merge(0, noon, "b", 1, &Section{Seq: 4}); v != Old {
		t.Errorf("one before: %v", v)
	}
	if v := x.Merge(0, noon, "x", 9, &Section{Seq: 40}); v != NotOwner {
		t.Errorf("of this peer: %v", v)
	}
	if v := x.Heard(0, noon, "b", &Message{"b", 1, false, entry(1, 1)}); v != Old {
		t.Errorf("what came before the section: %v", v)
	}
	// What is wrong in a section costs the entry, not the section.
	far := entry(5, 10)
	far.Stamp = StampAt(noon + time.Second)
	if v := x.Merge(0, noon, "b", 1, &Section{Seq: 12, Entries: []Entry{entry(0, 1), far, entry(6, 13), entry(7, 11), entry(7, 12)}}); v != Accepted {
		t.Errorf("a section with errors: %v", v)
	}
	if got := ids(); !slices.Equal(got, []uint64{7}) || x.Rows(nil)[0].Entry.Seq != 12 {
		t.Errorf("after a section with errors %v", got)
	}
	if st := x.Stats().Verdicts; st[Malformed] != 2 || st[TooFarAhead] != 1 {
		t.Errorf("counted %v", st)
	}
	x.audit(t, nil)
}

func TestDeathFreesAllThatAPeerHeld(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(1, 0, 1))
	_ = set
	s := &Section{Seq: 3, Entries: []Entry{entry(1, 1), entry(2, 3)}}
	x.Merge(0, noon, "b", 1, s)
	x.Forget("b")
	x.Forget("nobody")
	if x.Len() != 0 || x.Stats().Forgotten != 2 || x.Links(nil)[0].Flows != 0 {
		t.Fatalf("%d entries left, %+v", x.Len(), x.Stats())
	}
	for _, m := range []Message{{"b", 1, false, entry(1, 1)}, {"b", 1, true, Entry{ID: 2, Seq: 2}}} {
		if v := x.Heard(0, noon, "b", &m); v != Old {
			t.Errorf("a late message %+v: %v", m, v)
		}
	}
	x.Heard(0, noon, "c", &Message{"c", 1, false, entry(1, 1)})
	x.Forget("c")
	if v := x.Heard(0, noon, "c", &Message{"c", 1, false, entry(1, 1)}); v != Old {
		t.Errorf("a late message without sections: %v", v)
	}
	// It was not dead after all.
	if v := x.Merge(0, noon, "b", 1, s); v != Accepted || x.Len() != 2 {
		t.Errorf("its section again: %v, %d entries", v, x.Len())
	}
	x.Forget("b")
	if v := x.Heard(0, noon, "b", &Message{"b", 1, false, entry(2, 4)}); v != Accepted || x.Len() != 1 {
		t.Errorf("its renewal: %v, %d entries", v, x.Len())
	}
	// A new life needs no death.
	x.Heard(0, noon, "b", &Message{"b", 2, false, entry(9, 1)})
	if r := x.Rows(nil); len(r) != 1 || r[0].Entry.ID != 9 || r[0].Incarnation != 2 {
		t.Errorf("after the restart %+v", r)
	}
	x.audit(t, nil)
}

func TestDigestsAreEqualWhereTheEntriesAre(t *testing.T) {
	digest := func(f func(e *Entry), owner peer.ID, inc uint64) uint64 {
		x := newTable(t, "x", 1, 1)
		e := entry(1, 1)
		f(&e)
		if v := x.Heard(5*time.Second, noon+5*time.Second, owner, &Message{owner, inc, false, e}); v != Accepted {
			t.Fatal(v)
		}
		return x.Digest()
	}
	seen := map[uint64]int{newTable(t, "x", 1, 1).Digest(): -1}
	for i, d := range []uint64{
		digest(func(e *Entry) {}, "b", 1), digest(func(e *Entry) {}, "c", 1), digest(func(e *Entry) {}, "b", 2),
		digest(func(e *Entry) { e.ID++ }, "b", 1), digest(func(e *Entry) { e.Seq++ }, "b", 1), digest(func(e *Entry) { e.Stamp++ }, "b", 1),
		digest(func(e *Entry) { e.Phase, e.Links = Intent, nil }, "b", 1), digest(func(e *Entry) { e.Bytes++ }, "b", 1),
		digest(func(e *Entry) { e.Links = e.Links[:1] }, "b", 1), digest(func(e *Entry) { e.Dst = "e" }, "b", 1),
		digest(func(e *Entry) { e.Group++ }, "b", 1), digest(func(e *Entry) { e.Ready++ }, "b", 1), digest(func(e *Entry) { e.End++ }, "b", 1),
	} {
		if j, twice := seen[d]; twice {
			t.Errorf("cases %d and %d have one digest", j, i)
		}
		seen[d] = i
	}
}
