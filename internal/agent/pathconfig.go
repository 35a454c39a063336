package agent

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/reserve"
	"shoal/internal/transfer"
)

// Paths is how KV transfers choose their way through the network.
type Paths struct {
	// Listen is the IP:port at which this peer takes in transfers, on the data network; its IP is where the own transfers leave
	// from, too. Empty: no transfers, and no paths.
	Listen string `yaml:"listen"`
	// Dir is the directory whose files may be sent, and below which files that are received are put. Empty: none; what is
	// sent then is memory of nobody, for measurements.
	Dir string `yaml:"dir"`
	// Policy is how a path is chosen where the caller does not say: least, ark, split, shoal or ecmp.
	Policy string `yaml:"policy"`
	// Fabric is a file that describes the network (docs/paths.md). Empty: paths are learned by probes.
	Fabric string `yaml:"fabric"`
	// Probe is auto (paths are learned, or the described ones verified, where this program may send raw packets), on (it must
	// be allowed to) or off (a described fabric is trusted, without one every transfer goes where ECMP sends it).
	Probe string `yaml:"probe"`
	// Verify is how often a sample of the ports to each peer is probed again; 0: 10 s.
	Verify time.Duration `yaml:"verify"`
	// ControlAddr is this machine's IP:port on a control network for datagrams about reservations; empty: they go with the gossip.
	ControlAddr string `yaml:"control_addr"`
	// Ports are the source ports that transfers may use, first-last. Reserve them (net.ipv4.ip_local_reserved_ports).
	Ports string `yaml:"ports"`
	// PortsPerPath is how many ports are looked for on each path: so many transfers to one peer can share a path.
	PortsPerPath int `yaml:"ports_per_path"`
	// Lease is how long a reservation lasts without bytes. Longer: a crashed sender holds its path for longer where membership
	// does not notice; shorter: more renewals.
	Lease time.Duration `yaml:"lease"`
	// What follows is policy shoal's. MaxDelay is up to which delay of messages about reservations (99th percentile, differences
	// of clocks included) transfers wait for their turn. Higher: they wait on older news, and more of them collide; lower: more
	// of them start at once, as by least.
	MaxDelay time.Duration `yaml:"max_delay"`
	// MaxWait is from which age on a transfer that waits keeps those after it off its two network cards. Shorter: large transfers
	// wait less; longer: cards idle less for them.
	MaxWait time.Duration `yaml:"max_wait"`
	// GiveUp is from which age on it starts without its turn. Shorter: less order under overload; longer: longer waits where
	// others do not keep to the schedule, and tickets that live longer. All peers should have the same MaxWait and GiveUp.
	GiveUp time.Duration `yaml:"give_up"`
	// MaxSlowdownPermille is how much longer than predicted transfers may take on average, in thousandths, before least
	// decides for a while. 1000: as predicted. Higher: waits on although the map or the rates are wrong; from 4000 on always.
	MaxSlowdownPermille int64 `yaml:"max_slowdown_permille"`
	// MaxBytes bounds one transfer that is taken in.
	MaxBytes int64 `yaml:"max_bytes"`
	// Chunk is how many bytes a transfer moves before it asks whether its path is still right; 0: 1 MiB.
	Chunk int `yaml:"chunk"`
	// Delay holds datagrams about reservations back before they are sent: for experiments.
	Delay time.Duration `yaml:"delay"`
}

// maxGiveUp bounds how long a transfer may wait for its turn: its ticket waits with it.
const maxGiveUp = 10 * time.Minute

func (c *Config) validatePaths(bad func(string, string, ...any)) {
	p := &c.Paths
	if p.MaxWait > p.GiveUp {
		bad("paths.max_wait", "%v is more than paths.give_up (%v), at which nothing waits any more", p.MaxWait, p.GiveUp)
	}
	for _, l := range []struct {
		name       string
		v, min, to time.Duration
	}{
		{"paths.lease", p.Lease, 100 * time.Millisecond, time.Minute},
		{"paths.max_delay", p.MaxDelay, 0, reserve.MaxAhead},
		{"paths.max_wait", p.MaxWait, time.Millisecond, maxGiveUp},
		{"paths.give_up", p.GiveUp, 10 * time.Millisecond, maxGiveUp},
	} {
		if l.v < l.min || l.v > l.to {
			bad(l.name, "%v is outside %v to %v", l.v, l.min, l.to)
		}
	}
	if n := p.MaxSlowdownPermille; n <= 1000 || n > 1_000_000 {
		bad("paths.max_slowdown_permille", "%d is outside 1001 to 1000000", n)
	}
	if ap, err := netip.ParseAddrPort(p.ControlAddr); p.ControlAddr != "" {
		switch {
		case err != nil || ap.Addr().IsUnspecified():
			bad("paths.control_addr", "%q; give the IP:port of this machine on the control network", p.ControlAddr)
		case !ap.Addr().IsLoopback() && c.Cluster.Key == "" && c.Cluster.KeyFile == "" && !c.Insecure:
			bad("paths.control_addr", "%s is reachable beyond this machine and the shoal has no key; make one with `shoal keygen`, or set insecure: true", p.ControlAddr)
		}
	}
	if p.Listen == "" {
		return
	}
	ap, err := netip.ParseAddrPort(p.Listen)
	switch {
	case err != nil || ap.Addr().IsUnspecified():
		bad("paths.listen", "%q; give the IP:port of this machine on the data network", p.Listen)
	case !ap.Addr().IsLoopback() && c.Cluster.Key == "" && c.Cluster.KeyFile == "" && !c.Insecure:
		bad("paths.listen", "%s is reachable beyond this machine and the shoal has no key; make one with `shoal keygen`, or set insecure: true", p.Listen)
	}
	mc := p.mover()
	mc.Dir = "" // whether it is there is for the start to find out
	if err := mc.Validate(); err != nil {
		bad("paths", "%v", err)
	} else if most := int64(mc.Chunk) * transfer.MaxChunks; p.MaxBytes > most {
		bad("paths.max_bytes", "%d is more than %d chunks of %d bytes hold; give at most %d, or larger chunks (paths.chunk)", p.MaxBytes, transfer.MaxChunks, mc.Chunk, most)
	}
	var policy reserve.Policy
	if err := policy.UnmarshalText([]byte(p.Policy)); err != nil {
		bad("paths.policy", "%v", err)
	}
	switch p.Probe {
	case "auto", "on", "off":
	default:
		bad("paths.probe", "%q is none of auto, on, off", p.Probe)
	}
	if _, err := p.ports(); err != nil {
		bad("paths.ports", "%v", err)
	}
	for _, l := range []struct {
		name       string
		v, min, to int64
	}{
		{"paths.ports_per_path", int64(p.PortsPerPath), 1, 1024},
		{"paths.max_bytes", p.MaxBytes, 1, 1 << 45},
		{"paths.verify", int64(p.Verify), 0, int64(time.Hour)},
		{"paths.chunk", int64(p.Chunk), 0, 256 << 20},
		{"paths.delay", int64(p.Delay), 0, int64(time.Second)},
	} {
		if l.v < l.min || l.v > l.to {
			bad(l.name, "%d is outside %d to %d", l.v, l.min, l.to)
		}
	}
}

// mover is the mover's configuration.
func (p *Paths) mover() transfer.Config {
	c := transfer.Defaults()
	c.Dir, c.MaxSize, c.MaxTransfers = p.Dir, p.MaxBytes, 256
	c.TicketLife = max(c.TicketLife, p.longestWait()+ticketSlack)
	if p.Chunk > 0 {
		c.Chunk = p.Chunk
	}
	return c
}

// longestWait is how long a transfer that has its ticket may wait before it sends: its bytes are not there yet, its turn does
// not come, and its reservation lapses.
func (p *Paths) longestWait() time.Duration { return maxAnnounced + p.GiveUp + p.Lease }

// ticketSlack is how much longer a ticket lives: for the connections, and for clocks that do not run alike.
const ticketSlack = 5 * time.Second

// ports is the range of source ports.
func (p *Paths) ports() (ecmp.Range, error) {
	first, last, ok := strings.Cut(p.Ports, "-")
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if !ok || err1 != nil || err2 != nil || a < 1024 || b < a {
		return ecmp.Range{}, fmt.Errorf("%q is no range first-last of ports from 1024 to 65535", p.Ports)
	}
	return ecmp.Range{First: uint16(a), Last: uint16(b)}, nil
}
