package study

import (
	"time"

	"shoal/internal/sim"
	"shoal/internal/sim/control"
	"shoal/internal/sim/fabric"
	"shoal/internal/sim/fluid"
)

// tick is told which part of a run is done, and its data packets so far. It returns false to end the run.
type tick func(part float64, packets int64) bool

// simulate plays one point: on a network of its own, with hosts of its own.
func simulate(p *Plan, at Point, tell tick) (*control.Result, error) {
	s := &p.Variants[at.Variant].Scenario
	w, err := p.Workload(at)
	if err != nil {
		return nil, err
	}
	t, err := s.Topology()
	if err != nil {
		return nil, err
	}
	if at.Policy == Bound {
		return s.bound(t, w, tell)
	}
	net, err := s.net(t, at.Seed)
	if err != nil {
		return nil, err
	}
	c := s.control(at.Policy, at.Seed)
	if !p.sampled(at) {
		c.Sample = 0
	}
	return control.Run(net, w, c, func(done, of int, _ sim.Time) bool {
		var packets int64
		if n, ok := net.(counted); ok {
			packets = n.Packets()
		}
		return tell(float64(done)/float64(max(1, of)), packets)
	})
}

// counted is a network of packets that says how many there were.
type counted struct {
	fabric.Network
	packets *fabric.Packets
}

// Packets is how many data packets have been sent.
func (c counted) Packets() int64 { return c.packets.Stats().Data }

// fluidConfig is the fluid that stands for these packets.
func (s *Scenario) fluidConfig(seed uint64) fluid.Config {
	c := fluid.DefaultConfig()
	c.Payload, c.Seed = int64(s.Payload), seed
	return c
}

// net makes the network of one run.
func (s *Scenario) net(t *fabric.Topology, seed uint64) (fabric.Network, error) {
	if s.Model == Fluid {
		return fluid.New(t, s.fluidConfig(seed))
	}
	c := fabric.Defaults()
	c.Payload, c.Seed = s.Payload, seed
	if s.Transport == DCQCN {
		c.Transport = fabric.DCQCN
	}
	n, err := fabric.NewPackets(t, c)
	if err != nil {
		return nil, err
	}
	return counted{n, n}, nil
}

// bound is what pooled SRPT makes of the workload. It waits for nobody: what it has is the completion times alone.
func (s *Scenario) bound(t *fabric.Topology, w *sim.Workload, tell tick) (*control.Result, error) {
	jobs := make([]fluid.Job, len(w.Flows))
	for i, f := range w.Flows {
		jobs[i] = fluid.Job{Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, At: sim.Of(f.At)}
	}
	done, err := fluid.PooledSRPT(t, s.fluidConfig(1), jobs, true, func(done int) bool { return tell(float64(done)/float64(len(jobs)), 0) })
	if err != nil {
		return nil, err
	}
	r := &control.Result{Policy: Bound}
	scale := time.Duration(s.Control.Scale)
	for i, f := range w.Flows {
		end := done[i].At
		r.Transfers = append(r.Transfers, control.Transfer{ID: i, Src: f.Src, Dst: done[i].Dst, Bytes: f.Bytes * s.Control.Scale, Ready: f.At * scale, Started: f.At * scale,
			Done: time.Duration(int64(end) * s.Control.Scale / int64(sim.Nanosecond))})
		r.End = max(r.End, end)
		r.Digest.Add(int64(done[i].Dst), int64(end))
	}
	return r, nil
}
