package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/peer"

	"pgregory.net/rapid"
)

// made is a peer that is up, idle and empty; change adds what a test is about.
func made(id peer.ID, change ...func(*Candidate)) Candidate {
	l := peer.PriorLoad()
	l.Up = true
	c := Candidate{Peer: id, RTT: time.Millisecond, Load: &l, Info: &peer.Info{Slots: peer.Unknown}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func self(c *Candidate)                     { c.Self, c.RTT = true, 0 }
func down(c *Candidate)                     { c.Load.Up = false }
func draining(c *Candidate)                 { c.Load.Draining = true }
func pushing(c *Candidate)                  { c.Load.PushBack = true }
func tried(c *Candidate)                    { c.Excluded = Tried }
func far(d time.Duration) func(*Candidate)  { return func(c *Candidate) { c.RTT = d } }
func queuedTokens(n int64) func(*Candidate) { return func(c *Candidate) { c.Load.QueuedTokens = n } }
func pending(requests int, tokens int64) func(c *Candidate) {
	return func(c *Candidate) { c.PendingRequests, c.PendingTokens = requests, tokens }
}
func worked(d time.Duration) func(*Candidate) { return func(c *Candidate) { c.Load.Work = d } }
func holds(blocks int) func(*Candidate) {
	return func(c *Candidate) { c.Match, c.MatchTokens = blocks, int64(blocks)*64 }
}
func load(change func(*peer.Load)) func(*Candidate)   { return func(c *Candidate) { change(c.Load) } }
func engine(change func(*peer.Info)) func(*Candidate) { return func(c *Candidate) { change(c.Info) } }
func policy(t testing.TB, change ...func(*Config)) *Policy {
	cfg := Defaults()
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kind(k Kind) func(*Config) { return func(c *Config) { c.Policy = k } }

// decide runs one decision, with home the candidate that is self.
func decide(p *Policy, req Request, cands ...Candidate) *Decision {
	req.Home = slices.IndexFunc(cands, func(c Candidate) bool { return c.Self })
	var d Decision
	p.Decide(&req, cands, &d)
	return &d
}

func chosen(d *Decision) peer.ID {
	if len(d.Legs) == 0 {
		return ""
	}
	return d.Legs[0].Peer
}

func TestEachPolicyFollowsItsRule(t *testing.T) {
	prompt := Request{Tokens: 1000, Key: 7 << 40}
	for _, c := range []struct {
		name   string
		policy Kind
		cands  []Candidate
		peer   peer.ID
		reason Reason
	}{
		{"local stays, whatever others hold", Local, []Candidate{made("a", self), made("b", holds(10))}, "a", ByLocal},
		{"local queues at home though it pushes back", Local, []Candidate{made("a", self, pushing), made("b")}, "a", ByLocal},
		{"local with its engine down goes to the nearest", Local, []Candidate{made("a", self, down), made("b", far(9*time.Millisecond)), made("c")}, "c", ByLocal},
		{"local without a home goes to the nearest", Local, []Candidate{made("b", far(9*time.Millisecond)), made("c")}, "c", ByLocal},
		{"the longest match wins", LongestPrefix, []Candidate{made("a", self, holds(3)), made("b", holds(4)), made("c", holds(9))}, "c", ByPrefix},
		{"however loaded and far its peer is", LongestPrefix, []Candidate{made("a", self, holds(3)), made("b", holds(4), queuedTokens(1e6), far(time.Second))}, "b", ByPrefix},
		{"an equal match does not leave home", LongestPrefix, []Candidate{made("a", holds(4)), made("b", self, holds(4))}, "b", ByHome},
		{"no match does not leave home", LongestPrefix, []Candidate{made("a"), made("b", self)}, "b", ByHome},
		{"among equal matches the lesser ID", LongestPrefix, []Candidate{made("c", holds(4)), made("b", holds(4)), made("d", self)}, "b", ByPrefix},
		{"a specialist that pushes back is left out", LongestPrefix, []Candidate{made("a", self, holds(1)), made("b", holds(9), pushing), made("c", holds(2))}, "c", ByPrefix},
		{"and home serves where only it pushes back", LongestPrefix, []Candidate{made("a", self), made("b", holds(9), pushing)}, "a", ByHome},
		{"where all push back home serves", LongestPrefix, []Candidate{made("a", self, pushing), made("b", holds(9), pushing)}, "a", ByAllPushBack},
		{"home down: the longest match, if shorter", LongestPrefix, []Candidate{made("a", self, holds(9), down), made("b", holds(2))}, "b", ByPrefix},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(policy(t, kind(c.policy)), prompt, c.cands...)
			if chosen(d) != c.peer || d.Reason != c.reason {
				t.Errorf("chose %q by %v; want %q by %v", chosen(d), d.Reason, c.peer, c.reason)
			}
		})
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	p := policy(t, kind(RoundRobin))
	cands := []Candidate{made("a"), made("b", self), made("c"), made("d")}
	var turns []string
	next := func(cands ...Candidate) {
		turns = append(turns, string(chosen(decide(p, Request{Tokens: 10}, cands...))))
	}
	for range 5 {
		next(cands...)
	}
	next(made("a"), made("b"), made("c"), made("d")) // b once more would be out of turn
	next(made("a"), made("b"), made("c", pushing), made("d", down))
	next(made("d"), made("c"), made("b"), made("a")) // the order of candidates does not matter
	if got := strings.Join(turns, " "); got != "c d a b c d a b" {
		t.Errorf("turns are %s", got)
	}
}

func TestRandomSpreadsEvenlyAndByItsSeed(t *testing.T) {
	cands := []Candidate{made("a", self), made("b"), made("c"), made("d", down)}
	reversed := slices.Clone(cands)
	slices.Reverse(reversed)
	p, q := policy(t, kind(Random)), policy(t, kind(Random))
	count := map[peer.ID]int{}
	for range 3000 {
		one, other := chosen(decide(p, Request{Tokens: 10}, cands...)), chosen(decide(q, Request{Tokens: 10}, reversed...))
		if one != other {
			t.Fatalf("one seed, two choices: %s and %s", one, other)
		}
		count[one]++
	}
	for _, id := range []peer.ID{"a", "b", "c"} {
		if count[id] < 900 || count[id] > 1100 {
			t.Errorf("%s has %d of 3,000", id, count[id])
		}
	}
}

func TestExcludedPeersAreNeverChosenAndTheReasonSaysWhy(t *testing.T) {
	routeOnly := engine(func(i *peer.Info) { i.Role = peer.RouteOnly })
	unreachable := func(c *Candidate) { c.Excluded = Unreachable }
	for _, c := range []struct {
		name   string
		cands  []Candidate
		reason Reason
		why    []Exclusion
	}{
		{"nobody serves it", nil, NoCandidate, nil},
		{"route-only", []Candidate{made("a", self, routeOnly)}, AllDown, []Exclusion{NoEngine}},
		{"down", []Candidate{made("a", self, down), made("b", down)}, AllDown, []Exclusion{Down, Down}},
		{"draining", []Candidate{made("a", self, draining), made("b", down)}, AllDraining, []Exclusion{Draining, Down}},
		{"tried", []Candidate{made("a", self, down), made("b", tried), made("c", draining)}, AllTried, []Exclusion{Down, Tried, Draining}},
		{"unreachable", []Candidate{made("a", unreachable)}, AllTried, []Exclusion{Unreachable}},
		{"pushed back and tried", []Candidate{made("a", pushing, tried)}, AllTried, []Exclusion{Tried}},
	} {
		for _, k := range []Kind{Cost, LongestPrefix, RoundRobin, Random, Local} {
			t.Run(fmt.Sprintf("%s/%v", c.name, k), func(t *testing.T) {
				d := decide(policy(t, kind(k)), Request{Tokens: 100}, c.cands...)
				if len(d.Legs) != 0 || d.Reason != c.reason {
					t.Errorf("legs %v, reason %v; want none, %v", d.Legs, d.Reason, c.reason)
				}
				for i, want := range c.why {
					if d.Terms[i].Excluded != want {
						t.Errorf("%s is excluded as %q; want %q", c.cands[i].Peer, d.Terms[i].Excluded, want)
					}
				}
				if wait := d.RetryAfter; (c.cands == nil) != (wait == 0) || wait > maxRetry {
					t.Errorf("retry after %v", wait)
				}
			})
		}
	}
}

func TestWhereEveryonePushesBackTheChoiceIsAsIfNobodyDid(t *testing.T) {
	cands := func(more ...func(*Candidate)) []Candidate {
		return []Candidate{
			made("a", append(more, self)...),
			made("b", append(more, holds(14), queuedTokens(60_000))...),
			made("c", append(more, queuedTokens(30_000))...),
		}
	}
	for _, k := range []Kind{Cost, RoundRobin, Random, Local} {
		calm := decide(policy(t, kind(k)), Request{Tokens: 1000, Key: 3, Shared: 5}, cands()...)
		full := decide(policy(t, kind(k)), Request{Tokens: 1000, Key: 3, Shared: 5}, cands(pushing)...)
		if chosen(calm) != chosen(full) || full.Reason != ByAllPushBack {
			t.Errorf("%v: %s calm, %s when everyone pushes back, by %v", k, chosen(calm), chosen(full), full.Reason)
		}
		if full.RetryAfter < minRetry || full.RetryAfter > maxRetry || full.Margin != NoDecline {
			t.Errorf("%v: retry after %v, margin %v; the peer must take it in spite of its push-back", k, full.RetryAfter, full.Margin)
		}
	}
}

func TestOnlyTheFirstMaxCandidatesCount(t *testing.T) {
	cands := make([]Candidate, MaxCandidates+1)
	for i := range cands {
		cands[i] = made(peer.ID(fmt.Sprintf("p%05d", i)), down)
	}
	cands[MaxCandidates] = made("last")
	if d := decide(policy(t), Request{Tokens: 10}, cands...); len(d.Legs) != 0 || len(d.Terms) != MaxCandidates {
		t.Errorf("legs %v, %d terms", d.Legs, len(d.Terms))
	}
	cands[MaxCandidates-1] = made("within")
	if d := decide(policy(t), Request{Tokens: 10}, cands...); chosen(d) != "within" {
		t.Errorf("chose %q", chosen(d))
	}
}

// wild draws a candidate of any numbers, those of a hostile peer included.
func wild(id peer.ID) *rapid.Generator[Candidate] {
	return rapid.Custom(func(t *rapid.T) Candidate {
		c := Candidate{Peer: id, RTT: time.Duration(rapid.Int64().Draw(t, "rtt")), Match: int(rapid.Int16().Draw(t, "match")),
			MatchTokens: rapid.Int64().Draw(t, "matchTokens"), PendingRequests: rapid.Int().Draw(t, "pendingRequests"),
			PendingTokens: rapid.Int64().Draw(t, "pendingTokens"), Excluded: rapid.SampledFrom([]Exclusion{Eligible, Eligible, Eligible, Tried}).Draw(t, "excluded")}
		if rapid.Bool().Draw(t, "info") {
			c.Info = &peer.Info{Role: rapid.SampledFrom([]peer.Role{peer.Serve, peer.Serve, peer.RouteOnly}).Draw(t, "role"),
				Slots: rapid.Int().Draw(t, "slots"), Limit: rapid.Int().Draw(t, "limit")}
		}
		if rapid.Bool().Draw(t, "load") {
			c.Load = &peer.Load{Up: rapid.IntRange(0, 3).Draw(t, "up") > 0, Draining: rapid.IntRange(0, 3).Draw(t, "draining") == 0,
				PushBack: rapid.Bool().Draw(t, "pushback"), InFlight: rapid.Int().Draw(t, "inflight"), Running: rapid.Int().Draw(t, "running"),
				Waiting: rapid.Int().Draw(t, "waiting"), QueuedTokens: rapid.Int64().Draw(t, "queued"), Work: time.Duration(rapid.Int64().Draw(t, "work")),
				Prefill: time.Duration(rapid.Int64().Draw(t, "prefill")), Service: time.Duration(rapid.Int64().Draw(t, "service"))}
		}
		return c
	})
}

func TestAnyNumbersGiveASaneDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "n")
		cands := make([]Candidate, n)
		for i := range cands {
			cands[i] = wild(peer.ID(fmt.Sprintf("p%d", i))).Draw(t, "candidate")
		}
		req := Request{Tokens: rapid.Int64().Draw(t, "tokens"), Output: rapid.Int64().Draw(t, "output"), Key: rapid.Uint64().Draw(t, "key"),
			Shared: rapid.Uint64().Draw(t, "shared"), Home: rapid.IntRange(-1, n).Draw(t, "home")}
		if req.Home >= 0 && req.Home < n {
			cands[req.Home].Self = true
		}
		k := Kind(rapid.IntRange(0, int(Local)).Draw(t, "policy"))
		p, err := New(policyOf(k), rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		var d Decision
		p.Decide(&req, cands, &d)
		open := 0
		for i, term := range d.Terms {
			for _, part := range []time.Duration{term.Network, term.Queue, term.Prefill, term.Eviction, term.Balance} {
				if part < 0 || part > maxTerm {
					t.Fatalf("candidate %d: %+v", i, term)
				}
			}
			if term.Total != term.Network+term.Queue+term.Prefill+term.Eviction+term.Balance {
				t.Fatalf("candidate %d: the total is not the sum: %+v", i, term)
			}
			if term.Excluded == Eligible {
				open++
			}
		}
		if (open > 0) != (len(d.Legs) == 1) || d.Reason == NotDecided || d.Margin < 0 || d.ServeCost < 0 || d.RetryAfter < 0 {
			t.Fatalf("%d can be chosen, decision %+v", open, d)
		}
		if open > 0 {
			i := d.Legs[0].Index
			if d.Legs[0].Peer != cands[i].Peer || d.Terms[i].Excluded != Eligible || exclusion(&cands[i]) != Eligible && exclusion(&cands[i]) != PushedBack {
				t.Fatalf("chose %+v", cands[i])
			}
		}
		// The order of the candidates makes no difference.
		again, err := New(policyOf(k), rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(cands)
		if req.Home >= 0 {
			req.Home = n - 1 - req.Home
		}
		var e Decision
		again.Decide(&req, cands, &e)
		if chosen(&d) != chosen(&e) || d.Reason != e.Reason || d.Cost != e.Cost || d.Margin != e.Margin {
			t.Fatalf("in order %+v, reversed %+v", d, e)
		}
	})
}
