package control

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
	"shoal/internal/reserve"
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// host is a host's part of the control plane.
type host struct {
	index    int
	id       peer.ID
	skew     time.Duration
	rng      *rand.Rand // of its ports
	table    *reserve.Table
	believed *fabric.Topology // what it knows of the network
	sets     []*reserve.Set   // by destination
	fixed    []uint16         // ecmp-fixed: its port to each destination, 0: none yet

	known     []*reserve.Section // of the others, as it has heard
	active    []fabric.ID        // its flows with a reservation
	waiting   map[uint64]int     // transfers, by Intent
	polls     sim.Time           // when a timer for it is due
	conflicts uint64             // as its table counted
	lapsed    uint64             // likewise
	watch     bool               // one of its flows may have lost a conflict
	grant     reserve.Grant
	admitted  []uint64
}

func (h *host) wall(now time.Duration) time.Duration { return wallAtZero + now + h.skew }

func (r *run) makeHosts() error {
	truth := r.truth
	believed := truth
	if r.cfg.Believed != nil && r.cfg.Policy != "ecmp" { // which does not ask what its hosts believe
		var err error
		if believed, err = fabric.NewTopology(*r.cfg.Believed, truth.Links[0].Rate, truth.Links[0].Delay); err != nil {
			return fmt.Errorf("control: what the hosts believe: %w", err)
		}
		if believed.Hosts() != truth.Hosts() {
			return fmt.Errorf("control: the hosts believe in %d hosts, and there are %d", believed.Hosts(), truth.Hosts())
		}
	}
	skews := sim.Stream(r.cfg.Seed, "clocks")
	byID := map[peer.ID]int{}
	r.hosts = make([]host, truth.Hosts())
	for i := range r.hosts {
		h := &r.hosts[i]
		*h = host{index: i, id: peer.ID(truth.Host(i).Name), rng: sim.Stream(r.cfg.Seed, fmt.Sprintf("ports of host %d", i)), believed: believed,
			fixed: make([]uint16, truth.Hosts()), waiting: map[uint64]int{}, polls: sim.Never}
		byID[h.id] = i
		if r.cfg.Skew > 0 {
			h.skew = time.Duration(skews.Int64N(2*int64(r.cfg.Skew)+1)) - r.cfg.Skew
		}
		if !slices.Contains(production, r.cfg.Policy) || r.cfg.Blind && r.cfg.Policy != "ecmp" {
			continue
		}
		var err error
		if h.table, err = reserve.New(r.cfg.Reserve, h.id, 1, sim.Stream(r.cfg.Seed, fmt.Sprintf("table of host %d", i))); err != nil {
			return err
		}
		h.table.SetPaths(func(src, dst peer.ID) []ecmp.Path {
			s, knownSrc := byID[src]
			d, knownDst := byID[dst]
			if !knownSrc || !knownDst || !h.believed.Connected(s, d) {
				return nil
			}
			return h.believed.Route(s, d).Paths()
		}, h.capacity)
		h.known = make([]*reserve.Section, truth.Hosts())
		h.believe(believed)
	}
	return nil
}

// believe gives the host another knowledge of the network.
func (h *host) believe(t *fabric.Topology) {
	h.believed, h.sets = t, make([]*reserve.Set, t.Hosts())
	h.table.SetFabric(t.Fabric().Digest())
}

func (h *host) capacity(id ecmp.LinkID) int64 {
	l, _ := h.believed.Fabric().Link(id)
	return l.Capacity
}

// set is the paths to a destination, as the host believes; nil: it knows none.
func (h *host) set(dst int) *reserve.Set {
	if h.sets[dst] == nil && h.believed.Connected(h.index, dst) {
		s, err := h.table.Paths(h.believed.Route(h.index, dst).Paths(), h.capacity)
		if err != nil {
			panic(fmt.Sprintf("control: %s: paths to host %d: %v", h.id, dst, err))
		}
		h.sets[dst] = s
	}
	return h.sets[dst]
}

// anyPort is one of the ports that connections come from.
func anyPort(rng *rand.Rand) uint16 { return ecmp.RoCE.First + uint16(rng.IntN(ecmp.RoCE.Len())) }

// port is a source port that leads over the path of that network: a random one, found by trying from a random one on.
func (h *host) port(in *fabric.Topology, dst, path int) uint16 {
	route := in.Route(h.index, dst)
	first := h.rng.IntN(ecmp.RoCE.Len())
	for i := range ecmp.RoCE.Len() {
		p := ecmp.RoCE.First + uint16((first+i)%ecmp.RoCE.Len())
		if route.PathOf(in.Tuple(h.index, dst, p)) == path {
			return p
		}
	}
	return ecmp.RoCE.First + uint16(first) // no port leads there: any path carries any flow
}

// announce tells that a transfer will be ready, or makes it wait.
func (r *run) announce(n int) {
	r.queue(n, reserve.Intent)
}

// ready begins a transfer, or has it wait for its turn.
func (r *run) ready(n int) {
	t := &r.res.Transfers[n]
	h := &r.hosts[t.Src]
	switch {
	case r.jobs[n].waiting:
		r.look(h)
		if !r.jobs[n].begun {
			r.res.Counts.Waited++
		}
	case h.table == nil || h.set(t.Dst) == nil:
		r.plain(n)
	default:
		r.queue(n, reserve.Active)
		if !r.jobs[n].begun {
			r.res.Counts.Waited++
		}
	}
}

// plain begins a transfer that reserves nothing.
func (r *run) plain(n int) {
	t := &r.res.Transfers[n]
	h := &r.hosts[t.Src]
	port, spread := anyPort(h.rng), fabric.First
	if given := r.w.Flows[n].Port; given != 0 {
		port = given
	}
	switch r.cfg.Policy {
	case "ecmp-fixed":
		if h.fixed[t.Dst] == 0 {
			h.fixed[t.Dst] = port
		}
		port = h.fixed[t.Dst]
	case "spray":
		spread = fabric.Spray
	case "flowlet":
		spread = fabric.Flowlet
	case "plb":
		spread = fabric.PLB
	}
	t.Fallback = r.cfg.Blind
	r.begin(n, t.Src, t.Dst, r.w.Flows[n].Bytes, port, spread)
}

// queue asks the table of the sender for a transfer's paths.
func (r *run) queue(n int, phase reserve.Phase) {
	t := &r.res.Transfers[n]
	h := &r.hosts[t.Src]
	if r.cfg.AnyDestination {
		t.Dst = r.idlest(h, t.Dst)
	}
	set := h.set(t.Dst)
	if set == nil {
		return // no way is known: it goes by itself when it is ready
	}
	now := r.now()
	r.jobs[n].believed = h.believed
	req := reserve.Request{Dst: h.peer(t.Dst), Bytes: t.Bytes, Set: set, Policy: r.policy(), Phase: phase, Rate: r.rate(t.Src, t.Dst)}
	if phase == reserve.Intent {
		req.Ready = (wallAtZero + t.Ready + h.skew + time.Microsecond - 1).Microseconds()
	}
	if err := h.table.Reserve(now, h.wall(now), &req, &h.grant); err != nil {
		panic(fmt.Sprintf("control: transfer %d: %v", n, err))
	}
	if h.grant.Queued {
		r.jobs[n].waiting = true
		h.waiting[h.grant.ID] = n
	} else {
		r.granted(h, n)
	}
	r.changed(h)
}

func (h *host) peer(i int) peer.ID { return peer.ID(h.believed.Host(i).Name) }

// rate is what both hosts' own links allow, of the network's full size.
func (r *run) rate(src, dst int) int64 {
	t := r.net.Topology()
	return min(t.Links[t.Up(src)].Rate, t.Links[t.Down(dst)].Rate)
}

func (r *run) policy() (p reserve.Policy) {
	if err := p.UnmarshalText([]byte(r.cfg.Policy)); err != nil {
		panic(err)
	}
	return p
}

// idlest is the destination with the fewest bytes to come, as this host knows; among equals the given one, else the
// first.
func (r *run) idlest(h *host, given int) int {
	best, least := given, h.table.Backlog(h.peer(given))
	for _, d := range r.sinks {
		if b := h.table.Backlog(h.peer(d)); b < least && d != h.index {
			best, least = d, b
		}
	}
	return best
}

// granted begins the flows of a grant.
func (r *run) granted(h *host, n int) {
	t := &r.res.Transfers[n]
	t.Fallback = h.grant.Fallback
	r.jobs[n].waiting = false
	left := r.w.Flows[n].Bytes // in the network's size: the shares are of the control plane's
	for i, l := range h.grant.Legs {
		bytes := left
		if i < len(h.grant.Legs)-1 {
			bytes = min(left, l.Share/r.cfg.Scale)
		}
		left -= bytes
		port := h.port(r.jobs[n].believed, t.Dst, l.Path)
		if given := r.w.Flows[n].Port; given != 0 && l.ID == 0 { // the workload says what the random choice was
			port = given
		}
		id := r.begin(n, t.Src, t.Dst, bytes, port, fabric.First)
		g := &r.legs[id]
		g.id = l.ID
		if !r.follows(n, l.Path, g.path) {
			r.res.Counts.Mispathed++
		}
		if l.ID != 0 {
			h.active = append(h.active, id)
		}
	}
}

// follows says whether the network's path is the one that a transfer's host believes in.
func (r *run) follows(n, believed, path int) bool {
	t := &r.res.Transfers[n]
	net := r.net.Topology()
	links := net.Paths(t.Src, t.Dst)[path]
	wanted := r.jobs[n].believed.Route(t.Src, t.Dst).Paths()[believed].Links
	return slices.EqualFunc(links, wanted, func(l fabric.LinkIndex, id ecmp.LinkID) bool { return net.Links[l].ID == id })
}

// changed sends what the table has to say, and looks at everything that may follow from the change.
func (r *run) changed(h *host) {
	r.say(h)
	r.look(h)
}

// look admits what may begin, and watches for lost conflicts.
func (r *run) look(h *host) {
	if len(h.waiting) > 0 {
		now := r.now()
		for again := true; again; {
			again = false
			var next time.Duration
			h.admitted, next = h.table.Admit(now, h.wall(now), h.admitted[:0])
			for _, id := range h.admitted {
				n, ok := h.waiting[id]
				if !ok {
					panic(fmt.Sprintf("control: %s admits %d, which waits for nothing", h.id, id))
				}
				if r.startWaiting(h, n, id, now) {
					again = true
				}
			}
			if again {
				continue
			}
			if next > 0 && r.at(next) < h.polls {
				h.polls = max(r.at(next), r.net.Now()+sim.Nanosecond)
				r.timers.Push(h.polls, timer{kind: poll, host: int32(h.index)})
			}
		}
		r.say(h)
	}
	if c := h.table.Stats().Conflicts; c != h.conflicts {
		h.conflicts, h.watch = c, true
	}
	if !h.watch {
		return
	}
	for _, id := range h.active {
		if l := &r.legs[id]; !l.watched {
			l.watched = true
			// What is left of the chunk passes at no more than the rate of the hosts' links.
			left := r.net.Left(id) % max(1, r.cfg.Chunk/r.cfg.Scale)
			r.timers.Push(r.net.Now()+sim.Transmission(left, r.rate(h.index, r.res.Transfers[l.job].Dst)), timer{kind: boundary, n: int32(id)})
		}
	}
	if len(h.active) == 0 {
		h.watch = false
	}
}

// startWaiting turns an Intent into flows. It is false where it has to go on waiting.
func (r *run) startWaiting(h *host, n int, id uint64, now time.Duration) bool {
	if !h.table.Start(now, h.wall(now), id, &h.grant) { // it has lapsed
		delete(h.waiting, id)
		r.jobs[n].waiting = false
		r.queue(n, reserve.Active)
		return true
	}
	if h.grant.Queued {
		return false
	}
	delete(h.waiting, id)
	r.granted(h, n)
	return true
}

// boundary is where a flow may change its path.
func (r *run) boundary(id fabric.ID) {
	l := &r.legs[id]
	if !l.live || l.id == 0 || !l.watched {
		return
	}
	l.watched = false
	t := &r.res.Transfers[l.job]
	h := &r.hosts[t.Src]
	now := r.now()
	to, moved := h.table.Move(now, h.wall(now), l.id)
	if !moved {
		return
	}
	r.move(id, t.Src, t.Dst, h.port(r.jobs[l.job].believed, t.Dst, to.Path))
	t.Moves++
	r.res.Counts.Moves++
	if !r.follows(l.job, to.Path, l.path) {
		r.res.Counts.Mispathed++
	}
	r.changed(h)
}

// move gives a flow another source port.
func (r *run) move(id fabric.ID, src, dst int, port uint16) {
	l := &r.legs[id]
	l.port, l.path = port, r.path(src, dst, port)
	r.net.Move(id, l.path, r.back(src, dst, port))
}

// release ends a flow's reservation.
func (r *run) release(h *host, flow fabric.ID, id uint64) {
	now := r.now()
	h.table.Release(now, h.wall(now), id)
	h.active = slices.Delete(h.active, slices.Index(h.active, flow), slices.Index(h.active, flow)+1)
	r.changed(h)
}

// beat is what senders do now and then: say how far they are.
func (r *run) beat() {
	now := r.now()
	for i := range r.hosts {
		h := &r.hosts[i]
		wall := h.wall(now)
		for k := 0; k < len(h.active); k++ {
			l := &r.legs[h.active[k]]
			h.table.Renew(now, wall, l.id, r.net.Left(h.active[k])*r.cfg.Scale)
		}
		h.table.Tick(now, wall)
		if c := h.table.Stats().Lapsed; c != h.lapsed {
			h.lapsed = c
			r.requeue(h)
		}
		r.changed(h)
	}
}

// requeue asks anew for the transfers that wait by an Intent which the table does not hold any more.
func (r *run) requeue(h *host) {
	held := h.table.Section().Entries
	for _, id := range slices.Sorted(maps.Keys(h.waiting)) {
		if _, ok := slices.BinarySearchFunc(held, id, func(e reserve.Entry, id uint64) int { return cmp.Compare(e.ID, id) }); ok {
			continue
		}
		n := h.waiting[id]
		delete(h.waiting, id)
		r.jobs[n].waiting = false
		phase := reserve.Intent
		if r.res.Transfers[n].Ready <= r.now() {
			phase = reserve.Active
		}
		r.queue(n, phase)
	}
}

// path is where the switches send a source port, as a path of the network.
func (r *run) path(src, dst int, port uint16) int {
	return r.numbered(src, dst, r.truth.PathOf(src, dst, port))
}

func (r *run) back(src, dst int, port uint16) int {
	return r.numbered(dst, src, r.truth.BackOf(src, dst, port))
}

// numbered is the network's number of a path of truth.
func (r *run) numbered(src, dst, path int) int {
	if r.pathOf == nil {
		return path
	}
	return r.pathOf(src, dst, path)
}
