// Package lab is a real leaf-spine network on one machine: every host and every switch is a Linux network namespace, every
// cable a pair of virtual interfaces that is shaped at both ends, and the switches choose among equal paths with the
// kernel's own ECMP hash, each with a seed of its own. On it the lab plays the workload of the ARK paper under one path
// policy after the other, and reports flow completion times. Two tiers (leaves and spines), or three (pods of them, under
// cores).
//
// It decides nothing about paths: who sends a flow is behind the interface Sender. It is no simulator: packets are real,
// and time is the clock's. Main types: Config, Fabric (a lab that is up), Workload, RunConfig, Report.
//
// Addresses, all inside the lab's namespaces:
//
//	10.1.L.p      host p (from 1) at leaf L, on its interface "data"; the leaf is 10.1.L.254 on every cable to a host
//	10.2.x.y/30   the cables between switches, in order of the plan; every interface is named after what it leads to
//	10.99.0.i     host i (from 1) on "mgmt": a network of its own, not shaped, for the control plane; 254 is its bridge
//
// Invariants. Whatever is made is in the state file before it is made, so that Down removes it after a crash too, and
// removes nothing else; nothing is ever made in the namespace that the lab was started from. Neighbours are fixed and IPv6
// is off, so that a link carries what hosts send and nothing besides. Policies that are compared play the same flows.
//
// Source: the kernel's traps and the shaping follow measurements of Linux 6.18; workload and figures follow Lin, Hsu, Ho,
// Saeed, "ARK: Avoiding Routing Collisions for KV Cache Transfer in Disaggregated LLM Inference", NIAC 2026.
package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// Limits of a fabric.
const (
	MaxHosts    = 64
	MaxSwitches = 16 // a tier
	MaxPods     = 8
	MinRate     = 1_000_000     // bit/s
	MaxRate     = 2_000_000_000 // bit/s; one machine forwards no more
)

// ErrUnsupported is what everything that touches a fabric returns where there are no network namespaces.
var ErrUnsupported = errors.New("lab: needs Linux (network namespaces) and root")

// Config is a fabric. Start from Defaults.
type Config struct {
	// Name is the prefix of all namespaces (NAME-leaf0); two labs that are up at once have two names.
	Name string `json:"name"`
	// RunDir holds the state file and whatever the hosts' processes keep there; empty: /run/shoal/lab-NAME. Keep it short:
	// the path of a unix socket in it has to fit into 107 bytes.
	RunDir string `json:"run_dir"`

	// Pods is 1 for two tiers. With more, every pod has Leaves leaves and Spines spines of its own, and spine s of each pod
	// is joined to the others by cores of its own, Cores/Spines of them: a host has Cores paths to another pod.
	Pods         int `json:"pods"`
	Leaves       int `json:"leaves"` // of a pod
	Spines       int `json:"spines"` // of a pod
	Cores        int `json:"cores"`  // in all; 0 with one pod
	HostsPerLeaf int `json:"hosts_per_leaf"`

	// Rate of every cable, in bit/s. Much more than 100 Mb/s a cable on a small machine measures the machine.
	Rate int64 `json:"rate"`
	// Burst is the bucket of the shapers, in bytes; 0: 4 KB up to 100 Mb/s, in proportion above. More lets flows pass faster
	// than the cable for a moment, and measurements spread.
	Burst int `json:"burst"`
	// Queue is how many bytes wait at a shaper before it drops. More is a longer round trip under load; fewer than two
	// packets for each flow that shares a cable is loss that TCP does not handle well.
	Queue int `json:"queue"`

	// FirstPort to LastPort are the source ports that policies choose from: the hosts' kernels do not hand them out.
	FirstPort uint16 `json:"first_port"`
	LastPort  uint16 `json:"last_port"`

	// Seed decides the switches' hash seeds.
	Seed uint64 `json:"seed"`
}

// DefaultName is the name of the lab where nobody gives another.
const DefaultName = "shoal-lab"

// Defaults is the paper's fabric, a thousand times slower: 2 leaves with 8 hosts each, 4 spines, all links 100 Mb/s.
func Defaults() Config {
	return Config{Name: DefaultName, Pods: 1, Leaves: 2, Spines: 4, HostsPerLeaf: 8, Rate: 100_000_000, Queue: 256 << 10,
		FirstPort: ecmp.RoCE.First, LastPort: ecmp.RoCE.Last, Seed: 1}
}

// Validate reports the first field that is out of its range.
func (c Config) Validate() error {
	leaves, spines := c.Pods*c.Leaves, c.Pods*c.Spines
	switch {
	case !validName(c.Name):
		return fmt.Errorf("lab: the name %q: give at most 32 of a-z, 0-9 and -, starting with a letter", c.Name)
	case c.RunDir != "" && !filepath.IsAbs(c.RunDir):
		return fmt.Errorf("lab: the run directory %q is no absolute path", c.RunDir)
	case c.Pods < 1 || c.Pods > MaxPods:
		return fmt.Errorf("lab: %d pods; give 1 (two tiers) to %d", c.Pods, MaxPods)
	case c.Leaves < 1 || leaves > MaxSwitches || leaves < 2:
		return fmt.Errorf("lab: %d leaves in each of %d pods; give 2 to %d in all", c.Leaves, c.Pods, MaxSwitches)
	case c.Spines < 1 || spines > MaxSwitches:
		return fmt.Errorf("lab: %d spines in each of %d pods; give 1 to %d in all", c.Spines, c.Pods, MaxSwitches)
	case c.Pods == 1 && c.Cores != 0:
		return fmt.Errorf("lab: %d cores with one pod; cores join pods: give 2 pods or more, or no cores", c.Cores)
	case c.Pods > 1 && (c.Cores < 1 || c.Cores > MaxSwitches || c.Cores%c.Spines != 0):
		return fmt.Errorf("lab: %d cores over %d spines a pod; give a multiple of the spines, at most %d", c.Cores, c.Spines, MaxSwitches)
	case c.HostsPerLeaf < 1 || leaves*c.HostsPerLeaf > MaxHosts:
		return fmt.Errorf("lab: %d hosts at each of %d leaves; give at least 1, and at most %d in all", c.HostsPerLeaf, leaves, MaxHosts)
	case c.Rate < MinRate || c.Rate > MaxRate:
		return fmt.Errorf("lab: links of %d bit/s; give %d to %d", c.Rate, int64(MinRate), int64(MaxRate))
	case c.Burst != 0 && (c.Burst < 2048 || c.Burst > 1<<20):
		return fmt.Errorf("lab: a burst of %d bytes; give 2048 (a packet has to fit) to %d, or 0", c.Burst, 1<<20)
	case c.Queue < 16<<10 || c.Queue > 64<<20:
		return fmt.Errorf("lab: a queue of %d bytes; give %d to %d", c.Queue, 16<<10, 64<<20)
	case c.FirstPort < 1024 || c.LastPort < c.FirstPort:
		return fmt.Errorf("lab: source ports %d to %d; give a range from 1024 on", c.FirstPort, c.LastPort)
	}
	return nil
}

// Of is the workload on such a fabric: from the left half of its leaves to the right one, as much smaller as its links are
// slower than the paper's.
func (c Config) Of(w sim.WorkloadConfig) sim.WorkloadConfig {
	n := c.Pods * c.Leaves
	return w.On(n/2*c.HostsPerLeaf, (n-n/2)*c.HostsPerLeaf, c.Rate)
}

func validName(s string) bool { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`).MatchString(s) }

// runDir is where the lab of this name keeps its state.
func runDirOf(name, dir string) string {
	if dir != "" {
		return dir
	}
	return "/run/shoal/lab-" + name
}

// burst is the shapers' bucket in bytes.
func (c Config) burst() int {
	if c.Burst != 0 {
		return c.Burst
	}
	return max(4<<10, int(4<<10*(c.Rate/1_000_000)/100))
}
