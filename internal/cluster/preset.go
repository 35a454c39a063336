package cluster

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// timing is every time constant of a cluster. The three presets differ in what a round trip costs and in how likely a
// silence means death rather than delay.
type timing struct {
	// probe is how often one random peer is pinged. Shorter: death is seen sooner, and round-trip times are fresher;
	// more packets.
	probe time.Duration
	// probeTimeout is how long the answer may take before others are asked to ping, and TCP is tried. It is above the
	// 99th percentile of the round trip, a busy scheduler included.
	probeTimeout time.Duration
	// suspicionMult sets how long a suspect may defend itself: suspicionMult * max(1, log10(peers)) * probe, where enough
	// others confirm; suspicionMaxMult times that where they do not. Lower: a dead peer is a candidate for less long;
	// higher: a stalled one is not thrown out. Requests do not wait for it: a hop sees by itself that it is silent.
	suspicionMult, suspicionMaxMult int
	indirect                        int // others that are asked to ping a peer that did not answer
	// gossip is how often news goes to gossipNodes random peers that no ping has carried yet; each news is sent
	// retransmitMult * log10(peers+1) times.
	gossip                      time.Duration
	gossipNodes, retransmitMult int
	// pushPull is how often the whole member list is compared with one random peer's, over TCP; above 32 members
	// memberlist does it more seldom. Shorter: news that all packets of the gossip missed arrive sooner, for 100 bytes a
	// member.
	pushPull time.Duration
	// stream bounds a whole member list exchange, and each try to join.
	stream time.Duration
	// dead is how long the dead are still gossiped to, so that one that comes back hears of it and objects.
	dead time.Duration
	// dial bounds TCP connect, TLS and handshake on the peer port together. Hops fail over after it, so it is short.
	dial time.Duration
	// round is the time between anti-entropy rounds, roundLimit what one may take with one peer.
	round, roundLimit time.Duration
	// retryMin to retryMax is the backoff between tries to reach addresses of the join list that are not members. It
	// stays at retryMax for ever: that is how long after its end a partition may still last.
	retryMin, retryMax time.Duration
}

// timings returns the constants of a preset; ok is false for an unknown one.
func timings(p Preset) (t timing, ok bool) {
	switch p {
	case Local:
		// One machine: a round trip takes microseconds and nothing is lost, but the engines take all the CPU there is, so
		// that answers may be late by some hundred milliseconds. A dead process is seen in 2 to 6 s, and a dial to it fails
		// at once: what takes long is a live one's handshake.
		return timing{probe: 500 * time.Millisecond, probeTimeout: 250 * time.Millisecond,
			suspicionMult: 4, suspicionMaxMult: 3, indirect: 2,
			gossip: 100 * time.Millisecond, gossipNodes: 3, retransmitMult: 3,
			pushPull: 5 * time.Second, stream: 2 * time.Second, dead: 15 * time.Second,
			dial: 2 * time.Second, round: 100 * time.Millisecond, roundLimit: 5 * time.Second,
			retryMin: 100 * time.Millisecond, retryMax: 2 * time.Second}, true
	case LAN:
		// One data centre: memberlist's own LAN values, but member lists are compared three times as often, and there is half
		// the patience with suspects (4 to 12 s, not 4 to 24 s), since a peer that is wrongly taken for dead loses only its
		// place in the routing until it objects. dial leaves room for one lost SYN, which is sent again after 1 s.
		return timing{probe: time.Second, probeTimeout: 500 * time.Millisecond,
			suspicionMult: 4, suspicionMaxMult: 3, indirect: 3,
			gossip: 200 * time.Millisecond, gossipNodes: 3, retransmitMult: 4,
			pushPull: 10 * time.Second, stream: 10 * time.Second, dead: 30 * time.Second,
			dial: 1500 * time.Millisecond, round: 500 * time.Millisecond, roundLimit: 10 * time.Second,
			retryMin: 500 * time.Millisecond, retryMax: 15 * time.Second}, true
	case WAN:
		// Several sites: round trips up to 300 ms, losses in bursts, links that flap. Probing is slower and suspicion
		// longer (12 to 36 s), because whole sites that come and go cost more than a dead candidate.
		return timing{probe: 2 * time.Second, probeTimeout: time.Second,
			suspicionMult: 6, suspicionMaxMult: 3, indirect: 3,
			gossip: 500 * time.Millisecond, gossipNodes: 4, retransmitMult: 4,
			pushPull: 30 * time.Second, stream: 30 * time.Second, dead: time.Minute,
			dial: 4 * time.Second, round: 2 * time.Second, roundLimit: 30 * time.Second,
			retryMin: time.Second, retryMax: time.Minute}, true
	}
	return timing{}, false
}

// gossipConfig turns the constants into memberlist's. What names, transports and callbacks are left to the caller.
func (t *timing) gossipConfig() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.ProbeInterval, c.ProbeTimeout = t.probe, t.probeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = t.suspicionMult, t.suspicionMaxMult
	c.IndirectChecks = t.indirect
	c.GossipInterval, c.GossipNodes, c.RetransmitMult = t.gossip, t.gossipNodes, t.retransmitMult
	c.PushPullInterval, c.TCPTimeout, c.GossipToTheDeadTime = t.pushPull, t.stream, t.dead
	// Every start of an agent has a gossip name of its own, so that no name is ever reclaimed from another address.
	c.DeadNodeReclaimTime = 0
	// Gossip messages are some hundred bytes: compressing each of them costs more CPU than the bytes are worth.
	c.EnableCompression = false
	return c
}
