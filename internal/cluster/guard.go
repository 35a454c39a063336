package cluster

import (
	"errors"
	"net/netip"
	"sync"

	"shoal/internal/peer"
)

const (
	// maxHosts bounds the addresses about which the guard and the log of refusals remember something.
	maxHosts = 1024
	// badBurst failed handshakes of one address are let through; after them badRate a second. Below what a reboot of a
	// rack of misconfigured peers makes, above what costs noticeable CPU.
	badBurst = 64
	badRate  = 8
)

// guard decides which connections to the peer port may go on. Each has to be let in, then either turns out to be a
// peer, or bad.
type guard struct {
	lim *Limits

	mu       sync.Mutex
	conns    int
	greeting int
	hosts    map[netip.Addr]*hostCount
	peers    map[peer.ID]int
}

// hostCount is what one address is doing.
type hostCount struct {
	greeting int // connections that have not said who they are
	bad      int // that have failed to, less badRate a second
}

func newGuard(lim *Limits) *guard {
	return &guard{lim: lim, hosts: map[netip.Addr]*hostCount{}, peers: map[peer.ID]int{}}
}

var (
	errConns      = errors.New("cluster: too many connections to the peer port")
	errHandshakes = errors.New("cluster: too many connections at once that do not say who they are")
	errBad        = errors.New("cluster: too many connections that were garbage")
	errPeerConns  = errors.New("cluster: too many connections of this peer")
)

// host gives the record of an address. Beyond maxHosts all others share one. g.mu is held.
func (g *guard) host(a netip.Addr) *hostCount {
	h := g.hosts[a]
	if h == nil {
		if len(g.hosts) >= maxHosts {
			a = netip.Addr{}
			if h = g.hosts[a]; h != nil {
				return h
			}
		}
		h = &hostCount{}
		g.hosts[a] = h
	}
	return h
}

// enter lets a new connection begin its handshake, or says why not. On loopback one address is many peers, and whoever
// is there could do worse: the limits of an address do not hold there.
func (g *guard) enter(a netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.host(a)
	switch {
	case g.conns >= g.lim.Conns:
		return errConns
	case g.greeting >= g.lim.Handshakes:
		return errHandshakes
	case a.IsLoopback():
	case h.greeting >= max(1, g.lim.Handshakes/4):
		return errHandshakes
	case h.bad >= badBurst:
		return errBad
	}
	g.conns++
	g.greeting++
	h.greeting++
	return nil
}

// greeted ends a handshake: with the peer that it was, or an empty ID where it was bad. Of a bad one, and of one with
// which a peer has too many, nothing is counted any more; the others leave.
func (g *guard) greeted(a netip.Addr, id peer.ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.host(a)
	g.greeting--
	h.greeting = max(0, h.greeting-1)
	if id == "" {
		g.conns--
		h.bad++
		return nil
	}
	if g.peers[id] >= g.lim.ConnsPerPeer {
		g.conns--
		return errPeerConns
	}
	g.peers[id]++
	return nil
}

// leave forgets a peer's connection.
func (g *guard) leave(id peer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns--
	if g.peers[id]--; g.peers[id] <= 0 {
		delete(g.peers, id)
	}
}

// open is how many connections there are.
func (g *guard) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.conns
}

// second lets time pass.
func (g *guard) second() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for a, h := range g.hosts {
		if h.bad = max(0, h.bad-badRate); h.bad == 0 && h.greeting == 0 {
			delete(g.hosts, a)
		}
	}
}
