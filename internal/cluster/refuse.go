package cluster

import (
	"net/netip"
	"sync"

	"shoal/internal/peer"
)

// refusals remembers whom the log has heard of already, so that a stream of garbage is one line and not a full disk.
type refusals struct {
	mu   sync.Mutex
	seen map[string]bool
}

// first reports whether who is new. Beyond maxHosts it begins anew: a line may then come twice.
func (r *refusals) first(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[who] {
		return false
	}
	if len(r.seen) >= maxHosts || r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[who] = true
	return true
}

// refusedAddr notes that somebody unknown was turned away: by the host, since every connection has another port.
func (c *Cluster) refusedAddr(addr string, err error) {
	host := addr
	if ap, perr := netip.ParseAddrPort(addr); perr == nil {
		host = ap.Addr().String()
	}
	c.refuse(host, addr, err)
}

// refusedPeer notes that a peer, known by its ID, was turned away.
func (c *Cluster) refusedPeer(id peer.ID, addr string, err error) {
	c.refuse("peer "+string(id), addr, err)
}

func (c *Cluster) refuse(who, addr string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.count.refused.Add(1)
	if c.refusals.first(who) {
		c.log.Warn("cluster: refused; not logged again for this address", "addr", addr, "err", err)
	}
	c.tell(func(h Handler) { h.Refused(addr, err) })
}
