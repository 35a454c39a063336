package control

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
	"shoal/internal/sim/fluid"
)

const rate = 100_000_000_000

// network is the paper's, as a fluid.
func network(t testing.TB, c ecmp.Config) fabric.Network {
	t.Helper()
	topo, err := fabric.NewTopology(c, rate, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	n, err := fluid.New(topo, fluid.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func paperWorkload(t testing.TB, qps float64, requests int, scale int64, seed uint64) *sim.Workload {
	t.Helper()
	c := sim.DefaultWorkload().On(8, 8, rate)
	c.QPS, c.Requests, c.Seed, c.Scale = qps*float64(scale), requests, seed, scale
	w, err := sim.Generate(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func play(t testing.TB, w *sim.Workload, cfg Config) *Result {
	t.Helper()
	r, err := Run(network(t, fabric.LeafSpine(2, 8, 4, rate)), w, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mean(r *Result) float64 {
	var sum float64
	for i := range r.Transfers {
		sum += r.Transfers[i].FCT().Seconds()
	}
	return sum / float64(len(r.Transfers))
}

func with(policy string, change func(*Config)) Config {
	c := Defaults()
	c.Policy = policy
	if change != nil {
		change(&c)
	}
	return c
}

// Whatever goes wrong every transfer ends, no sooner than its bytes allow, and the same seed gives the same run.
func TestEveryTransferEndsUnderEveryPolicy(t *testing.T) {
	w := paperWorkload(t, 25, 60, 1, 3)
	wrong := fabric.LeafSpine(2, 8, 4, rate)
	for i := range wrong.Switches {
		wrong.Switches[i].Model.Seed += 77
	}
	variants := map[string]func(*Config){
		"nothing":     nil,
		"delay":       func(c *Config) { c.Delay = 60 * time.Millisecond },
		"jitter":      func(c *Config) { c.Delay, c.Jitter = 5*time.Millisecond, 20*time.Millisecond },
		"loss":        func(c *Config) { c.Loss = 0.3 },
		"skew":        func(c *Config) { c.Skew = 50 * time.Millisecond },
		"mice":        func(c *Config) { c.Mice = Mice{Share: 0.1, Bytes: 10 << 20} },
		"failure":     func(c *Config) { c.Failure.Switch, c.Failure.At = "spine1", 700*time.Millisecond },
		"wrong":       func(c *Config) { c.Believed = &wrong },
		"blind":       func(c *Config) { c.Blind = true },
		"in fabric":   func(c *Config) { c.InFabric = true },
		"destination": func(c *Config) { c.AnyDestination = true },
	}
	for _, policy := range Policies() {
		for name, change := range variants {
			t.Run(policy+"/"+name, func(t *testing.T) {
				cfg := with(policy, change)
				cfg.Sample = 50 * time.Millisecond
				r := play(t, w, cfg)
				for i := range r.Transfers {
					x := &r.Transfers[i]
					if alone := time.Duration(x.Bytes * 8 * int64(time.Second) / rate); x.Started < x.Ready || x.Done-x.Started < alone {
						t.Fatalf("transfer %d: %+v, and it takes %v alone", i, x, alone)
					}
				}
				if again := play(t, w, cfg); again.Digest != r.Digest {
					t.Errorf("digests %v and %v of one seed", r.Digest, again.Digest)
				}
				switch told := r.Counts.Messages > 0; {
				case told && (name == "blind" || policy == "ecmp" || slices.Contains(baselines, policy)):
					t.Errorf("%d messages", r.Counts.Messages)
				case !told && name != "blind" && policy != "ecmp" && !slices.Contains(baselines, policy):
					t.Error("no messages")
				}
				if name == "wrong" && r.Counts.Messages > 0 && r.Counts.Mispathed == 0 {
					t.Error("the hosts believe in other hashes, and everything went where they thought")
				}
				if name == "loss" && r.Counts.Messages > 0 && (r.Counts.Lost < r.Counts.Messages/5 || r.Counts.Lost > r.Counts.Messages*2/5) {
					t.Errorf("%d of %d messages lost", r.Counts.Lost, r.Counts.Messages)
				}
			})
		}
	}
}

// A run with a tenth of the bytes at ten times the rate has the same shape: in a fluid the same times, but for latency.
func TestScaledRunsHaveTheSameShape(t *testing.T) {
	for _, policy := range []string{"ecmp-fixed", "ark", "shoal"} {
		whole := play(t, paperWorkload(t, 25, 150, 1, 5), with(policy, nil))
		tenth := play(t, paperWorkload(t, 25, 150, 10, 5), with(policy, func(c *Config) { c.Scale = 10 }))
		if a, b := mean(whole), mean(tenth); b < a*0.98 || b > a*1.02 {
			t.Errorf("%s: a mean FCT of %.4f s, and %.4f s with a tenth of the bytes", policy, a, b)
		}
	}
}

// The policies stand as they do in the literature, over some seeds: ark gains on ecmp, least on ark, shoal on least.
func TestPoliciesStandInTheirOrder(t *testing.T) {
	sums := map[string]float64{}
	for seed := range uint64(4) {
		w := paperWorkload(t, 25, 400, 1, seed+1)
		for _, policy := range []string{"ecmp", "ark", "least", "shoal"} {
			sums[policy] += mean(play(t, w, with(policy, func(c *Config) { c.Seed = seed + 1 })))
		}
	}
	t.Logf("mean FCT, s: ecmp %.3f, ark %.3f, least %.3f, shoal %.3f", sums["ecmp"]/4, sums["ark"]/4, sums["least"]/4, sums["shoal"]/4)
	if !(sums["ark"] < 0.9*sums["ecmp"] && sums["least"] < 0.9*sums["ark"] && sums["shoal"] < 0.9*sums["least"]) {
		t.Errorf("the order is wrong: %v", sums)
	}
}

func TestTheDigestIsOfAllThatIsReported(t *testing.T) {
	seen := map[sim.Digest]int{}
	changes := []func(*Result){func(*Result) {}, func(r *Result) { r.Transfers[0].Fallback = true }, func(r *Result) { r.Transfers[0].Moves++ }, func(r *Result) { r.Transfers[0].Done++ }}
	counts := reflect.TypeFor[Counts]()
	for i := range counts.NumField() {
		changes = append(changes, func(r *Result) { reflect.ValueOf(&r.Counts).Elem().Field(i).SetInt(1) })
	}
	for i, change := range changes {
		r := Result{Transfers: make([]Transfer, 2)}
		change(&r)
		d := r.digest(0)
		if k, ok := seen[d]; ok {
			t.Errorf("changes %d and %d make no difference", k, i)
		}
		seen[d] = i
	}
}

func TestAStoppedRunSaysSo(t *testing.T) {
	_, err := Run(network(t, fabric.LeafSpine(2, 8, 4, rate)), paperWorkload(t, 25, 10, 1, 1), Defaults(), func(int, int, sim.Time) bool { return false })
	if !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}

// Where every host hears everything, Progress is asked as often as the work of that.
func TestProgressIsAskedByTheMessagesHeard(t *testing.T) {
	for _, policy := range []string{"ecmp", "ark"} {
		asked := 0
		r, err := Run(network(t, fabric.LeafSpine(2, 64, 4, rate)), paperWorkload(t, 25, 100, 1, 1), with(policy, nil), func(int, int, sim.Time) bool { asked++; return true })
		if err != nil {
			t.Fatal(err)
		}
		if want := int(r.Counts.Messages / askEvery); asked < max(1, want/2) {
			t.Errorf("%s: asked %d times in %d messages", policy, asked, r.Counts.Messages)
		}
	}
}

func TestWhatCannotBeRunIsRefusedByName(t *testing.T) {
	w := paperWorkload(t, 25, 10, 1, 1)
	for want, change := range map[string]func(*Config){
		`policy "best" does not exist`: func(c *Config) { c.Policy = "best" },
		"scale is 0":                   func(c *Config) { c.Scale = 0 },
		"delay is -1":                  func(c *Config) { c.Delay = -1 },
		"a loss of 1":                  func(c *Config) { c.Loss = 1 },
		"mice of 2":                    func(c *Config) { c.Mice.Share = 2 },
		"give larger mice":             func(c *Config) { c.Mice = Mice{Share: 0.3, Bytes: 1} },
		"sample is 1ns":                func(c *Config) { c.Sample = 1 },
		"renew is 1":                   func(c *Config) { c.Renew = 1 },
		"notice is 600000000000":       func(c *Config) { c.Notice = 10 * time.Minute },
		`no switch "spine9"`:           func(c *Config) { c.Failure.Switch = "spine9" },
		`no switch is called "leaf0"`:  func(c *Config) { c.Failure.Switch = "leaf0" },
		"Lease is":                     func(c *Config) { c.Reserve.Lease = 0 },
	} {
		c := Defaults()
		change(&c)
		if _, err := Run(network(t, fabric.LeafSpine(2, 8, 4, rate)), w, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for i := range w.Flows {
		w.Flows[i].At = 0
	}
	if _, err := Run(network(t, fabric.LeafSpine(2, 8, 4, rate)), w, with("ecmp", func(c *Config) { c.Mice.Share = 0.1 }), nil); err == nil || !strings.Contains(err.Error(), "come at once") {
		t.Error(err)
	}
	w.Flows[3].Dst = 16
	if _, err := Run(network(t, fabric.LeafSpine(2, 8, 4, rate)), w, Defaults(), nil); err == nil || !strings.Contains(err.Error(), "host 16") {
		t.Error(err)
	}
}

// An Intent that lapses, since nobody looked for longer than its lease, is no reason for its transfer never to begin.
func TestWhoWaitsByALapsedIntentIsQueuedAnew(t *testing.T) {
	w := &sim.Workload{Flows: []sim.Flow{{At: time.Second, Dst: 8, Bytes: 1 << 20}}}
	net := network(t, fabric.LeafSpine(2, 8, 4, rate))
	r, err := newRun(net, w, with("shoal", nil))
	if err != nil {
		t.Fatal(err)
	}
	r.announce(0)
	net.Step(sim.Of(time.Minute))
	r.beat()
	if h := &r.hosts[0]; !r.jobs[0].begun || len(h.waiting) > 0 || h.table.Stats().Lapsed != 1 {
		t.Errorf("begun: %v; %d wait; %+v", r.jobs[0].begun, len(h.waiting), h.table.Stats())
	}
}

// The longest notice and the worst clocks, in full size and very small: times that would lie too far ahead for a table, or
// between two picoseconds.
func TestTheLimitsOfTimesCanBeRun(t *testing.T) {
	for _, scale := range []int64{1, 50_000} {
		w := paperWorkload(t, 0.2, 3, scale, 1)
		play(t, w, with("shoal", func(c *Config) { c.Notice, c.Skew, c.Scale = maxNotice, time.Minute, scale }))
		play(t, w, with("shoal", func(c *Config) {
			c.Sample, c.Renew, c.Round, c.Scale = time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, scale
		}))
	}
}

// A long run has as many samples as any, over all of its time.
func TestSamplesAreBounded(t *testing.T) {
	w := &sim.Workload{Flows: []sim.Flow{{Dst: 8, Bytes: 1}, {ID: 1, At: 150 * time.Second, Dst: 8, Bytes: 1}}}
	r := play(t, w, with("ecmp", func(c *Config) { c.Sample = time.Millisecond }))
	n := len(r.Samples)
	if n <= MaxSamples/2 || n > MaxSamples || r.Samples[1].At != 2*time.Millisecond || r.Samples[n-1].At < 149*time.Second {
		t.Errorf("%d samples, the second at %v, the last at %v", n, r.Samples[1].At, r.Samples[n-1].At)
	}
}

// A spine with no flow on it has room for all of them, unless it is dead.
func TestHederaPlacesNothingOnDeadLinks(t *testing.T) {
	for _, dead := range []string{"spine0", "spine2"} {
		w := paperWorkload(t, 30, 60, 1, 2)
		r, err := newRun(network(t, fabric.LeafSpine(2, 8, 4, rate)), w, with("hedera", func(c *Config) { c.Failure.Switch = dead }))
		if err != nil {
			t.Fatal(err)
		}
		r.takeDown()
		net := r.net.Topology()
		for n := range 4 { // four flows of different hosts, which begin on one spine
			r.res.Transfers[n].Src, r.res.Transfers[n].Dst = n, 8+n
			r.begin(n, n, 8+n, 1<<30, 50_000, fabric.First)
		}
		before := make([]int, 4)
		for i := range before {
			before[i] = r.legs[i].path
		}
		r.reassign()
		for i := range before {
			if l := &r.legs[i]; l.path != before[i] && slices.ContainsFunc(net.Paths(l.src, l.dst)[l.path], func(k fabric.LinkIndex) bool { return r.down[k] }) {
				t.Errorf("%s is dead, and flow %d was moved from path %d there", dead, i, before[i])
			}
		}
	}
}

// In a fluid a sprayed flow has what is left of its paths after a failure, before and after the switches know.
func TestSprayedFlowsStayOverThePathsThatAreLeft(t *testing.T) {
	w := &sim.Workload{}
	for i := range 8 {
		w.Flows = append(w.Flows, sim.Flow{ID: i, Src: i, Dst: 8 + i, Bytes: 10 << 30})
	}
	r := play(t, w, with("spray", func(c *Config) {
		c.Failure.Switch, c.Failure.At = "spine1", 100*time.Millisecond
	}))
	for i := range r.Transfers { // all alike: eight of them over three spines
		if a, b := r.Transfers[0].FCT(), r.Transfers[i].FCT(); (a - b).Abs() > time.Millisecond {
			t.Errorf("transfer %d took %v, the first one %v", i, b, a)
		}
	}
}

// The estimator's example: three senders to one receiver, one of them with a second flow elsewhere.
func TestDemandsAreWhatHostsAllow(t *testing.T) {
	net := network(t, fabric.LeafSpine(2, 8, 4, rate))
	r := &run{net: net, truth: net.Topology(), hosts: make([]host, 16), res: &Result{}}
	var ids []fabric.ID
	for i, p := range [][2]int{{0, 8}, {1, 8}, {2, 8}, {2, 9}, {3, 9}} {
		r.res.Transfers = append(r.res.Transfers, Transfer{Src: p[0], Dst: p[1]})
		r.legs = append(r.legs, leg{live: true, job: i})
		ids = append(ids, fabric.ID(i))
	}
	got := r.demands(ids)
	want := []float64{1. / 3, 1. / 3, 1. / 3, 0.5, 0.5}
	for i := range want {
		if d := got[i] / rate; d < want[i]-1e-6 || d > want[i]+1e-6 {
			t.Errorf("flow %d: a demand of %.3f of a link, want %.3f", i, d, want[i])
		}
	}
}
