package engine

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"shoal/internal/emulate"
)

// BenchmarkTransportInstead is the same by net/http's Transport, which the client of this package stands in for: two goroutines a
// connection, and a request handed from one to the other.
func BenchmarkTransportInstead(b *testing.B) {
	_, e := emulatedEngine(b, emulate.Instant())
	url := "http://" + e.(*openai).cl.addr + "/v1/chat/completions"
	tr := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	defer tr.CloseIdleConnections()
	buf := make([]byte, 32<<10)
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("prompt=10000/stream=%v", stream), func(b *testing.B) {
			body := chat(strings.Repeat("word", 2500), fmt.Sprintf(`,"max_tokens":16,"stream":%v`, stream))
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), "POST", url, bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				r, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = r.Body.Read(buf)
				}
				r.Body.Close()
			}
		})
	}
}

// BenchmarkInstantEngine is a request to an emulated engine without delays and back, both sides in this process: what a
// gateway in between adds to.
func BenchmarkInstantEngine(b *testing.B) {
	_, e := emulatedEngine(b, emulate.Instant())
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"benchmark"}, "Accept": {"*/*"}}
	buf := make([]byte, 32<<10)
	for _, size := range []int{500, 10_000, 100_000} {
		for _, stream := range []bool{false, true} {
			b.Run(fmt.Sprintf("prompt=%d/stream=%v", size, stream), func(b *testing.B) {
				body := chat(strings.Repeat("word", size/4), fmt.Sprintf(`,"max_tokens":16,"stream":%v`, stream))
				b.ReportAllocs()
				for b.Loop() {
					r, err := e.Do(b.Context(), &Request{Path: "/v1/chat/completions", Header: header, Body: body, Stream: stream, Chat: true})
					if err != nil {
						b.Fatal(err)
					}
					for err == nil {
						_, err = r.Body.Read(buf)
					}
					if err != io.EOF {
						b.Fatal(err)
					}
					r.Body.Close()
				}
			})
		}
	}
}
