package node

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// shoalOf is a few nodes in one process, with a clock that only the test moves.
type shoalOf struct {
	t     testing.TB
	now   time.Duration
	nodes map[peer.ID]*Node
}

const model = "m"

var paged = peer.Cache{Kind: peer.Paged, Usable: peer.AfterPrefill, Tokens: 1 << 20, BlockTokens: 16}

func newShoal(t testing.TB, ids ...peer.ID) *shoalOf {
	s := &shoalOf{t: t, nodes: make(map[peer.ID]*Node)}
	for _, id := range ids {
		s.start(id, 1, peer.Epoch{Start: 100})
	}
	s.settle()
	return s
}

// start starts a peer, anew where it is there already.
func (s *shoalOf) start(id peer.ID, incarnation uint64, e peer.Epoch) *Node {
	s.t.Helper()
	n, err := New(s.now, Defaults(), id, incarnation, rand.New(rand.NewPCG(1, uint64(len(id)))))
	if err != nil {
		s.t.Fatal(err)
	}
	s.nodes[id] = n
	n.EngineUp(s.now, engineOf(e))
	for other, o := range s.nodes {
		if other != id {
			o.PeerUp(s.now, id, incarnation)
			n.PeerUp(s.now, other, o.me.incarnation)
			o.RTT(id, time.Millisecond)
			n.RTT(other, time.Millisecond)
		}
	}
	return n
}

func engineOf(e peer.Epoch) *Engine {
	return &Engine{Info: peer.Info{Engine: "emulated", Models: []peer.Model{{Name: model, Context: 1 << 17}}, Cache: paged, Slots: 64, Epoch: e},
		Running: 0, Waiting: 0, CachePermille: peer.Unknown}
}

// round is one round of anti-entropy that a begins.
func (s *shoalOf) round(a, b peer.ID) {
	x := s.nodes[a].Start(s.now)
	for range replica.MaxRound {
		x = s.nodes[b].Answer(s.now, a, x)
		if x == nil {
			return
		}
		a, b = b, a
	}
}

// settle lets time pass and runs rounds until every pair has exchanged all it knows.
func (s *shoalOf) settle() {
	for range 2 {
		s.now += 3 * time.Second // beyond the wait for an older document
		for _, n := range s.nodes {
			n.Tick(s.now)
		}
		for a := range s.nodes {
			for b := range s.nodes {
				if a < b {
					s.round(a, b)
				}
			}
		}
	}
}

// rest is a long quiet time: nobody has done more work lately than anybody else.
func (s *shoalOf) rest() {
	s.now += 30 * time.Minute
	s.settle()
}

// prompt is so many blocks, that share the first common ones with every prompt of that family.
func prompt(family, common, own, blocks int) *Request {
	r := &Request{Model: model, MaxTokens: peer.Unknown, Bytes: blocks*prefix.BlockBytes + 10}
	root := prefix.Domain{Model: model}.Root()
	var c prefix.Chain
	c.Reset(root)
	for i := range blocks {
		who := family
		if i >= common {
			who = own
		}
		block := fmt.Sprintf("%08d %08d ", who, i)
		for range prefix.BlockBytes / 18 {
			c.WriteString(block)
		}
		c.WriteString("    "[:prefix.BlockBytes%18])
	}
	c.WriteString(fmt.Sprintf("tail %d", own))
	c.Finish()
	r.Chain = append([]prefix.Hash(nil), c.Blocks()...)
	r.Tail = c.Tail()
	if len(r.Chain) != blocks {
		panic(fmt.Sprintf("a prompt of %d blocks has %d", blocks, len(r.Chain)))
	}
	return r
}

// serve lets a peer's own engine serve a request to its end, with the engine's honest count.
func (s *shoalOf) serve(id peer.ID, r *Request) {
	s.t.Helper()
	n := s.nodes[id]
	cached := n.tree.Match(r.Chain)
	sv, d := n.Admit(s.now, r, Expect{})
	if d != nil {
		s.t.Fatalf("%s declined: %v", id, d.Reason)
	}
	n.Started(s.now, sv)
	tokens := r.Bytes / 4
	s.now += time.Duration(tokens-cached*64) * 100 * time.Microsecond
	n.FirstToken(s.now, sv)
	s.now += 100 * time.Millisecond
	n.End(s.now, sv, Usage{Prompt: tokens, Cached: cached * 64, Completion: 10}, true)
}

func (s *shoalOf) route(id peer.ID, r *Request) *Decision {
	s.t.Helper()
	d := new(Decision)
	s.nodes[id].Route(s.now, r, d)
	if len(d.Legs) != 1 {
		s.t.Fatalf("no leg: %v", d.Reason)
	}
	return d
}

// holders is the longest prefix match that this peer knows of, by peer; peers without a match are left out.
func (n *Node) holders(chain []prefix.Hash) map[peer.ID]int {
	n.index.Match(chain, &n.matches)
	out := make(map[peer.ID]int)
	for _, m := range n.order {
		if m.hasSlot && n.matches.Blocks(m.slot) > 0 {
			out[m.id] = n.matches.Blocks(m.slot)
		}
	}
	return out
}
