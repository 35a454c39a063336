package fabric

import (
	"fmt"

	"shoal/internal/sim"
)

// Transport is how senders react to congestion.
type Transport uint8

const (
	Window Transport = iota // a window of one bandwidth-delay product, and nothing else (mode 12 of the ns-3 family)
	DCQCN                   // the window, and a rate that follows ECN marks (mode 1)
)

// Bytes of headers, and of packets without data.
const (
	HeaderBytes  = 36 // PPP 2, IPv4 20, UDP 8, sequence number 6
	AckBytes     = 48
	PauseBytes   = 31   // PPP 2, IPv4 20, pause 9
	MaxPayload   = 9000 // of a jumbo frame
	MaxMessage   = 9216 // on the wire
	maxLinks     = 1 << 20
	minPayload   = 64
	maxFlowBytes = 1 << 40
	maxPackets   = 1 << 31 // of a flow: they are counted in 32 bits
	bitTime      = 8e12    // bits of a byte x picoseconds of a second
)

// Config is how packets are sent, queued and dropped. Defaults has the values of AstraSim's ns-3 backend.
type Config struct {
	// Transport is how senders react to congestion.
	Transport Transport
	// Payload is the data in a full packet, in bytes: 1000 as in the ns-3 family, 4096 for RoCE's MTU. Larger packets are
	// fewer events; queues are coarser.
	Payload int
	// Quantum is what times of transmission are rounded to, to the nearest multiple: 1 ns as in ns-3, which is off by 0.14 %
	// at 100 Gb/s; 0 keeps whole picoseconds. One multiple is the least.
	Quantum sim.Time
	// Acks in a switch's strict queue overtake data and are never paused. AcksWithData puts them in the queue of the data:
	// they then wait behind data of flows that go the other way, are paused with them, and fill buffers. The ns-3 family can
	// do both; where all data goes one way, as in the reference runs, there is no difference.
	AcksWithData bool
	// MessagesWithData puts what Send sends in the queue of the data. Otherwise it has the strict queue, as a network
	// operator would give a control plane.
	MessagesWithData bool

	// PFC pauses the sender of a link before the buffer of its receiver is full. Without it, what finds no room is lost.
	PFC bool
	// Buffer is the memory of a switch, in bytes, shared by its ports.
	Buffer int64
	// Reserve is what each ingress port has for itself, in bytes.
	Reserve int64
	// Headroom of an ingress port is rate x delay x this: what arrives between the decision to pause and its effect. It is two
	// delays and four packets at least, so that nothing is lost. More leaves less to share.
	Headroom int64
	// Share: an ingress port may hold 1/2^Share of the shared memory that is free. A port that is faster than the hosts' has
	// a larger share, by their ratio.
	Share uint
	// ResumeBelow is how far below the threshold a paused port has to fall, in bytes.
	ResumeBelow int64

	// ECNMin and ECNMax are the queue, in bytes at 100 Gb/s, from which packets are marked, and above which all are. A queue
	// of another rate has the family's table scaled (see ecnThresholds). Lower: shorter queues, and less throughput.
	ECNMin, ECNMax int64
	// ECNProbability is that of a mark just below ECNMax.
	ECNProbability float64
	// Seed makes the marks, and the random choices of Spread.
	Seed uint64

	// DCQCN's own settings.
	DCQCN DCQCNConfig

	// NackEvery is how often a receiver complains about one gap.
	NackEvery sim.Time
	// RTO is how long after the last progress a sender goes back to the first unacknowledged packet, where something was
	// lost. The ns-3 family has no such timer and loses nothing; network cards take 1 to 70 ms. Shorter: flows notice sooner
	// that a link is up, and send more in vain while it is down.
	RTO sim.Time

	// FlowletGap is the pause between two packets of a flow after which a Flowlet takes a new path. Below the differences
	// of the paths' delays, packets overtake each other.
	FlowletGap sim.Time
	// PLB's own settings.
	PLB PLBConfig

	// Checks runs Check now and then by itself; it remembers the first error.
	Checks bool
}

// DCQCNConfig has the parameters of the rate machine, by the names of its paper.
type DCQCNConfig struct {
	Gain          float64  // g: how fast alpha follows the marks
	AlphaEvery    sim.Time // between updates of alpha
	DecreaseEvery sim.Time // between looks for marks
	IncreaseEvery sim.Time // the timer of increases
	FastRecovery  uint32   // increases towards the old target, before it is raised
	Additive      int64    // bit/s that the target is raised first
	Hyper         int64    // bit/s that the target is raised later
	MinRate       int64    // bit/s
}

// PLBConfig is when a PLB flow takes another path: parameters of Qureshi et al., "PLB: Congestion Signals are Simple and
// Effective for Network Load Balancing" (SIGCOMM 2022).
type PLBConfig struct {
	// Marked is the part of a round's packets, in 1/256, that makes it congested. A round is one window.
	Marked uint32
	// Rounds in a row that are congested make a flow move. The paper moves an idle connection after 3 and a busy one after
	// 12; transfers are busy.
	Rounds uint32
}

// Defaults are the values of AstraSim's ns-3 backend, where it has one.
func Defaults() Config {
	return Config{
		Payload: 1000, Quantum: sim.Nanosecond,
		PFC: true, Buffer: 32 << 20, Reserve: 4 << 10, Headroom: 3, Share: 3, ResumeBelow: 3 << 10,
		ECNMin: 400_000, ECNMax: 1_600_000, ECNProbability: 0.2,
		DCQCN: DCQCNConfig{
			Gain: 1.0 / 256, AlphaEvery: sim.Microsecond, DecreaseEvery: 4 * sim.Microsecond, IncreaseEvery: 900 * sim.Microsecond,
			FastRecovery: 1, Additive: 50_000_000, Hyper: 100_000_000, MinRate: 100_000_000,
		},
		NackEvery: 500 * sim.Microsecond, RTO: 4 * sim.Millisecond,
		FlowletGap: 50 * sim.Microsecond,
		PLB:        PLBConfig{Marked: 128, Rounds: 12},
	}
}

// Validate says which field is wrong.
func (c *Config) Validate() error {
	wrong := func(field string, value any, instead string) error {
		return fmt.Errorf("fabric: Config.%s is %v: give %s", field, value, instead)
	}
	d := &c.DCQCN
	switch {
	case c.Transport > DCQCN:
		return wrong("Transport", c.Transport, "Window or DCQCN")
	case c.Payload < minPayload || c.Payload > MaxPayload:
		return wrong("Payload", c.Payload, fmt.Sprintf("%d to %d bytes", minPayload, MaxPayload))
	case c.Quantum < 0 || c.Quantum > sim.Millisecond:
		return wrong("Quantum", int64(c.Quantum), "0 to a millisecond")
	case c.Buffer <= 0:
		return wrong("Buffer", c.Buffer, "more than 0 bytes")
	case c.Reserve < 0:
		return wrong("Reserve", c.Reserve, "0 bytes or more")
	case c.Headroom < 0:
		return wrong("Headroom", c.Headroom, "0 or more delays")
	case c.Share > 16:
		return wrong("Share", c.Share, "0 to 16")
	case c.ResumeBelow < 0:
		return wrong("ResumeBelow", c.ResumeBelow, "0 bytes or more")
	case c.ECNMin < 0 || c.ECNMax <= c.ECNMin:
		return wrong("ECNMax", c.ECNMax, "more than ECNMin, which is 0 or more")
	case !(c.ECNProbability >= 0 && c.ECNProbability <= 1):
		return wrong("ECNProbability", c.ECNProbability, "0 to 1")
	case !(d.Gain >= 0 && d.Gain <= 1):
		return wrong("DCQCN.Gain", d.Gain, "0 to 1")
	case d.AlphaEvery <= 0 || d.DecreaseEvery <= 0 || d.IncreaseEvery <= 0:
		return wrong("DCQCN", *d, "intervals above 0")
	case d.MinRate <= 0 || d.Additive < 0 || d.Hyper < 0:
		return wrong("DCQCN", *d, "a minimum rate above 0, and increases")
	case c.NackEvery <= 0:
		return wrong("NackEvery", c.NackEvery, "a time above 0")
	case c.RTO <= 0:
		return wrong("RTO", c.RTO, "a time above 0")
	case c.FlowletGap <= 0:
		return wrong("FlowletGap", c.FlowletGap, "a time above 0")
	case c.PLB.Marked > 256 || c.PLB.Rounds == 0:
		return wrong("PLB", c.PLB, "Marked up to 256, and at least one round")
	}
	return nil
}
