package probe

import "math"

// A hopKind is what the answers at one TTL are worth.
type hopKind uint8

const (
	open     hopKind = iota // not known yet: it is asked for every port
	silent                  // nobody answers
	constant                // the same router for all ports
	telling                 // paths differ here
	mixed                   // answers that tell nothing of the way there
)

// silentTries is after how many probes without one answer a router counts as silent.
const silentTries = 16

// sprayShare: where one port in so many answers in two ways, and two do, the network is taken to spray.
const sprayShare = 4

// classify finds out what every hop is worth, and whether the network sprays.
func (b *book) classify(r *reading) {
	top := (b.hops + 1) / 2 // beyond it, packets go down
	last := -1              // the last telling hop
	for h := range b.hops {
		c := b.tally(h)
		tears := c.torn >= 2 && c.torn*sprayShare >= c.again
		differs := c.different || tears || c.partly
		if !differs {
			r.same[h] = c.one
		}
		switch {
		case c.answered == 0 && c.tried >= silentTries:
			r.kinds[h] = silent
		case c.answered == 0:
		case !differs:
			if overlooked(1, c.answered) <= b.miss && !c.early {
				r.kinds[h] = constant
			}
		// Beyond the middle a router may answer with the interface of its way back, which is another choice by another
		// hash. So it is not believed where nothing before it differs, nor where it changes while all before is steady.
		case h >= top && !b.inbound && (last < 0 || tears && !r.sprays):
			r.kinds[h] = mixed
		case h >= top && !b.inbound && !tears:
			if r.kinds[h] = b.goesWith(last, h); r.kinds[h] == telling {
				last = h
			}
		default:
			r.kinds[h], last = telling, h
			r.sprays = r.sprays || tears
		}
	}
}

// tally is what was heard at one hop.
type tally struct {
	answered, tried int
	again, torn     int // ports that were asked again, and that answered in two ways
	different       bool
	one             addr // one of the answers
	partly          bool // so many ports never answer that some routers may be silent
	early           bool // it may become so
}

func (b *book) tally(h int) (c tally) {
	gone, waits := 0, 0
	for _, t := range b.traces {
		c.tried += int(t.tries[h])
		if t.seen[h] == (addr{}) {
			if int(t.tries[h]) > b.retries {
				gone++
			} else if t.tries[h] > 0 {
				waits++
			}
			continue
		}
		c.answered++
		c.different = c.different || c.one != (addr{}) && c.one != t.seen[h]
		c.one = t.seen[h]
		if t.again > 0 {
			c.again++
			if t.torn[h] {
				c.torn++
			}
		}
	}
	// The own leaf is one router.
	c.partly = h > 0 && gone >= 3 && gone*lostShare >= gone+c.answered
	c.early = !c.partly && h > 0 && (gone+waits)*lostShare >= gone+waits+c.answered
	return c
}

// lostShare: where one port in so many does not answer, something is missing.
const lostShare = 8

// goesWith says whether the answers at hop h are of the way there, by the answers at hop g before it: telling if they
// are, mixed if they are not, open if it is too early to tell. An interface into which a link leads is reached from one
// place only; and where one link leads on from each place, that says which. A hash of its own does neither, but for odd
// answers, and for chance while there are few.
func (b *book) goesWith(g, h int) hopKind {
	pairs := map[[2]addr]int{}
	n := 0
	for _, t := range b.traces {
		if t.seen[g] != (addr{}) && t.seen[h] != (addr{}) {
			pairs[[2]addr{t.seen[g], t.seen[h]}]++
			n++
		}
	}
	// Of each side: how many addresses, and how many pairs that are not the most frequent of their address.
	count := func(side int) (addrs, odd int) {
		sum, most := map[addr]int{}, map[addr]int{}
		for p, c := range pairs {
			sum[p[side]] += c
			most[p[side]] = max(most[p[side]], c)
		}
		for a := range sum {
			odd += sum[a] - most[a]
		}
		return len(sum), odd
	}
	from, oddFrom := count(0)
	into, oddInto := count(1)
	few := max(3, n/16)
	byChance := func(addrs int) bool { return math.Pow(2, -float64(n-addrs)) > b.miss }
	switch {
	case oddFrom >= few && oddInto >= few, (from == 1 || into == 1) && !byChance(0):
		return mixed
	case oddInto < few && from > 1 && !byChance(into), oddFrom < few && into > 1 && !byChance(from):
		return telling
	}
	return open
}
