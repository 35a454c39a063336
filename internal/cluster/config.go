package cluster

import (
	"fmt"
	"time"

	"shoal/internal/wire"
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
	// ControlBind, where it is not empty, is the IP:port (UDP) at which datagrams come over a control network of their own, so
	// that they do not queue behind the data that they are about. Its IP is what the others are told.
	ControlBind string
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
	Idle         int           // kept connections to one peer. Default 256: fewer dial more under bursts, more hold memory after them
	Conns        int           // connections that are open to the peer port. Default 16384
	ConnsPerPeer int           // of these, from one peer. Default 2048
	Handshakes   int           // connections that have not yet said who they are. Default 256
	Handshake    time.Duration // for saying it. Default 5 s, the preset's dial time at least
	IdleTime     time.Duration // after which a kept connection is closed by the side that opened it. Default 30 s
	Stall        time.Duration // for which the other side may take nothing of what is sent to it. Default 60 s
}

// Defaults is a peer of the shoal "shoal" on loopback, with free ports.
func Defaults() Config {
	return Config{Shoal: "shoal", Preset: LAN, GossipBind: "127.0.0.1:0", PeerBind: "127.0.0.1:0",
		Fanout: 4, Silence: 3 * time.Second}
}

// Validate reports the first thing that is wrong, without touching the network.
func (c *Config) Validate() error {
	if _, ok := timings(c.Preset); !ok {
		return fmt.Errorf("cluster: preset %q is unknown; give local, lan or wan", c.Preset)
	}
	if c.Shoal == "" || len(c.Shoal) > wire.MaxShoal {
		return fmt.Errorf("cluster: the shoal's name has %d bytes; give 1 to %d", len(c.Shoal), wire.MaxShoal)
	}
	if _, err := c.checkBinds(); err != nil {
		return err
	}
	for _, j := range c.Join {
		if _, _, err := checkJoin(j); err != nil {
			return err
		}
	}
	for i, k := range c.Keys {
		if k == (Key{}) {
			return fmt.Errorf("cluster: key %d of %d is empty; make one with: shoal keygen", i+1, len(c.Keys))
		}
	}
	if c.Interval < 0 || c.Interval > 0 && c.Interval < minInterval {
		return fmt.Errorf("cluster: interval %v; give %v or more, or 0 for the preset's", c.Interval, minInterval)
	}
	if c.Fanout < 1 || c.Fanout > maxFanout {
		return fmt.Errorf("cluster: fanout %d is outside 1 to %d", c.Fanout, maxFanout)
	}
	if c.Silence < minSilence {
		return fmt.Errorf("cluster: silence %v; give %v or more: serving peers show every second that they are alive", c.Silence, minSilence)
	}
	return c.Limits.validate()
}

const (
	minInterval = 10 * time.Millisecond // below it rounds are all that the machine does
	maxFanout   = 64
	minSilence  = 2 * time.Second
)

// orDefault fills in what is zero.
func (l Limits) orDefault(t *timing) Limits {
	for _, f := range l.ints() {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	for _, f := range l.times() {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	l.Handshake = max(l.Handshake, t.dial)
	return l
}

type limit[T any] struct {
	name string
	v    *T
	def  T
}

func (l *Limits) ints() []limit[int] {
	return []limit[int]{{"members", &l.Members, 4096}, {"body", &l.Body, 64 << 20}, {"hops", &l.Hops, 1024}, {"idle", &l.Idle, 256},
		{"conns", &l.Conns, 16384}, {"conns per peer", &l.ConnsPerPeer, 2048}, {"handshakes", &l.Handshakes, 256}}
}

func (l *Limits) times() []limit[time.Duration] {
	return []limit[time.Duration]{{"handshake", &l.Handshake, 5 * time.Second}, {"idle time", &l.IdleTime, 30 * time.Second},
		{"stall", &l.Stall, time.Minute}}
}

func (l *Limits) validate() error {
	for _, f := range l.ints() {
		if *f.v < 0 {
			return fmt.Errorf("cluster: limit %s is %d; give a positive number, or 0 for %d", f.name, *f.v, f.def)
		}
	}
	for _, f := range l.times() {
		if *f.v < 0 {
			return fmt.Errorf("cluster: limit %s is %v; give a positive time, or 0 for %v", f.name, *f.v, f.def)
		}
	}
	return nil
}
