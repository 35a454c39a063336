// Package control plays a workload of transfers on a simulated network under one path policy: every host has the product's
// own table of reservations (package reserve) and its own belief about the network's hashes (package ecmp), and tells the
// others what it reserves by messages that take time, get lost, and bear the stamp of a clock that is wrong. Beside the
// product's policies it has those of other systems, to compare: they live here and not in the product.
//
// It does not simulate the network: that is a fabric.Network, packets or fluid. It is not the agent either, but calls the
// tables as the agent does: Reserve or an Intent, Admit and Start, Move at chunk boundaries, Renew, Release, sections by
// anti-entropy. The main function is Run.
//
// Invariants: a transfer's bytes are sent once, and it ends; every reservation ends; the same seed gives the same Digest.
// The truth (where a source port leads) is the topology's; what the hosts believe can be something else.
//
// Source: "ARK: Avoiding Routing Collisions for KV Cache Transfer in Disaggregated LLM Inference" (Lin, Hsu, Ho, Saeed;
// NIAC 2026) for the set-up; each baseline names its own.
package control

import (
	"fmt"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/reserve"
	"shoal/internal/sim"
)

// Policies are the names that Config.Policy may have: the product's, then those that only the simulator has.
func Policies() []string { return slices.Concat(production, baselines) }

var production = []string{"ecmp", "ark", "least", "split", "shoal"}

// The baselines.
var baselines = []string{
	"ecmp-fixed", // one source port for each pair of hosts, for ever
	"spray",      // every packet over another path
	"flowlet",    // another path after each gap (LetFlow, NSDI 2017)
	"hedera",     // a central scheduler moves flows now and then (Hedera, NSDI 2010)
	"plb",        // a flow with many ECN marks moves to a random path (Protective Load Balancing, SIGCOMM 2022)
}

// Config is one run. Start from Defaults. Times are those of a network of full size: see Scale.
type Config struct {
	Policy string
	Seed   uint64 // of all that is random but the workload: ports, hosts' generators, losses, clocks

	// Scale: the network's times and sizes are smaller by this than those that the control plane sees, so that a run of
	// fewer packets has the same shape: with 10, flows of a tenth at ten times the rate, and a table that lives in time that
	// passes ten times as fast. The workload is given as the network has it. Results are in the control plane's time.
	Scale int64

	Delay    time.Duration // of a message from one host to another
	Jitter   time.Duration // and up to so much more, uniformly
	Loss     float64       // part of the messages that get lost
	Skew     time.Duration // clocks are wrong by up to this, uniformly to both sides
	InFabric bool          // messages travel in the data fabric, as packets between the others; Delay comes on top
	Round    time.Duration // between two rounds of anti-entropy: each host asks one other for all that it knows
	Notice   time.Duration // how long before its bytes are ready a transfer is announced, by policies that wait
	Chunk    int64         // bytes, in the control plane's size: a transfer changes its path at multiples of it
	Renew    time.Duration // how often a sender says how far it is

	// Believed is what the hosts believe of the network; nil: the truth. Blind: they know no hashes at all.
	Believed *ecmp.Config
	Blind    bool

	// AnyDestination: each transfer may go to any of the hosts that receive in the workload; its sender takes the one with
	// the fewest bytes to come.
	AnyDestination bool

	Mice    Mice
	Failure Failure
	Hedera  time.Duration // between two re-assignments of that baseline

	Reserve reserve.Config

	// Sample is how often Result.Samples are taken; 0: never. A run that has MaxSamples of them drops every other one, and
	// takes them half as often.
	Sample time.Duration
}

// Limits of a run.
const (
	MaxSamples = 100_000
	MaxMice    = 1_000_000
	minSample  = time.Millisecond
	// maxNotice leaves room below reserve.MaxReady for rounding, and for what else a receiver's clock may be wrong by.
	maxNotice = reserve.MaxReady - time.Minute
)

// Mice are short flows between random hosts, of which no policy knows, over random ports.
type Mice struct {
	Share float64 // of the bytes that the workload offers
	Bytes int64   // of one, in the control plane's size
}

// Failure takes one switch down.
type Failure struct {
	Switch   string        // its name; empty: none
	At       time.Duration // when it goes down
	Converge time.Duration // after which the other switches hash over what is left; until then packets to it are lost
	Learn    time.Duration // after which, from At, the hosts know the network as it is then
}

// Defaults is the paper's set-up: a separate control network with half a millisecond, and no faults.
func Defaults() Config {
	return Config{Policy: "ecmp", Seed: 1, Scale: 1, Delay: 500 * time.Microsecond, Round: 100 * time.Millisecond, Notice: 840 * time.Millisecond,
		Chunk: 8 << 20, Renew: 100 * time.Millisecond, Hedera: 100 * time.Millisecond, Mice: Mice{Bytes: 1 << 20},
		Failure: Failure{Converge: 50 * time.Millisecond, Learn: time.Second}, Reserve: reserve.Defaults()}
}

// Validate reports the first field that is out of its range.
func (c *Config) Validate() error {
	if !slices.Contains(Policies(), c.Policy) {
		return fmt.Errorf("control: policy %.40q does not exist; use one of %v", c.Policy, Policies())
	}
	for _, f := range []struct {
		name        string
		v, min, max int64
	}{
		{"scale", c.Scale, 1, 1_000_000}, {"delay", int64(c.Delay), 0, int64(10 * time.Second)}, {"jitter", int64(c.Jitter), 0, int64(10 * time.Second)},
		{"skew", int64(c.Skew), 0, int64(time.Minute)}, {"round", int64(c.Round), int64(time.Millisecond), int64(time.Hour)},
		{"notice", int64(c.Notice), 0, int64(maxNotice)}, {"chunk", c.Chunk, 1, reserve.MaxBytes}, {"renew", int64(c.Renew), int64(time.Millisecond), int64(time.Hour)},
		{"hedera", int64(c.Hedera), int64(time.Millisecond), int64(time.Hour)}, {"mice bytes", c.Mice.Bytes, 1, 1 << 40}, {"sample", int64(c.Sample), 0, int64(time.Hour)},
		{"failure at", int64(c.Failure.At), 0, int64(24 * time.Hour)}, {"failure converge", int64(c.Failure.Converge), 0, int64(time.Hour)},
		{"failure learn", int64(c.Failure.Learn), 0, int64(time.Hour)},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("control: %s is %d; give a value from %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	switch {
	case c.Sample > 0 && c.Sample < minSample:
		return fmt.Errorf("control: sample is %v; give 0 for none, or %v and more", c.Sample, minSample)
	case !(c.Loss >= 0 && c.Loss < 1):
		return fmt.Errorf("control: a loss of %g; give a part from 0 to below 1", c.Loss)
	case !(c.Mice.Share >= 0 && c.Mice.Share <= 1):
		return fmt.Errorf("control: mice of %g of the load; give a part from 0 to 1", c.Mice.Share)
	}
	return c.Reserve.Validate()
}

// Transfer is what became of one flow of the workload. Times are since the start of the run, the control plane's.
type Transfer struct {
	ID       int           `json:"id"`
	Src      int           `json:"src"`
	Dst      int           `json:"dst"` // with AnyDestination the one that was chosen
	Bytes    int64         `json:"bytes"`
	Ready    time.Duration `json:"ready_ns"`   // when its bytes were there
	Started  time.Duration `json:"started_ns"` // when the first of them was sent
	Done     time.Duration `json:"done_ns"`    // when the last was acknowledged
	Moves    int           `json:"moves"`
	Fallback bool          `json:"fallback,omitempty"` // no path was reserved for it
}

// FCT is the flow completion time: from the moment when the bytes were ready to the last acknowledgement, whatever the
// policy made them wait included.
func (t *Transfer) FCT() time.Duration { return t.Done - t.Ready }

// Sample is the state of the network at one time.
type Sample struct {
	At     time.Duration `json:"at_ns"`
	Flows  []int         `json:"flows"`  // transfers on each path index (with two tiers: each spine)
	Waits  int           `json:"waits"`  // transfers whose bytes are ready and that have not begun
	Queued int64         `json:"queued"` // bytes in the longest queue of any link
}

// Counts are over all hosts.
type Counts struct {
	Messages     int64 `json:"messages"` // sent, each receiver counted
	MessageBytes int64 `json:"message_bytes"`
	Lost         int64 `json:"lost"`
	Conflicts    int64 `json:"conflicts"`
	Moves        int64 `json:"moves"`
	Fallbacks    int64 `json:"fallbacks"`
	Waited       int64 `json:"waited"`    // transfers that did not start when they were ready
	Mispathed    int64 `json:"mispathed"` // flows that went another way than their host believed
	Mice         int64 `json:"mice"`
}

// Result is a run.
type Result struct {
	Policy    string
	Transfers []Transfer // as in the workload
	Samples   []Sample
	Counts    Counts
	End       sim.Time // of the network
	Packets   int64    // data packets, where the network has them
	Digest    sim.Digest
}

// Progress is told now and then. It returns false to end the run.
type Progress func(done, of int, now sim.Time) bool
