package body

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fastjson"

	"shoal/internal/prefix"
)

// chatBody is what a coding assistant sends: a system prompt, two tools, and messages of prose, code and quotes, so that
// every eighty bytes or so a newline or a quote is escaped, and here and there a letter is not ASCII. About size bytes.
func chatBody(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the a of peer block prefix match route engine cache token answer holds what which is not in to and for " +
		"because there several first last whole naïve café prompt return func if err nil range := value \"quoted\" 'text' { } ( ) —")
	text := func(n int) string {
		var b strings.Builder
		for line := 0; b.Len() < n; line++ {
			for range 8 + rng.IntN(6) {
				b.WriteString(words[rng.IntN(len(words))])
				b.WriteByte(' ')
			}
			b.WriteByte('\n')
			if line%4 == 3 {
				b.WriteByte('\t')
			}
		}
		return b.String()[:n]
	}
	tool := func(name string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "description": text(200), "parameters": map[string]any{
			"type": "object", "required": []string{"path"}, "properties": map[string]any{"path": map[string]any{"type": "string", "description": text(60)}}}}}
	}
	msgs := []map[string]any{{"role": "system", "content": text(size / 5)}}
	for n := 0; len(msgs) < 9; n++ {
		role := []string{"user", "assistant"}[n%2]
		if n%4 == 2 {
			msgs = append(msgs, map[string]any{"role": role, "content": []map[string]any{{"type": "text", "text": text(size / 11)}}})
			continue
		}
		msgs = append(msgs, map[string]any{"role": role, "content": text(size / 11)})
	}
	b, err := json.Marshal(map[string]any{"model": "SmolLM2-135M-Instruct", "messages": msgs, "stream": true, "max_tokens": 256, "temperature": 0.7,
		"stream_options": map[string]any{"include_usage": true}, "tools": []any{tool("read_file"), tool("list_directory")}})
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkFigure_body_to_blocks_100kb_us is the time from a chat body of 100 kB to its block hashes: the check of the
// whole body, the fields that the gateway uses, and the chain. It is the median of many batches.
func BenchmarkFigure_body_to_blocks_100kb_us(b *testing.B) {
	const batch = 20
	body := chatBody(100_000)
	var s Scanner
	var c prefix.Chain
	toBlocks(b, &s, &c, body)
	b.ReportAllocs()
	b.SetBytes(int64(batch * len(body)))
	var batches []time.Duration
	for b.Loop() {
		start := time.Now()
		for range batch {
			toBlocks(b, &s, &c, body)
		}
		batches = append(batches, time.Since(start)/batch)
	}
	slices.Sort(batches)
	b.ReportMetric(float64(batches[len(batches)/2].Nanoseconds())/1e3, "us")
}

func toBlocks(tb testing.TB, s *Scanner, c *prefix.Chain, body []byte) {
	if err := s.Scan(Chat, body); err != nil {
		tb.Fatal(err)
	}
	c.Reset(prefix.Domain{Model: s.Model, Salt: s.CacheSalt}.Root())
	s.Render(c)
	if len(c.Blocks()) == 0 {
		tb.Fatal("no blocks")
	}
}

func BenchmarkBodyToBlocks(b *testing.B) {
	for _, size := range []int{500, 10_000, 100_000} {
		body := chatBody(size)
		for _, part := range []string{"scan", "whole"} {
			b.Run(fmt.Sprintf("%s/%d", part, len(body)), func(b *testing.B) {
				var s Scanner
				var c prefix.Chain
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if part == "whole" {
						toBlocks(b, &s, &c, body)
					} else if err := s.Scan(Chat, body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLibraries is what the scan is measured against: the same body only parsed, and only checked, by a fast library
// and by the standard one.
func BenchmarkLibraries(b *testing.B) {
	body := chatBody(100_000)
	b.Run("fastjson-parse", func(b *testing.B) {
		var p fastjson.Parser
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.ParseBytes(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fastjson-validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := fastjson.ValidateBytes(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json-valid", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !json.Valid(body) {
				b.Fatal("not valid")
			}
		}
	})
}
