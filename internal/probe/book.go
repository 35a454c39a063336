package probe

import (
	"bytes"
	"maps"
	"math"
	"net/netip"
	"slices"
)

// addr is an IPv4 address; the zero value is none.
type addr [4]byte

// key is a path: who answers at which TTL, from 1. None where nobody does, or where it does not matter.
type key [MaxHops]addr

func (k key) compare(o key) int {
	for i := range k {
		if c := bytes.Compare(k[i][:], o[i][:]); c != 0 {
			return c
		}
	}
	return 0
}

// addrs are the first n of a key, for people.
func (k key) addrs(n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		if k[i] != (addr{}) {
			out[i] = netip.AddrFrom4(k[i])
		}
	}
	return out
}

// trace is what was heard of one port.
type trace struct {
	port  uint16
	seen  key
	tries [MaxHops]uint8 // probes sent since the last answer
	again uint8          // how often it was asked although it had answered
	doubt uint8          // how often it was asked because few others have its path
	torn  [MaxHops]bool  // it has answered in two ways
}

// book holds the traces of one target, in the order in which they were begun.
type book struct {
	hops    int // routers on the way
	inbound bool
	retries int
	miss    float64
	traces  []*trace
	at      map[uint16]*trace
}

func newBook(hops int, o Options) *book {
	return &book{hops: hops, inbound: o.Inbound, retries: o.Retries, miss: o.Miss, at: map[uint16]*trace{}}
}

// open is the trace of a port.
func (b *book) open(port uint16) *trace {
	t := b.at[port]
	if t == nil {
		t = &trace{port: port}
		b.at[port] = t
		b.traces = append(b.traces, t)
	}
	return t
}

// note takes in the answer to a probe, or that there was none.
func (b *book) note(port uint16, ttl uint8, from addr) {
	t, h := b.open(port), ttl-1
	if from == (addr{}) {
		t.tries[h] = min(t.tries[h]+1, math.MaxUint8-1)
		return
	}
	t.torn[h] = t.torn[h] || t.seen[h] != (addr{}) && t.seen[h] != from
	t.seen[h], t.tries[h] = from, 0
}

// A hopKind is what the answers at one TTL are worth.
type hopKind uint8

const (
	open     hopKind = iota // not known yet: it is asked for every port
	silent                  // nobody answers
	constant                // the same router for all ports
	telling                 // paths differ here
	mixed                   // answers that tell nothing of the way there
)

// hopSet is a set of hops: bit h is the hop at TTL h+1.
type hopSet uint8

func (s hopSet) has(h int) bool { return s>>h&1 == 1 }

// reading is what a book says, as far as it goes.
type reading struct {
	kinds [MaxHops]hopKind
	same  key   // the answers where they are constant, whether or not that is settled
	keys  []key // the paths, sorted; only telling hops are set
	of    []int // by trace: its path, or -1
	ports []int // by path
	known int   // traces whose path is known
	lost  int   // traces that were asked for in vain
	// fresh are the hops to ask for a new port, and those, by trace, that have not answered yet,
	// matter, and may be asked again.
	fresh     hopSet
	telling   hopSet // the hops that paths differ at
	asks      []hopSet
	unsettled bool // some hop is open
	// sprays says that ports which were asked again answered in two ways, too many of them.
	sprays bool
}

// overlooked bounds the probability that a path is missing where n ports have shown m paths, if there were one more and
// all were equally wide: (m+1) (m/(m+1))^n.
func overlooked(m, n int) float64 {
	if m == 0 {
		return 1
	}
	return min(1, float64(m+1)*math.Pow(float64(m)/float64(m+1), float64(n)))
}

// silentTries is after how many probes without one answer a router counts as silent.
const silentTries = 16

// sprayShare: where one port in so many answers in two ways, and two do, the network is taken to spray.
const sprayShare = 4

// read makes sense of all traces.
func (b *book) read() reading {
	r := reading{of: make([]int, len(b.traces)), asks: make([]hopSet, len(b.traces))}
	b.classify(&r)
	var tells, opens, same hopSet
	for h := range b.hops {
		switch bit := hopSet(1) << h; r.kinds[h] {
		case telling:
			tells |= bit
		case open:
			opens |= bit
		case constant:
			same |= bit
		}
	}
	r.unsettled, r.telling = opens != 0, tells
	part := make([]key, len(b.traces)) // the telling hops of each trace
	whole := make([]bool, len(b.traces))
	keys := map[key]int{}
	n := 0
	for i, t := range b.traces {
		part[i] = t.seen.only(tells)
		whole[i] = part[i].set() == tells && (tells != 0 || t.seen != (key{}) || same != 0 && opens == 0)
		if whole[i] {
			keys[part[i]] = 0
			n++
		}
	}
	wholes := slices.SortedFunc(maps.Keys(keys), key.compare)
	spare := b.spare(tells, wholes, n)
	r.fresh = tells&^spare | opens
	short := map[key]int{} // how many paths look like this, without what can be spared
	for _, k := range wholes {
		short[k.only(tells&^spare)]++
	}
	for i, t := range b.traces {
		wants := r.fresh
		if k := part[i].only(tells &^ spare); k.set() == tells&^spare && short[k] != 1 {
			wants |= spare // a path that is not known yet
		}
		for h := range b.hops {
			if r.fresh.has(h) && r.kinds[h] == telling && t.seen[h] == (addr{}) && int(t.tries[h]) > b.retries {
				wants |= spare // a router that is silent: others have to tell
			}
		}
		for h := range b.hops {
			if wants.has(h) && t.seen[h] == (addr{}) && int(t.tries[h]) <= b.retries {
				r.asks[i] |= 1 << h
			}
		}
		if whole[i] || r.asks[i] != 0 && part[i] == (key{}) {
			continue
		}
		// What is not whole is on the only path that it fits; or, if it will not become more, on one of its own, with a silent router.
		fit, fits := key{}, 0
		for _, k := range wholes {
			if part[i] == (key{}) || part[i].within(k) {
				fit, fits = k, fits+1
			}
		}
		switch {
		case fits == 1 && part[i] != (key{}):
			part[i], whole[i] = fit, true
		case fits == 0 && part[i] != (key{}) && r.asks[i] == 0:
			keys[part[i]], whole[i] = 0, true
		}
	}
	r.keys = slices.SortedFunc(maps.Keys(keys), key.compare)
	for i, k := range r.keys {
		keys[k] = i
	}
	r.ports = make([]int, len(r.keys))
	for i := range b.traces {
		r.of[i] = -1
		switch {
		case whole[i]:
			r.of[i] = keys[part[i]]
			r.ports[r.of[i]]++
			r.known++
		case r.asks[i] == 0:
			r.lost++
		}
	}
	return r
}

// spare are telling hops that need not be asked: the others say as much. If they hid a choice between equal links, ports that agree
// elsewhere would differ there half of the time; n ports of so many paths, which do not, make that unlikely enough. The
// routers towards the target are spared first: they are the fewest, and answer for all.
func (b *book) spare(tells hopSet, paths []key, n int) (spare hopSet) {
	if math.Pow(2, -float64(n-len(paths))) > b.miss {
		return 0
	}
	for h := b.hops - 1; h >= 0; h-- {
		less := spare | 1<<h
		if !tells.has(h) || tells&^less == 0 {
			continue
		}
		short := map[key]bool{}
		for _, k := range paths {
			short[k.only(tells&^less)] = true
		}
		if len(short) == len(paths) {
			spare = less
		}
	}
	return spare
}

// only is the key without other hops.
func (k key) only(s hopSet) key {
	for h := range k {
		if !s.has(h) {
			k[h] = addr{}
		}
	}
	return k
}

// set is where the key has an address.
func (k key) set() (s hopSet) {
	for h := range k {
		if k[h] != (addr{}) {
			s |= 1 << h
		}
	}
	return s
}

// within says whether a partly known path can be k.
func (p key) within(k key) bool {
	for h := range p {
		if p[h] != (addr{}) && p[h] != k[h] {
			return false
		}
	}
	return true
}

// classify finds out what every hop is worth, and whether the network sprays.
func (b *book) classify(r *reading) {
	top := (b.hops + 1) / 2 // beyond it, packets go down
	last := -1              // the last telling hop
	for h := range b.hops {
		answered, tried, asked, changed, different := 0, 0, 0, 0, false
		for _, t := range b.traces {
			tried += int(t.tries[h])
			if t.seen[h] == (addr{}) {
				continue
			}
			answered++
			different = different || r.same[h] != (addr{}) && r.same[h] != t.seen[h]
			r.same[h] = t.seen[h]
			if t.again > 0 {
				asked++
				if t.torn[h] {
					changed++
				}
			}
		}
		tears := changed >= 2 && changed*sprayShare >= asked
		switch {
		case answered == 0 && tried >= silentTries:
			r.kinds[h] = silent
		case answered == 0:
		case !different && !tears:
			if overlooked(1, answered) <= b.miss {
				r.kinds[h] = constant
			}
		// Where all before is steady, and this is beyond the middle, it is not the way there that changes.
		case h >= top && last >= 0 && !b.inbound && !r.sprays && (tears || b.tellsNothing(last, h)):
			r.kinds[h], r.same[h] = mixed, addr{}
		default:
			r.kinds[h], r.same[h], last = telling, addr{}, h
			r.sprays = r.sprays || tears
		}
	}
}

// tellsNothing says whether the answers at hop h are no matter of the answers at hop g before it, nor the other way round. An interface
// into which a link leads is reached from one place only; so where the same address follows different ones, and different
// ones follow the same, the routers at h do not name the interface that the packet came in at. A few odd answers prove nothing.
func (b *book) tellsNothing(g, h int) bool {
	pairs := map[[2]addr]int{}
	n := 0
	for _, t := range b.traces {
		if t.seen[g] != (addr{}) && t.seen[h] != (addr{}) {
			pairs[[2]addr{t.seen[g], t.seen[h]}]++
			n++
		}
	}
	odd := func(side int) int { // how many pairs are not the most frequent one of their side
		sum, most := map[addr]int{}, map[addr]int{}
		for p, c := range pairs {
			sum[p[side]] += c
			most[p[side]] = max(most[p[side]], c)
		}
		total := 0
		for a := range sum {
			total += sum[a] - most[a]
		}
		return total
	}
	few := max(3, n/16)
	return odd(0) >= few && odd(1) >= few
}
