package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"shoal/internal/ecmp"
)

// Learn finds out which ports lead over which paths:
//
//  1. How many routers are on the way (hops.go).
//  2. Each configured model is checked, if there are any: some ports of each of its paths must be answered for as it
//     says (fit.go). The first that holds gives the whole map.
//  3. Otherwise ports are traced in a random order, until every path has PerPath of them and it is unlikely that a path is
//     missing. Routers that never answer, and those that are the same for all ports, are soon asked no more.
//  4. On the way a linear fit is tried. Where it is right for ports that it was not made from, it gives the rest.
//  5. Ports that were asked for twice must have answered alike: else ErrSprays. At the end a sample is asked for again:
//     where it answers differently now, everything starts anew, and fails with ErrUnstable after the third time.
//
// It takes some 240 probes for 4 paths, 600 for 16 and 1,900 for 64: 1, 3 and 9 s at 200 a second. What comes out short
// (the range is used up, or MaxProbes are) has Complete false. Concurrent calls share the sockets and the Prober's
// rate.
func (p *Prober) Learn(ctx context.Context, t Target, o Options) (*Map, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := newLearner(p, t, o.withDefaults())
	began := p.now()
	m, err := l.learn(ctx)
	if err != nil {
		return nil, err
	}
	m.Probes, m.Answered, m.Took = l.sent, l.answered, p.now()-began
	return m, nil
}

// restarts is how often a Learn starts anew because paths changed.
const restarts = 2

// repeats: so many ports are asked again, so often, to see whether they answer alike.
const (
	repeatPorts = 8
	repeatTimes = 2
)

// learner is one Learn.
type learner struct {
	p *Prober
	t Target
	o Options

	order []uint16 // the ports of the range, in a random order
	next  int      // of order
	pace  *pace
	book  *book
	fit   linear

	sent, answered int
	known          bool // the target has said how far it is
}

func newLearner(p *Prober, t Target, o Options) *learner {
	l := &learner{p: p, t: t, o: o, pace: newPace(o.Rate)}
	l.order = make([]uint16, o.Ports.Len())
	for i := range l.order {
		l.order[i] = o.Ports.First + uint16(i)
	}
	r := rand.New(rand.NewPCG(o.Seed, uint64(t.DstPort)))
	r.Shuffle(len(l.order), func(i, j int) { l.order[i], l.order[j] = l.order[j], l.order[i] })
	return l
}

// fresh are up to n ports that were not tried yet.
func (l *learner) fresh(n int) (ports []uint16) {
	for ; l.next < len(l.order) && len(ports) < n; l.next++ {
		if port := l.order[l.next]; !l.o.skip(port) && (l.book == nil || l.book.at[port] == nil) {
			ports = append(ports, port)
		}
	}
	return ports
}

func (l *learner) learn(ctx context.Context) (*Map, error) {
	for try := 0; ; try++ {
		m, err := l.attempt(ctx)
		if m != nil || err != nil && !errors.Is(err, ErrUnstable) {
			return m, err
		}
		if try == restarts {
			return nil, cmp.Or(err, fmt.Errorf("%w: %s", ErrUnstable, l.t))
		}
	}
}

// attempt learns once; without a map and an error where paths have changed meanwhile.
func (l *learner) attempt(ctx context.Context) (*Map, error) {
	l.next, l.fit, l.book = 0, linear{}, nil
	if l.sent >= l.o.MaxProbes {
		return nil, fmt.Errorf("%w: %s: %d probes were not enough", ErrUnstable, l.t, l.sent)
	}
	hops, known, err := l.distance(ctx)
	if err != nil {
		return nil, err
	}
	l.known, l.book = known, newBook(hops, l.o)
	if hops == 0 {
		return l.direct()
	}
	m, refuted, err := l.models(ctx)
	if m == nil && err == nil {
		m, err = l.trace(ctx)
	}
	if m == nil || err != nil {
		return nil, err
	}
	m.Refuted = refuted
	for turn := range 2 {
		v, err := l.verify(ctx, m, m.Sample(turn, finalSample))
		if err != nil || v.Against() > 1-turn {
			return nil, err
		}
		if v.Against() == 0 {
			break
		}
	}
	return m, nil
}

// finalSample is how many ports are asked for again at the end.
const finalSample = 16

// trace asks for ports until the book says enough. Without a map and an error, paths have changed.
func (l *learner) trace(ctx context.Context) (*Map, error) {
	for {
		r := l.book.read()
		if r.sprays {
			return nil, l.sprayed(ctx, &r)
		}
		if len(r.keys) > MaxPaths {
			return nil, fmt.Errorf("%w: %s: more than %d paths; give a narrower range of ports", ErrBlind, l.t, MaxPaths)
		}
		l.fit.follow(l.book, &r)
		enough := l.enough(&r)
		shots := l.plan(&r, enough)
		if len(shots) == 0 || l.sent+len(shots) > l.o.MaxProbes {
			return l.finish(enough)
		}
		if err := l.put(ctx, shots); err != nil {
			return nil, err
		}
	}
}

// enough says whether no further port is needed.
func (l *learner) enough(r *reading) bool {
	if len(r.keys) == 0 || r.unsettled {
		return false
	}
	if l.fit.holds(len(r.keys), l.o.Miss) {
		return true
	}
	for _, n := range r.ports {
		if n < l.o.PerPath {
			return false
		}
	}
	return overlooked(len(r.keys), r.known) <= l.o.Miss
}

// plan is the next batch: what was not answered yet, what is to be asked again, and fresh ports.
func (l *learner) plan(r *reading, enough bool) (shots []shot) {
	add := func(t *trace, hops hopSet) {
		for h := range l.book.hops {
			if hops.has(h) {
				shots = append(shots, l.shot(t.port, h+1))
			}
		}
	}
	room := func() bool { return len(shots)+l.book.hops <= MaxBatch }
	repeated := 0
	for i, t := range l.book.traces {
		switch {
		case !room():
			return shots
		case l.o.skip(t.port):
		case r.asks[i] != 0:
			add(t, r.asks[i])
		case r.of[i] >= 0:
			// A path that far fewer ports have than others may be an odd answer: it is asked for again before it is
			// believed.
			switch few := 8*r.ports[r.of[i]]*len(r.keys) <= r.known; {
			case few && t.doubt < repeatTimes:
				t.doubt++
				add(t, r.telling|r.fresh)
			case repeated < repeatPorts && t.again < repeatTimes:
				t.again++
				add(t, r.fresh)
			}
			repeated++
		}
	}
	if enough || r.fresh == 0 {
		return shots
	}
	for room() {
		ports := l.fresh(1)
		if len(ports) == 0 {
			break
		}
		add(l.book.open(ports[0]), r.fresh)
	}
	return shots
}

// put sends a batch, and notes what comes back.
func (l *learner) put(ctx context.Context, shots []shot) error {
	if err := l.send(ctx, shots); err != nil {
		return err
	}
	for _, s := range shots {
		from := addr{}
		switch {
		case s.kind != 0 && s.from == l.t.Dst:
			return fmt.Errorf("%w: %s answers at %d hops, and was farther away", ErrUnstable, l.t, s.probe.TTL)
		case s.kind == Expired:
			from = as4(s.from)
		}
		l.book.note(s.probe.Tuple.SrcPort, s.probe.TTL, from)
	}
	return nil
}

// send sends a batch, counts, and sets the pace.
func (l *learner) send(ctx context.Context, shots []shot) error {
	if err := l.p.ask(ctx, shots, l.pace, l.o.Timeout); err != nil {
		return err
	}
	var heard [MaxHops + 2]bool // routers that answer at all, now or before
	if l.book != nil {
		for _, t := range l.book.traces {
			for h := range l.book.hops {
				heard[h+1] = heard[h+1] || t.seen[h] != (addr{})
			}
		}
	}
	for _, s := range shots {
		heard[s.probe.TTL] = heard[s.probe.TTL] || s.kind != 0
	}
	asked, answered := 0, 0
	for _, s := range shots {
		if heard[s.probe.TTL] {
			asked++
			if s.kind != 0 {
				answered++
			}
		}
	}
	l.sent += len(shots)
	l.answered += answered
	l.pace.heard(asked, answered)
	return nil
}

// sprayed looks again, closely: ErrSprays where some ports answer differently within one batch, nil where paths have
// just changed.
func (l *learner) sprayed(ctx context.Context, r *reading) error {
	var hops []int
	for h := range l.book.hops {
		if r.kinds[h] == telling {
			hops = append(hops, h)
		}
	}
	each := min(4, MaxBatch/len(hops))
	asked, torn := 0, 0
	for _, t := range l.book.traces {
		if asked >= repeatPorts || ctx.Err() != nil {
			break
		}
		if l.o.skip(t.port) {
			continue
		}
		var shots []shot
		for range each {
			for _, h := range hops {
				shots = append(shots, l.shot(t.port, h+1))
			}
		}
		if err := l.send(ctx, shots); err != nil {
			return err
		}
		var seen [MaxHops]map[addr]bool
		twice := false
		for _, s := range shots {
			if h := s.probe.TTL - 1; s.kind == Expired {
				if seen[h] == nil {
					seen[h] = map[addr]bool{}
				}
				seen[h][as4(s.from)] = true
				twice = twice || len(seen[h]) > 1
			}
		}
		asked++
		if twice {
			torn++
		}
	}
	if torn >= 2 && torn*sprayShare >= asked {
		return fmt.Errorf("%w: %s: %d of %d ports did", ErrSprays, l.t, torn, asked)
	}
	return ctx.Err()
}

// direct is the map of a target without a router on the way.
func (l *learner) direct() (*Map, error) {
	return l.flat(ecmp.Path{}, key{}, 0)
}

// flat is a map with one path, over which every port leads.
func (l *learner) flat(path ecmp.Path, expect key, miss float64) (*Map, error) {
	m := &Map{Target: l.t, How: Probed, Hops: l.book.hops, Paths: []ecmp.Path{path}, Ports: ecmp.NewPortMap(1), Miss: miss,
		options: l.o, expect: []key{expect}}
	l.next = 0
	for _, t := range l.book.traces {
		m.add(t.port, 0)
	}
	for _, port := range l.fresh(max(0, l.o.PerPath-m.Ports.Len())) {
		m.add(port, 0)
	}
	if m.Ports.Len() == 0 {
		return nil, ErrNoPorts
	}
	m.Complete = m.Ports.Len() >= l.o.PerPath && miss <= l.o.Miss
	return m, nil
}

// add gives a path a port, unless it has all that it needs.
func (m *Map) add(port uint16, path int) {
	if len(m.Ports.Ports(path)) < m.options.PerPath {
		m.Ports.Add(port, path)
	}
}

// finish makes the map of what has been read.
func (l *learner) finish(enough bool) (*Map, error) {
	r := l.book.read()
	dark, tells, mix := false, false, false
	for h := range l.book.hops {
		dark = dark || r.kinds[h] == silent || r.kinds[h] == open && r.same[h] == (addr{})
		tells = tells || r.kinds[h] == telling
		mix = mix || r.kinds[h] == mixed
	}
	switch {
	case len(l.book.traces) == 0:
		return nil, ErrNoPorts
	case len(r.keys) == 0:
		return nil, fmt.Errorf("%w: %s: none of %d ports was answered for", ErrBlind, l.t, len(l.book.traces))
	case len(r.keys) == 1 && dark && mix:
		return nil, fmt.Errorf("%w: %s: only routers beyond the middle answer, and perhaps with the interface of their way back "+
			"(if every router answers with the interface that a packet came in at, say so: inbound)", ErrBlind, l.t)
	case len(r.keys) == 1 && (dark || !tells && !l.known):
		return nil, fmt.Errorf("%w: %s: the routers that answer (%s) are the same for all ports, and others do not answer "+
			"(let switches send ICMP time exceeded)", ErrBlind, l.t, viaText(r.same.addrs(l.book.hops)))
	case !tells:
		k := r.same
		m, err := l.flat(pathOf(k, l.book.hops, func(h int) bool { return true }), k, overlooked(1, r.known))
		if m != nil {
			m.Unanswered, m.Mixed = r.lost, mix
		}
		return m, err
	}
	m := &Map{Target: l.t, How: Probed, Hops: l.book.hops, Ports: ecmp.NewPortMap(len(r.keys)),
		Complete: enough && r.lost*lostShare < len(r.of), Miss: overlooked(len(r.keys), r.known),
		Unanswered: r.lost, Mixed: mix, options: l.o}
	for _, k := range r.keys {
		m.Paths = append(m.Paths, pathOf(k.over(r.same), l.book.hops, func(h int) bool { return r.kinds[h] == telling }))
		m.expect = append(m.expect, k.over(r.same))
	}
	for i, t := range l.book.traces {
		if r.of[i] >= 0 {
			m.add(t.port, r.of[i])
		}
	}
	if l.fit.holds(len(r.keys), l.o.Miss) {
		l.fit.fill(m, l)
	}
	return m, nil
}

// over fills the gaps of a key with what is the same for all.
func (k key) over(same key) key {
	for h := range k {
		if k[h] == (addr{}) {
			k[h] = same[h]
		}
	}
	return k
}

// pathOf names the links of a path: every interface after the own leaf's (the link to which is the host's own).
func pathOf(k key, hops int, counts func(h int) bool) ecmp.Path {
	var p ecmp.Path
	for h, a := range k.addrs(hops) {
		if !a.IsValid() {
			p.Via = append(p.Via, "*")
			continue
		}
		p.Via = append(p.Via, a.String())
		if h > 0 && counts(h) {
			p.Links = append(p.Links, ecmp.NameLink(a.String()))
		}
	}
	return p
}
