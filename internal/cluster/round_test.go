package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
	"shoal/internal/wire"
)

// script notes what an agent is told in rounds, and answers with what it is given.
type script struct {
	mu      sync.Mutex
	heard   []string
	answers []*wire.Exchange
}

func (s *script) exchange(from peer.ID, in *wire.Exchange) *wire.Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("from %s:", from)
	if in.Begin {
		line += fmt.Sprintf(" begin with %d summaries", len(in.Summaries))
	}
	for _, d := range in.Deltas {
		line += fmt.Sprintf(" delta of %s with %d ops", d.Owner, d.OpCount())
	}
	for _, w := range in.Wants {
		line += " want " + string(w.Owner)
	}
	s.heard = append(s.heard, line)
	if len(s.answers) == 0 {
		return nil
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

func (s *script) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

// quiet makes no rounds but those with new peers.
var quiet = with(func(c *Config) { c.Interval = time.Hour })

// delta is some change of a document, with as many operations as told.
func delta(owner peer.ID, ops int) *replica.Delta {
	d := &replica.Delta{Owner: owner, Incarnation: 1, From: 1, To: 2, Parts: 1}
	if ops > 0 {
		set := replica.SetOps{Section: replica.Section{Kind: replica.KindTextBlocks, Model: "m", BlockSize: 256}}
		for i := range ops {
			set.Ops = append(set.Ops, prefix.Change{Element: prefix.Element{Hash: prefix.Hash(i + 1), Depth: uint16(i % 100)}})
		}
		d.Sets = []replica.SetOps{set}
	}
	return d
}

// A new peer gets a round at once, in which both sides get what they lack: the four messages of replica.Exchange.
func TestRoundWithANewPeer(t *testing.T) {
	for name, opts := range map[string][]option{"clear": nil, "tls": {with(func(c *Config) { c.Keys = []Key{{1}} })}} {
		t.Run(name, func(t *testing.T) {
			const many = 30_000 // operations, and ten deltas of them: several frames
			sa := &script{answers: []*wire.Exchange{{Deltas: []*replica.Delta{delta("a", 3)}, Wants: []replica.Want{{Owner: "b"}}}}}
			sb := &script{answers: []*wire.Exchange{
				{Wants: []replica.Want{{Owner: "a"}}, Deltas: []*replica.Delta{delta("b", 0)}},
				{Deltas: slices.Repeat([]*replica.Delta{delta("b", many)}, 10)}}}
			a := begin(t, "a", append(opts, quiet, handling(func(a *agent) {
				a.exchange = sa.exchange
				a.summary = func() *wire.Exchange {
					return &wire.Exchange{Begin: true, Summaries: []replica.Summary{{Owner: "a"}, {Owner: "c"}}}
				}
			}))...)
			b := begin(t, "b", append(opts, quiet, joining(a), handling(func(b *agent) {
				b.exchange = sb.exchange
				b.summary = func() *wire.Exchange { return nil } // b begins none
			}))...)
			eventually(t, "a round", func() bool { return a.c.Stats().Rounds == 1 })
			wantA := []string{"from b: delta of b with 0 ops want a", "from b:" + strings.Repeat(fmt.Sprintf(" delta of b with %d ops", many), 10)}
			wantB := []string{"from a: begin with 2 summaries", "from a: delta of a with 3 ops want b"}
			if got := sa.lines(); !slices.Equal(got, wantA) {
				t.Errorf("a heard %q", got)
			}
			if got := sb.lines(); !slices.Equal(got, wantB) {
				t.Errorf("b heard %q", got)
			}
			in, out := a.c.Stats(), b.c.Stats()
			if in.RoundBytesIn < 2*wire.MaxFrame || in.RoundBytesIn != out.RoundBytesOut || in.RoundBytesOut != out.RoundBytesIn || in.RoundNanos == 0 {
				t.Errorf("a: %+v\nb: %+v", in, out)
			}
		})
	}
}

// Rounds go on, over one kept connection, and with a new one where it was lost.
func TestRoundsGoOn(t *testing.T) {
	a, b := pair(t)
	eventually(t, "rounds", func() bool { return a.c.Stats().Rounds > 5 && b.c.Stats().Rounds > 5 })
	if n := a.c.Stats().Dials; n > 2 {
		t.Errorf("%d dials", n)
	}
	b.c.mu.Lock()
	for in := range b.c.inbound {
		in.l.close()
	}
	b.c.mu.Unlock()
	before := a.c.Stats()
	eventually(t, "more rounds", func() bool { return a.c.Stats().Rounds > before.Rounds+5 })
	if s := a.c.Stats(); s.RoundErrors != before.RoundErrors {
		t.Errorf("%d rounds failed", s.RoundErrors)
	}
}

// A peer that takes its time holds up nobody else's rounds, nor hops.
func TestSlowPeerHoldsUpNoOtherRounds(t *testing.T) {
	release := make(chan struct{})
	var hanging atomic.Int64
	a := begin(t, "a", patient, with(func(c *Config) { c.Interval = minInterval }))
	begin(t, "slow", joining(a), patient, quiet, handling(func(x *agent) {
		x.summary = func() *wire.Exchange { return nil }
		x.exchange = func(from peer.ID, _ *wire.Exchange) *wire.Exchange {
			if from == "a" {
				hanging.Add(1)
				<-release
			}
			return nil
		}
	}))
	begin(t, "fast", joining(a), patient, quiet)
	a.up(t, "slow")
	a.up(t, "fast")
	eventually(t, "a round to hang", func() bool { return hanging.Load() == 1 })
	before := a.c.Stats().Rounds
	eventually(t, "rounds with the other one", func() bool { return a.c.Stats().Rounds > before+20 })
	if got, _, err := hop(a.c, "slow", "x"); got != "x" || err != nil {
		t.Errorf("hop to the slow one: %v", err)
	}
	if n := hanging.Load(); n != 1 {
		t.Errorf("%d rounds at once with one peer", n)
	}
	close(release)
}

// A round that never ends, or is too slow, is given up.
func TestEndlessRoundIsGivenUp(t *testing.T) {
	ask := func(peer.ID, *wire.Exchange) *wire.Exchange {
		return &wire.Exchange{Wants: []replica.Want{{Owner: "x"}}}
	}
	a, _ := pair(t, quiet, handling(func(a *agent) { a.exchange = ask }))
	eventually(t, "it", func() bool { return a.c.Stats().RoundErrors == 1 })
	eventually(t, "logged", func() bool { return a.log.count("a round without an end") == 1 })
	never := make(chan struct{})
	defer close(never)
	hang := func(peer.ID, *wire.Exchange) *wire.Exchange { <-never; return nil }
	b := begin(t, "b2", quiet, hooked(func(h *hooks) { h.tune = func(t *timing) { fast(t); t.roundLimit = 100 * time.Millisecond } }))
	begin(t, "c", joining(b), quiet, handling(func(a *agent) { a.exchange = hang }))
	eventually(t, "it", func() bool { return b.c.Stats().RoundErrors == 1 })
}

// A message of a round over the limit is not taken in.
func TestMessageOfARoundIsBounded(t *testing.T) {
	a := begin(t, "a", quiet)
	l := dialPeer(t, a, nil)
	if r := hello(t, l, &wire.Hello{Min: 1, Max: 1, ID: "b", Incarnation: 1, Shoal: "shoal"}); r != "" {
		t.Fatal(r)
	}
	var frame []byte
	wire.ExchangeFrames(&wire.Exchange{Deltas: slices.Repeat([]*replica.Delta{delta("b", 30_000)}, 8)}, nil, func(p []byte) error {
		if frame == nil {
			frame = slices.Clone(p) // one that says that more follow
		}
		return nil
	})
	sent := 0
	for sent <= 2*wire.MaxExchange {
		if err := l.writeFrame(wire.TypeExchange, frame); err != nil {
			break
		}
		sent += len(frame)
	}
	r := a.refusedWith(t, errExchange.Error())
	if sent > 2*wire.MaxExchange || !strings.Contains(r.err.Error(), errProtocol.Error()) {
		t.Errorf("%d bytes, %v", sent, r.err)
	}
	if a.rounds.Load() != 0 {
		t.Error("handed on")
	}
}

func TestPeersOfARoundAreRandom(t *testing.T) {
	a := newAgent(t)
	c, _, err := newCluster(a.cfg, Member{ID: "a"}, a, nil, hooks{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		id := peer.ID(rune('b' + i))
		c.members.peers[id] = newRemote(c, &life{Member: Member{ID: id}})
	}
	seen := map[peer.ID]int{}
	for range 1000 {
		got := c.pick(map[peer.ID]bool{"b": true}, 4)
		if len(got) != 4 || got[0] == got[1] {
			t.Fatalf("%d peers", len(got))
		}
		for _, r := range got {
			seen[r.life.ID]++
		}
	}
	for id, n := range seen {
		if id == "b" || n < 350 || n > 540 {
			t.Errorf("%s: %d of 1000", id, n)
		}
	}
	if len(c.pick(nil, 100)) != 10 || len(c.pick(nil, 0)) != 0 || len(c.pick(nil, -1)) != 0 {
		t.Error("not as many as there are")
	}
}

// Connections that no round has used for long are closed: in a large shoal they would be one for each peer.
func TestConnectionForRoundsIsNotKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, echo)
		defer r.close()
		for _, c := range []*Cluster{r.a.c, r.b.c} {
			c.wg.Add(1)
			go c.sweep()
		}
		to := r.a.c.members.get("b")
		for range 5 {
			r.a.c.round(to)
			pass(20 * time.Second)
		}
		if n := r.dials.Load(); n != 1 {
			t.Errorf("%d dials", n)
		}
		pass(15 * time.Second)
		if n := r.b.c.Stats().Conns; n != 0 {
			t.Errorf("%d connections", n)
		}
		r.a.c.round(to)
		if s := r.a.c.Stats(); s.Rounds != 6 || s.RoundErrors != 0 || r.dials.Load() != 2 {
			t.Errorf("%+v", s)
		}
	})
}
