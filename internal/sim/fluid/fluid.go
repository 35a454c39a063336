package fluid

import (
	"fmt"
	"math/bits"
	"math/rand/v2"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// MaxFlows is how many flows may be under way at once.
const MaxFlows = 1 << 20

// Fluid is a fabric.Network whose flows share links max-min fairly. It is not for several goroutines.
type Fluid struct {
	topo  *fabric.Topology
	cfg   Config
	scale scale
	now   sim.Time
	links []link // those of the topology, then caps of single flows
	spare []int32
	flows []flow
	free  []int32
	due   heap                    // flows that send, by when that ends or is looked at
	later sim.Queue[fabric.Event] // what is on its way

	plb    *rand.Rand
	digest sim.Digest
	work   uint64 // of all flows so far, less what is left of those that have ended; wraps around
	ids    []int32

	fill filling
}

type state uint8

const (
	unused  state = iota
	stalled       // a link of its path is down
	sending
	sent // all bytes have left
)

// flow is one slot, used again for later flows.
type flow struct {
	rate  int64
	mark  uint32 // the filling that it takes part in
	fresh bool   // its rate is not known yet
	state state
	// spread is First or PLB, or Spray while it has several paths.
	spread   fabric.Spread
	partial  bool // Spray with a path that is down
	src, dst int32
	path     int32
	back     int32
	private  int32 // the link that stands for its window; -1: none
	bottle   int32 // the link that holds its rate down
	place    int32 // in due; -1: not there
	order    uint64
	frozen   uint32
	next     int64
	bytes    int64 // payload
	total    int64 // work, headers included
	left     int64 // of total, at since
	joined   int64 // left when it came onto its links
	ceiling  int64 // a rate that it cannot pass
	since    sim.Time
	finish   sim.Time
	look     sim.Time // PLB: when to move, if all rounds until then are congested
	hops     []hop
	tight    int32 // the first hops are those whose links bind
	paths    []int // of Spray and PLB
}

type hop struct {
	link, at int32 // at: its place in the link's list
	weight   int64
}

type link struct {
	cap int64 // rate units
	// on are the flows that send over it.
	on        []on
	load      int64 // sum of their weights
	potential int64 // sum of what their ceilings would put on it
	// full, data and ack are the times of a full packet, of its payload, and of an acknowledgement.
	full, data, ack, delay sim.Time
	rate                   int64 // bit/s
	sent                   int64 // work of flows that have left it
	nic                    bool  // a host's own link, or private: always binds
	binds                  bool  // could hold a flow back; otherwise its flows could not fill it whatever the others do
	up                     bool
	order                  int32 // of equally full links the first is said to hold a flow back: a sender's own before others

	mark   uint32 // the filling that it takes part in
	seeded bool
	count  int32 // of paths, while a Spray flow is laid over them
	room   int64 // during a filling: rate units << weightBits
	weight int64 // of flows whose rate is not known yet
}

type on struct {
	flow, hop int32
	weight    int64
}

var _ fabric.Network = (*Fluid)(nil)

// New makes a network without flows, at time 0, with all links up.
func New(t *fabric.Topology, cfg Config) (*Fluid, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Fluid{topo: t, cfg: cfg, plb: sim.Stream(cfg.Seed, "fluid plb"), links: make([]link, len(t.Links))}
	wire := cfg.Payload + cfg.Header
	fastest := sim.Never
	for i, l := range t.Links {
		full := cfg.onWire(wire, l.Rate)
		data := sim.Transmission(cfg.Payload, l.Rate)
		if q := cfg.Quantum; q > 0 {
			data -= data % q // as in the packet model
		}
		f.links[i] = link{full: full, data: data, ack: cfg.onWire(cfg.Ack, l.Rate), delay: l.Delay, rate: l.Rate, up: true, order: int32(i)}
		fastest = min(fastest, full)
	}
	for h := range t.Hosts() {
		up, down := &f.links[t.Up(h)], &f.links[t.Down(h)]
		up.nic, up.binds, down.nic, down.binds = true, true, true, true
		up.order -= 1 << 30
	}
	// From 1 bit/s to a packet a picosecond, e is 23 to 78.
	e := workBits + 1
	for ratio(wire, e+1, fastest)>>rateBits == 0 {
		e++
	}
	f.scale.shift = uint(e - workBits)
	for i := range f.links {
		l := &f.links[i]
		if l.cap = int64(ratio(wire, e, l.full)); l.cap>>10 == 0 {
			return nil, fmt.Errorf("fluid: link %s is more than 10^7 times slower than the fastest; give rates that are nearer to each other", t.Links[i].Name)
		}
	}
	return f, nil
}

// ratio is a << e / t; saturated.
func ratio(a int64, e int, t sim.Time) uint64 {
	var hi, lo uint64
	if e < 64 {
		hi, lo = bits.Mul64(uint64(a), 1<<e)
	} else {
		hi = uint64(a) << (e - 64)
	}
	if hi >= uint64(t) {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, uint64(t))
	return q
}

// Topology is the truth about the network.
func (f *Fluid) Topology() *fabric.Topology { return f.topo }

// Now is where the simulation stands.
func (f *Fluid) Now() sim.Time { return f.now }

// Digest is of all events and times so far.
func (f *Fluid) Digest() sim.Digest { return f.digest }

// Start begins a flow, at Now.
func (f *Fluid) Start(s fabric.Flow) fabric.ID {
	if s.Bytes < 1 || s.Bytes > sim.MaxFlowBytes || len(s.Paths) == 0 {
		panic(fmt.Sprintf("fluid: a flow of %d bytes over %d paths; give 1 to %d bytes, and a path", s.Bytes, len(s.Paths), int64(sim.MaxFlowBytes)))
	}
	for _, p := range s.Paths {
		f.checkPath(s.Src, s.Dst, p)
	}
	f.checkPath(s.Dst, s.Src, s.Back)
	var id int32
	if n := len(f.free); n > 0 {
		id = f.free[n-1]
		f.free = f.free[:n-1]
	} else {
		if len(f.flows) == MaxFlows {
			panic(fmt.Sprintf("fluid: more than %d flows at once", MaxFlows))
		}
		id = int32(len(f.flows))
		f.flows = append(f.flows, flow{place: -1, private: -1})
	}
	fl := &f.flows[id]
	total := f.cfg.work(s.Bytes)
	*fl = flow{hops: fl.hops[:0], paths: fl.paths[:0], state: stalled, place: -1, private: -1, src: int32(s.Src), dst: int32(s.Dst),
		path: int32(s.Paths[0]), back: int32(s.Back), bytes: s.Bytes, total: total, left: total, since: f.now, finish: sim.Never, look: sim.Never}
	if len(s.Paths) > 1 && (s.Spread == fabric.Spray || s.Spread == fabric.PLB) {
		fl.spread = s.Spread
		fl.paths = append(fl.paths, s.Paths...)
	}
	f.work += uint64(total)
	f.attach(id)
	return fabric.ID(id)
}

// Move takes effect at once: all that has not left yet goes over that path alone. A flow that is done, or has sent all, has
// nothing to move.
func (f *Fluid) Move(id fabric.ID, path, back int) {
	fl := &f.flows[id]
	if fl.state == unused {
		return
	}
	f.checkPath(int(fl.src), int(fl.dst), path)
	f.checkPath(int(fl.dst), int(fl.src), back)
	same := int(fl.path) == path && fl.spread != fabric.Spray && fl.state == sending
	fl.back, fl.spread = int32(back), fabric.First
	if fl.state == sent {
		return // what is under way has its time
	}
	if same {
		fl.look = sim.Never
		f.due.fix(f.flows, int32(id))
		return
	}
	f.detach(int32(id))
	fl.path = int32(path)
	f.attach(int32(id))
}

func (f *Fluid) checkPath(src, dst, path int) {
	if n := len(f.topo.Paths(src, dst)); path < 0 || path >= n {
		panic(fmt.Sprintf("fluid: path %d from host %d to host %d, of %d", path, src, dst, n))
	}
}

// Left is how many bytes have not left their host yet; at least 1 until the flow is done, and then 0.
func (f *Fluid) Left(id fabric.ID) int64 {
	fl := &f.flows[id]
	if fl.state == unused {
		return 0
	}
	return max(1, share(fl.bytes, f.leftOf(fl), fl.total))
}

func (f *Fluid) leftOf(fl *flow) int64 {
	return fl.left - min(fl.left, f.scale.done(fl.rate, f.now-fl.since))
}

// settle brings left to Now.
func (f *Fluid) settle(fl *flow) {
	fl.left = f.leftOf(fl)
	fl.since = f.now
}

// Send lets a message go, at Now. It is lost when a link of its path is down at that time.
func (f *Fluid) Send(m fabric.Message) {
	at := f.now
	hop := func(i fabric.LinkIndex) bool {
		l := &f.links[i]
		at += f.cfg.onWire(m.Bytes, l.rate) + l.delay
		return l.up
	}
	ok := hop(f.topo.Up(m.Src))
	for _, l := range f.topo.Paths(m.Src, m.Dst)[m.Path] {
		ok = hop(l) && ok
	}
	if ok = hop(f.topo.Down(m.Dst)) && ok; ok {
		f.later.Push(at, fabric.Event{Kind: fabric.Arrived, Tag: m.Tag})
	}
}

// Step goes on until something happens.
func (f *Fluid) Step(until sim.Time) (fabric.Event, bool) {
	for {
		f.refill()
		t := min(f.due.next(), f.later.Next())
		if t >= until {
			f.now = max(f.now, until)
			return fabric.Event{}, false
		}
		f.now = t
		for f.due.next() == t {
			id := f.due.first()
			if fl := &f.flows[id]; fl.finish == t {
				f.ended(id)
			} else {
				f.rehash(id)
			}
		}
		if f.later.Next() != t {
			continue
		}
		at, e := f.later.Pop()
		e.At = at
		if e.Kind == fabric.Done {
			fl := &f.flows[e.ID]
			fl.state = unused
			f.free = append(f.free, int32(e.ID))
		}
		f.digest.Add(int64(at), int64(e.Kind), int64(e.ID), e.Tag)
		return e, true
	}
}

// ended takes a flow off its links. What is left is the constant time of its path.
func (f *Fluid) ended(id int32) {
	f.detach(id)
	fl := &f.flows[id]
	if fl.left != 0 {
		panic(fmt.Sprintf("fluid: flow %d ends with %d of %d left", id, fl.left, fl.total))
	}
	fl.state = sent
	f.later.Push(f.now+f.latency(fl), fabric.Event{Kind: fabric.Done, ID: fabric.ID(id)})
}

// Load is what has crossed a link: wire bytes of data. Nothing ever waits.
func (f *Fluid) Load(i fabric.LinkIndex) (sent, queued int64) {
	return (f.crossed(&f.links[i]) + 1<<(workBits-1)) >> workBits, 0
}

func (f *Fluid) crossed(l *link) int64 {
	sum := l.sent
	for _, o := range l.on {
		fl := &f.flows[o.flow]
		sum += part(fl.joined-f.leftOf(fl), o.weight)
	}
	return sum
}

// part is what a weight makes of some work.
func part(work, weight int64) int64 {
	if weight == one {
		return work
	}
	hi, lo := bits.Mul64(uint64(work), uint64(weight))
	return int64(hi<<(64-weightBits) | lo>>weightBits)
}
