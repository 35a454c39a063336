package route

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// readMooncake reads a trace of the Mooncake release: one request a line, blocks of 512 tokens. Its clock ticks every
// 3 s, with some ten requests at once; steady spreads them over their tick, since no clients come in step.
func readMooncake(path string, steady bool) ([]traceRequest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var trace []traceRequest
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var l struct {
			Timestamp int64    `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: request %d: %w", path, len(trace), err)
		}
		trace = append(trace, traceRequest{time.Duration(l.Timestamp) * time.Millisecond, l.Hashes, l.Input, l.Output})
	}
	if steady {
		const tick = 3 * time.Second
		rng := rand.New(rand.NewPCG(7, 7))
		times := make([]time.Duration, len(trace))
		for i := range trace {
			times[i] = (trace[i].at+tick/2)/tick*tick + time.Duration(rng.Int64N(int64(tick)))
		}
		slices.Sort(times)
		for i := range trace {
			trace[i].at = times[i]
		}
	}
	return trace, nil
}

// conversations makes a trace in the shape of Mooncake's: all prompts share their first block; four in ten turns are
// followed by another, up to a minute later, with all that was said and something more.
func conversations(n int, perSecond float64, seed uint64) []traceRequest {
	rng := rand.New(rand.NewPCG(seed, 2))
	type turn struct {
		at     time.Duration
		blocks []uint64
	}
	var going []turn // to come, in no order
	var trace []traceRequest
	next, now := uint64(1), time.Duration(0)
	grow := func(chain []uint64) []uint64 {
		chain = slices.Clone(chain)
		for range 2 + rng.IntN(20) {
			next++
			chain = append(chain, next)
		}
		return chain
	}
	for len(trace) < n {
		now += time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second))
		blocks := grow([]uint64{0})
		for i := range going {
			if going[i].at <= now {
				blocks = grow(going[i].blocks)
				going = slices.Delete(going, i, i+1)
				break
			}
		}
		trace = append(trace, traceRequest{at: now, blocks: blocks, tokens: len(blocks)*512 - rng.IntN(512), output: 50 + rng.IntN(500)})
		if rng.IntN(100) < 40 {
			going = append(going, turn{now + time.Duration(5+rng.IntN(60))*time.Second, blocks})
		}
	}
	return trace
}

// fewShot makes the workload of the paper's kind: questions of 40 to 160 tokens below one of 57 prefixes of 938 tokens on
// average, chosen by Zipf's law with the given skew; blocks of 16 tokens.
func fewShot(n int, skew, perSecond float64, seed uint64) []traceRequest {
	const subjects = 57
	rng := rand.New(rand.NewPCG(seed, 3))
	var length [subjects]int
	var upTo [subjects]float64
	sum := 0.0
	for i := range subjects {
		length[i] = 500 + rng.IntN(876)
		sum += math.Pow(float64(i+1), -skew)
		upTo[i] = sum
	}
	var trace []traceRequest
	now, next := time.Duration(0), uint64(1<<20)
	for range n {
		now += time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second))
		u, k := rng.Float64()*sum, 0
		for k < subjects-1 && upTo[k] < u {
			k++
		}
		tokens := length[k] + 40 + rng.IntN(121)
		var blocks []uint64
		for j := range (tokens + 15) / 16 {
			if (j+1)*16 <= length[k] {
				blocks = append(blocks, uint64(k*1000+j+1))
				continue
			}
			next++
			blocks = append(blocks, next)
		}
		trace = append(trace, traceRequest{at: now, blocks: blocks, tokens: tokens, output: 8})
	}
	return trace
}
