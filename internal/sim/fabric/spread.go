package fabric

import "shoal/internal/sim"

// ways is what a flow knows that is spread over several paths.
//
// Spray: every packet takes a path at random, the receiver takes packets in any order, and every ack opens the window by
// one packet. Flowlet: a path at random after a gap; packets that overtake others cost what they cost on a card that goes
// back. PLB: another path after rounds with many marks; a flow first waits for what is under way, as in Move, since cards
// cannot take packets in any order. That is PLB's own preference for idle moments, made by force.
type ways struct {
	routes   []int32
	taken    int
	draws    uint64
	lastSent sim.Time // Flowlet

	roundEnd uint32 // PLB: the round is over when this packet is acknowledged
	acks     uint32 // of this round
	marks    uint32
	rounds   uint32 // with many marks, in a row

	anyOrder bool     // Spray; flow.acked then counts packets, whichever they are
	inOrder  uint32   // as far as the sender knows
	got      []uint64 // the receiver's packets from flow.expected on, a bit each, around a ring
}

func (n *Packets) newWays(f *flow, of Flow) *ways {
	w := &ways{lastSent: n.now, anyOrder: of.Spread == Spray}
	for _, p := range of.Paths {
		w.routes = append(w.routes, n.route(of.Src, of.Dst, p))
	}
	w.taken = n.pick(f, w, len(w.routes))
	switch of.Spread {
	case Spray:
		// Twice the window is what may be sent beyond the first packet that is missing.
		words := 1
		for words*64 < 2*int(f.window) {
			words *= 2
		}
		w.got = make([]uint64, words)
	case PLB:
		n.marks = true
	}
	f.forth = w.routes[w.taken]
	return w
}

// pick is a random number below a limit, of the flow's own.
func (n *Packets) pick(f *flow, w *ways, limit int) int {
	w.draws++
	return int(mix(n.cfg.Seed, f.serial, w.draws) % uint64(limit))
}

// wayOf is the route of the packet that a flow sends at t.
func (n *Packets) wayOf(f *flow, t sim.Time) int32 {
	w := f.ways
	switch f.spread {
	case Spray:
		return w.routes[n.pick(f, w, len(w.routes))]
	case Flowlet:
		if t-w.lastSent > n.cfg.FlowletGap {
			if to := n.pick(f, w, len(w.routes)); to != w.taken {
				w.taken = to
				f.forth = w.routes[to]
				n.stats.Moves++
			}
		}
		w.lastSent = t
	}
	return f.forth
}

// gather ends the spreading of a flow.
func (n *Packets) gather(f *flow) { f.spread = First }

// mayRunAhead keeps a sprayed flow within the receiver's ring.
func (n *Packets) mayRunAhead(f *flow) bool {
	return !f.ways.anyOrder || f.next-f.ways.inOrder < uint32(64*len(f.ways.got))
}

// collect is the arrival of a packet at a receiver that takes any order.
func (n *Packets) collect(f *flow, seq uint32) {
	w := f.ways
	ring := uint32(64*len(w.got) - 1)
	bit := func(seq uint32) (word *uint64, mask uint64) { return &w.got[seq&ring/64], 1 << (seq % 64) }
	word, mask := bit(seq)
	if seq < f.expected || *word&mask != 0 {
		n.stats.Duplicates++
		return
	}
	if seq != f.expected {
		n.stats.OutOfOrder++
	}
	*word |= mask
	for {
		word, mask = bit(f.expected)
		if *word&mask == 0 {
			return
		}
		*word &^= mask
		f.expected++
	}
}

// count is an ack of a sprayed flow: one more packet, whichever. It says whether all have arrived.
func (n *Packets) count(f *flow, p packet) (done bool) {
	f.ways.inOrder = max(f.ways.inOrder, p.seq())
	f.next = max(f.next, f.ways.inOrder)
	f.acked = min(max(f.acked+1, f.ways.inOrder), f.next)
	if f.ways.inOrder < f.total {
		return false
	}
	f.acked = f.total
	return true
}

// judge counts marks, and moves a PLB flow.
func (n *Packets) judge(f *flow, p packet) {
	w := f.ways
	if f.spread != PLB || f.waits || len(w.routes) < 2 {
		return
	}
	w.acks++
	if p.marked() {
		w.marks++
	}
	if p.seq() < w.roundEnd {
		return
	}
	if w.marks*256 > w.acks*n.cfg.PLB.Marked {
		w.rounds++
	} else {
		w.rounds = 0
	}
	w.acks, w.marks, w.roundEnd = 0, 0, f.next
	if w.rounds < n.cfg.PLB.Rounds {
		return
	}
	w.rounds = 0
	to := n.pick(f, w, len(w.routes)-1)
	if to >= w.taken {
		to++
	}
	w.taken = to
	f.newForth, f.newBack, f.waits = w.routes[to], f.back, true
	n.stats.Moves++
}
