package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"shoal/internal/peer"
)

// pitfalls 16
func TestRestartedAgentFindsItsOldDocumentAtItsPeers(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Set(info, "epoch 1"))
	must(t, s.docs["a"].Change(blocks, addRange(1, 2000)))
	s.round("a", "b")
	s.docs["b"].Dead("a", s.now) // SIGKILL
	a := s.start("a", born+5000, Limits{})
	a.Recall(time.Minute)
	s.docs["b"].Dead("a", s.now) // whose membership has not seen the new life yet
	must(t, a.Set(info, "epoch 1"))
	must(t, a.Change(blocks, addRange(50000, 10))) // served meanwhile
	s.round("a", "c")                              // knows nothing: must not make the new document known, and the old one lost
	if a.Recalled() != nil {
		t.Fatal("c cannot have sent the old document")
	}
	s.round("a", "b")
	old := a.Recalled()
	if old == nil || old.Stamp != (Stamp{born, 1}) || old.Values[0].Content != "epoch 1" || len(old.Sets[0].Ops) != 2000 {
		t.Fatalf("not back after two rounds: %+v", old)
	}
	must(t, a.Change(blocks, old.Sets[0].Ops))
	a.EndRecall()
	s.docs["b"].Alive("a", s.now)
	before := s.docs["a"].Stats().Patches
	ops := 0
	for _, x := range s.round("b", "a") {
		for _, d := range x.Deltas {
			ops += d.OpCount()
		}
	}
	if ops > 200 || s.docs["a"].Stats().Patches != before+1 {
		t.Errorf("a holds 10 blocks more than before, and sent %d operations to b", ops)
	}
	s.settle()
}

// pitfalls 16: the same when the peer that holds the document begins the round, and it comes in parts.
func TestLargeOldDocumentComesBackInParts(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b")
	must(t, s.docs["a"].Change(blocks, addRange(1, MaxOps+100)))
	s.round("a", "b")
	a := s.start("a", born+5000, Limits{})
	a.Recall(time.Minute)
	must(t, a.Set(info, "x"))
	s.round("b", "a")
	if old := a.Recalled(); old == nil || len(old.Sets[0].Ops) != MaxOps+100 {
		t.Fatalf("not back: %+v", old)
	}
	a.EndRecall()
	s.settle()
	for _, id := range s.ids() {
		s.docs[id].audit(t)
	}
}

// pitfalls 16: a copy that was made for somebody else a while ago comes with the changes since.
func TestRecalledCopyIsFollowedByTheChangesSince(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Set(info, "1"))
	must(t, s.docs["a"].Change(blocks, addRange(1, 50)))
	s.round("a", "b")
	s.round("c", "b") // b has made a copy
	must(t, s.docs["a"].Set(info, "2"))
	must(t, s.docs["a"].Change(blocks, removed(1, 2)))
	must(t, s.docs["a"].Change(others, add(7)))
	s.round("a", "b")
	was, stamp := s.docs["b"].dump("a"), s.docs["a"].own.stamp
	scans := s.docs["b"].Stats().Scans
	a := s.start("a", born+5000, Limits{})
	a.Recall(time.Minute)
	s.round("a", "b")
	old := a.Recalled()
	if old == nil || old.Stamp != stamp || s.docs["b"].Stats().Scans != scans {
		t.Fatalf("recalled %+v, want %v, from the copy that was there", old, stamp)
	}
	bad := &Delta{Owner: "a", Incarnation: born, From: stamp.Version, To: stamp.Version + 1, Digest: 1, Parts: 1, Sets: []SetOps{{Section: blocks, Ops: add(99)}}}
	if o := a.Apply(bad, s.now); o != Corrupt || a.Recalled() != old {
		t.Errorf("changes with a wrong digest: %v", o)
	}
	for _, v := range old.Values {
		must(t, a.Set(v.Section, v.Content))
	}
	for _, set := range old.Sets {
		must(t, a.Change(set.Section, set.Ops))
	}
	a.EndRecall()
	a.Commit()
	if got := strings.ReplaceAll(a.dump("a"), "(version 1)", "(version 2)"); got != was {
		t.Errorf("recalled\n%s\nwas\n%s", got, was)
	}
}

func TestRecallEndsWhereNobodyKnowsTheAgent(t *testing.T) {
	for name, want := range map[string]struct {
		rounds int
		after  time.Duration
	}{"by messages": {2, 0}, "by time": {0, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			s := newShoal(t, Limits{}, "a", "b")
			s.docs["a"].Recall(time.Minute)
			must(t, s.docs["a"].Set(info, "x"))
			for range want.rounds {
				s.round("a", "b")
				s.round("b", "a")
			}
			s.now += want.after
			s.round("a", "b")
			if v, ok := s.docs["b"].Stamp("a"); !ok {
				t.Errorf("a is still unknown: %v", v)
			}
		})
	}
}

func TestNobodyOverwritesTheOwnDocument(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b")
	a := s.docs["a"]
	must(t, a.Set(info, "mine"))
	s.round("a", "b")
	forged := New("a", born, newMemory(), Limits{}) // another agent of the same ID
	for range 5 {
		must(t, forged.Set(info, "forged"))
		forged.Commit()
	}
	for _, d := range forged.Snapshot("a") {
		if o := a.Apply(d, 0); o != Refused {
			t.Errorf("forged document: %v", o)
		}
	}
	if got := a.Content("a", info); got != "mine" {
		t.Errorf("the own document says %v", got)
	}
	if st, _ := a.Stamp("a"); st.Incarnation != born+1 || a.Stats().Outbid != 1 {
		t.Errorf("not outbid: %v", st)
	}
	forged.own.stamp.Incarnation = born + 7
	must(t, forged.Set(info, "again"))
	forged.Commit()
	for _, d := range forged.Snapshot("a") {
		a.Apply(d, time.Second)
	}
	if a.Stats().Outbid != 1 {
		t.Error("two agents of one ID outbid each other without a pause")
	}
	for _, d := range forged.Snapshot("a") {
		a.Apply(d, 2*time.Minute)
	}
	if st, _ := a.Stamp("a"); st.Incarnation != born+8 {
		t.Errorf("not outbid after the pause: %v", st)
	}
	s.settle()
}

func TestClockThatWentBackIsOutbidAfterOneRound(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b")
	must(t, s.docs["a"].Set(info, "before"))
	s.round("a", "b")
	s.start("a", born-3600_000, Limits{})
	must(t, s.docs["a"].Set(info, "after"))
	s.round("a", "b")
	s.round("a", "b")
	if got := s.docs["b"].Content("a", info); got != "after" {
		t.Errorf("b still holds %v", got)
	}
	s.agree()
}

func TestIncarnationFarInTheFutureIsRefused(t *testing.T) {
	const day = 24 * 3600_000
	for _, c := range []struct {
		name  string
		ahead uint64
		now   time.Duration
		want  Outcome
	}{
		{"a day ahead", day, 0, Applied},
		{"a day and a millisecond", day + 1, 0, TooFar},
		{"the same an hour later", day + 1, time.Hour, Applied},
	} {
		bad := New("bad", born+c.ahead, newMemory(), Limits{})
		must(t, bad.Set(info, "x"))
		d := New("a", born, newMemory(), Limits{})
		if o := d.Apply(bad.Snapshot("bad")[0], c.now); o != c.want {
			t.Errorf("%s: %v, want %v", c.name, o, c.want)
		}
		if out, _ := d.Answer("bad", bad.Start(0), c.now, nil); c.want == TooFar && len(out.Wants) > 0 {
			t.Errorf("%s: asked for", c.name)
		}
	}
	// Nor can it raise our own incarnation out of everybody's reach.
	self := New("a", born+day+1, newMemory(), Limits{})
	must(t, self.Set(info, "x"))
	d := New("a", born, newMemory(), Limits{})
	if o := d.Apply(self.Snapshot("a")[0], 0); o != TooFar || d.own.stamp.Incarnation != born {
		t.Errorf("own document from the future: %v", o)
	}
}

func TestHalfACopyIsNeverTakenForTheWhole(t *testing.T) {
	o := New("owner", born, newMemory(), Limits{})
	must(t, o.Change(blocks, addRange(1, 2*MaxOps+5)))
	must(t, o.Change(others, addRange(1, 5)))
	for i := range 20 {
		must(t, o.Set(Section{Kind: Kind(100 + i)}, i))
	}
	parts := o.Snapshot("owner")
	if len(parts) != 3 {
		t.Fatalf("%d parts", len(parts))
	}
	relay := New("relay", born, newMemory(), Limits{})
	for _, p := range parts {
		relay.Apply(p, 0)
	}
	second := relay.Snapshot("owner") // made from another store, in another order
	for _, order := range [][]int{{2, 0, 1}, {1, 2, 0}} {
		d := New("reader", born, newMemory(), Limits{})
		for i, k := range order {
			p := parts[k]
			if i == 1 {
				p = second[k]
			}
			want := Staged
			if i == 2 {
				want = Applied
			}
			if got := d.Apply(p, 0); got != want {
				t.Fatalf("part %d: %v, want %v", k, got, want)
			}
			if i < 2 && (d.dump("owner") != "nothing" || d.Apply(p, 0) != Stale) {
				t.Fatalf("something is visible after %d parts, or a part counts twice", i+1)
			}
			d.audit(t)
		}
		if d.Digest("owner") != o.Digest("owner") || d.dump("owner") != o.dump("owner") {
			t.Fatal("parts of two copies do not fit together")
		}
	}
	// Parts that do not belong together, or not in this order.
	swapped := []Delta{*parts[0], *parts[1], *parts[2]}
	swapped[0].Sets, swapped[1].Sets = swapped[1].Sets, swapped[0].Sets
	mixed := New("reader", born, newMemory(), Limits{})
	for i, want := range []Outcome{Staged, Staged, Corrupt} {
		if got := mixed.Apply(&swapped[i], 0); got != want || mixed.dump("owner") != "nothing" {
			t.Errorf("mixed part %d: %v, want %v", i, got, want)
		}
	}
	// A part that never comes: the rest goes.
	d := New("reader", born, newMemory(), Limits{})
	d.Apply(parts[0], 0)
	d.Expire(Defaults().KeepStaged-1, nil)
	if d.Stats().StagedOps != MaxOps {
		t.Error("dropped too early")
	}
	d.Expire(Defaults().KeepStaged, nil)
	if d.Stats().StagedOps != 0 || d.Apply(parts[1], 0) != Staged {
		t.Error("an incomplete copy stays for ever")
	}
}

func TestPatchForAnotherBaseIsAGap(t *testing.T) {
	o := New("owner", born, newMemory(), Limits{})
	must(t, o.Change(blocks, addRange(1, 500)))
	d := New("reader", born, newMemory(), Limits{})
	for _, p := range o.Snapshot("owner") {
		d.Apply(p, 0)
	}
	must(t, o.Change(blocks, addRange(1000, 3)))
	o.Commit()
	patch := *o.makeCopies([]copyPlan{o.own.plan(&Want{Digest: d.Digest("owner"), Trees: d.docs["owner"].trees()})})[0].parts[0]
	was := d.dump("owner")
	other := patch
	other.Base++
	if got := d.Apply(&other, 0); got != Gap || d.dump("owner") != was {
		t.Errorf("another base: %v", got)
	}
	if got := New("reader", born, newMemory(), Limits{}).Apply(&patch, 0); got != Gap {
		t.Errorf("no base: %v", got)
	}
	if got := d.Apply(&patch, 0); got != Applied || patch.Base == 0 {
		t.Errorf("its base: %v", got)
	}
}

func TestCopyWithAWrongDigestChangesNothing(t *testing.T) {
	o := New("owner", born, newMemory(), Limits{})
	must(t, o.Change(blocks, addRange(1, 100)))
	d := New("reader", born, newMemory(), Limits{})
	for _, p := range o.Snapshot("owner") {
		d.Apply(p, 0)
	}
	was := d.dump("owner")
	must(t, o.Change(blocks, add(1000)))
	o.dropCopies(o.own)
	o.Commit()
	bad := *o.makeCopies([]copyPlan{{doc: o.own}})[0].parts[0]
	bad.Digest++
	if got := d.Apply(&bad, 0); got != Corrupt || d.dump("owner") != was {
		t.Errorf("%v", got)
	}
	d.audit(t)
}

func TestDivergedDocumentIsRepairedByItsBuckets(t *testing.T) {
	for _, healer := range []peer.ID{"a", "c"} { // the owner, or a third peer that is right
		s := newShoal(t, Limits{}, "a", "b", "c")
		must(t, s.docs["a"].Change(blocks, addRange(1, 5000)))
		s.settle()
		must(t, s.docs["a"].Change(blocks, add(6000)))
		s.docs["a"].Commit()
		good := s.docs["a"].own.log[0]
		bad := *good
		bad.Sets = []SetOps{{Section: blocks, Ops: add(6001)}} // as a fault in memory would have it
		if o := s.docs["b"].Apply(&bad, s.now); o != Diverged {
			t.Fatalf("%v, want diverged", o)
		}
		s.round("a", "c")
		if x := s.round("b", "c"); len(x) == 0 {
			t.Fatal("no messages")
		}
		s.now += 2 * time.Second
		ops := 0
		for _, x := range s.round("b", healer) {
			for _, d := range x.Deltas {
				if d.Owner == "a" {
					ops += d.OpCount()
				}
			}
		}
		s.agree()
		if healer == "a" && s.docs["b"].Stats().Deltas[Applied] == 0 || ops > 200 {
			t.Errorf("repair by %s took %d operations of 5001", healer, ops)
		}
		s.docs["b"].audit(t)
	}
}

func TestDivergedDocumentIsNotPassedOn(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Change(blocks, addRange(1, 10)))
	s.round("a", "b")
	must(t, s.docs["a"].Change(blocks, add(60)))
	s.docs["a"].Commit()
	bad := *s.docs["a"].own.log[0]
	bad.Sets = []SetOps{{Section: blocks, Ops: add(61)}}
	s.docs["b"].Apply(&bad, s.now)
	for _, x := range append(s.round("c", "b"), s.round("b", "c")...) {
		for _, d := range x.Deltas {
			t.Errorf("sent a delta of %s", d.Owner)
		}
	}
	if got := s.docs["c"].dump("a"); got != "nothing" {
		t.Errorf("c has got a wrong document:\n%s", got)
	}
}

// pitfalls 10: an operation log that only grows
func TestPeerThatWasAwayTooLongGetsACopy(t *testing.T) {
	s := newShoal(t, Limits{Log: 10 * versionCost}, "a", "b")
	must(t, s.docs["a"].Set(load, 0))
	s.round("a", "b")
	for i := range 9 {
		must(t, s.docs["a"].Set(load, i))
		s.docs["a"].Commit()
	}
	msgs := s.round("b", "a")
	if d := msgs[1].Deltas[0]; d.Complete() || len(msgs[1].Offers) > 0 {
		t.Error("a complete copy though the log reaches back")
	}
	for i := range 11 {
		must(t, s.docs["a"].Set(load, i))
		s.docs["a"].Commit()
	}
	msgs = s.round("b", "a")
	if len(msgs[1].Deltas) > 0 || len(msgs[1].Offers) != 1 || !msgs[3].Deltas[0].Complete() {
		t.Error("no complete copy though the log does not reach back")
	}
	s.agree()
}

func TestOneScanServesManyWhoAsk(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c", "d", "e")
	must(t, s.docs["a"].Change(blocks, addRange(1, 500)))
	for i, id := range []peer.ID{"b", "c", "d", "e"} {
		s.round(id, "a")
		must(t, s.docs["a"].Change(blocks, add(1000+i)))
	}
	if st := s.docs["a"].Stats(); st.Scans != 1 || st.Snapshots != 4 {
		t.Errorf("%d scans for %d copies", st.Scans, st.Snapshots)
	}
	s.settle()
}

func TestDeadPeersDocumentIsKeptForItAlone(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Set(info, "x"))
	s.round("a", "b")
	b := s.docs["b"]
	b.Dead("a", s.now)
	died := s.now
	s.docs["c"].Dead("a", s.now)
	s.round("b", "c")
	s.round("c", "b")
	if _, ok := s.docs["c"].Stamp("a"); ok {
		t.Error("a dead peer's document was passed on")
	}
	if gone := b.Expire(died+10*time.Minute-1, nil); len(gone) != 0 {
		t.Errorf("gone before 10 minutes: %v", gone)
	}
	if gone := b.Expire(died+10*time.Minute, nil); len(gone) != 1 || gone[0] != "a" {
		t.Errorf("gone after 10 minutes: %v", gone)
	}
	if _, ok := b.Stamp("a"); ok || len(s.mem["b"].open) != 0 {
		t.Error("something is left")
	}
	b.audit(t)
}

func TestDocumentOfAnUnseenPeerIsHeldButNotOffered(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b")
	must(t, s.docs["a"].Set(info, "x"))
	c := New("c", born, newMemory(), Limits{}) // whose membership has not shown it a yet
	s.docs["c"], s.mem["c"] = c, newMemory()
	s.docs["b"].Alive("c", 0)
	c.Alive("b", 0)
	s.round("a", "b")
	s.round("b", "c")
	if _, ok := c.Stamp("a"); !ok {
		t.Fatal("c has not taken a's document")
	}
	for _, row := range c.Start(s.now).Summaries {
		if row.Owner == "a" && !row.Dead {
			t.Error("c invites others to ask it for a's document")
		}
	}
	c.Alive("a", s.now)
	for _, row := range c.Start(s.now).Summaries {
		if row.Owner == "a" && row.Dead {
			t.Error("c has seen a, and still calls it dead")
		}
	}
	if c.Expire(s.now+time.Hour, nil); c.docs["a"] == nil {
		t.Error("a living peer's document has expired")
	}
}

// pitfalls 11: what an engine held before it restarted does not stay
func TestResetLeavesNothingBehindAnywhere(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Change(blocks, addRange(1, 300)))
	s.settle()
	must(t, s.docs["a"].Reset(blocks))
	must(t, s.docs["a"].Change(blocks, add(7000)))
	for _, x := range append(s.round("a", "b"), s.round("b", "c")...) {
		for _, d := range x.Deltas {
			if d.OpCount() > 1 {
				t.Errorf("a reset of 300 blocks took %d operations", d.OpCount())
			}
		}
	}
	for _, id := range s.ids() {
		if got, want := s.docs[id].dump("a"), fmt.Sprintf("%v = [{7000 7000}]\n", blocks); got != want {
			t.Errorf("%s holds %s", id, got)
		}
	}
}
