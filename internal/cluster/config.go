package cluster

import (
	"fmt"
	"time"
)

// Preset says over what kind of network the peers talk; it sets every time constant of a cluster.
type Preset string

const (
	Local Preset = "local" // one machine
	LAN   Preset = "lan"   // one data centre
	WAN   Preset = "wan"   // several sites
)

// Config is how a peer finds the others and talks to them. Start from Defaults.
type Config struct {
	// Shoal is the name of the shoal. Peers of another name are refused, so that two shoals on one network stay two.
	Shoal string
	// Preset sets all time constants: see preset.go for each one and its reason.
	Preset Preset
	// GossipBind (TCP and UDP, one port) and PeerBind (TCP) are what this peer listens on, host:port with an IP address
	// or localhost; port 0 takes a free one.
	GossipBind, PeerBind string
	// Advertise is the IP address that the others reach this peer at. Empty: the one it listens on, or where that is
	// all of them, the first private one of this machine.
	Advertise string
	// Join lists gossip addresses of peers, host:port; a DNS name stands for all its addresses and is resolved anew for
	// each try. Tried again for ever, also after the shoal was joined, while some of them are not members.
	Join []string
	// Keys are the shoal's keys: the first one encrypts and signs, all of them are accepted. None: no encryption, which is
	// allowed on loopback only, unless Insecure.
	Keys []Key
	// Insecure allows listening beyond loopback without a key. Everybody who reaches the ports is then a peer.
	Insecure bool
	// Interval is the time between anti-entropy rounds; 0: the preset's. Shorter: fresher replicas, more traffic.
	Interval time.Duration
	// Fanout is how many peers a round goes to. More: faster convergence, more traffic.
	Fanout int
	// Silence is how long a peer that serves a hop may send nothing before it counts as gone. It says every second that
	// it is alive, so less than 2 s makes false alarms. Longer: later failover.
	Silence time.Duration
	Limits  Limits
}

// Limits bound what the other side can make this peer hold. Zero fields take the default.
type Limits struct {
	Members      int           // live peers; the rest is refused. Default 4096, as many as there may be documents
	Body         int           // bytes of a forwarded body. Default 64 MiB; above what the gateway takes, it only guards
	Hops         int           // hops at one peer that this one has open at once. Default 1024
	Idle         int           // kept connections to one peer. Default 64: fewer dial more under bursts, more hold memory
	Conns        int           // connections that are open to the peer port. Default 16384
	ConnsPerPeer int           // of these, from one peer. Default 2048
	Handshakes   int           // connections that have not yet said who they are. Default 256
	Handshake    time.Duration // for saying it. Default 5 s, the preset's dial time at least
	IdleTime     time.Duration // after which a kept connection is closed by the side that opened it. Default 30 s
	Stall        time.Duration // for which the other side may take nothing of what is sent to it. Default 60 s
	Exchange     int           // bytes of one half of an anti-entropy round. Default 64 MiB
}

// Defaults is a peer of the shoal "shoal" on loopback, with free ports.
func Defaults() Config {
	return Config{Shoal: "shoal", Preset: LAN, GossipBind: "127.0.0.1:0", PeerBind: "127.0.0.1:0",
		Fanout: 4, Silence: 3 * time.Second}
}

// MaxShoal bounds the name of a shoal, in bytes.
const MaxShoal = 64

// Validate reports the first thing that is wrong, without touching the network.
func (c *Config) Validate() error {
	switch c.Preset {
	case Local, LAN, WAN:
	default:
		return fmt.Errorf("cluster: preset %q is unknown; give local, lan or wan", c.Preset)
	}
	return nil
}
