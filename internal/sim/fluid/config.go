package fluid

import (
	"fmt"
	"math/bits"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// Config says what a packet would look like, and what PLB does.
type Config struct {
	// Payload is how many bytes a full packet carries, Header what its wire adds, Ack the size of an acknowledgement, of
	// which every packet has one.
	Payload, Header, Ack int64
	// Quantum is what times of transmission are rounded to, as in the packet model; 0 keeps whole picoseconds.
	Quantum sim.Time
	// PLBRound is how long a round of PLB lasts: a round-trip time with queues. PLBRounds is after how many congested
	// rounds in a row a flow moves. Their product is what counts here. Lower values react sooner, and move more often
	// without gain where all paths are busy: at the paper's load at QPS 25 and 30 runs take 120 and 900 times as long as
	// without PLB. Ten times the product is ten times as fast, and at QPS 25 changes mean and P95 by a point of ECMP's at most.
	PLBRound  sim.Time
	PLBRounds int
	Seed      uint64 // of the random choices of PLB
}

// DefaultConfig is the packet model's, and for PLB what its authors give for flows that are never idle: 12 rounds.
// 100 us is a round trip with the queue between the marks of a switch at 100 Gb/s.
func DefaultConfig() Config {
	return Config{Payload: 1000, Header: fabric.HeaderBytes, Ack: fabric.AckBytes, Quantum: sim.Nanosecond, PLBRound: 100 * sim.Microsecond, PLBRounds: 12, Seed: 1}
}

// For is the fluid of what a packet simulation with these settings moves.
func For(c fabric.Config) Config {
	f := DefaultConfig()
	f.Payload, f.Quantum, f.PLBRounds, f.Seed = int64(c.Payload), c.Quantum, int(c.PLB.Rounds), c.Seed
	return f
}

// Validate reports the first field that is out of its range.
func (c Config) Validate() error {
	switch {
	case c.Payload < 64 || c.Payload > 1<<16:
		return fmt.Errorf("fluid: packets of %d bytes; give 64 to %d", c.Payload, 1<<16)
	case c.Header < 0 || c.Header > 256:
		return fmt.Errorf("fluid: headers of %d bytes; give 0 to 256", c.Header)
	case c.Ack < 0 || c.Ack > 1024:
		return fmt.Errorf("fluid: acknowledgements of %d bytes; give 0 to 1024", c.Ack)
	case c.Quantum < 0 || c.Quantum > sim.Millisecond:
		return fmt.Errorf("fluid: times rounded to %v; give 0 to 1 ms", c.Quantum)
	case c.PLBRound < sim.Microsecond || c.PLBRound > sim.Second:
		return fmt.Errorf("fluid: PLB rounds of %v; give 1 us to 1 s", c.PLBRound)
	case c.PLBRounds < 1 || c.PLBRounds > 1000:
		return fmt.Errorf("fluid: %d PLB rounds; give 1 to 1000", c.PLBRounds)
	}
	return nil
}

// onWire is how long so many bytes take on a link: at least one quantum.
func (c *Config) onWire(bytes, rate int64) sim.Time {
	t := sim.Transmission(bytes, rate)
	if q := c.Quantum; q > 0 {
		t = max(q, (t+q/2)/q*q)
	}
	return t
}

// packets is how many packets so many bytes need.
func (c *Config) packets(bytes int64) int64 { return (bytes + c.Payload - 1) / c.Payload }

// work is how much there is to send of so many bytes, headers included.
func (c *Config) work(bytes int64) int64 { return (bytes + c.Header*c.packets(bytes)) << workBits }

// Units. A link's rate is a whole number of 2^-e bytes a picosecond, where e is chosen so that the fastest link has
// rateBits bits: shares are exact to some 10^-10, and a rate times a weight fits 63 bits. Bytes are counted in 2^-workBits.
const (
	rateBits   = 36
	weightBits = 26
	workBits   = 16

	one = int64(1) << weightBits // the weight of a flow that puts all of its rate on a link
)

// scale relates the two units: in a time t, a rate r does r*t >> shift.
type scale struct{ shift uint }

// done is the work that a rate does in a time.
func (s scale) done(rate int64, t sim.Time) int64 {
	hi, lo := bits.Mul64(uint64(rate), uint64(t))
	if hi>>s.shift != 0 {
		return int64(^uint64(0) >> 1)
	}
	if v := hi<<(64-s.shift) | lo>>s.shift; v <= uint64(^uint64(0)>>1) {
		return int64(v)
	}
	return int64(^uint64(0) >> 1)
}

// takes is how long a rate takes for some work, rounded up.
func (s scale) takes(work, rate int64) sim.Time {
	hi, lo := uint64(work)>>(64-s.shift), uint64(work)<<s.shift
	if rate <= 0 || hi >= uint64(rate) {
		return sim.Never
	}
	q, r := bits.Div64(hi, lo, uint64(rate))
	if r > 0 {
		q++
	}
	if q >= uint64(sim.Never) {
		return sim.Never
	}
	return sim.Time(q)
}

// share is a*b/c, rounded down; the result fits.
func share(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
