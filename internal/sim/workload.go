package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Flow is one KV transfer. Src and Dst count the hosts of the fabric from 0.
type Flow struct {
	ID    int           // its place in the workload, from 0
	At    time.Duration // its arrival, from the start of the run
	Src   int
	Dst   int
	Port  uint16 // its source port; 0: the policy decides
	Bytes int64
}

// Workload is flows in the order of their arrival.
type Workload struct {
	Name  string // of its file, without the extension; of files that its runs make
	Title string // what the flows are, in one line
	// QPS and Seed are those that it was made with; 0 where that is not known.
	QPS   float64
	Seed  uint64
	Flows []Flow
}

// Limits of a workload.
const (
	MaxFlows     = 100_000
	MaxFlowBytes = 1 << 40
	MaxFlowTime  = 24 * time.Hour
	MaxFlowLine  = 4096 // bytes
	MaxQPS       = 10_000

	maxFlowHosts = 4096
)

// WorkloadConfig is the paper's workload: prompts whose length follows Zipf's law, their KV caches sent from a host of the
// left half to one of the right, at random times.
type WorkloadConfig struct {
	QPS      float64 // mean arrivals a second; the gaps are exponential
	Requests int
	// MinTokens to MaxTokens is the range of prompt lengths, Skew the exponent of Zipf's law over it: the shortest is the
	// most frequent. A higher exponent means shorter prompts.
	MinTokens int
	MaxTokens int
	Skew      float64 // below 1
	// TokenBytes is the KV cache of one token.
	TokenBytes int64
	// Scale divides every flow, so that on links that are slower by the same factor the times stay as they are.
	Scale int64
	// Sources are hosts 0 to Sources-1; Sinks are the Sinks hosts after them.
	Sources int
	Sinks   int
	Seed    uint64
}

// DefaultWorkload is the paper's, scaled to links of 100 Mb/s in place of 100 Gb/s: LLaMA-3-8B, 1,000 to 51,200 tokens with
// exponent 0.7, which makes about 13,020 tokens in the mean (1.59 GiB) and 6.71 GB at most.
func DefaultWorkload() WorkloadConfig {
	return WorkloadConfig{QPS: 25, Requests: 300, MinTokens: 1000, MaxTokens: 51_200, Skew: 0.7, TokenBytes: 131_072, Scale: 1000,
		Sources: 8, Sinks: 8, Seed: 1}
}

// paperRate is the rate of the paper's links, in bit/s.
const paperRate = 100_000_000_000

// On sets how many hosts send, how many of those after them receive, and the scale to what links of this rate (bit/s) are
// slower than the paper's.
func (c WorkloadConfig) On(sources, sinks int, rate int64) WorkloadConfig {
	c.Sources, c.Sinks, c.Scale = sources, sinks, max(1, paperRate/rate)
	return c
}

// Validate reports the first field that is out of its range.
func (c WorkloadConfig) Validate() error {
	switch {
	case !(c.QPS >= 0.01 && c.QPS <= MaxQPS):
		return fmt.Errorf("sim: workload: %g requests a second; give 0.01 to %d", c.QPS, MaxQPS)
	case c.Requests < 1 || c.Requests > MaxFlows:
		return fmt.Errorf("sim: workload: %d requests; give 1 to %d", c.Requests, MaxFlows)
	case float64(c.Requests)/c.QPS > MaxFlowTime.Seconds()/2:
		return fmt.Errorf("sim: workload: %d requests at %g a second take longer than %v", c.Requests, c.QPS, MaxFlowTime/2)
	case c.MinTokens < 1 || c.MaxTokens < c.MinTokens || c.MaxTokens > 10_000_000:
		return fmt.Errorf("sim: workload: %d to %d tokens; give a range within 1 to 10000000", c.MinTokens, c.MaxTokens)
	case !(c.Skew >= 0 && c.Skew <= 0.99):
		return fmt.Errorf("sim: workload: a Zipf exponent of %g; give 0 to 0.99", c.Skew)
	case c.TokenBytes < 1 || c.TokenBytes > 1<<24:
		return fmt.Errorf("sim: workload: %d bytes a token; give 1 to %d", c.TokenBytes, 1<<24)
	case c.Scale < 1 || c.Scale > 1<<30:
		return fmt.Errorf("sim: workload: sizes divided by %d; give 1 or more", c.Scale)
	case c.Sources < 1 || c.Sinks < 1 || c.Sources+c.Sinks > maxFlowHosts:
		return fmt.Errorf("sim: workload: %d sources and %d sinks; give at least one of each, and at most %d in all", c.Sources, c.Sinks, maxFlowHosts)
	}
	return nil
}

// title is the workload in one line, with everything that decides it.
func (c WorkloadConfig) title() string {
	return fmt.Sprintf("%d flows, %g a second (Poisson), Zipf %g over %d to %d tokens, %d bytes a token, sizes / %d, hosts 0-%d to %d-%d, seed %d",
		c.Requests, c.QPS, c.Skew, c.MinTokens, c.MaxTokens, c.TokenBytes, c.Scale, c.Sources-1, c.Sources, c.Sources+c.Sinks-1, c.Seed)
}

// Generate makes the workload: the same configuration gives the same flows. Sizes, arrivals and hosts are drawn from random
// streams of their own, so that at another QPS the same flows come at other times. Arrivals are whole microseconds.
func Generate(c WorkloadConfig) (*Workload, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	z := newZipf(c.MaxTokens-c.MinTokens+1, c.Skew)
	sizes, arrivals, places := Stream(c.Seed, "flow sizes"), Stream(c.Seed, "flow arrivals"), Stream(c.Seed, "flow hosts")
	w := &Workload{Name: fmt.Sprintf("qps%g-seed%d", c.QPS, c.Seed), Title: c.title(), QPS: c.QPS, Seed: c.Seed, Flows: make([]Flow, c.Requests)}
	var at time.Duration
	for i := range w.Flows {
		gap := -math.Log(1-arrivals.Float64()) / c.QPS
		at += time.Duration(math.Round(gap*1e6)) * time.Microsecond
		tokens := int64(c.MinTokens + z.next(sizes))
		w.Flows[i] = Flow{ID: i, At: at, Src: places.IntN(c.Sources), Dst: c.Sources + places.IntN(c.Sinks), Bytes: max(1, tokens*c.TokenBytes/c.Scale)}
	}
	return w, nil
}

// GenerateAll makes a workload for every seed and rate, in the order in which they are best run: all rates of one seed, then
// the next seed, so that a run that is cut short has something of every rate.
func GenerateAll(c WorkloadConfig, rates []float64, seeds []uint64) ([]*Workload, error) {
	var all []*Workload
	for _, seed := range seeds {
		for _, qps := range rates {
			c.QPS, c.Seed = qps, seed
			w, err := Generate(c)
			if err != nil {
				return nil, err
			}
			all = append(all, w)
		}
	}
	return all, nil
}

// zipf draws ranks 0 to n-1, rank k with a weight of about 1/(k+1)^skew, by the method of Gray et al. ("Quickly generating
// billion-record synthetic databases", SIGMOD 1994), which YCSB made known: the first two ranks exactly, the others by
// inverting the integral. With exponents below 1 only.
//
// The workload generators of LLM serving that follow YCSB count the first rank alone where Gray et al. count the first two,
// in the constant eta. The published mean (13,048 tokens) comes from there, and so does ours; by Gray et al. it is 12,930,
// by Zipf's law itself 12,972.
type zipf struct {
	n                       float64
	skew, zeta, eta, second float64
}

func newZipf(n int, skew float64) *zipf {
	z := &zipf{n: float64(n), skew: skew}
	for i := 1; i <= n; i++ {
		z.zeta += math.Pow(float64(i), -skew)
	}
	z.second = 1 + math.Pow(0.5, skew)
	if n > 2 { // else the first two ranks are all there is
		z.eta = (1 - math.Pow(2/z.n, 1-skew)) / (1 - 1/z.zeta)
	}
	return z
}

func (z *zipf) next(r *rand.Rand) int {
	u := r.Float64()
	switch uz := u * z.zeta; {
	case uz < 1 || z.n == 1:
		return 0
	case uz < z.second || z.n == 2:
		return 1
	}
	// The conversion keeps the product from being fused with the sum, which would round otherwise on some machines.
	base := float64(z.eta*u) - z.eta + 1
	return min(int(z.n*math.Pow(base, 1/(1-z.skew))), int(z.n)-1)
}
