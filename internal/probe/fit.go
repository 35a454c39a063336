package probe

import (
	"context"
	"math"
	"slices"

	"shoal/internal/ecmp"
)

// heldOut is how many ports a linear fit must be right for that it was not made from.
const heldOut = 32

// fitTries is how often a linear fit is tried: most hashes are not linear.
const fitTries = 4

// linear is a linear fit and how it does.
type linear struct {
	at     func(port uint16) int // nil: there is none
	keys   []key                 // the paths that it knows
	made   int                   // traces that it was made from
	agreed int                   // later ones that it was right for
	tries  int
	known  int // when it was last tried
}

// follow checks the fit against what has come in, and makes one where there is none.
func (f *linear) follow(b *book, r *reading) {
	m := len(r.keys)
	if f.at != nil {
		f.agreed = 0
		wrong := !slices.Equal(f.keys, r.keys)
		for i := f.made; i < len(b.traces) && !wrong; i++ {
			if path := f.at(b.traces[i].port); path >= 0 && r.of[i] >= 0 { // -1: the fit does not say
				wrong = path != r.of[i]
				f.agreed++
			}
		}
		if !wrong {
			return
		}
		f.at = nil
	}
	// A port has 16 bits, and their images have to be found before anything can be foretold.
	if m < 2 || m&(m-1) != 0 || r.unsettled || r.known < max(24, 2*m) || r.known < 2*f.known || f.tries == fitTries {
		return
	}
	f.tries++
	f.known = r.known
	var seen []ecmp.Seen
	for i, t := range b.traces {
		if r.of[i] >= 0 {
			seen = append(seen, ecmp.Seen{Port: t.port, Path: r.of[i]})
		}
	}
	if at, ok := ecmp.FitLinear(seen, m); ok {
		f.at, f.keys, f.made, f.agreed = at, slices.Clone(r.keys), len(b.traces), 0
	}
}

// holds says whether the fit may be used: chance does not explain how often it was right.
func (f *linear) holds(paths int, miss float64) bool {
	return f.at != nil && f.agreed >= heldOut && byChance(paths, f.agreed) <= miss
}

// byChance is how likely somebody who knows nothing is right n times, with so many paths.
func byChance(paths, n int) float64 { return math.Pow(float64(paths), -float64(max(n, 0))) }

// fill gives every path its ports.
func (f *linear) fill(m *Map, l *learner) {
	m.How, m.Miss = Fitted, byChance(len(m.Paths), f.agreed)
	missing := len(m.Paths)*m.options.PerPath - m.Ports.Len()
	for _, port := range l.order {
		if missing == 0 {
			break
		}
		if _, has := m.Ports.PathOf(port); has || l.book.at[port] != nil || l.o.skip(port) {
			continue // a port that was asked for and did not answer is nothing to rely on
		}
		if path := f.at(port); path >= 0 && path < len(m.Paths) && len(m.Ports.Ports(path)) < m.options.PerPath {
			m.Ports.Add(port, path)
			missing--
		}
	}
	m.Complete = missing == 0
}

// models checks the configured models in turn. The map is that of the first that explains the answers; refuted is how many
// are contradicted by them.
func (l *learner) models(ctx context.Context) (m *Map, refuted int, err error) {
	for _, route := range l.o.Models {
		if !route.Known() {
			continue // nothing follows from it
		}
		j, err := l.check(ctx, route)
		if err != nil {
			return nil, refuted, err
		}
		switch {
		case j.holds(l.o.Miss):
			return l.modelled(route, j), refuted, nil
		case j.against >= 2:
			refuted++
		}
	}
	return nil, refuted, nil
}

// judgement is what the answers say of a model.
type judgement struct {
	ports   *ecmp.PortMap // what the model claims
	paths   int
	agreed  int   // ports that were answered for as it says, beyond the first of each path
	against int   // ports that were not
	blurred bool  // two of its paths look the same
	unseen  int   // paths that no answer was about
	expect  []key // by path
	lost    int
	mixed   bool
}

func (j *judgement) holds(miss float64) bool {
	chance := byChance(j.paths, j.agreed)
	if j.paths == 1 {
		chance = overlooked(1, j.agreed)
	}
	return j.against == 0 && !j.blurred && j.unseen*4 <= j.paths && chance <= miss
}

// check asks for some ports of each path of a model: 32 in all, at least 2 a path.
func (l *learner) check(ctx context.Context, route *ecmp.Route) (*judgement, error) {
	paths := len(route.Paths())
	each := max((32+paths-1)/paths, 2)
	claimed := route.Ports(l.t.Tuple(0), l.o.Ports, max(l.o.PerPath, each), l.o.Skip)
	model := map[uint16]int{}
	var ports []uint16
	for i := range paths {
		for _, port := range claimed.Ports(i)[:min(each, len(claimed.Ports(i)))] {
			model[port] = i
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		return nil, ErrNoPorts
	}
	// What is known already may do.
	before := map[uint16]int{}
	for _, t := range l.book.traces {
		before[t.port] = route.PathOf(l.t.Tuple(t.port))
	}
	if j := l.judge(before, claimed, paths); j.against >= 3 {
		return j, nil
	}
	if err := l.askAll(ctx, ports, false); err != nil {
		return nil, err
	}
	j := l.judge(model, claimed, paths)
	if j.against > 0 && j.against < 3 { // odd answers, perhaps
		if err := l.askAll(ctx, ports, true); err != nil {
			return nil, err
		}
		j = l.judge(model, claimed, paths)
	}
	if j.blurred && !l.book.inbound {
		// A configured fabric may know of parallel links what answers seem not to tell.
		l.book.inbound = true
		if fine := l.judge(model, claimed, paths); fine.holds(l.o.Miss) {
			return fine, nil
		}
		l.book.inbound = l.o.Inbound
	}
	return j, nil
}

// askAll asks for these ports until each has answered, or has been asked often enough.
func (l *learner) askAll(ctx context.Context, ports []uint16, again bool) error {
	for _, port := range ports {
		if t := l.book.open(port); again {
			t.again++
		}
	}
	for first := again; ; first = false {
		r := l.book.read()
		asks := map[uint16]hopSet{}
		for i, t := range l.book.traces {
			asks[t.port] = r.asks[i]
			if first {
				asks[t.port] = r.fresh
			}
		}
		var shots []shot
		for _, port := range ports {
			for h := range l.book.hops {
				if asks[port].has(h) && !l.o.skip(port) {
					shots = append(shots, l.shot(port, h+1))
				}
			}
		}
		if len(shots) == 0 {
			return nil
		}
		for i := 0; i < len(shots); i += MaxBatch {
			if err := l.put(ctx, shots[i:min(i+MaxBatch, len(shots))]); err != nil {
				return err
			}
		}
	}
}

// judge compares a model's paths with those that were seen. They are the same if they part the ports in the same way.
func (l *learner) judge(model map[uint16]int, claimed *ecmp.PortMap, paths int) *judgement {
	r := l.book.read()
	j := &judgement{ports: claimed, paths: paths, expect: make([]key, paths), lost: r.lost, mixed: slices.Contains(r.kinds[:], mixed)}
	votes := make([]map[int]int, paths)
	for i, t := range l.book.traces {
		if path, ok := model[t.port]; ok && r.of[i] >= 0 {
			if votes[path] == nil {
				votes[path] = map[int]int{}
			}
			votes[path][r.of[i]]++
		}
	}
	taken := map[int]bool{}
	for path, v := range votes {
		best, sum := -1, 0
		for seen := range r.keys { // in order, so that ties fall alike
			sum += v[seen]
			if best < 0 && v[seen] > 0 || best >= 0 && v[seen] > v[best] {
				best = seen
			}
		}
		if best < 0 {
			if len(claimed.Ports(path)) > 0 {
				j.unseen++
			}
			continue
		}
		j.agreed += v[best] - 1
		j.against += sum - v[best]
		j.blurred = j.blurred || taken[best]
		taken[best] = true
		j.expect[path] = r.keys[best].over(r.same)
	}
	return j
}

// modelled is the map that a model gives.
func (l *learner) modelled(route *ecmp.Route, j *judgement) *Map {
	m := &Map{Target: l.t, How: Modelled, Model: route, Hops: l.book.hops, Paths: route.Paths(), Ports: j.ports, Complete: true,
		Miss: byChance(j.paths, j.agreed), Unanswered: j.lost, Mixed: j.mixed, options: l.o, expect: j.expect}
	if j.paths == 1 {
		m.Miss = overlooked(1, j.agreed)
	}
	for i := range m.Paths {
		m.Complete = m.Complete && len(m.Ports.Ports(i)) >= l.o.PerPath
	}
	return m
}
