package reserve

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// world is peers that reserve paths, and messages between them that are late, out of order and sometimes lost.
type world struct {
	failer
	rng    *rand.Rand
	peers  []*Table
	skew   []time.Duration // of their wall clocks
	flows  []*flow
	events events
	seq    int
	now    time.Duration
	delay  time.Duration // at most
	lose   float64
	moved  time.Duration // when the last did
}

type flow struct {
	peer  int
	set   *Set
	id    uint64
	moves int
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newWorld(f failer, seed uint64, peers int, delay time.Duration, lose float64) *world {
	w := &world{failer: f, rng: rand.New(rand.NewPCG(seed, 9)), delay: delay, lose: lose}
	for i := range peers {
		w.peers = append(w.peers, newTable(f, peer.ID('a'+rune(i)), 1, seed*100+uint64(i)))
		w.skew = append(w.skew, time.Duration(w.rng.Int64N(int64(200*time.Millisecond))))
	}
	return w
}

func (w *world) at(when time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{when, w.seq, do})
}

func (w *world) upTo(n time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(n) + 1)) }

// say sends what a peer has to say to all others, each message by itself.
func (w *world) say(from int) {
	for _, m := range w.peers[from].Take(nil) {
		for to, t := range w.peers {
			if to == from || w.rng.Float64() < w.lose {
				continue
			}
			for range 1 + w.rng.IntN(2) { // some come twice
				w.at(w.now+w.upTo(w.delay), func() { t.Heard(w.now, noon+w.now+w.skew[to], m.Owner, &m) })
			}
		}
	}
}

// begin reserves a path at a time, and asks for a move at every chunk boundary from then on.
func (w *world) begin(when time.Duration, from int, k, leaf, to int, p Policy) {
	w.at(when, func() {
		t := w.peers[from]
		f := &flow{peer: from, set: paths(w, t, spread(k, leaf, to))}
		g := mustReserveAt(w, t, w.now, noon+w.now+w.skew[from], Request{Set: f.set, Bytes: 1 << 30, Policy: p})
		f.id = g.ID
		w.flows = append(w.flows, f)
		w.say(from)
		w.boundary(f)
	})
}

func (w *world) boundary(f *flow) {
	w.at(w.now+time.Millisecond+w.upTo(60*time.Millisecond), func() {
		t := w.peers[f.peer]
		t.Renew(w.now, noon+w.now+w.skew[f.peer], f.id, 1<<29)
		if _, moved := t.Move(w.now, noon+w.now+w.skew[f.peer], f.id); moved {
			f.moves++
			w.moved = w.now
		}
		t.Tick(w.now, noon+w.now+w.skew[f.peer])
		w.say(f.peer)
		w.boundary(f)
	})
}

// sections makes the documents go round once in a while.
func (w *world) sections(every time.Duration) {
	w.at(w.now+every, func() {
		for from, t := range w.peers {
			for to, u := range w.peers {
				if to != from {
					s := t.Section()
					w.at(w.now+w.upTo(w.delay), func() { u.Merge(w.now, noon+w.now+w.skew[to], t.self, 1, s) })
				}
			}
		}
		w.sections(every)
	})
}

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// settled checks that all know the same, and that no two flows hold a path while one of them has a free one.
func (w *world) settled(moves int) {
	for to, t := range w.peers {
		for from, u := range w.peers {
			for range 2 { // what was renewed a moment ago is still on its way
				if s := u.Section(); from != to {
					t.Merge(w.now, noon+w.now+w.skew[to], u.self, 1, s)
				}
			}
		}
	}
	for _, t := range w.peers {
		if t.Digest() != w.peers[0].Digest() {
			w.Fatalf("%s and %s hold different tables", t.self, w.peers[0].self)
		}
		t.audit(w, nil)
	}
	for _, f := range w.flows {
		t := w.peers[f.peer]
		if f.moves > moves {
			w.Fatalf("%d flows, and one has moved %d times", len(w.flows), f.moves)
		}
		o := t.find(f.id)
		if o == nil {
			continue // a fallback: it holds nothing
		}
		t.refresh(f.set)
		shares := slices.ContainsFunc(o.entry.Links, func(l ecmp.LinkID) bool { return t.links[l].flows > 1 })
		if shares && o.contested && f.set.freePaths() > 0 {
			w.Fatalf("flow %d of %s lost a conflict on %v and stays, with %d free", f.id, t.self, o.entry.Links, f.set.freePaths())
		}
		if shares && f.set.freePaths() > 0 {
			other := 0
			for _, g := range w.flows {
				if n := w.peers[g.peer].find(g.id); n != nil && g != f && slices.ContainsFunc(n.entry.Links, func(l ecmp.LinkID) bool { return slices.Contains(o.entry.Links, l) }) {
					other++
				}
			}
			w.Fatalf("flow %d of %s shares %v with %d others, and %d paths are free", f.id, t.self, o.entry.Links, other, f.set.freePaths())
		}
	}
}

// Bursts of reservations at peers that cannot know of each other yet: once messages have settled and losers have moved,
// no two flows hold one path while another is free, and nobody moves for ever.
func testBurst(t *testing.T, p Policy, leaves bool) {
	most, moves, flows, uneven := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		peers, k := rapid.IntRange(2, 10).Draw(t, "peers"), rapid.SampledFrom([]int{2, 4, 8, 20}).Draw(t, "paths")
		n := rapid.IntRange(2, 16).Draw(t, "flows")
		if leaves {
			n = min(n, k) // so that there is always a free path
		}
		lose := rapid.SampledFrom([]float64{0, 0, 0.2}).Draw(t, "loss")
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), peers, 50*time.Millisecond, lose)
		window := rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond, 300 * time.Millisecond}).Draw(t, "window")
		for range n {
			from, to := 0, 9
			if leaves {
				from, to = w.rng.IntN(3), 9+w.rng.IntN(3)
			}
			w.begin(w.upTo(window), w.rng.IntN(peers), k, from, to, p)
		}
		if lose > 0 {
			w.sections(100 * time.Millisecond)
		}
		w.run(1200 * time.Millisecond)
		w.settled(Defaults().Moves)
		if w.moved > 900*time.Millisecond && lose == 0 {
			t.Fatalf("one has moved at %v", w.moved)
		}
		for _, l := range w.peers[0].Links(nil) {
			if l.ID < down(0, 0) {
				uneven += max(0, l.Flows-(n+k-1)/k)
			}
		}
		for _, f := range w.flows {
			most, moves, flows = max(most, f.moves), moves+f.moves, flows+1
		}
	})
	t.Logf("%v: %d flows moved %d times, one of them %d times; %d are where one too many is", p, flows, moves, most, uneven)
}

func TestBurstsOfLeastSettle(t *testing.T)                  { testBurst(t, Least, false) }
func TestBurstsOfArkSettle(t *testing.T)                    { testBurst(t, Ark, false) }
func TestBurstsOfLeastBetweenManyLeavesSettle(t *testing.T) { testBurst(t, Least, true) }
func TestBurstsOfArkBetweenManyLeavesSettle(t *testing.T)   { testBurst(t, Ark, true) }
