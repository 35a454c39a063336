package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"shoal/internal/peer"
)

func TestOneRoundBringsTwoPeersTogether(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b")
	for _, id := range s.ids() {
		must(t, s.docs[id].Set(info, "info of "+id))
		must(t, s.docs[id].Change(blocks, add(1, 2, 3)))
	}
	if n := len(s.round("a", "b")); n != 4 {
		t.Errorf("two strangers need 4 messages, took %d", n)
	}
	s.agree()
	if n := len(s.round("a", "b")); n != 2 {
		t.Errorf("two that agree need 2 messages, took %d", n)
	}
}

func TestChangesTravelInTwoMessagesEachWay(t *testing.T) {
	for _, begins := range []peer.ID{"a", "b"} {
		s := newShoal(t, Limits{}, "a", "b")
		must(t, s.docs["a"].Change(blocks, addRange(1, 5000)))
		s.round("a", "b")
		must(t, s.docs["a"].Change(blocks, add(9000)))
		must(t, s.docs["a"].Change(blocks, removed(17)))
		other := peer.ID("b")
		if begins == "b" {
			other = "a"
		}
		ops := 0
		for _, x := range s.round(begins, other) {
			for _, d := range x.Deltas {
				ops += d.OpCount()
			}
		}
		if ops != 2 {
			t.Errorf("round begun by %s: two changes sent as %d operations", begins, ops)
		}
		s.agree()
	}
}

// pitfalls 9
func TestFreshPeerGetsACopyBeforeChanges(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Change(blocks, add(1, 2, 3)))
	s.round("a", "b")
	for i := 4; i < 20; i++ {
		must(t, s.docs["a"].Change(blocks, add(i)))
		s.docs["a"].Commit()
	}
	deep := s.docs["a"].own.log[len(s.docs["a"].own.log)-1]
	if o := s.docs["c"].Apply(deep, s.now); o != Gap {
		t.Errorf("changes without what is below them: %v, want gap", o)
	}
	if got := s.docs["c"].dump("a"); got != "nothing" {
		t.Errorf("c took deep blocks without their roots: %s", got)
	}
	s.round("b", "c") // b is behind, and offers what it has
	if got, _ := s.docs["c"].Stamp("a"); got.Version != 1 {
		t.Errorf("c has %v after a round with b", got)
	}
	s.round("c", "a")
	s.agree2(t, "a", "c")
}

func (s *shoal) agree2(t *testing.T, owner, id peer.ID) {
	t.Helper()
	if a, b := s.docs[owner].dump(owner), s.docs[id].dump(owner); a != b {
		t.Errorf("%s holds of %s:\n%s\nits owner:\n%s", id, owner, b, a)
	}
}

// pitfalls 10
func TestSteadyStateSendsChangesNotTrees(t *testing.T) {
	ids := make([]peer.ID, 16)
	for i := range ids {
		ids[i] = peer.ID(fmt.Sprintf("p%02d", i))
	}
	s := newShoal(t, Limits{}, ids...)
	const held, churn, rounds = 1000, 20, 12
	for i, id := range ids {
		must(t, s.docs[id].Change(blocks, addRange(1+i<<20, held)))
	}
	s.settle()
	before := s.docs["p00"].Stats().Snapshots
	s.sent = nil
	for r := range rounds {
		for i, id := range ids {
			at := 1 + i<<20 + held + r*churn
			must(t, s.docs[id].Change(blocks, addRange(at, churn)))
			gone := addRange(at-held, churn)
			for j := range gone {
				gone[j].Removed = true
			}
			must(t, s.docs[id].Change(blocks, gone))
		}
		for i := range ids {
			for k := range 4 {
				s.round(ids[i], ids[(i+1+k*3+r)%16])
			}
		}
	}
	ops, complete := 0, 0
	for _, x := range s.sent {
		for _, d := range x.Deltas {
			ops += d.OpCount()
			if d.Complete() {
				complete++
			}
		}
	}
	if complete > 0 || s.docs["p00"].Stats().Snapshots != before {
		t.Errorf("%d complete copies sent in the steady state", complete)
	}
	changes := rounds * 16 * 2 * churn // each of which 15 peers must hear once
	if heard := changes * 15; ops < heard*9/10 || ops > heard*3/2 {
		t.Errorf("%d operations sent for %d that had to be heard", ops, heard)
	}
	s.settle()
}

func TestManyRoundsAtOnceAskOnePeerForACopy(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c", "new")
	must(t, s.docs["a"].Change(blocks, addRange(1, 100)))
	s.round("a", "b")
	s.round("a", "c")
	n := s.docs["new"]
	asked := 0
	for _, id := range []peer.ID{"a", "b", "c"} { // three rounds begin before any has ended
		offer, _ := s.docs[id].Answer("new", n.Start(s.now), s.now, nil)
		wants, _ := n.Answer(id, offer, s.now, nil)
		asked += len(wants.Wants)
	}
	if asked != 1 {
		t.Errorf("a copy of one document was asked of %d peers", asked)
	}
	offer, _ := s.docs["b"].Answer("new", n.Start(s.now), s.now, nil)
	later := s.now + Defaults().AskAgain
	if wants, _ := n.Answer("b", offer, later, nil); len(wants.Wants) != 1 {
		t.Errorf("a copy that did not come is not asked for again")
	}
}

func TestSummaryOutOfOrderIsNotCompared(t *testing.T) {
	s := newShoal(t, Limits{}, "a")
	must(t, s.docs["a"].Set(info, "x"))
	x := &Exchange{Begin: true, Summaries: []Summary{{Owner: "c", Stamp: Stamp{born, 1}}, {Owner: "b", Stamp: Stamp{born, 1}}}}
	out, _ := s.docs["a"].Answer("b", x, 0, nil)
	if out == nil || len(out.Wants)+len(out.Offers)+len(out.Deltas) > 0 {
		t.Errorf("answer to garbage: %+v", out)
	}
}

func TestRelayPassesDeltasOnByPointer(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Set(info, "1"))
	s.round("a", "b")
	s.round("b", "c")
	must(t, s.docs["a"].Set(info, "2"))
	first := s.round("a", "b")[2].Deltas[0]
	second := s.round("b", "c")[2].Deltas[0]
	if first != second {
		t.Error("b made a delta of its own of a's")
	}
	s.agree2(t, "a", "c")
}

func TestDeltasNeverChangeOnceMade(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	seen := make(map[*Delta]string)
	print := func(d *Delta) string { return fmt.Sprintf("%+v", *d) }
	for i := range 60 {
		must(t, s.docs["a"].Change(blocks, addRange(i*7, 9)))
		must(t, s.docs["a"].Set(load, i))
		if i%5 == 0 {
			must(t, s.docs["a"].Change(blocks, removed(i*7, i*7+3)))
		}
		if i%20 == 19 {
			must(t, s.docs["a"].Reset(blocks))
		}
		s.docs["a"].Commit()
		pairs := [][2]peer.ID{{"a", "b"}, {"b", "c"}, {"c", "a"}}
		if i%3 == 0 {
			for _, x := range s.round(pairs[i/3%3][0], pairs[i/3%3][1]) {
				for _, d := range x.Deltas {
					seen[d] = print(d)
				}
			}
		}
		for d, was := range seen {
			if print(d) != was {
				t.Fatalf("delta %d to %d has changed", d.From, d.To)
			}
		}
	}
	if len(seen) < 10 {
		t.Fatalf("only %d deltas seen", len(seen))
	}
}

func TestSameCallsGiveSameMessages(t *testing.T) {
	run := func() string {
		s := newShoal(t, Limits{}, "a", "b", "c")
		for i := range 50 {
			id := s.ids()[i%3]
			must(t, s.docs[id].Change(blocks, addRange(i*31, 40)))
			must(t, s.docs[id].Set(load, i))
			s.round(s.ids()[i%3], s.ids()[(i+1+i/7%2)%3])
		}
		out := ""
		for _, x := range s.sent {
			out += fmt.Sprint(x.Summaries, x.Offers, x.Wants)
			for _, d := range x.Deltas {
				out += fmt.Sprint(d.Owner, d.From, d.To, d.Digest, d.Values, d.Sets)
			}
		}
		return out
	}
	first := run()
	for range 3 {
		if run() != first {
			t.Fatal("two runs of the same calls sent different messages, though the store yields in random order")
		}
	}
}

func TestHeardIsRenewedByTheOwnerAlone(t *testing.T) {
	s := newShoal(t, Limits{}, "a", "b", "c")
	must(t, s.docs["a"].Set(info, "x"))
	s.round("a", "b")
	s.round("a", "c")
	s.now = time.Minute
	s.round("b", "c")
	if at, _ := s.docs["c"].Heard("a"); at > time.Second {
		t.Errorf("b's word renewed a's document: heard at %v", at)
	}
	s.round("a", "c")
	if at, ok := s.docs["c"].Heard("a"); !ok || at < time.Minute {
		t.Errorf("a's own word did not renew its document: heard at %v", at)
	}
}

func TestAnswerIsBoundedAndTurnsTakeEverybody(t *testing.T) {
	const docs, each = 20, 100
	s := newShoal(t, Limits{Answer: 3 * each}, "a", "b")
	var ids []peer.ID
	for i := range docs {
		id := peer.ID(fmt.Sprintf("o%02d", i))
		ids = append(ids, id)
		s.start(id, born, Limits{})
		must(t, s.docs[id].Change(blocks, addRange(1, each)))
		s.round(id, "a")
	}
	for round := range docs {
		for _, x := range s.round("b", "a") {
			ops := 0
			for _, d := range x.Deltas {
				ops += logCost(d)
			}
			if ops > 3*each+versionCost {
				t.Fatalf("an answer of %d operations", ops)
			}
		}
		s.now += time.Second
		if have := len(s.docs["b"].Owners(nil)); have == docs+1 {
			break
		} else if round == docs-1 {
			t.Fatalf("b has %d of %d documents after %d rounds", have-1, docs, docs)
		}
	}
	heard := make(map[peer.ID]bool)
	for i := range 2 * docs { // now all of them change all the time, under the same limit
		for _, id := range ids {
			must(t, s.docs[id].Change(blocks, addRange(1000*(i+1), 50)))
			s.round(id, "a")
		}
		for _, x := range s.round("b", "a") {
			for _, d := range x.Deltas {
				heard[d.Owner] = true
			}
		}
	}
	if len(heard) < docs {
		t.Errorf("b hears of %d of %d documents that change", len(heard), docs)
	}
}

func TestAskIsBounded(t *testing.T) {
	rows := make([]Summary, MaxRows)
	for i := range rows {
		rows[i] = Summary{Owner: peer.ID(fmt.Sprintf("x%05d", i)), Stamp: Stamp{born, 1}}
	}
	s := newShoal(t, Limits{}, "a")
	x := &Exchange{Begin: true, Summaries: rows}
	out, _ := s.docs["a"].Answer("b", x, 0, nil)
	if len(out.Wants) != maxAsk {
		t.Errorf("%d copies asked for at once, limit %d", len(out.Wants), maxAsk)
	}
	for i := range 2 * MaxRows / maxAsk {
		out, _ = s.docs["a"].Answer("b", x, time.Duration(i), nil)
	}
	if len(s.docs["a"].asked) > MaxRows {
		t.Errorf("%d asked remembered", len(s.docs["a"].asked))
	}
	if !slices.IsSortedFunc(out.Wants, func(a, b Want) int { return slices.Compare([]byte(a.Owner), []byte(b.Owner)) }) {
		t.Error("wants out of order")
	}
}
