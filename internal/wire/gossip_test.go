package wire

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// gossip is peers whose rounds go through the bytes of the protocol, which it counts.
type gossip struct {
	t     *testing.T
	ids   []peer.ID
	docs  []*replica.Docs
	now   time.Duration
	bytes int
}

func newGossip(t *testing.T, n int) *gossip {
	g := &gossip{t: t}
	for i := range n {
		g.ids = append(g.ids, peer.ID(fmt.Sprintf("peer-%02d", i)))
		g.docs = append(g.docs, replica.New(g.ids[i], 1_700_000_000_000, newStore(), replica.Limits{}))
	}
	for _, d := range g.docs {
		for _, id := range g.ids {
			d.Alive(id, 0)
		}
	}
	return g
}

func (g *gossip) round(a, b int) {
	g.now += time.Millisecond
	x := g.docs[a].Start(g.now)
	for x != nil {
		frames := payloads(g.t, x)
		for _, p := range frames {
			g.bytes += HeaderLen + len(p)
		}
		x, _ = g.docs[b].Answer(g.ids[a], join(g.t, frames), g.now, nil)
		a, b = b, a
	}
}

// interval runs the rounds of one interval: each peer with four others.
func (g *gossip) interval(turn int) {
	for i := range g.ids {
		for k := range 4 {
			g.round(i, (i+1+(k*5+turn)%(len(g.ids)-1))%len(g.ids))
		}
	}
}

func (g *gossip) agree() {
	g.t.Helper()
	for i, owner := range g.ids {
		want := g.docs[i].Digest(owner)
		for k, d := range g.docs {
			if d.Digest(owner) != want {
				g.t.Fatalf("%s does not hold what %s says", g.ids[k], owner)
			}
		}
	}
}

// pitfalls 10: gossip that re-sends whole trees
func TestBytesOfTheSteadyStateAreThoseOfTheChanges(t *testing.T) {
	const n, held, intervals = 12, 2000, 6
	section := replica.Section{Kind: replica.KindTextBlocks, BlockSize: 256}
	run := func(churn int) (bytes int) {
		g := newGossip(t, n)
		next := uint64(1)
		grow := func(d *replica.Docs, k int) {
			c := make([]prefix.Change, k)
			for i := range c {
				c[i].Hash, c[i].Depth = prefix.Hash(next*0x9e3779b97f4a7c15), uint16(i)
				next++
			}
			if err := d.Change(section, c); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range g.docs {
			grow(d, held)
			if err := d.Set(replica.Section{Kind: replica.KindLoad}, &peer.Load{Up: true}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			g.now += time.Second
			g.interval(i)
		}
		g.agree()
		g.bytes = 0
		for i := range intervals {
			for _, d := range g.docs {
				grow(d, churn)
			}
			g.interval(i)
		}
		for i := range 3 {
			g.interval(i)
		}
		g.agree()
		return g.bytes
	}
	idle := run(0)
	rounds := n * 4 * (intervals + 3)
	if perRow := idle / rounds / n; perRow > 40 {
		t.Errorf("an idle round takes %d bytes a peer known", perRow)
	}
	low, high := run(20)-idle, run(80)-idle
	heard := n * intervals * (n - 1) // documents' changes that had to be heard
	if per := high / (heard * 80); per < 9 || per > 14 {
		t.Errorf("%d bytes a change heard; a change takes 9", per)
	}
	if high < 3*low-low/2 || high > 4*low {
		t.Errorf("four times the changes: %d bytes, after %d", high, low)
	}
	if tree := held * 9; low/(n*intervals*(n-1)) > tree/50 {
		t.Errorf("%d bytes for each document and interval; a whole one has %d", low/(n*intervals*(n-1)), tree)
	}
	t.Logf("idle: %d bytes a round of %d peers; %.1f bytes a change heard", idle/rounds, n, float64(high)/float64(heard*80))
}

// pitfalls 9, through the bytes
func TestFreshPeerHasEverythingAfterOneRound(t *testing.T) {
	g := newGossip(t, 3)
	section := replica.Section{Kind: replica.KindTextBlocks, BlockSize: 256}
	for k, d := range g.docs[:2] {
		c := make([]prefix.Change, 40000)
		for i := range c {
			c[i].Hash, c[i].Depth = prefix.Hash(uint64(i+1+k<<32)*0x9e3779b97f4a7c15), uint16(i)
		}
		if err := d.Change(section, c); err != nil {
			t.Fatal(err)
		}
	}
	g.round(0, 1)
	g.bytes = 0
	g.round(2, 1)
	g.agree()
	if per := g.bytes / 80000; per > 11 {
		t.Errorf("%d bytes an element of a copy", per)
	}
}
