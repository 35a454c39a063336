package probe

import (
	"context"
	"net/netip"
	"slices"
)

// MaxSample is how many ports one Verify asks for.
const MaxSample = 1024

// Verdict is what a sample of a map's ports says of the map.
type Verdict struct {
	Asked    int // ports
	Answered int // ports with an answer that tells paths apart
	// Wrong are the answers that contradict the map. A port that gives one is asked again, and is here twice if it
	// gives another.
	Wrong []Wrong
	// Torn are ports that contradicted the map and then did not.
	Torn int
	// Silent are ports with a router on their path that did not answer, although all that answer do so at once.
	Silent int
}

// silentShare: where one port in so many falls silent, and two do, they are taken to lead by silent routers now.
const silentShare = 4

// Against is how many answers contradict the map; ports that have fallen silent count as one. One may be an accident; two
// are none.
func (v *Verdict) Against() int {
	n := len(v.Wrong) + v.Torn
	if v.Silent >= 2 && v.Silent*silentShare >= v.Asked {
		n++
	}
	return n
}

// Wrong is one answer that contradicts a map.
type Wrong struct {
	Port           uint16
	Path           int
	Expected, Seen []netip.Addr // routers, by TTL from 1; the zero address where none is expected or has answered
}

// Sample are n ports to verify, evenly from all paths: with turn 0, 1, 2 and so on always others, until all had their turn.
func (m *Map) Sample(turn, n int) (ports []uint16) {
	paths := m.Ports.Paths()
	deepest := 0
	for i := range paths {
		deepest = max(deepest, len(m.Ports.Ports(i)))
	}
	n = min(n, MaxSample, m.Ports.Len())
	cells := paths * deepest
	for i := 0; i < cells && len(ports) < n; i++ {
		s := (turn*n + i) % cells
		if of := m.Ports.Ports(s % paths); s/paths < len(of) {
			ports = append(ports, of[s/paths])
		}
	}
	return ports
}

// Verify asks for these ports of a map again, at most MaxSample of them, and says what differs. A port that does not
// answer says nothing.
func (p *Prober) Verify(ctx context.Context, m *Map, ports []uint16) (Verdict, error) {
	l := &learner{p: p, t: m.Target, o: m.options, pace: newPace(m.options.Rate)}
	return l.verify(ctx, m, ports[:min(len(ports), MaxSample)])
}

func (l *learner) verify(ctx context.Context, m *Map, ports []uint16) (v Verdict, err error) {
	prompt, heard := 0, 0
	for first := true; len(ports) > 0; first = false {
		n := min(len(ports), MaxBatch/MaxHops)
		p, h, err := l.verifySome(ctx, m, ports[:n], first, &v)
		if err != nil {
			return v, err
		}
		prompt, heard = prompt+p, heard+h
		ports = ports[n:]
	}
	if prompt*4 < heard*3 || heard == 0 { // packets get lost
		v.Silent = 0
	}
	return v, nil
}

// verifySome asks for as many ports as fit into a batch with all their hops. Of the first it asks for every hop: what
// is the same for all may change too. It says how many probes were answered, and how many the first time.
func (l *learner) verifySome(ctx context.Context, m *Map, ports []uint16, first bool, v *Verdict) (prompt, heard int, err error) {
	tells := m.tells()
	want := map[uint16]key{}
	got := map[uint16]key{}
	for i, port := range ports {
		path, ok := m.Ports.PathOf(port)
		if !ok || l.o.skip(port) {
			continue
		}
		k := m.expect[path]
		for h := range k {
			if !tells[h] && (i > 0 || !first) {
				k[h] = addr{}
			}
		}
		want[port] = k
	}
	ask := func(ports []uint16) error {
		for try := range 1 + l.o.Retries {
			var shots []shot
			for _, port := range ports {
				for h := range m.Hops {
					if want[port][h] != (addr{}) && got[port][h] == (addr{}) {
						shots = append(shots, l.shot(port, h+1))
					}
				}
			}
			if len(shots) == 0 {
				break
			}
			if err := l.send(ctx, shots); err != nil {
				return err
			}
			for _, s := range shots {
				if s.kind == Expired || s.kind == Refused && s.from == m.Target.Dst {
					k := got[s.probe.Tuple.SrcPort]
					k[s.probe.TTL-1] = as4(s.from)
					got[s.probe.Tuple.SrcPort] = k
				}
			}
			for _, s := range shots {
				if s.kind != 0 {
					if heard++; try == 0 {
						prompt++
					}
				}
			}
		}
		return nil
	}
	if err := ask(ports); err != nil {
		return 0, 0, err
	}
	var doubted []uint16
	for _, port := range ports {
		if want[port] == (key{}) {
			continue
		}
		v.Asked++
		if got[port] != (key{}) {
			v.Answered++
		}
		if got[port].set() != want[port].set() {
			v.Silent++
		}
		if !got[port].within(want[port]) {
			doubted = append(doubted, port)
			v.Wrong = append(v.Wrong, wrong(m, port, got[port]))
			delete(got, port)
		}
	}
	if err := ask(doubted); err != nil {
		return 0, 0, err
	}
	for _, port := range doubted {
		switch {
		case got[port] == (key{}):
		case got[port].within(want[port]):
			v.Torn++
			v.Wrong = slices.DeleteFunc(v.Wrong, func(w Wrong) bool { return w.Port == port })
		default:
			v.Wrong = append(v.Wrong, wrong(m, port, got[port]))
		}
	}
	return prompt, heard, nil
}

func wrong(m *Map, port uint16, seen key) Wrong {
	path, _ := m.Ports.PathOf(port)
	return Wrong{Port: port, Path: path, Expected: m.expect[path].addrs(m.Hops), Seen: seen.addrs(m.Hops)}
}

// tells says at which hops the paths of a map differ; where there is one path, at all.
func (m *Map) tells() (t [MaxHops]bool) {
	for h := range t {
		for _, k := range m.expect {
			t[h] = t[h] || len(m.expect) == 1 || k[h] != m.expect[0][h]
		}
	}
	return t
}
