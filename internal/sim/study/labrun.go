package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/internal/lab"
	"shoal/internal/sim"
	"shoal/internal/sim/control"
	"shoal/internal/sim/fabric"
)

// LabRun is what a lab has measured, and the plan that plays the same workloads in the simulator.
type LabRun struct {
	Dir     string
	Results []*lab.Result
	Plan    *Plan
	// Without are policies of the lab that the simulator does not have.
	Without []string
}

// LabScenario is the lab's default fabric with the settings that its agents have, bytes and times as they are there.
func LabScenario() Scenario {
	s, l := Defaults(), lab.Defaults()
	s.Shape = Shape{Pods: l.Pods, Leaves: l.Leaves, Hosts: l.HostsPerLeaf, Spines: l.Spines, Cores: l.Cores, Rate: l.Rate, Delay: 10 * time.Microsecond}
	s.Control.Chunk = 64 << 10 // of fleet.Defaults: small enough for flows that are scaled down
	s.Control.Notice = lab.DefaultRun().Announce
	return s
}

// ReadLab reads the runs in a lab's directory (shoal lab run --dir) and makes a plan that has the same policies (those that
// are asked for; none: all) and ecmp play the same workloads on s. Flows of ecmp take the paths that they took in the lab, so
// that the collisions are the same; so do those of other policies for which no path was reserved.
func ReadLab(dir string, s Scenario, policies []string) (*LabRun, error) {
	results, err := lab.ReadResults(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	t, err := s.Topology()
	if err != nil {
		return nil, err
	}
	l := &LabRun{Dir: dir, Plan: &Plan{Title: "the lab's workloads of " + dir, Variants: []Variant{{Scenario: s}}}}
	for _, r := range results {
		switch {
		case len(policies) > 0 && r.Policy != Base && !slices.Contains(policies, r.Policy):
		case !slices.Contains(control.Policies(), r.Policy):
			if !slices.Contains(l.Without, r.Policy) {
				l.Without = append(l.Without, r.Policy)
			}
		default:
			if err := l.take(r, t); err != nil {
				return nil, err
			}
		}
	}
	if err := l.comparable(); err != nil {
		return nil, err
	}
	slices.SortFunc(l.Plan.Policies, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == Base || b != Base && a < b:
			return -1
		}
		return 1
	})
	return l, l.Plan.Validate()
}

// take adds a run to the plan.
func (l *LabRun) take(r *lab.Result, t *fabric.Topology) error {
	h := &l.Plan.Variants[0].Scenario.Shape
	if want := h.Pods * h.Spines; len(r.Spines) > want {
		return fmt.Errorf("study: the lab of %s has %d spines, and the scenario %d; give the lab's own shape (leaves, hosts, spines, pods, cores)", l.Dir, len(r.Spines), want)
	}
	rec, err := l.recording(r, t)
	if err != nil {
		return err
	}
	if rec.Ports[r.Policy], err = portsOf(t, r, len(rec.Workload.Flows)); err != nil {
		return err
	}
	l.Results = append(l.Results, r)
	if !slices.Contains(l.Plan.Policies, r.Policy) {
		l.Plan.Policies = append(l.Plan.Policies, r.Policy)
	}
	return nil
}

// recording is that of the workload which a run has played, read from its file the first time.
func (l *LabRun) recording(r *lab.Result, t *fabric.Topology) (*Recording, error) {
	p := l.Plan
	at := slices.IndexFunc(p.Recorded, func(x Recording) bool { return x.Workload.Name == r.Workload })
	if at < 0 {
		w, err := sim.LoadWorkload(filepath.Join(l.Dir, r.Workload+".flows"))
		if err != nil {
			return nil, err
		}
		if err := w.Fits(t.Hosts()); err != nil {
			return nil, err
		}
		at, p.Recorded = len(p.Recorded), append(p.Recorded, Recording{Workload: w, Ports: map[string][]uint16{}})
	}
	rec := &p.Recorded[at]
	if rec.Workload.Digest() != r.Digest {
		return nil, fmt.Errorf("study: %s was played with other flows than %s.flows has", r.Policy, r.Workload)
	}
	return rec, nil
}

// comparable says whether a policy and ecmp have played the same workload.
func (l *LabRun) comparable() error {
	played := func(policy, workload string) bool {
		return slices.ContainsFunc(l.Results, func(r *lab.Result) bool { return r.Policy == policy && r.Workload == workload })
	}
	for _, r := range l.Results {
		if r.Policy != Base && played(Base, r.Workload) {
			return nil
		}
	}
	return errNothing(l.Dir)
}

func errNothing(dir string) error {
	return fmt.Errorf("study: no run in %s is of a policy that is asked for and can be simulated, on a workload that ecmp has played too; cuts are against ecmp", dir)
}

// OfLab is LabScenario as far as the results in a lab's directory do not say otherwise. said are the names of the fields that
// they say; those of older labs say at most, in the titles of their workloads, what the rate of the links is.
func OfLab(dir string) (s Scenario, said []string, err error) {
	s = LabScenario()
	results, err := lab.ReadResults(dir)
	if err != nil {
		return s, nil, err
	}
	var setup *lab.Setup
	var ahead *int64
	for _, r := range results {
		if r.Setup != nil {
			if setup != nil && *setup != *r.Setup {
				return s, nil, fmt.Errorf("study: the runs in %s were made with different labs: %+v and %+v; compare them apart, each in a directory of its own", dir, *setup, *r.Setup)
			}
			setup = r.Setup
		}
		if r.AnnouncedUs != nil && r.Policy == "shoal" {
			if ahead != nil && *ahead != *r.AnnouncedUs {
				return s, nil, fmt.Errorf("study: the runs in %s were announced %d and %d us ahead; compare them apart, each in a directory of its own", dir, *ahead, *r.AnnouncedUs)
			}
			ahead = r.AnnouncedUs
		}
	}
	if h := setup; h != nil {
		s.Shape = Shape{Pods: h.Pods, Leaves: h.Leaves, Hosts: h.HostsPerLeaf, Spines: h.Spines, Cores: h.Cores, Rate: h.Rate, Delay: s.Shape.Delay}
		s.Control.Chunk = int64(h.Chunk)
		s.Control.Delay += time.Duration(h.DelayUs) * time.Microsecond
		said = append(said, "pods", "leaves", "hosts", "spines", "cores", "rate", "chunk")
	} else if rate := titleRate(results[0].Title); rate > 0 {
		s.Shape.Rate = rate
	}
	if ahead != nil {
		s.Control.Notice = time.Duration(*ahead) * time.Microsecond
		said = append(said, "notice")
	}
	return s, said, nil
}

// titleRate is the rate of a lab's links, in bit/s, by what its workload's title says of its scale; 0 where it does not.
func titleRate(title string) int64 {
	_, rest, ok := strings.Cut(title, "sizes / ")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	scale, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || scale < 1 {
		return 0
	}
	return Defaults().Shape.Rate / scale
}

// portsOf are source ports that lead to the paths which the flows of a run took without a reservation; 0 for the others.
func portsOf(t *fabric.Topology, r *lab.Result, flows int) ([]uint16, error) {
	ports := make([]uint16, flows)
	for i := range r.FlowResults {
		f := &r.FlowResults[i]
		if f.ID < 0 || f.ID >= flows || len(f.Paths) != 1 || r.Policy != Base && !f.Fallback {
			continue
		}
		if n := len(t.Paths(f.Src, f.Dst)); f.Paths[0] < 0 || f.Paths[0] >= n {
			return nil, fmt.Errorf("study: flow %d of %s under %s took path %d, and the scenario has %d between its hosts; give the lab's own shape", f.ID, r.Workload, r.Policy, f.Paths[0], n)
		}
		const first, tries = 49152, 16384
		for k := range tries { // from another one for each flow, so that they are not all the same
			port := uint16(first + (k+f.ID*97)%tries)
			if t.PathOf(f.Src, f.Dst, port) == f.Paths[0] {
				ports[f.ID] = port
				break
			}
		}
	}
	return ports, nil
}
