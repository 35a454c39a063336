package reserve

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// paper adds the ARK paper's workload: Zipf 0.7 over 1,000 to 51,200 tokens of 128 KiB, Poisson arrivals, eight hosts to eight.
func (p *plant) paper(seed uint64, requests int, qps float64) {
	rng := rand.New(rand.NewPCG(seed, 1234))
	const lo, hi, theta = 1000, 51200, 0.7
	sum := 0.0
	var cdf []float64
	for i := 1; i <= hi-lo+1; i++ {
		sum += math.Pow(float64(i), -theta)
		cdf = append(cdf, sum)
	}
	var now float64
	for range requests {
		now += rng.ExpFloat64() / qps
		u, a, b := rng.Float64()*sum, 0, len(cdf)-1
		for a < b {
			if m := (a + b) / 2; cdf[m] < u {
				a = m + 1
			} else {
				b = m
			}
		}
		p.arrive(time.Duration((now+0.84)*1e9), rng.IntN(8), 8+rng.IntN(8), int64(lo+a)*131072)
	}
}

// The gain over ECMP on the paper's workload, by a fluid model of its own: a check of the rule, not the figure of record.
func TestGainOfTheSchedule(t *testing.T) {
	seeds, delays, rates := uint64(1), []time.Duration{5 * time.Millisecond}, []float64{25}
	if os.Getenv("SHOAL_GAIN") != "" {
		fmt.Sscan(os.Getenv("SHOAL_GAIN"), &seeds)
		delays, rates = []time.Duration{500 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}, []float64{5, 25, 30}
	}
	if q := os.Getenv("SHOAL_QPS"); q != "" {
		rates = nil
		for _, f := range strings.Split(q, ",") {
			v, _ := strconv.ParseFloat(f, 64)
			rates = append(rates, v)
		}
	}
	if q := os.Getenv("SHOAL_DELAYS"); q != "" {
		delays = nil
		for _, f := range strings.Split(q, ",") {
			v, _ := time.ParseDuration(f)
			delays = append(delays, v)
		}
	}
	announce, _ := time.ParseDuration(cmp.Or(os.Getenv("SHOAL_ANNOUNCE"), "840ms"))
	skew, _ := time.ParseDuration(cmp.Or(os.Getenv("SHOAL_SKEW"), "0"))
	jitter, _ := time.ParseDuration(cmp.Or(os.Getenv("SHOAL_JITTER"), "0"))
	maxDelay, _ := time.ParseDuration(cmp.Or(os.Getenv("SHOAL_MAXDELAY"), "50ms"))
	lose, _ := strconv.ParseFloat(cmp.Or(os.Getenv("SHOAL_LOSE"), "0"), 64)
	blind := os.Getenv("SHOAL_BLIND") != ""
	maxSlow, _ := strconv.ParseInt(cmp.Or(os.Getenv("SHOAL_MAXSLOW"), "0"), 10, 64)
	requests := 1000
	if seeds == 1 {
		requests = 300
	}
	for _, qps := range rates {
		for _, d := range delays {
			line := fmt.Sprintf("QPS %v, %v:", qps, d)
			base := [2]float64{}
			for _, policy := range []Policy{ECMP, Ark, Least, Shoal} {
				var mean, p95, p99 float64
				var st Stats
				var own, all int64
				for s := range seeds {
					p := newPlant(t, s+1, plantConfig{leaves: 2, spines: 4, perLeaf: 8, rate: 100e9, delay: d, policy: policy, efficiency: 1000.0 / 1036, announce: announce, skew: skew, jitter: jitter, lose: lose, blind: blind,
						change: func(c *Config) {
							c.MaxDelay = maxDelay
							if maxSlow > 0 {
								c.MaxSlowdown = maxSlow
							}
						}})
					p.paper(s+1, requests, qps)
					p.run(10 * time.Minute)
					m, q := p.fct(95)
					_, r := p.fct(99)
					mean, p95, p99 = mean+m.Seconds()/float64(seeds), p95+q.Seconds()/float64(seeds), p99+r.Seconds()/float64(seeds)
					for _, h := range p.hosts {
						x := h.table.Stats()
						own, all = own+h.table.slow.permille(), all+h.table.othersSlow.permille()
						st.Scheduled += x.Scheduled
						st.Unwaited += x.Unwaited
						st.Distrusts += x.Distrusts
						st.Corrected += x.Corrected
						st.Conflicts += x.Conflicts
						st.Moves += x.Moves
						st.GivenUp += x.GivenUp
					}
				}
				if policy == ECMP {
					base = [2]float64{mean, p95}
				}
				line += fmt.Sprintf(" %v %.3f/%.3f p99 %.3f (-%.1f/-%.1f)", policy, mean, p95, p99, 100*(1-mean/base[0]), 100*(1-p95/base[1]))
				if policy == Shoal {
					line += fmt.Sprintf(" scheduled %d unwaited %d distrusts %d corrected %d conflicts %d moves %d givenup %d own %d all %d", st.Scheduled, st.Unwaited, st.Distrusts, st.Corrected, st.Conflicts, st.Moves, st.GivenUp, own/16/int64(seeds), all/16/int64(seeds))
					if seeds == 1 && (mean > 0.6*base[0] || p95 > 0.6*base[1]) {
						t.Errorf("the gain is gone")
					}
				}
			}
			t.Log(line)
		}
	}
}
