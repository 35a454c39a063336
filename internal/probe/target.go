package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"shoal/internal/ecmp"
)

// Target is where transfers go, and how: all of their 5-tuple but the source port.
type Target struct {
	Src, Dst netip.Addr // IPv4; Src is an address of this host
	DstPort  uint16
	Proto    uint8 // ecmp.TCP or ecmp.UDP
}

// Tuple is the 5-tuple of a transfer from this port.
func (t Target) Tuple(port uint16) ecmp.Tuple {
	return ecmp.Tuple{Src: t.Src, Dst: t.Dst, SrcPort: port, DstPort: t.DstPort, Proto: t.Proto}
}

func (t Target) String() string {
	proto := "tcp"
	if t.Proto == ecmp.UDP {
		proto = "udp"
	}
	return fmt.Sprintf("%s to %s:%d/%s", t.Src, t.Dst, t.DstPort, proto)
}

// Validate says what cannot be probed, and why.
func (t Target) Validate() error {
	switch {
	case !t.Src.Is4() || !t.Dst.Is4():
		return fmt.Errorf("probe: %s: only IPv4 addresses can be probed", t)
	case t.Src == t.Dst || t.Dst.IsLoopback() || t.Dst.IsMulticast() || t.Dst.IsUnspecified() || t.Src.IsUnspecified():
		return fmt.Errorf("probe: %s: no network lies between these addresses", t)
	case t.Proto != ecmp.TCP && t.Proto != ecmp.UDP:
		return fmt.Errorf("probe: %s: protocol %d; only TCP (6) and UDP (17) can be probed", t, t.Proto)
	case t.DstPort == 0:
		return fmt.Errorf("probe: %s: the destination port is missing", t)
	}
	return nil
}

// compare orders targets.
func (t Target) compare(u Target) int {
	if c := t.Dst.Compare(u.Dst); c != 0 {
		return c
	}
	if c := t.Src.Compare(u.Src); c != 0 {
		return c
	}
	if c := int(t.DstPort) - int(u.DstPort); c != 0 {
		return c
	}
	return int(t.Proto) - int(u.Proto)
}

// Limits.
const (
	MaxHops    = 8             // routers between two hosts; a three-tier fabric has 5
	MaxPerPath = 1024          // ports a path that can be asked for
	MaxPaths   = ecmp.MaxPaths // of one target
	MaxProbes  = 1 << 20       // of one Learn
	MaxRate    = 1_000_000     // probes a second
	MaxModels  = 64            // that one Learn checks
	MaxRetries = 10            // of a probe
	maxTimeout = time.Minute
)

// Options are how a target is learned. The zero value of a field stands for its default.
type Options struct {
	// Ports are the source ports to choose from (49152 to 65535, RoCE's).
	Ports ecmp.Range
	// PerPath is how many ports every path gets (16). Each costs about as many probes as there are routers that differ.
	PerPath int
	// MaxProbes ends the learning (16384), with what is known by then.
	MaxProbes int
	// Rate is the most probes a second for this target (200). It falls by itself where routers answer fewer.
	Rate int
	// Retries is how often an unanswered probe is sent again (2; less than 0: never).
	Retries int
	// Timeout is how long an answer may take (500 ms). A switch's processor answers, not its silicon.
	Timeout time.Duration
	// Miss is how likely a path may be overlooked that is as wide as those found (1e-6). A narrower one is overlooked
	// more easily.
	Miss float64
	// HopPort is a UDP port on which the target does not listen (33434, traceroute's). Datagrams to it tell how far the
	// target is.
	HopPort uint16
	// Inbound says that every router answers with the address of the interface that the probe came in at. Linux, and
	// what is built on it, does so with icmp_errors_use_inbound_ifaddr only, and else may mean its way back. So without
	// Inbound, routers beyond the middle of the way are believed only where their answers go with those of routers
	// before them. What that costs: parallel links down from a spine are not told apart, and where all spines are
	// silent nothing is.
	Inbound bool
	// Models are routes of configured fabrics. The first that explains the answers is used in place of further probes.
	// One whose hashes are not all known (ecmp.Route.Known) says nothing, and is passed over.
	Models []*ecmp.Route
	// Skip says which ports must not be probed now: those where a connection is being made, and those that others use. Nil:
	// none. It is called concurrently, before each probe.
	Skip func(port uint16) bool
	// Seed sets the order in which ports are tried; 0 is a seed like others.
	Seed uint64
}

func (o Options) withDefaults() Options {
	if o.Ports == (ecmp.Range{}) {
		o.Ports = ecmp.RoCE
	}
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.PerPath, 16)
	set(&o.MaxProbes, 16384)
	set(&o.Rate, 200)
	set(&o.Retries, 2)
	o.Retries = max(o.Retries, 0)
	if o.Timeout == 0 {
		o.Timeout = 500 * time.Millisecond
	}
	if o.Miss == 0 {
		o.Miss = 1e-6
	}
	if o.HopPort == 0 {
		o.HopPort = 33434
	}
	return o
}

// Validate names the field that is out of its bounds.
func (o Options) Validate() error {
	o = o.withDefaults()
	in := func(name string, v, least, most int) error {
		if v < least || v > most {
			return fmt.Errorf("probe: %s is %d; it must be from %d to %d", name, v, least, most)
		}
		return nil
	}
	switch {
	case o.Ports.First == 0 || o.Ports.First > o.Ports.Last:
		return fmt.Errorf("probe: Ports go from %d to %d; they must ascend, and port 0 is none", o.Ports.First, o.Ports.Last)
	case o.Timeout < time.Millisecond || o.Timeout > maxTimeout:
		return fmt.Errorf("probe: Timeout is %s; it must be from 1ms to %s", o.Timeout, maxTimeout)
	case !(o.Miss > 0 && o.Miss < 1):
		return fmt.Errorf("probe: Miss is %g; it must be between 0 and 1", o.Miss)
	}
	for i, m := range o.Models {
		if m == nil {
			return fmt.Errorf("probe: Models[%d] is nil", i)
		}
	}
	return errors.Join(in("PerPath", o.PerPath, 1, MaxPerPath), in("MaxProbes", o.MaxProbes, 1, MaxProbes), in("Rate", o.Rate, 1, MaxRate),
		in("Retries", o.Retries, 0, MaxRetries), in("the number of Models", len(o.Models), 0, MaxModels))
}

func (o Options) skip(port uint16) bool { return o.Skip != nil && o.Skip(port) }

// Why there is no map. Errors of Learn wrap one of these where they are about the network, and say more.
var (
	ErrBlind       = errors.New("probe: no paths can be told apart")
	ErrSprays      = errors.New("probe: packets of one 5-tuple take different paths")
	ErrUnstable    = errors.New("probe: paths changed while they were being learned")
	ErrUnreachable = errors.New("probe: a router says that the target cannot be reached")
	ErrNoPorts     = errors.New("probe: no port of the range may be probed")
)

// How says where a Map comes from.
type How uint8

const (
	Probed   How = iota + 1 // every port was answered for
	Fitted                  // ports follow from a linear fit to the answers
	Modelled                // ports follow from a configured model that explains the answers
)

func (h How) String() string {
	switch h {
	case Probed:
		return "probed"
	case Fitted:
		return "fitted"
	case Modelled:
		return "modelled"
	}
	return "unknown"
}

// Map is what was learned of one target. It does not change.
type Map struct {
	Target Target
	// Ports are the source ports of each path: PerPath of them, or fewer where Complete is false.
	Ports *ecmp.PortMap
	// Paths have the same order on every peer that sees the same routers. Via are the routers' addresses from the own
	// leaf to the target's, "*" where one does not answer, or tells nothing (Mixed); or switch names, where a model
	// explains the answers. Links are the links between switches on the way, each named by the address of the interface
	// into which it leads, so that peers which learn apart agree; or as the model names them. Links that all paths
	// share are left out, unless there is one path only.
	Paths []ecmp.Path
	How   How
	Model *ecmp.Route // the one of Options.Models that explains the answers; nil where How is not Modelled
	Hops  int         // routers on the way
	// Complete says that every path has PerPath ports, that Miss is as small as was asked for, and that nearly all
	// ports answered: else there may be paths whose routers are silent.
	Complete bool
	// Miss bounds how likely the map is wrong by chance. Probed: a path that is as wide as the others was overlooked.
	// Fitted, Modelled: a wrong one was right for all ports that it was checked on.
	Miss float64
	// Probes were sent, and so many of them Answered. Ports that were asked for in vain are Unanswered.
	Probes, Answered, Unanswered int
	// Mixed says that a router's answers told nothing of the way to it: see Options.Inbound.
	Mixed bool
	// Refuted are how many of Options.Models the answers contradict.
	Refuted int
	Took    time.Duration

	options Options
	expect  []key // by path: who answers at which TTL
}

// Expect are the routers that answer on this path, by TTL from 1; the zero address where nothing is expected.
func (m *Map) Expect(path int) []netip.Addr { return m.expect[path].addrs(m.Hops) }

func viaText(addrs []netip.Addr) string {
	var b strings.Builder
	for i, a := range addrs {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a.IsValid() {
			b.WriteString(a.String())
		} else {
			b.WriteByte('*')
		}
	}
	return b.String()
}
