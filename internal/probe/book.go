package probe

import (
	"bytes"
	"maps"
	"math"
	"math/bits"
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

// hopSet is a set of hops: bit h is the hop at TTL h+1.
type hopSet uint8

func (s hopSet) has(h int) bool { return s>>h&1 == 1 }

// reading is what a book says, as far as it goes.
type reading struct {
	kinds   [MaxHops]hopKind
	same    key    // the answers where they are constant, whether or not that is settled
	keys    []key  // the paths, sorted; only telling hops are set
	of      []int  // by trace: its path, or -1
	ports   []int  // by path
	known   int    // traces whose path is known
	lost    int    // traces that were asked for in vain
	telling hopSet // the hops that paths differ at
	fresh   hopSet // the hops to ask for a new port
	// asks are, by trace, the hops that matter, have not answered yet, and may be asked again.
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
	}
	// What is not whole is on the only path that it fits; or, if it will not become more, on one of its own, with a silent
	// router. What most is known of comes first, so that the rest can fit it.
	var rest []int
	for i := range b.traces {
		if !whole[i] && part[i] != (key{}) {
			rest = append(rest, i)
		}
	}
	slices.SortStableFunc(rest, func(i, j int) int {
		return bits.OnesCount8(uint8(part[j].set())) - bits.OnesCount8(uint8(part[i].set()))
	})
	for _, i := range rest {
		fit, fits := key{}, 0
		for _, k := range wholes {
			if part[i].within(k) {
				fit, fits = k, fits+1
			}
		}
		switch {
		case fits == 1:
			part[i], whole[i] = fit, true
		case fits == 0 && r.asks[i] == 0:
			wholes = append(wholes, part[i])
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

// spare are telling hops that need not be asked: the others say as much. If they hid a choice between equal links,
// ports that agree elsewhere would differ there half of the time; n ports of so many paths, which do not, make that
// unlikely enough. The routers towards the target are spared first: they are the fewest, and answer for all.
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
