package fabric

import "shoal/internal/sim"

// Kinds of timers, in their order at one time; all of them come after the arrivals of that time.
const (
	completion uint64 = 1 + iota // a link has sent a packet
	pacing                       // a network card may send again
	decrease                     // DCQCN looks for marks
	increase                     // DCQCN raises a rate
	timeout                      // go back, where something was lost
)

// phase is the place of a timer among those of one time. That of arrivals is 0.
func phase(kind uint64, id int32) uint64 { return kind<<32 | uint64(uint32(id)) }

type timer struct {
	at    sim.Time
	phase uint64
}

func (a timer) before(b timer) bool { return a.at < b.at || a.at == b.at && a.phase < b.phase }

// timers are what happens besides arrivals, in order. Nothing is taken back: who has set one looks, when it comes, whether
// it still means something.
type timers []timer

func (q timers) next() sim.Time {
	if len(q) == 0 {
		return sim.Never
	}
	return q[0].at
}

func (q *timers) push(at sim.Time, phase uint64) {
	h := append(*q, timer{})
	t, i := timer{at, phase}, len(h)-1
	for i > 0 {
		up := (i - 1) / 2
		if !t.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = t
	*q = h
}

func (q *timers) pop() timer {
	h := *q
	first, t := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(t) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = t
	return first
}
