package reserve

import (
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// seen is a table that hears of others' transfers, one after the other, each alone over a path of its own.
type seen struct {
	*testing.T
	x   *Table
	now time.Duration
	id  uint64
	seq map[peer.ID]uint64
}

func newSeen(t *testing.T) *seen {
	s := &seen{T: t, x: newTable(t, "x", 1, 1), seq: map[peer.ID]uint64{}}
	for _, p := range []peer.ID{"a", "b", "c", "d", "e"} {
		s.hear(p, "z", 1, 1, 0) // the first of each says nothing
	}
	return s
}

const foretold = 100 * time.Millisecond

func (s *seen) tell(src peer.ID, m Message) {
	s.Helper()
	s.seq[src]++
	m.Owner, m.Incarnation, m.Entry.Seq, m.Entry.Stamp = src, 1, s.seq[src], StampAt(noon+s.now)
	if v := s.x.Heard(s.now, noon+s.now, src, &m); v != Accepted {
		s.Fatal(v)
	}
}

// hear has a peer's transfer of 100 ms take so many times as long. Of what it says at half of it late is added to the end.
func (s *seen) hear(src, dst peer.ID, link ecmp.LinkID, times float64, late time.Duration) {
	s.Helper()
	s.id++
	e := Entry{ID: s.id, Dst: dst, Bytes: 1e9, Links: []ecmp.LinkID{link}, End: (noon + s.now + foretold).Microseconds()}
	s.tell(src, Message{Entry: e})
	half := time.Duration(times * float64(foretold) / 2)
	if s.now += half; late > 0 {
		again := e
		again.End += late.Microseconds()
		s.tell(src, Message{Entry: again})
	}
	s.now += half
	s.tell(src, Message{Released: true, Entry: Entry{ID: e.ID}})
	s.now += time.Millisecond
}

// lateMessages has 20 messages take 60 ms.
func (s *seen) lateMessages() {
	for range 20 {
		s.now -= 60 * time.Millisecond
		e := Entry{ID: 9999, Dst: "z", Stamp: StampAt(noon + s.now)}
		s.now += 60 * time.Millisecond
		s.seq["e"]++
		e.Seq = s.seq["e"]
		s.x.Heard(s.now, noon+s.now, "e", &Message{"e", 1, false, e})
		s.now += 10 * time.Millisecond
	}
	s.tell("e", Message{Released: true, Entry: Entry{ID: 9999}})
}

func (s *seen) want(mode Mode, doubt int, when string) {
	s.Helper()
	if got := s.x.Mode(s.now); got != mode || s.x.doubt != doubt {
		s.Fatalf("%s: %v with doubt %d; want %v with %d", when, got, s.x.doubt, mode, doubt)
	}
}

// What moves alone and is slow ends the waiting within a few transfers, by its release or by what its owner says of its end.
func TestWhatIsSlowAloneEndsTheWaiting(t *testing.T) {
	s := newSeen(t)
	s.hear("a", "z", 1, 1.1, 0)
	s.hear("b", "y", 2, 1.9, 0)
	s.hear("c", "z", 1, 1, 0)
	s.want(Waiting, 7, "one of them")
	s.hear("d", "w", 2, 1, 80*time.Millisecond)
	s.want(Waiting, 15, "two")
	s.hear("a", "v", 3, 3, 0)
	s.want(Distrusted, doubtLeft, "three")
	// Its end is not only a matter of time: in the fallback they are looked at all the same.
	s.hear("b", "y", 2, 2, 0)
	s.hear("c", "z", 2, 2, 0)
	s.now += s.x.cfg.Distrust
	s.want(Distrusted, doubtLeft+16, "after its time")
	for i := range doubtLeft + 15 {
		s.hear(peer.ID("abcd"[i%4:i%4+1]), "z", 1, 1, 0)
	}
	s.want(Distrusted, 1, "nearly all is well")
	s.hear("a", "z", 1, 1, 0)
	s.want(Waiting, 0, "all is well")
	s.hear("d", "u", 1, 2, 0)
	s.want(Distrusted, 8, "one more, in the time of probation")
	s.now = s.x.probation
	s.want(Waiting, 8, "after it")
	if n := s.x.Stats().Distrusts; n != 1 {
		t.Errorf("trust was lost %d times", n)
	}
}

// What is no fault of the paths counts for nothing.
func TestWhatSaysNothingOfThePaths(t *testing.T) {
	for name, do := range map[string]func(s *seen){
		"the same destination": func(s *seen) { s.hear("a", "y", 1, 1, 0); s.x.slowEnds[1] = s.x.nics["y"]; s.hear("b", "y", 2, 2, 0) },
		"the same source":      func(s *seen) { s.x.slowEnds[0] = s.x.nics["b"]; s.hear("b", "y", 2, 2, 0) },
		"an owner's first one": func(s *seen) { s.hear("f", "y", 2, 2, 0) },
		"its path was taken": func(s *seen) {
			s.tell("c", Message{Entry: Entry{ID: 9999, Dst: "w", Bytes: 1, Links: []ecmp.LinkID{2}, End: 1}})
			s.hear("b", "y", 2, 2, 0)
		},
		"the NIC of its destination was": func(s *seen) {
			s.tell("c", Message{Entry: Entry{ID: 9999, Dst: "y", Bytes: 1, Links: []ecmp.LinkID{3}, End: 1}})
			s.hear("b", "y", 2, 2, 0)
		},
		"messages of many are missing": func(s *seen) {
			for _, p := range []peer.ID{"c", "d"} {
				s.seq[p]++
				s.tell(p, Message{Released: true, Entry: Entry{ID: 9999}})
			}
			s.hear("b", "y", 2, 2, 0)
		},
		"it is not that slow":   func(s *seen) { s.hear("b", "y", 2, 1.45, 0) },
		"messages take so long": func(s *seen) { s.lateMessages(); s.hear("e", "y", 2, 1.9, 0) },
		"it is switched off":    func(s *seen) { s.x.cfg.MaxSlowdown = slowest * 1000; s.hear("b", "y", 2, 2, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeen(t)
			do(s)
			s.want(s.x.Mode(s.now), 0, name)
		})
	}
	s := newSeen(t)
	s.hear("b", "y", 2, 2, 0)
	s.want(Waiting, slowWeighs, "else it does")
}

// An own transfer is judged while it moves, by its rate since it began.
func TestAnOwnSlowTransferIsNoticedEarly(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	set := paths(t, x, spread(4, 0, 1))
	var now time.Duration
	start := func(dst peer.ID) Grant {
		g := mustReserve(t, x, now, Request{Dst: dst, Set: set, Bytes: 1e9, Policy: Shoal, Rate: 100e9})
		if len(g.Legs) != 1 {
			t.Fatalf("%+v", g)
		}
		return g
	}
	g := start("a")
	now += 83 * time.Millisecond
	x.Release(now, noon+now, g.ID)
	g = start("b")
	end := x.find(g.ID).entry.End
	now += 19 * time.Millisecond
	x.Renew(now, noon+now, g.ID, 9e8)
	if x.doubt != 0 || x.find(g.ID).entry.End != end {
		t.Fatalf("doubt %d after 19 ms", x.doubt)
	}
	now += 21 * time.Millisecond
	x.Renew(now, noon+now, g.ID, 7.5e8) // half the rate
	if off := x.find(g.ID).entry.End - (noon + now + 120*time.Millisecond).Microseconds(); x.doubt != slowWeighs || off < -2000 || off > 2000 {
		t.Fatalf("doubt %d; its end is off by %d us", x.doubt, off)
	}
	now += 120 * time.Millisecond
	x.Release(now, noon+now, g.ID)
	if x.doubt != slowWeighs {
		t.Fatalf("it counts twice: doubt %d", x.doubt)
	}
	g = start("c")
	now += 200 * time.Millisecond
	x.Release(now, noon+now, g.ID) // the same NIC
	if x.doubt != slowWeighs {
		t.Fatalf("doubt %d", x.doubt)
	}
	g = start("c")
	now += 83 * time.Millisecond
	x.Release(now, noon+now, g.ID)
	if x.doubt != slowWeighs-1 {
		t.Fatalf("doubt %d", x.doubt)
	}
}
