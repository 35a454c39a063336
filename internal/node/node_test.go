package node

import (
	"math/rand/v2"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

func TestAPromptGoesToThePeerThatHoldsItsPrefix(t *testing.T) {
	s := newShoal(t, "a", "b", "c")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	for _, origin := range []peer.ID{"a", "b", "c"} {
		d := s.route(origin, prompt(1, 40, 3, 42))
		if d.Legs[0].Peer != "b" || d.MatchBlocks != 40 {
			t.Errorf("from %s: to %s with a match of %d blocks (%v)", origin, d.Legs[0].Peer, d.MatchBlocks, d.Reason)
		}
	}
}

// pitfalls 7, 9: every entry point knows what every peer holds, and a fresh one gets it all before anything else.
func TestAFreshPeerKnowsAllThatTheOthersHold(t *testing.T) {
	s := newShoal(t, "a", "b")
	for i := range 50 {
		s.serve("a", prompt(i, 20, 1000+i, 22))
	}
	s.rest()
	s.start("c", 1, peer.Epoch{Start: 100})
	s.settle()
	for i := range 50 {
		if d := s.route("c", prompt(i, 20, 2000+i, 22)); d.Legs[0].Peer != "a" || d.MatchBlocks != 20 {
			t.Fatalf("prompt %d goes to %s with %d blocks", i, d.Legs[0].Peer, d.MatchBlocks)
		}
	}
}

// pitfalls 3: load counts from dispatch, long before the first answer or report.
func TestLoadCountsFromDispatch(t *testing.T) {
	s := newShoal(t, "a", "b", "c", "d")
	n := s.nodes["a"]
	sent := map[peer.ID]int{}
	for i := range 40 { // long cold prompts without anything in common, no time and no report in between
		r := prompt(i, 0, 10_000+i, 100)
		d := s.route("a", r)
		sent[d.Legs[0].Peer]++
		if d.Legs[0].Self {
			n.Admit(s.now, r, Expect{})
		} else {
			n.Dispatch(s.now, r, d.Legs[0])
		}
	}
	for _, id := range []peer.ID{"a", "b", "c", "d"} {
		if sent[id] < 5 {
			t.Errorf("%d of 40 went to %s: %v", sent[id], id, sent)
		}
	}
}

// pitfalls 6: a burst of one new prefix does not scatter before the first report of it.
func TestABurstOfOneNewPrefixStaysTogether(t *testing.T) {
	s := newShoal(t, "a", "b", "c", "d")
	n := s.nodes["a"]
	sent := map[peer.ID]int{}
	for i := range 8 {
		r := prompt(7, 200, 10_000+i, 201)
		d := s.route("a", r)
		sent[d.Legs[0].Peer]++
		if d.Legs[0].Self {
			n.Admit(s.now, r, Expect{})
		} else {
			n.Dispatch(s.now, r, d.Legs[0])
		}
	}
	most := 0
	for _, c := range sent {
		most = max(most, c)
	}
	if most < 7 {
		t.Fatalf("a burst of 8 scattered: %v", sent)
	}
}

func TestTheOverlayEndsWithTheReportThatCoversIt(t *testing.T) {
	s := newShoal(t, "a", "b")
	a, b := s.nodes["a"], s.nodes["b"]
	r := prompt(1, 0, 1, 50)
	ticket := a.Dispatch(s.now, r, Leg{Peer: "b", Uncached: 3200})
	o := &a.members["b"].overlay
	if o.open != 1 || o.tokens != 3200 {
		t.Fatalf("not counted at dispatch: %+v", o)
	}
	s.round("a", "b") // a report from before the acceptance does not cover it
	sv, d := b.Admit(s.now, r, Expect{Hopped: true, ServeCost: time.Hour})
	if d != nil {
		t.Fatal(d.Reason)
	}
	a.Accepted(ticket, b.Stamp())
	if o.open != 1 {
		t.Fatal("the overlay ended before any report")
	}
	s.now += 100 * time.Millisecond
	s.round("a", "b")
	if o.open != 0 || len(o.entries) != 0 {
		t.Fatalf("the covering report has come and the overlay is still there: %+v", o)
	}
	if l := a.members["b"].load; l.InFlight != 1 || l.QueuedTokens == 0 {
		t.Fatalf("the report does not say what it covers: %+v", l)
	}
	b.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, true)
	a.Settle(s.now, ticket, Outcome{Kind: Ended})
	if a.Dispatched() != 0 || b.InFlight() != 0 {
		t.Fatal("a count has not returned to zero")
	}
}

func TestTheOverlayLastsAtMostItsTime(t *testing.T) {
	s := newShoal(t, "a", "b")
	a := s.nodes["a"]
	a.Dispatch(s.now, prompt(1, 0, 1, 50), Leg{Peer: "b", Uncached: 100})
	s.now += a.cfg.OverlayMax + 1
	a.Tick(s.now)
	if o := a.members["b"].overlay; o.open != 0 || o.tokens != 0 {
		t.Fatalf("still there: %+v", o)
	}
}

func TestTheOverlayOfOnePeerIsBounded(t *testing.T) {
	s := newShoal(t, "a", "b")
	a := s.nodes["a"]
	for i := range a.cfg.MaxOverlay + 10 {
		a.Dispatch(s.now, prompt(i, 0, i, 2), Leg{Peer: "b", Uncached: 1})
	}
	o := a.members["b"].overlay
	if len(o.entries) != a.cfg.MaxOverlay || o.tokens != int64(a.cfg.MaxOverlay) || a.count.OverlayFull != 10 {
		t.Fatalf("%d entries, %d tokens, %d pushed out", len(o.entries), o.tokens, a.count.OverlayFull)
	}
}

func TestAPeerDeclinesWhatIsWorseThanExpected(t *testing.T) {
	s := newShoal(t, "a", "b")
	b := s.nodes["b"]
	r := prompt(1, 0, 1, 100)
	cost := b.serveCost(r, 0)
	if cost <= 0 {
		t.Fatalf("a cold prompt costs %v", cost)
	}
	if _, d := b.Admit(s.now, r, Expect{Hopped: true, ServeCost: cost / 2, Margin: cost / 4}); d == nil || d.Reason != WorseThanExpected || d.Match != 0 {
		t.Fatalf("the truth is twice as bad and it was not declined: %+v", d)
	}
	if _, d := b.Admit(s.now, r, Expect{Hopped: true, ServeCost: cost / 2, Margin: cost}); d != nil {
		t.Fatalf("declined within the margin: %v", d.Reason)
	}
	if _, d := b.Admit(s.now, r, Expect{}); d != nil {
		t.Fatalf("an own client's request is declined: %v", d.Reason)
	}
}

func TestADeclineIsRoutedAgainWithTheFreshLoad(t *testing.T) {
	s := newShoal(t, "a", "b", "c")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	a := s.nodes["a"]
	r := prompt(1, 40, 3, 42)
	d := s.route("a", r)
	if d.Legs[0].Peer != "b" {
		t.Fatal("not to b")
	}
	ticket := a.Dispatch(s.now, r, d.Legs[0])
	busy := *a.members["b"].load
	busy.QueuedTokens, busy.InFlight = 1_000_000, 100
	stamp := a.members["b"].loadStamp
	stamp.Version++
	a.Settle(s.now, ticket, Outcome{Kind: Declined, Load: &busy, Stamp: stamp})
	r.Tried = append(r.Tried, "b")
	if d := s.route("a", r); d.Legs[0].Peer == "b" {
		t.Fatal("sent to the peer that has just declined")
	}
	r.Tried = nil
	if d := s.route("a", prompt(1, 40, 4, 42)); d.Legs[0].Peer == "b" {
		t.Fatalf("the fresh load was not noted: the next one goes there (cost %v)", d.Cost)
	}
}

// A decline's fresh load may cover other requests than the declined one: seen first as an index out of range.
func TestADeclineThatCoversOtherRequests(t *testing.T) {
	s := newShoal(t, "a", "b")
	a := s.nodes["a"]
	stamp := a.members["b"].loadStamp
	var tickets []Ticket
	for i := range 5 {
		tickets = append(tickets, a.Dispatch(s.now, prompt(i, 0, i, 2), Leg{Peer: "b", Uncached: 1}))
		if i < 4 {
			a.Accepted(tickets[i], replica.Stamp{Incarnation: stamp.Incarnation, Version: stamp.Version + uint64(i) + 1})
		}
	}
	load := *a.members["b"].load
	a.Settle(s.now, tickets[4], Outcome{Kind: Declined, Load: &load, Stamp: replica.Stamp{Incarnation: stamp.Incarnation, Version: stamp.Version + 2}})
	if o := a.members["b"].overlay; len(o.entries) != 2 || o.tokens != 2 || o.open != 2 {
		t.Fatalf("%d entries, %d tokens, %d open; two are not covered", len(o.entries), o.tokens, o.open)
	}
}

func TestAPeerThatFailedIsLeftOutForAWhile(t *testing.T) {
	s := newShoal(t, "a", "b")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	a := s.nodes["a"]
	r := prompt(1, 40, 3, 42)
	d := s.route("a", r)
	a.Settle(s.now, a.Dispatch(s.now, r, d.Legs[0]), Outcome{Kind: Failed})
	if d := s.route("a", r); d.Legs[0].Peer == "b" {
		t.Fatal("the next request goes to the peer that has just failed")
	}
	s.now += a.cfg.FailurePause
	if d := s.route("a", r); d.Legs[0].Peer != "b" {
		t.Fatal("still left out after the pause")
	}
}

func TestPushBackGoesOutAtOnce(t *testing.T) {
	s := newShoal(t, "a", "b")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	b := s.nodes["b"]
	b.TakePushBack(s.now) // that its engine is up
	var servings []Serving
	for i := 0; ; i++ {
		if i > 10_000 {
			t.Fatal("no push-back after 10,000 long prompts")
		}
		sv, d := b.Admit(s.now, prompt(i, 0, 20_000+i, 400), Expect{})
		if d != nil {
			t.Fatal(d.Reason)
		}
		servings = append(servings, sv)
		if stamp, load, ok := b.TakePushBack(s.now); ok {
			s.nodes["a"].HeardLoad(s.now, "b", stamp, load)
			break
		}
	}
	if d := s.route("a", prompt(1, 40, 3, 42)); d.Legs[0].Peer != "a" {
		t.Fatal("routed to a peer that pushes back")
	}
	if _, d := b.Admit(s.now, prompt(1, 40, 3, 42), Expect{Hopped: true, ServeCost: time.Hour}); d == nil || d.Reason != QueueFull {
		t.Fatalf("a hop is taken while pushing back: %+v", d)
	}
	for _, sv := range servings {
		b.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, false)
	}
	if _, _, ok := b.TakePushBack(s.now + pushGap - 1); ok {
		t.Fatal("push-back that flaps is told each time")
	}
	s.now += pushGap
	stamp, load, ok := b.TakePushBack(s.now)
	if !ok || load.PushBack || b.InFlight() != 0 || b.queued != 0 {
		t.Fatalf("push-back did not end with the queue: %v, queued %d", load, b.queued)
	}
	s.nodes["a"].HeardLoad(s.now, "b", stamp, load)
	if d := s.route("a", prompt(1, 40, 3, 42)); d.Legs[0].Peer != "b" {
		t.Fatal("not routed to again")
	}
}

// pitfalls 18: whatever becomes of a request, its counts return to zero, and a second end changes nothing.
func TestCountsReturnToZeroHoweverRequestsEnd(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	rng := rand.New(rand.NewPCG(3, 3))
	open := map[Serving]bool{}
	for i := range 3000 {
		sv, d := n.Admit(s.now, prompt(i%7, 5, i, 5+i%9), Expect{})
		if d != nil {
			t.Fatal(d.Reason)
		}
		open[sv] = true
		s.now += time.Duration(rng.IntN(1000)) * time.Microsecond
		for sv := range open {
			switch rng.IntN(6) {
			case 0:
				n.Started(s.now, sv)
			case 1:
				n.FirstToken(s.now, sv)
			case 2:
				n.End(s.now, sv, Usage{Prompt: 100, Cached: rng.IntN(100), Completion: 5}, true)
				delete(open, sv)
			case 3:
				n.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, false)
				n.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, false)
				delete(open, sv)
			}
			if len(open) < 50 {
				break
			}
		}
	}
	for sv := range open {
		n.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, false)
	}
	if n.InFlight() != 0 || n.queued != 0 || n.prefilling != 0 {
		t.Fatalf("in flight %d, queued %d, prefilling %d", n.InFlight(), n.queued, n.prefilling)
	}
}

// A plain answer tells nothing of its first token: its prompt must not count as queued until it ends.
func TestAPlainAnswerIsNotQueuedThroughItsDecode(t *testing.T) {
	s := newShoal(t, "a")
	n := s.nodes["a"]
	sv, _ := n.Admit(s.now, prompt(1, 0, 1, 50), Expect{})
	n.Started(s.now, sv)
	n.Tick(s.now)
	if n.queued == 0 {
		t.Fatal("taken for computed at once")
	}
	s.now += 10 * time.Second
	n.Tick(s.now)
	if n.queued != 0 || n.prefilling != 0 || n.InFlight() != 1 {
		t.Fatalf("after 10 s %d tokens are queued, %d prefills run, %d are in flight", n.queued, n.prefilling, n.InFlight())
	}
	n.End(s.now, sv, Usage{Prompt: 3200, Cached: 0, Completion: 400}, true)
	if n.queued != 0 || n.prefilling != 0 || n.InFlight() != 0 {
		t.Fatalf("after its end: %d queued, %d prefills, %d in flight", n.queued, n.prefilling, n.InFlight())
	}
}

// An abort before the first token takes back what was predicted for that prompt, and leaves the rest of the tree alone.
func TestAnAbortedPrefillLeavesTheTreeAlone(t *testing.T) {
	s := newShoal(t, "a", "b")
	for i := range 10 {
		s.serve("a", prompt(i, 20, 1000+i, 22))
	}
	n := s.nodes["a"]
	before := n.tree.Len()
	sv, _ := n.Admit(s.now, prompt(3, 20, 9, 40), Expect{})
	n.Started(s.now, sv)
	if n.tree.Len() != before+20 {
		t.Fatalf("%d blocks after the admission, %d before", n.tree.Len(), before)
	}
	n.End(s.now, sv, Usage{peer.Unknown, peer.Unknown, peer.Unknown}, false)
	if n.tree.Len() != before || n.index.Len(n.me.slot) != before {
		t.Fatalf("%d blocks after the abort, %d before it", n.tree.Len(), before)
	}
}

func TestADrainingPeerAdmitsNothing(t *testing.T) {
	s := newShoal(t, "a", "b")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	s.nodes["b"].Drain(s.now)
	if stamp, load, ok := s.nodes["b"].TakePushBack(s.now); !ok || !load.Draining {
		t.Fatal("draining is not told at once")
	} else {
		s.nodes["a"].HeardLoad(s.now, "b", stamp, load)
	}
	if _, d := s.nodes["b"].Admit(s.now, prompt(1, 40, 2, 42), Expect{Hopped: true}); d == nil || d.Reason != Draining {
		t.Fatalf("admitted: %+v", d)
	}
	if d := s.route("a", prompt(1, 40, 3, 42)); d.Legs[0].Peer != "a" {
		t.Fatal("routed to a draining peer")
	}
}

func TestAnExplanationHasEveryCandidate(t *testing.T) {
	s := newShoal(t, "a", "b", "c")
	s.serve("b", prompt(1, 40, 2, 42))
	s.settle()
	r := prompt(1, 40, 3, 42)
	r.Explain = true
	d := s.route("a", r)
	if d.Explanation == nil || len(d.Explanation.Candidates) != 3 {
		t.Fatalf("explanation: %+v", d.Explanation)
	}
	chosen := 0
	for _, c := range d.Explanation.Candidates {
		if c.Chosen {
			chosen++
			if c.Peer != "b" || c.Blocks != 40 {
				t.Errorf("chosen: %+v", c)
			}
		}
		if sum := c.NetworkUS + c.QueueUS + c.PrefillUS + c.EvictionUS + c.BalanceUS; sum > c.TotalUS+5 || sum < c.TotalUS-5 {
			t.Errorf("the terms of %s add up to %d, and the total is %d", c.Peer, sum, c.TotalUS)
		}
	}
	if chosen != 1 {
		t.Errorf("%d chosen", chosen)
	}
}

func TestNobodyServesTheModel(t *testing.T) {
	s := newShoal(t, "a", "b")
	r := prompt(1, 40, 3, 42)
	r.Model = "other"
	var d Decision
	s.nodes["a"].Route(s.now, r, &d)
	if len(d.Legs) != 0 || d.Reason.String() != "no-candidate" {
		t.Fatalf("%v %v", d.Legs, d.Reason)
	}
}
