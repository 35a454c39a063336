// Package study runs many simulations of one fabric and says what they have shown: path policies compared at several rates
// over several seeds (a Plan), beside the figures of the ARK paper and beside what a lab measured, as tables, JSON, CSV and
// plots. Its points are independent of each other and run on all cores; what has ended is kept in files, so that a run that
// was interrupted goes on.
//
// It simulates nothing itself: package control plays a workload, on a network of package fabric or fluid. Main types:
// Scenario (all that describes a run but its policy, rate and seed), Plan, Result and Report.
//
// Invariants. A workload depends on the seed and the rate only, so that policies are compared on the same one. The same plan
// gives the same digest on any number of cores, whether it was interrupted or not. Times are those of a network of full
// size (control.Config.Scale).
package study

import (
	"fmt"
	"slices"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
	"shoal/internal/sim/control"
	"shoal/internal/sim/fabric"
)

// Models of a network.
const (
	Fluid   = "fluid"   // max-min shares, no packets: sweeps, and large fabrics
	Packets = "packets" // packet by packet
)

// Transports of packets.
const (
	CC12  = "cc12"  // a window of one bandwidth-delay product, and nothing else
	DCQCN = "dcqcn" // the window, and a rate that follows ECN marks
)

// What the hosts believe of the switches' hashes.
const (
	Truth     = "truth"
	WrongSeed = "wrong-seed" // the right functions with wrong seeds: a source port leads anywhere
	Nothing   = "nothing"    // no map of ports: ECMP decides
)

// Scenario is everything that decides a run but policy, rate and seed. Start from Defaults. Its settings have names, which
// flags, files and sweeps use: see Fields.
type Scenario struct {
	Shape     Shape
	Model     string // Fluid or Packets
	Transport string // of the packets: CC12 or DCQCN
	Payload   int    // bytes of a packet without its headers
	Believe   string // Truth, WrongSeed or Nothing

	// Workload is the paper's. Rate, seed, scale and hosts are filled in for each point.
	Workload sim.WorkloadConfig
	// Load multiplies the rate and the number of requests: a fabric that is so many times the paper's has the same load on
	// each uplink then, for as long.
	Load float64

	// Control is how the hosts talk and decide. Policy, seed and belief are filled in for each point.
	Control control.Config

	// TTFT is Prefill, the transfer, and DecodeStep.
	Prefill    time.Duration
	DecodeStep time.Duration
}

// Shape is the fabric: leaf-spine, or pods of it under cores. Every leaf has a cable to every spine of its pod.
type Shape struct {
	Pods   int // 1: two tiers
	Leaves int // of a pod
	Hosts  int // at each leaf
	Spines int // of a pod
	Cores  int // in all, with 2 pods and more
	Rate   int64
	Delay  time.Duration // of a cable
}

// Limits of a scenario.
const (
	MaxHosts    = 4096
	MaxSwitches = 4096
	MaxRate     = 10_000_000_000_000
	maxShape    = 4096
)

// Defaults is the paper's set-up as a fluid: 2 leaves with 8 hosts each, 4 spines, all links 100 Gb/s.
func Defaults() Scenario {
	w := sim.DefaultWorkload()
	w.Requests = 1000
	c := control.Defaults()
	c.Sample = 100 * time.Millisecond
	return Scenario{
		Shape: Shape{Pods: 1, Leaves: 2, Hosts: 8, Spines: 4, Rate: 100_000_000_000, Delay: time.Microsecond},
		Model: Fluid, Transport: CC12, Payload: 1000, Believe: Truth, Workload: w, Load: 1, Control: c,
		Prefill: 840 * time.Millisecond, DecodeStep: 10 * time.Millisecond,
	}
}

// Validate reports the first setting that is out of its range.
func (s *Scenario) Validate() error {
	h := &s.Shape
	if most := max(h.Pods, h.Leaves, h.Hosts, h.Spines, h.Cores); most > maxShape { // so that their products fit
		return fmt.Errorf("study: %d of pods, leaves, hosts, spines or cores; at most %d of each can be simulated", most, maxShape)
	}
	switches := h.Pods*(h.Leaves+h.Spines) + h.Cores
	switch {
	case h.Pods < 1 || h.Leaves < 1 || h.Hosts < 1 || h.Spines < 1 || h.Cores < 0:
		return fmt.Errorf("study: %d pods of %d leaves with %d hosts each and %d spines, %d cores; give 1 of each or more (cores: 0 or more)", h.Pods, h.Leaves, h.Hosts, h.Spines, h.Cores)
	case h.Pods*h.Leaves < 2:
		return fmt.Errorf("study: leaves is %d; give 2 or more, or pods: transfers go from the left half of the leaves to the right one", h.Leaves)
	case h.Pods*h.Leaves*h.Hosts > MaxHosts || switches > MaxSwitches:
		return fmt.Errorf("study: %d hosts and %d switches; at most %d and %d can be simulated", h.Pods*h.Leaves*h.Hosts, switches, MaxHosts, MaxSwitches)
	case h.Pods == 1 && h.Cores > 0:
		return fmt.Errorf("study: cores is %d with one pod; cores join pods: give 2 pods or more", h.Cores)
	case h.Pods > 1 && (h.Cores == 0 || h.Cores%h.Spines != 0):
		return fmt.Errorf("study: cores is %d with %d spines a pod; give a multiple of the spines", h.Cores, h.Spines)
	case h.Rate < 1_000_000 || h.Rate > MaxRate:
		return fmt.Errorf("study: rate is %d bit/s; give 1000000 to %d", h.Rate, int64(MaxRate))
	case h.Delay < 0 || h.Delay > time.Second:
		return fmt.Errorf("study: link-delay is %v; give 0 to 1s", h.Delay)
	case s.Model != Fluid && s.Model != Packets:
		return fmt.Errorf("study: model %.40q does not exist; use %s or %s", s.Model, Fluid, Packets)
	case s.Transport != CC12 && s.Transport != DCQCN:
		return fmt.Errorf("study: transport %.40q does not exist; use cc12 or dcqcn", s.Transport)
	case s.Payload < 64 || s.Payload > fabric.MaxPayload:
		return fmt.Errorf("study: payload is %d bytes; give 64 to %d", s.Payload, fabric.MaxPayload)
	case !slices.Contains([]string{Truth, WrongSeed, Nothing}, s.Believe):
		return fmt.Errorf("study: hosts-believe %.40q does not exist; use %s, %s or %s", s.Believe, Truth, WrongSeed, Nothing)
	case !(s.Load >= 0.01 && s.Load <= 1000):
		return fmt.Errorf("study: load is %g; give 0.01 to 1000", s.Load)
	case s.Workload.Requests < 1 || s.Workload.Requests > sim.MaxFlows:
		return fmt.Errorf("study: requests is %d; give 1 to %d", s.Workload.Requests, sim.MaxFlows)
	case s.Prefill < 0 || s.DecodeStep < 0 || s.Prefill > time.Hour || s.DecodeStep > time.Hour:
		return fmt.Errorf("study: prefill %v and decode-step %v; give 0 to 1h", s.Prefill, s.DecodeStep)
	}
	c := s.Control
	if err := c.Validate(); err != nil {
		return err
	}
	w := s.workload(1, 1)
	w.QPS = sim.MaxQPS // the real rates are a plan's
	if err := w.Validate(); err != nil {
		return err
	}
	if f := c.Failure.Switch; f != "" {
		n := s.network()
		if !slices.ContainsFunc(n.Switches, func(x ecmp.Switch) bool { return x.Name == f }) {
			return fmt.Errorf("study: fail is %.40q, and no switch has that name; they are called leaf0, spine0 and so on", f)
		}
	}
	return nil
}

// validateRate says whether a plan can have this rate.
func (s *Scenario) validateRate(qps float64) error {
	w := s.workload(qps, 1)
	if err := w.Validate(); err != nil {
		return fmt.Errorf("%w (%d requests at qps %g; load %g multiplies both, scale %d the rate: change one of these)", err, s.Workload.Requests, qps, s.Load, s.Control.Scale)
	}
	return nil
}

// workload is the configuration of one point's.
func (s *Scenario) workload(qps float64, seed uint64) sim.WorkloadConfig {
	leaves := s.Shape.Pods * s.Shape.Leaves
	w := s.Workload.On(leaves/2*s.Shape.Hosts, (leaves-leaves/2)*s.Shape.Hosts, s.Shape.Rate)
	w.Scale *= s.Control.Scale
	w.QPS, w.Seed = qps*s.Load*float64(s.Control.Scale), seed
	w.Requests = max(1, int(float64(w.Requests)*s.Load))
	return w
}

func (s *Scenario) network() ecmp.Config {
	h := &s.Shape
	return fabric.FatTree(h.Pods, h.Leaves, h.Hosts, h.Spines, h.Cores, h.Rate)
}

// Topology is the truth about the fabric. It is for one goroutine.
func (s *Scenario) Topology() (*fabric.Topology, error) {
	return fabric.NewTopology(s.network(), s.Shape.Rate, sim.Of(s.Shape.Delay))
}

// control is the configuration of one point's hosts.
func (s *Scenario) control(policy string, seed uint64) control.Config {
	c := s.Control
	c.Policy, c.Seed = policy, seed
	switch s.Believe {
	case Nothing:
		c.Blind = true
	case WrongSeed:
		wrong := s.network()
		for i := range wrong.Switches {
			wrong.Switches[i].Model.Seed ^= 0x5eed
		}
		c.Believed = &wrong
	}
	return c
}
