package wire

import (
	"fmt"
	"testing"
	"time"

	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// hop is what one forwarded request sends both ways: a prompt of 40 blocks, a client's usual header, an answer's.
func hop() (*Forward, *Accept, *Head, *End) {
	f := &Forward{
		ID: "0b6cfd0d-5b52-4fb2-9a27-7d4f8b1c2a90", Method: "POST", Path: "/v1/chat/completions", Model: "meta-llama/Llama-3.1-8B-Instruct", Bytes: 10300, BodyLen: 11000,
		MaxTokens: 256, Stream: true, Expect: node.Expect{Hopped: true, MatchBlocks: 36, ServeCost: 40 * time.Millisecond, Margin: 5 * time.Millisecond},
	}
	for i := range 12 {
		f.Header = append(f.Header, Pair{fmt.Sprintf("X-Stainless-Field-%d", i), "a value of usual length"})
	}
	for i := range 40 {
		f.Chain = append(f.Chain, prefix.Hash(i)*0x9e3779b97f4a7c15)
	}
	h := &Head{Status: 200, Header: []Pair{{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}}
	return f, &Accept{replica.Stamp{Incarnation: 1_790_000_000_000, Version: 12345}}, h, &End{node.Usage{Prompt: 2500, Cached: 2304, Completion: 200}}
}

func BenchmarkForward(b *testing.B) {
	f, _, _, _ := hop()
	buf, _ := AppendForward(nil, f)
	var got Forward
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = AppendForward(buf[:0], f)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := DecodeForward(buf, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHop is all messages of a hop but its bodies, encoded and decoded.
func BenchmarkHop(b *testing.B) {
	f, a, h, e := hop()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		var gf Forward
		var ga Accept
		var gh Head
		var ge End
		buf, _ = AppendForward(buf[:0], f)
		err := DecodeForward(buf, &gf)
		buf = AppendAccept(buf[:0], a)
		if err == nil {
			err = DecodeAccept(buf, &ga)
		}
		buf, _ = AppendHead(buf[:0], h)
		if err == nil {
			err = DecodeHead(buf, &gh)
		}
		buf = AppendEnd(buf[:0], e)
		if err == nil {
			err = DecodeEnd(buf, &ge)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	l := peer.PriorLoad()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendLoad(buf[:0], &l)
		if err := DecodeLoad(buf, &l); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSummary is the first message of a round among a thousand peers.
func BenchmarkSummary(b *testing.B) {
	x := &Exchange{Begin: true}
	for i := range 1000 {
		x.Summaries = append(x.Summaries, replica.Summary{Owner: peer.ID(fmt.Sprintf("peer-%04d", i)), Stamp: replica.Stamp{Incarnation: 1_790_000_000_000, Version: uint64(i * 77)}, Digest: uint64(i) << 50})
	}
	var buf []byte
	var size int
	b.ReportAllocs()
	for b.Loop() {
		var got Exchange
		if err := ExchangeFrames(x, buf, func(p []byte) error {
			buf, size = p, len(p)
			_, err := DecodeExchange(p, &got)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkCopy is a complete copy of 30,000 blocks.
func BenchmarkCopy(b *testing.B) {
	d := bigCopy(b, 30000)[0]
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = AppendDelta(buf[:0], d)
		if _, err := DecodeDelta(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}
