package reserve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
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

// The gain over ECMP on the paper's workload, by a fluid model of its own, and what is left of it where something is wrong:
// a check of the rule, not the figure of record. SHOAL_GAIN=8 goes through more cases, with so many seeds of 1,000 transfers.
func TestGainOfTheSchedule(t *testing.T) {
	good := plantConfig{leaves: 2, spines: 4, perLeaf: 8, rate: 100e9, delay: 5 * time.Millisecond, efficiency: 1000.0 / 1036, announce: 840 * time.Millisecond}
	with := func(change func(*plantConfig)) plantConfig {
		c := good
		change(&c)
		return c
	}
	type gainCase struct {
		name  string
		qps   float64
		c     plantConfig
		least float64 // cut of the mean, in percent, by a fourth of the seeds
	}
	cases := []gainCase{
		{"5 ms", 25, good, 50},
		{"5 ms, without announcements", 25, with(func(c *plantConfig) { c.announce = 0 }), 45},
		{"a wrong map", 25, with(func(c *plantConfig) { c.blind = true }), -10},
	}
	seeds, requests := uint64(1), 200
	if n, err := strconv.ParseUint(os.Getenv("SHOAL_GAIN"), 10, 16); err == nil && n > 0 {
		seeds, requests = n, 1000
		for _, d := range []time.Duration{500 * time.Microsecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
			cases = append(cases, gainCase{d.String(), 25, with(func(c *plantConfig) { c.delay = d }), 50})
		}
		for _, q := range []float64{1, 5, 10, 15, 20, 30} {
			cases = append(cases, gainCase{"5 ms", q, good, -1})
		}
		cases = append(cases, gainCase{"jitter 100 ms", 25, with(func(c *plantConfig) { c.jitter = 100 * time.Millisecond }), 50},
			gainCase{"loss 10 %", 25, with(func(c *plantConfig) { c.lose = 0.1 }), 40},
			gainCase{"loss 30 %", 25, with(func(c *plantConfig) { c.lose = 0.3 }), 30},
			gainCase{"clocks differ by 20 ms", 25, with(func(c *plantConfig) { c.skew = 20 * time.Millisecond }), 40},
			gainCase{"clocks differ by 100 ms", 25, with(func(c *plantConfig) { c.skew = 100 * time.Millisecond }), 20},
			gainCase{"50 ms, without announcements", 25, with(func(c *plantConfig) { c.announce, c.delay = 0, 50*time.Millisecond }), 20})
	} else {
		t.Log("LEFT OUT: other loads, delays, losses and clocks; SHOAL_GAIN=8 has them, with 8 seeds each")
	}
	for _, g := range cases {
		line := fmt.Sprintf("QPS %v, %s:", g.qps, g.name)
		var base [2]float64
		for _, policy := range []Policy{ECMP, Least, Shoal} {
			var mean, p95, p99 float64
			var st Stats
			for s := range seeds {
				c := g.c
				c.policy = policy
				p := newPlant(t, s+1, c)
				p.paper(s+1, requests, g.qps)
				p.run(time.Hour)
				m, q := p.fct(95)
				_, r := p.fct(99)
				mean, p95, p99 = mean+m.Seconds()/float64(seeds), p95+q.Seconds()/float64(seeds), p99+r.Seconds()/float64(seeds)
				for _, h := range p.hosts {
					x := h.table.Stats()
					st.Scheduled, st.Unwaited, st.Conflicts, st.Distrusts = st.Scheduled+x.Scheduled, st.Unwaited+x.Unwaited, st.Conflicts+x.Conflicts, st.Distrusts+x.Distrusts
				}
			}
			if policy == ECMP {
				base = [2]float64{mean, p95}
			}
			line += fmt.Sprintf(" %v %.3f %.3f %.3f s (cut %.1f %.1f %%)", policy, mean, p95, p99, 100*(1-mean/base[0]), 100*(1-p95/base[1]))
			if cut := 100 * (1 - mean/base[0]); policy == Shoal && cut < g.least {
				t.Errorf("%s, QPS %v: the mean is cut by %.1f %%; want %.0f", g.name, g.qps, cut, g.least)
			}
			if policy == Shoal && (st.Distrusts > 0) != g.c.blind && g.c.lose == 0 && g.c.skew == 0 {
				t.Errorf("%s, QPS %v: trust is lost %d times", g.name, g.qps, st.Distrusts)
			}
		}
		t.Log(line)
	}
}
