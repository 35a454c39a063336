package route

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/peer"
)

// The prompts of these tests are 1,000 tokens: 200 ms at the prior rate, so that the margin is 40 ms.

func TestMissDoesNotGoToTheEmptiestTree(t *testing.T) { // pitfalls 1
	newcomer := made("new", queuedTokens(4000), load(func(l *peer.Load) { l.CachePermille = 0 }))
	for key := range uint64(100) {
		d := decide(policy(t), Request{Tokens: 1000, Key: key << 50},
			made("a", self, worked(10*time.Second)), made("b", worked(10*time.Second)), newcomer)
		if chosen(d) == "new" {
			t.Fatalf("the newcomer has 800 ms of prompts ahead and gets the miss: %+v", d.Terms)
		}
	}
}

func TestNewcomerGetsWorkOnceItIsLessBusy(t *testing.T) { // pitfalls 1: nor is it left out
	count := 0
	for key := range uint64(100) {
		d := decide(policy(t), Request{Tokens: 1000, Key: key << 50},
			made("a", self, worked(10*time.Second)), made("b", worked(10*time.Second)), made("new"))
		if chosen(d) == "new" {
			count++
		}
	}
	if count != 100 {
		t.Errorf("a cold peer that has done nothing gets %d of 100 misses", count)
	}
}

func TestImbalanceKeepsTheBestMatchAmongTheLightlyLoaded(t *testing.T) { // pitfalls 2
	p := policy(t)
	for range 60 {
		p.heat.add(5) // a popular prefix
	}
	for key := range uint64(100) {
		d := decide(p, Request{Tokens: 1000, Key: key << 50, Shared: 5}, made("a", self), made("b"),
			made("c", holds(12)), made("d", holds(14), queuedTokens(20_000)), made("e", holds(8)))
		if chosen(d) != "c" {
			t.Fatalf("d holds most and has 4 s ahead of it, c holds nearly as much and is idle; chose %s: %+v", chosen(d), d.Terms)
		}
	}
}

func TestLoadCountsFromDispatch(t *testing.T) { // pitfalls 3
	count := map[peer.ID]int{}
	a, b := made("a"), made("b")
	p := policy(t)
	for key := range uint64(20) {
		d := decide(p, Request{Tokens: 1000, Key: key << 50}, a, b)
		c := &a
		if chosen(d) == "b" {
			c = &b
		}
		c.PendingRequests++
		c.PendingTokens += 1000
		count[chosen(d)]++
	}
	if count["a"] < 9 || count["a"] > 11 {
		t.Errorf("20 long prompts before any report: %v", count)
	}
}

func TestHottestPrefixIsCopiedWhenQueueingExceedsItsPrefill(t *testing.T) { // pitfalls 4
	p := policy(t)
	at := func(queued int64) peer.ID {
		return chosen(decide(p, Request{Tokens: 1000, Key: 9, Shared: 5}, made("a", self), made("b", holds(14), queuedTokens(queued)), made("c", worked(time.Second))))
	}
	if got := at(40_000); got != "b" {
		t.Errorf("a prefix seen once leaves its holder, which has 8 s of work, for %s", got)
	}
	for range 500 {
		p.heat.add(5)
	}
	if got := at(300); got != "b" {
		t.Errorf("60 ms of queue are less than the 179 ms of its prefill, and it left for %s", got)
	}
	if got := at(1600); got == "b" {
		t.Errorf("320 ms of queue are more than the 179 ms of its prefill, and the hottest prefix stays with b")
	}
}

func TestShortPromptsDoNotAllGoToOnePeer(t *testing.T) { // pitfalls 5
	for _, tokens := range []int64{1, 8, 30} {
		for _, home := range []func(*Candidate){self, func(*Candidate) {}} {
			count := map[peer.ID]int{}
			near := far(100 * time.Microsecond)
			for i := range uint64(400) {
				tail := (i + 1) * 0x9e3779b97f4a7c15
				d := decide(policy(t), Request{Tokens: tokens, Key: tail}, made("a", near, home), made("b", near), made("c", near), made("d", near))
				count[chosen(d)]++
			}
			for _, id := range []peer.ID{"a", "b", "c", "d"} {
				if count[id] < 60 || count[id] > 140 {
					t.Errorf("%d tokens: %v of 400", tokens, count)
					break
				}
			}
		}
	}
}

func TestBurstOfOneNewPrefixMeetsAtOnePeerFromEveryOrigin(t *testing.T) { // pitfalls 6, 7
	ids := []peer.ID{"a", "b", "c", "d", "e"}
	for key := range uint64(50) {
		met := map[peer.ID]bool{}
		for _, origin := range ids {
			p := policy(t)
			var target peer.ID
			for burst := range 10 {
				var cands []Candidate
				for _, id := range ids {
					c := made(id)
					if id == origin {
						self(&c)
					}
					if id == target { // what the origin knows of its own dispatches: load, and the prefix to come
						c.PendingRequests, c.PendingTokens = burst, 900+int64(burst)*100
						holds(14)(&c)
					}
					cands = append(cands, c)
				}
				req := Request{Tokens: 1000, Key: (key + 1) << 50}
				if burst > 0 {
					req.Key, req.Shared = uint64(burst)<<45, key+1
				}
				d := decide(p, req, cands...)
				target = chosen(d)
				met[target] = true
			}
		}
		if len(met) != 1 {
			t.Fatalf("prefix %d scatters over %v", key, met)
		}
	}
}

func TestNewPrefixesSpreadThoughViewsAreStale(t *testing.T) {
	p := policy(t)
	count := map[peer.ID]int{}
	for key := range uint64(400) { // nothing that is decided shows in the candidates
		d := decide(p, Request{Tokens: 1000, Key: (key + 1) * 0x9e3779b97f4a7c15}, made("a", self), made("b"), made("c", worked(200*time.Millisecond)), made("d", queuedTokens(50)))
		count[chosen(d)]++
	}
	for _, id := range []peer.ID{"a", "b", "c", "d"} {
		if count[id] < 60 || count[id] > 140 {
			t.Errorf("%v of 400: nearly equal peers get nearly equal shares", count)
		}
	}
}

func TestUnknownIsNotZero(t *testing.T) {
	busy := func(l *peer.Load) { l.InFlight, l.Service = 12, 2*time.Second }
	four := engine(func(i *peer.Info) { i.Slots = 4 })
	for _, c := range []struct {
		name  string
		cand  Candidate
		queue time.Duration
	}{
		{"the engine's counts are unknown: the agent's own count", made("a", load(busy), four), 4500 * time.Millisecond},
		{"the engine counts others' requests too", made("a", load(busy), four, load(func(l *peer.Load) { l.Running, l.Waiting = 4, 16 })), 8500 * time.Millisecond},
		{"the engine's lower count is older than the agent's", made("a", load(busy), four, load(func(l *peer.Load) { l.Running, l.Waiting = 4, 0 })), 4500 * time.Millisecond},
		{"the running are known, the waiting are not", made("a", load(busy), four, load(func(l *peer.Load) { l.Running = 20 })), 8500 * time.Millisecond},
		{"slots unknown, some wait: it runs what it can", made("a", load(func(l *peer.Load) { l.Running, l.Waiting, l.Service = 8, 8, time.Second })), 1125 * time.Millisecond},
		{"slots unknown, none wait: no wait is known of", made("a", load(func(l *peer.Load) { l.Running, l.Waiting = 8, 0 })), 0},
		{"the agent's limit is below the slots", made("a", load(busy), engine(func(i *peer.Info) { i.Slots, i.Limit = 8, 2 })), 11 * time.Second},
		{"requests on the way take places", made("a", four, pending(5, 0)), time.Second},
		{"service time unknown: the prior", made("a", four, pending(5, 0), load(func(l *peer.Load) { l.Service = 0 })), time.Second},
		{"prefill rate unknown: the prior", made("a", queuedTokens(1000), load(func(l *peer.Load) { l.Prefill = 0 })), 200 * time.Millisecond},
		{"prompts ahead take longer than a place", made("a", four, pending(5, 10_000)), 2 * time.Second},
		{"nothing was heard of it: what was sent", Candidate{Peer: "a", PendingTokens: 1000}, 200 * time.Millisecond},
	} {
		d := decide(policy(t), Request{Tokens: 1000}, c.cand)
		if d.Terms[0].Queue != c.queue {
			t.Errorf("%s: queue %v; want %v", c.name, d.Terms[0].Queue, c.queue)
		}
	}
	unmeasured := decide(policy(t), Request{Tokens: 1000}, made("a", self), made("b", far(-1)))
	if got := unmeasured.Terms[1].Network; got != Defaults().PriorRTT {
		t.Errorf("a round trip that was never measured counts as %v", got)
	}
}

func TestDistanceIsWeighedAgainstWhatThePrefixSaves(t *testing.T) {
	at := func(p *Policy, rtt time.Duration) peer.ID {
		return chosen(decide(p, Request{Tokens: 1000, Key: 1, Shared: 5}, made("a", self), made("b", holds(14), far(rtt))))
	}
	p := policy(t)
	if got := at(p, 20*time.Millisecond); got != "b" {
		t.Errorf("20 ms to save 179 ms: served by %s", got)
	}
	if got := at(p, 200*time.Millisecond); got != "a" {
		t.Errorf("200 ms to save 179 ms: served by %s", got)
	}
	for range 400 {
		p.heat.add(5)
	}
	if got := at(p, 20*time.Millisecond); got != "a" {
		t.Errorf("a hundred more will pay 20 ms each to save 179 ms once: served by %s", got)
	}
	if got := at(p, 200*time.Microsecond); got != "b" {
		t.Errorf("a hundred more will pay 0.2 ms each to save 179 ms once: served by %s", got)
	}
}

func TestHomeServesWhereNothingIsToBeGained(t *testing.T) {
	for _, c := range []struct {
		name   string
		req    Request
		cands  []Candidate
		reason Reason
	}{
		{"all hold the prefix and only a question is left", Request{Tokens: 1000, Shared: 5}, []Candidate{made("a", self, holds(14)), made("b", holds(14)), made("c", holds(14))}, ByHome},
		{"home is a little busier than the margin is wide", Request{Tokens: 1000, Shared: 5}, []Candidate{made("a", self, holds(14), queuedTokens(150)), made("b", holds(14))}, ByHome},
		{"the others are too far for a spread", Request{Tokens: 1000}, []Candidate{made("a", self), made("b", far(15*time.Millisecond)), made("c", far(15*time.Millisecond))}, ByHome},
		{"home alone serves it", Request{Tokens: 1000}, []Candidate{made("a", self, queuedTokens(9000))}, ByHome},
	} {
		for key := range uint64(30) {
			c.req.Key = (key + 1) * 0x9e3779b97f4a7c15
			if d := decide(policy(t), c.req, c.cands...); chosen(d) != "a" || d.Reason != c.reason {
				t.Errorf("%s: chose %s by %v: %+v", c.name, chosen(d), d.Reason, d.Terms)
				break
			}
		}
	}
}

func TestReasonTellsWhyHomeWasLeft(t *testing.T) {
	for _, c := range []struct {
		cands  []Candidate
		shared uint64
		peer   peer.ID
		reason Reason
	}{
		{[]Candidate{made("a", self), made("b", holds(14))}, 5, "b", ByPrefix},
		{[]Candidate{made("a", self, queuedTokens(5000)), made("b")}, 0, "b", ByCost},
		{[]Candidate{made("a", self, queuedTokens(5000)), made("b"), made("c")}, 0, "b", BySpread},
		{[]Candidate{made("b", holds(14)), made("c")}, 5, "b", ByPrefix},
		{[]Candidate{made("b"), made("c", queuedTokens(5000))}, 0, "b", ByCost},
		{[]Candidate{made("a", self, holds(14), pushing), made("b")}, 5, "b", ByCost},
		{[]Candidate{made("a", self, holds(14), tried), made("b", holds(3))}, 5, "b", ByPrefix},
	} {
		d := decide(policy(t), Request{Tokens: 1000, Key: 6, Shared: c.shared}, c.cands...)
		if c.reason != BySpread && chosen(d) != c.peer || d.Reason != c.reason {
			t.Errorf("%v: chose %s by %v; want %s by %v", c.cands, chosen(d), d.Reason, c.peer, c.reason)
		}
	}
}

func TestPeerMayFindItselfWorseByTheLeadOverTheNextBest(t *testing.T) {
	req := Request{Tokens: 1000, Shared: 5}
	d := decide(policy(t), req, made("a", self, queuedTokens(500)), made("b", holds(14)))
	lead := d.Terms[0].Total - d.Terms[1].Total
	if want := 40*time.Millisecond + lead; d.Margin != want || lead < time.Second {
		t.Errorf("margin %v; want the margin of the prompt and the lead of %v", d.Margin, lead)
	}
	if want := d.Terms[1].Queue + d.Terms[1].Prefill; d.ServeCost != want || d.Cost != d.Terms[1].Total {
		t.Errorf("serve cost %v of cost %v; want %v of %v", d.ServeCost, d.Cost, want, d.Terms[1].Total)
	}
	alone := decide(policy(t), req, made("b", holds(14)))
	if alone.Margin != NoDecline {
		t.Errorf("margin %v where there is no other", alone.Margin)
	}
	p := policy(t)
	c := made("b", holds(14), queuedTokens(77))
	if got := p.ServeCost(&req, &c); got != 77*peer.PriorPrefill+104*peer.PriorPrefill {
		t.Errorf("the peer itself comes to %v", got)
	}
}

func TestBusyExcludedPeerDoesNotMoveThePrices(t *testing.T) {
	cands := []Candidate{made("a", self), made("b", holds(3)), made("c", holds(14), down, worked(-time.Hour)), made("d", holds(14), tried)}
	d := decide(policy(t), Request{Tokens: 1000, Shared: 5}, cands...)
	if d.Terms[1].Eviction != 0 {
		t.Errorf("b holds most of those who can serve, and its eviction price is %v", d.Terms[1].Eviction)
	}
}

func TestBalanceCountsWhatHasBegun(t *testing.T) {
	d := decide(policy(t), Request{Tokens: 10}, made("a", self, load(func(l *peer.Load) { l.InFlight = 6 })), made("b", pending(2, 0)))
	if want := 4 * peer.PriorService / 2 * 50 / 1000; d.Terms[0].Balance != want || d.Terms[1].Balance != 0 {
		t.Errorf("balance %v and %v; want %v and 0", d.Terms[0].Balance, d.Terms[1].Balance, want)
	}
	// Peers that work on many requests at once add up more than the time that has passed.
	d = decide(policy(t), Request{Tokens: 10}, made("a", self, worked(40*horizon)), made("b", worked(60*horizon)))
	if got, want := d.Terms[1].Balance, horizon*4/10*50/1000; got < want-time.Millisecond || got > want+time.Millisecond {
		t.Errorf("20 of 50 times the horizon: balance %v, want %v", got, want)
	}
}

func TestHeatKeepsPopularKeysAndForgets(t *testing.T) {
	var h heat
	const hot = 0xabcd << 48
	for i := range uint64(4 * heatWindow) {
		if i%4 == 0 {
			h.add(hot)
		} else {
			h.add((i + 1) * 0x9e3779b97f4a7c15)
		}
	}
	if n := h.count(hot); n < heatWindow/5 || n > heatWindow {
		t.Errorf("a quarter of all decisions: counted %d", n)
	}
	h.add(hot + 1) // falls on the same slot
	if h.count(hot+1) != 0 || h.count(hot) == 0 {
		t.Error("one other key displaces a popular one")
	}
	for i := range uint64(16 * heatWindow) {
		h.add((i + 1) * 0x9e3779b97f4a7c15)
	}
	if n := h.count(hot); n > 1 {
		t.Errorf("after %d decisions without it: counted %d", 16*heatWindow, n)
	}
	h.add(0)
	if h.count(0) != 0 {
		t.Error("no match anywhere is not a prefix")
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{16, 1000} {
		for _, k := range []Kind{Cost, LongestPrefix, RoundRobin, Random} {
			b.Run(fmt.Sprintf("%v/%d", k, n), func(b *testing.B) {
				p := policy(b, kind(k))
				cands := make([]Candidate, n)
				for i := range cands {
					cands[i] = made(peer.ID(fmt.Sprintf("peer-%04d", i)), holds(i%7), queuedTokens(int64(i%5)), worked(time.Duration(i%11)*time.Millisecond))
				}
				self(&cands[n/2])
				var d Decision
				req := Request{Tokens: 2000, Output: 100, Home: n / 2, Shared: 1 << 60}
				b.ReportAllocs()
				for b.Loop() {
					req.Key += 0x9e3779b97f4a7c15
					p.Decide(&req, cands, &d)
				}
			})
		}
	}
}
