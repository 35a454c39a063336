package probe

import (
	"context"
	"fmt"
	"net/netip"

	"shoal/internal/ecmp"
)

// How far a target is, is found with UDP to a port on which it does not listen, because a host answers such a datagram
// and is not disturbed by it. The TTL counts up from 1, each with a few source ports: while routers answer, the target
// is farther away. At the first TTL at which it answers itself for any of the ports (the way of others may be longer)
// the routers before it are counted.
//
// A target that answers no UDP is at least farther than the last router that answered; the TTLs after it are tried until
// so many in a row are silent. So no probe of a transfer's own 5-tuple ever has a TTL with which a packet has reached the
// target.
const (
	hopPorts   = 4 // source ports a TTL
	hopSilence = 3 // TTLs without an answer after which there is nobody
)

// distance is how many routers there are on the way; answered says that the target itself has said so.
func (l *learner) distance(ctx context.Context) (hops int, answered bool, err error) {
	ports := l.fresh(hopPorts)
	l.next = 0 // they are as good as before for what comes
	if len(ports) == 0 {
		return 0, false, ErrNoPorts
	}
	last := 0
	for ttl := 1; ttl <= MaxHops+1 && ttl-last <= hopSilence; ttl++ {
		var shots []shot
		for try := 0; try <= l.o.Retries; try++ {
			shots = shots[:0]
			for _, p := range ports {
				s := l.shot(p, ttl)
				s.probe.Tuple.Proto, s.probe.Tuple.DstPort = ecmp.UDP, l.o.HopPort
				shots = append(shots, s)
			}
			if err := l.send(ctx, shots); err != nil {
				return 0, false, err
			}
			heard := false
			for _, s := range shots {
				heard = heard || s.kind != 0
			}
			if heard {
				break
			}
		}
		for _, s := range shots {
			switch {
			case s.kind != 0 && s.from == l.t.Dst:
				return ttl - 1, true, nil
			case s.kind == Unreachable: // while a firewall that refuses is only silent
				return 0, false, fmt.Errorf("%w: %s, said %s", ErrUnreachable, l.t, s.from)
			case s.kind == Expired:
				last = ttl
			}
		}
	}
	switch last {
	case 0:
		return 0, false, fmt.Errorf("%w: %s: no router answers within %d hops, nor the target "+
			"(do firewalls pass ICMP time exceeded?)", ErrBlind, l.t, hopSilence)
	case MaxHops + 1:
		return 0, false, fmt.Errorf("%w: %s is more than %d routers away", ErrBlind, l.t, MaxHops)
	}
	return last, false, nil
}

// shot is a question of the transfer's own 5-tuple.
func (l *learner) shot(port uint16, ttl int) shot {
	return shot{probe: Probe{Tuple: l.t.Tuple(port), TTL: uint8(ttl)}}
}

// as4 is an address as a book keeps it.
func as4(a netip.Addr) addr {
	if !a.Is4() {
		return addr{}
	}
	return a.As4()
}
