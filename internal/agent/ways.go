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
	described = "described" // by the configuration, and nobody has looked
	verified  = "verified"  // by the configuration, and probes agree
	learned   = "learned"   // by probes
	learning  = "learning"  // transfers go where ECMP sends them meanwhile
	aside     = "aside"     // nothing is known, or what was known is wrong: ECMP decides
)

// ways is what is known of the ways to one target. It is immutable; a change makes a new one.
type ways struct {
	target target
	addr   netip.AddrPort // of the flows' destination
	state  string
	reason string
	route  *ecmp.Route   // nil: not described
	paths  []ecmp.Path   // empty where nothing is known
	ports  *ecmp.PortMap // source ports by path; nil where nothing is known
	set    *reserve.Set
}

// usable reports whether a path can be chosen.
func (w *ways) usable() bool { return w.set != nil && (w.state != learning && w.state != aside) }

var errNoTransfers = errors.New("agent: the peer takes in no transfers (paths.listen), or nothing is known of it yet")

// to gives what is known of the ways to a target, finding it out where that is possible at once.
func (p *paths) to(t target) (*ways, error) {
	addr, err := p.addrOf(t)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	w := p.ways[t]
	full := w == nil && len(p.ways) >= MaxWays
	p.mu.Unlock()
	switch {
	case w != nil && w.addr == addr:
		return w, nil
	case full:
		return nil, fmt.Errorf("agent: ways to %d targets are kept, the limit", MaxWays)
	}
	w = p.describe(t, addr)
	p.put(w)
	p.watch(w)
	return w, nil
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

// put makes a new state of knowledge the one that is used.
func (p *paths) put(w *ways) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ways[w.target] = w
}

func (t target) String() string {
	return fmt.Sprintf("%s (%s, port %d)", t.peer, protoName(t.proto), t.port)
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

// rangeOf is the source ports that flows to the target may use.
func (p *paths) rangeOf(t target) ecmp.Range {
	if t.proto == ecmp.UDP && t.port == rocePort {
		return ecmp.RoCE
	}
	return p.ports
}

// describe takes the ways from the description of the network, where it knows both ends.
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
	ports := route.Ports(p.tuple(w), p.rangeOf(t), p.cfg.PortsPerPath, nil)
	for i := range ports.Paths() {
		if len(ports.Ports(i)) == 0 {
			w.reason = fmt.Sprintf("no source port of %d-%d leads over path %d", p.rangeOf(t).First, p.rangeOf(t).Last, i)
			return w
		}
	}
	w.route, w.paths, w.ports = route, route.Paths(), ports
	if err := p.register(w); err != nil {
		w.reason = err.Error()
		return w
	}
	w.state, w.reason = described, "by "+p.cfg.Fabric
	return w
}

// register makes the paths known to the table.
func (p *paths) register(w *ways) (err error) {
	capacity := func(id ecmp.LinkID) int64 {
		if p.fabric != nil {
			if l, ok := p.fabric.Link(id); ok {
				return l.Capacity
			}
		}
		return 0
	}
	p.a.locked(func(n *node.Node, now time.Duration) {
		n.Table(now, func(t *reserve.Table, _, _ time.Duration) { w.set, err = t.Paths(w.paths, capacity) })
	})
	return err
}

// with is w in another state.
func (w *ways) with(state, reason string) *ways {
	n := *w
	n.state, n.reason = state, reason
	return &n
}
