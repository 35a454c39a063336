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

// noPushBack lets queues grow as long as they may.
func noPushBack(r replay) replay {
	r.pushBack = PushBackConfig{High: maxTime, HighWaiting: maxRequests}
	return r
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
		literal := noPushBack(mooncake(LongestPrefix, peers, 0, 1, 1)).run(trace)
		fmt.Fprintf(out, "longest-prefix without push-back\t%d\t0s\tx1\t%.1f\t\t\t%.0f\n", peers, literal.hitRate(), literal.largestShare())
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

func TestCostComesNearOneCacheOnConversations(t *testing.T) {
	const peers, blocks = 4, 500
	trace := conversations(2500, 3, 1)
	at := func(k Kind, interval time.Duration) *outcome {
		r := mooncake(k, peers, interval, 1, 1)
		r.cacheBlocks = blocks
		if k == LongestPrefix { // without the relief that push-back gives it
			r = noPushBack(r)
		}
		return r.run(trace)
	}
	one := oneCache(trace, peers*blocks)
	turns, longest := at(RoundRobin, lan), at(LongestPrefix, 0)
	for _, interval := range []time.Duration{0, lan, 5 * time.Second} {
		cost := at(Cost, interval)
		t.Logf("%v: cost %.1f %% in %v, largest %.0f %%; round-robin %.1f %% in %v; longest-prefix %.1f %%, largest %.0f %%; one cache %.1f %%", interval,
			cost.hitRate(), cost.meanTTFT(), cost.largestShare(), turns.hitRate(), turns.meanTTFT(), longest.hitRate(), longest.largestShare(), one)
		if cost.hitRate() < one-1 || cost.hitRate() < turns.hitRate()+10 {
			t.Errorf("%v: cost hits %.1f %%, round-robin %.1f %%, one cache as large as all %.1f %%", interval, cost.hitRate(), turns.hitRate(), one)
		}
		if cost.meanTTFT() > turns.meanTTFT()*9/10 {
			t.Errorf("%v: cost takes %v to the first token, round-robin %v", interval, cost.meanTTFT(), turns.meanTTFT())
		}
		if cost.largestShare() > 35 || longest.largestShare() < 90 {
			t.Errorf("%v: cost's busiest peer serves %.0f %%, longest-prefix's %.0f %%", interval, cost.largestShare(), longest.largestShare())
		}
	}
}

func TestCostBeatsRoundRobinAndSpreadsOnFewShot(t *testing.T) {
	for _, skew := range []float64{0, 1, 2} {
		trace := fewShot(1500, skew, 6, 1)
		turns := paper(RoundRobin, 1500, lan, 2*time.Millisecond, 1).run(trace)
		longest := paper(LongestPrefix, 1500, 0, 2*time.Millisecond, 1).run(trace)
		cost := paper(Cost, 1500, lan, 2*time.Millisecond, 1).run(trace)
		t.Logf("skew %v: cost %.1f %% in %v, largest %.0f %%; round-robin %.1f %% in %v; longest-prefix %.1f %% in %v, largest %.0f %%", skew,
			cost.hitRate(), cost.meanTTFT(), cost.largestShare(), turns.hitRate(), turns.meanTTFT(), longest.hitRate(), longest.meanTTFT(), longest.largestShare())
		if cost.hitRate() < turns.hitRate()+2 || cost.meanTTFT() > turns.meanTTFT()*9/10 {
			t.Errorf("skew %v: cost hits %.1f %% in %v, round-robin %.1f %% in %v", skew, cost.hitRate(), cost.meanTTFT(), turns.hitRate(), turns.meanTTFT())
		}
		if skew > 0 && cost.largestShare() > longest.largestShare()*8/10 {
			t.Errorf("skew %v: the busiest peer serves %.0f %%, under longest-prefix %.0f %%", skew, cost.largestShare(), longest.largestShare())
		}
	}
}

func TestNewcomerWarmsUpWithoutDrowning(t *testing.T) { // pitfalls 1
	trace := conversations(2500, 3, 2)
	r := mooncake(Cost, 5, lan, 1, 1)
	r.cacheBlocks = 500
	r.joins = trace[len(trace)/2].at
	o := r.run(trace)
	t.Logf("busy %v, served %v, p99 %v", o.joined, o.served, o.quantile(990))
	share := 100 * o.served[4] / (len(trace) / 2)
	if o.joined > 45*time.Second || share < 10 || share > 30 {
		t.Errorf("the fifth peer is busy for %v of its first minute and serves %d %% from its coming on", o.joined, share)
	}
	if before := mooncake(Cost, 4, lan, 1, 1); o.quantile(990) > 2*before.run(trace).quantile(990) {
		t.Errorf("p99 is %v with it, %v without", o.quantile(990), before.run(trace).quantile(990))
	}
}

func TestSlowPeerGetsLess(t *testing.T) {
	trace := conversations(2500, 3, 3)
	r := mooncake(Cost, 4, lan, 1, 1)
	r.cacheBlocks, r.slow = 500, 4
	o := r.run(trace)
	if share := 100 * o.served[3] / len(trace); share > 18 || share == 0 {
		t.Errorf("a peer of a quarter of the speed serves %d %%", share)
	}
	r.cfg.Policy = RoundRobin
	if turns := r.run(trace); o.meanTTFT() > turns.meanTTFT()*6/10 {
		t.Errorf("cost takes %v, round-robin %v", o.meanTTFT(), turns.meanTTFT())
	}
}

// A shoal that computes every prompt anew where it enters has less capacity than one that finds prefixes: served at home
// while all push back, a start with cold caches would never end.
func TestFullShoalKeepsItsHitsAndRecovers(t *testing.T) {
	trace := fewShot(2500, 0, 15, 1)
	o := paper(Cost, 1500, lan, 2*time.Millisecond, 1).run(trace)
	if late := o.ttft[len(o.ttft)*3/4:]; o.hitRate() < 80 || mean(late) > time.Second {
		t.Errorf("hits %.1f %%; the last quarter waits %v", o.hitRate(), mean(late))
	}
	if turns := noPushBack(paper(RoundRobin, 1500, lan, 2*time.Millisecond, 1)).run(trace); mean(turns.ttft[len(trace)*3/4:]) < 10*time.Second {
		t.Errorf("this load is no test: round-robin keeps up with it")
	}
}

func mean(d []time.Duration) time.Duration {
	o := outcome{ttft: d}
	return o.meanTTFT()
}

func TestReplayIsTheSameForTheSameSeed(t *testing.T) {
	trace := conversations(400, 3, 4)
	a, b := mooncake(Cost, 4, lan, 1, 5).run(trace), mooncake(Cost, 4, lan, 1, 5).run(trace)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("two replays with one seed differ")
	}
}
