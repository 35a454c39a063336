package route

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"
)

// policyOf is the default configuration with another policy.
func policyOf(k Kind) Config {
	c := Defaults()
	c.Policy = k
	return c
}

const lan = 500 * time.Millisecond // the anti-entropy interval of that preset

// mooncake is the setting of every evaluation on a Mooncake trace: 20,000 tokens/s of prefill and 5 ms of decode work a
// token, 1 ms away.
func mooncake(k Kind, peers int, interval time.Duration, speed float64, seed uint64) replay {
	return replay{peers: peers, cacheBlocks: 3000, blockTokens: 512, prefill: 50 * time.Microsecond, decode: 5 * time.Millisecond,
		interval: interval, rtt: time.Millisecond, speed: speed, cfg: policyOf(k), seed: seed}
}

// paper is the setting of the few-shot evaluation: an engine of 0.9 ms a token, as the paper's figures imply.
func paper(k Kind, cacheBlocks int, interval, rtt time.Duration, seed uint64) replay {
	return replay{peers: 4, cacheBlocks: cacheBlocks, blockTokens: 16, prefill: 900 * time.Microsecond, decode: 5 * time.Millisecond,
		interval: interval, rtt: rtt, speed: 1, cfg: policyOf(k), seed: seed}
}

// average runs a setting with several seeds.
func average(trace []traceRequest, seeds int, setting func(seed uint64) replay) (hit, share, hop float64, mean, p99 time.Duration, load float64) {
	for s := range seeds {
		r := setting(uint64(s + 1))
		o := r.run(trace)
		hit += o.hitRate() / float64(seeds)
		share += o.largestShare() / float64(seeds)
		hop += 100 * float64(o.hops) / float64(len(o.ttft)) / float64(seeds)
		mean += o.meanTTFT() / time.Duration(seeds)
		p99 += o.quantile(990) / time.Duration(seeds)
		load += float64(o.busy) / float64(o.span) / float64(r.peers) / float64(seeds)
	}
	return hit, share, hop, mean, p99, load
}

// TestMooncakeTrace prints the tables of docs/decisions/0001-cost-policy.md, and holds cost to them.
func TestMooncakeTrace(t *testing.T) {
	path := os.Getenv("SHOAL_MOONCAKE_TRACE")
	if path == "" {
		t.Skip("SHOAL_MOONCAKE_TRACE names no trace: the reduced form runs on made conversations")
	}
	trace, err := readMooncake(path, true)
	if err != nil {
		t.Fatal(err)
	}
	bursts, err := readMooncake(path, false)
	if err != nil {
		t.Fatal(err)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "policy\tpeers\tinterval\tspeed\thits %\tTTFT ms\tp99 ms\tlargest %\thops %\tbusy")
	row := func(name string, trace []traceRequest, k Kind, peers int, interval time.Duration, speed float64, seeds int) (float64, time.Duration) {
		hit, share, hop, mean, p99, load := average(trace, seeds, func(seed uint64) replay { return mooncake(k, peers, interval, speed, seed) })
		fmt.Fprintf(out, "%s\t%d\t%v\tx%v\t%.1f\t%d\t%d\t%.0f\t%.0f\t%.2f\n", name, peers, interval, speed, hit,
			mean.Milliseconds(), p99.Milliseconds(), share, hop, load)
		return hit, mean
	}
	for _, peers := range []int{4, 8, 16} {
		one := oneCache(trace, 3000*peers)
		fmt.Fprintf(out, "one cache\t%d\t\t\t%.1f\n", peers, one)
		for _, k := range []Kind{Local, Random, LongestPrefix} {
			row(k.String(), trace, k, peers, 0, 1, 1)
		}
		for _, speed := range []float64{0.5, 1, 2, 4} {
			_, turns := row("round-robin", trace, RoundRobin, peers, lan, speed, 1)
			hit, mean := row("cost", trace, Cost, peers, lan, speed, 3)
			if hit < one-0.3 || mean > turns {
				t.Errorf("%d peers, speed %v: cost hits %.2f %% in %v; one cache hits %.2f %%, round-robin takes %v", peers, speed, hit, mean, one, turns)
			}
		}
		row("cost", trace, Cost, peers, 0, 1, 3)
		row("cost", trace, Cost, peers, 5*time.Second, 1, 3)
		row("cost, trace's own ticks", bursts, Cost, peers, lan, 1, 3)
		row("round-robin, the same", bursts, RoundRobin, peers, lan, 1, 1)
	}
}

// TestFewShotTable prints the few-shot table of the same document.
func TestFewShotTable(t *testing.T) {
	if os.Getenv("SHOAL_MOONCAKE_TRACE") == "" {
		t.Skip("printed together with the Mooncake table only")
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "skew\tper s\tcache\tRTT\tpolicy\thits %\tTTFT ms\tp99 ms\tlargest %\thops %")
	for _, skew := range []float64{0, 1, 2} {
		for _, perSecond := range []float64{5, 15} {
			trace := fewShot(6000, skew, perSecond, 1)
			for _, blocks := range []int{1500, 6000} {
				for _, rtt := range []time.Duration{2 * time.Millisecond, 200 * time.Millisecond, time.Second} {
					if rtt > 2*time.Millisecond && (perSecond > 5 || blocks < 6000) {
						continue
					}
					for _, k := range []Kind{Local, RoundRobin, LongestPrefix, Cost} {
						hit, share, hop, mean, p99, _ := average(trace, 1, func(seed uint64) replay { return paper(k, blocks, lan, rtt, seed) })
						fmt.Fprintf(out, "%v\t%v\t%d\t%v\t%v\t%.1f\t%d\t%d\t%.0f\t%.0f\n", skew, perSecond, blocks*16, rtt, k, hit,
							mean.Milliseconds(), p99.Milliseconds(), share, hop)
					}
				}
			}
		}
	}
}
