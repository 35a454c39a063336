package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/reserve"
)

// The states of what is known of the ways to a target.
const (
	described = "described" // by the configuration, and nobody can look
	verified  = "verified"  // by the configuration, and probes agree
	learned   = "learned"   // by probes
	learning  = "learning"  // transfers go where ECMP sends them meanwhile
	aside     = "aside"     // nothing is known, or what was known is wrong: ECMP decides
)

// ways is what is known of the ways to one target. It is immutable: a change makes a new one, and whoever holds a reservation
// keeps the one whose paths it counts.
type ways struct {
	target target
	addr   netip.AddrPort // of the flows' destination
	state  string
	reason string
	route  *ecmp.Route   // nil: not described
	paths  []ecmp.Path   // empty where no path can be chosen, and so the next two
	ports  *ecmp.PortMap // source ports by path
	set    *reserve.Set
}

// usable reports whether a path can be chosen.
func (w *ways) usable() bool { return w.set != nil }

var errNoTransfers = errors.New("agent: the peer takes in no transfers (paths.listen), or nothing is known of it yet")

// MaxWays bounds the targets whose ways are kept; the one not used for longest makes room.
const MaxWays = 4096

// kept is one entry of the ways that are kept.
type kept struct {
	w    *ways
	used time.Time
}

// to gives what is known of the ways to a target, finding it out where that is possible at once.
func (p *paths) to(t target) (*ways, error) {
	addr, err := p.addrOf(t)
	if err != nil {
		return nil, err
	}
	if w := p.known(t, addr); w != nil {
		return w, nil
	}
	p.making.Lock() // two callers would make two, and the slower one's would stay
	defer p.making.Unlock()
	if w := p.known(t, addr); w != nil {
		return w, nil
	}
	p.makeRoom(t)
	return p.begin(p.describe(t, addr)), nil
}

// known gives the ways to a target that is still at this address, nil where there are none.
func (p *paths) known(t target, addr netip.AddrPort) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.ways[t]
	if k == nil || k.w.addr != addr {
		return nil
	}
	k.used = time.Now()
	return k.w
}

// makeRoom forgets what is known of a target (its address has changed), and else, where MaxWays are kept, of the target that
// was not used for longest.
func (p *paths) makeRoom(t target) {
	p.mu.Lock()
	var gone *ways
	if k := p.ways[t]; k != nil {
		gone = k.w
	} else if len(p.ways) >= MaxWays {
		var oldest *kept
		for _, k := range p.ways {
			if oldest == nil || k.used.Before(oldest.used) {
				oldest = k
			}
		}
		gone = oldest.w
	}
	shared := false
	if gone != nil {
		delete(p.ways, gone.target)
		for _, k := range p.ways {
			shared = shared || p.probed(k.w) == p.probed(gone)
		}
	}
	p.mu.Unlock()
	if gone != nil && !shared {
		p.forget(gone)
	}
}

// addrOf is where the flows to a target go.
func (p *paths) addrOf(t target) (netip.AddrPort, error) {
	var info *peer.Info
	p.a.locked(func(n *node.Node, _ time.Duration) { info = n.Info(t.peer) })
	if info == nil || info.Transfer == "" {
		return netip.AddrPort{}, fmt.Errorf("%w: %s", errNoTransfers, t.peer)
	}
	ap, err := netip.ParseAddrPort(info.Transfer)
	if err != nil {
		return ap, fmt.Errorf("agent: %s takes in transfers at %q, which is no IP:port", t.peer, info.Transfer)
	}
	if t.port != 0 {
		ap = netip.AddrPortFrom(ap.Addr(), t.port)
	}
	return ap, nil
}

// put keeps ways that are new.
func (p *paths) put(w *ways) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ways[w.target] = &kept{w, time.Now()}
	return w
}

// replace puts new knowledge in the place of old, unless that has been replaced meanwhile.
func (p *paths) replace(old, new *ways) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.ways[old.target]; k != nil && k.w == old {
		k.w = new
	}
}

func protoName(proto uint8) string {
	if proto == ecmp.UDP {
		return "udp"
	}
	return "tcp"
}

// tuple is a flow to the target, all but its source port.
func (p *paths) tuple(w *ways) ecmp.Tuple {
	return ecmp.Tuple{Src: p.self.Addr(), Dst: w.addr.Addr(), DstPort: w.addr.Port(), Proto: w.target.proto}
}

// isRoCE reports whether the flows to the target are RoCE's, whose source ports are of a range of their own.
func (t target) isRoCE() bool { return t.proto == ecmp.UDP && t.port == rocePort }

// rangeOf is the source ports that flows to the target may use.
func (p *paths) rangeOf(t target) ecmp.Range {
	if t.isRoCE() {
		return ecmp.RoCE
	}
	return p.ports
}

// describe takes the ways from the description of the network, where it knows both ends and the switches' hashes.
func (p *paths) describe(t target, addr netip.AddrPort) *ways {
	w := &ways{target: t, addr: addr, state: aside, reason: "no network is described (paths.fabric)"}
	if p.fabric == nil {
		return w
	}
	route, err := p.fabric.Route(string(p.a.id), string(t.peer))
	if err != nil {
		w.reason = err.Error()
		return w
	}
	for _, end := range []struct {
		id   peer.ID
		addr netip.Addr
	}{{p.a.id, p.self.Addr()}, {t.peer, addr.Addr()}} {
		if h, ok := p.fabric.Host(string(end.id)); ok && h.Addr != end.addr {
			w.reason = fmt.Sprintf("%s is at %s, and the description says %s", end.id, end.addr, h.Addr)
			return w
		}
	}
	if !route.Known() {
		w.reason = "the description does not say how the switches on the way hash"
		return w
	}
	ports := route.Ports(p.tuple(w), p.rangeOf(t), p.cfg.PortsPerPath, nil)
	for i := range ports.Paths() {
		if len(ports.Ports(i)) == 0 {
			w.reason = fmt.Sprintf("no source port of %d-%d leads over path %d", p.rangeOf(t).First, p.rangeOf(t).Last, i)
			return w
		}
	}
	w.route, w.paths, w.ports = route, route.Paths(), ports
	if err := p.register(w); err != nil {
		return w.without(aside, err.Error())
	}
	w.state, w.reason = described, "by "+p.cfg.Fabric
	return w
}

// register makes the paths known to the table.
func (p *paths) register(w *ways) (err error) {
	p.a.locked(func(n *node.Node, now time.Duration) {
		n.Table(now, func(t *reserve.Table, _, _ time.Duration) { w.set, err = t.Paths(w.paths, p.capacity) })
	})
	return err
}

// without is w in a state in which no path can be chosen. The route stays: it is still a hypothesis.
func (w *ways) without(state, reason string) *ways {
	n := *w
	n.state, n.reason = state, reason
	n.paths, n.ports, n.set = nil, nil, nil
	return &n
}
