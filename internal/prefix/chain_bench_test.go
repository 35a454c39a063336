package prefix

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Ten thousand tokens in blocks of 16.
func BenchmarkFigure_hash_10k_tokens_us(b *testing.B) {
	b.ReportAllocs()
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]uint32, 10_000)
	for i := range tokens {
		tokens[i] = r.Uint32N(150_000)
	}
	root := Domain{Model: "m"}.Root()
	var dst []Hash
	const batch = 16
	var passes []time.Duration
	for b.Loop() {
		start := time.Now()
		for range batch {
			dst = TokenBlocks(dst[:0], root, tokens, 16)
		}
		passes = append(passes, time.Since(start))
	}
	b.ReportMetric(float64(median(passes).Nanoseconds())/(1e3*batch), "us")
	b.ReportMetric(float64(quiet(passes).Nanoseconds())/(1e3*batch), "quiet-us")
}

// A chat of 100 kB of text, written as a gateway does: the hashing's share of body_to_blocks_100kb_us.
func BenchmarkChain100kB(b *testing.B) {
	b.ReportAllocs()
	text := make([]byte, 10_000)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	root := Domain{Model: "m"}.Root()
	b.SetBytes(100_000)
	var c Chain
	for b.Loop() {
		c.Reset(root)
		for range 10 {
			c.Message("user")
			c.Part("text")
			c.Write(text)
		}
		c.Finish()
	}
}

func BenchmarkRoot(b *testing.B) {
	b.ReportAllocs()
	d := Domain{Model: "HuggingFaceTB/SmolLM2-135M-Instruct", Tenant: "t"}
	for b.Loop() {
		d.Root()
	}
}
