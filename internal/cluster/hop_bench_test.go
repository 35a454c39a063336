package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shoal/internal/prefix"
	"shoal/internal/wire"
)

// BenchmarkHop compares what could carry a hop: HTTP/1.1 and HTTP/2 as net/http has them, and frames on kept
// connections, which is what the cluster uses. Each does the same work: it brings an encoded Forward and a body to the
// other side, and an answer back, over loopback. cpu-us/op is the CPU time of the whole process, so of both sides, system
// calls included. docs/decisions/0002-hop-protocol.md has the table and the command.
func BenchmarkHop(b *testing.B) {
	for _, sec := range []string{"clear", "mtls"} {
		for _, proto := range []string{"http1", "http2", "frames"} {
			for _, kb := range []float64{0.5, 10, 100} {
				for _, answer := range []string{"plain", "stream"} {
					for _, conc := range []int{1, 8} {
						b.Run(fmt.Sprintf("%s/%s/%gkB/%s/c%d", sec, proto, kb, answer, conc), func(b *testing.B) {
							benchHop(b, sec == "mtls", proto, int(kb*1000), answer == "stream", conc)
						})
					}
				}
			}
		}
	}
}

// carrier sends one request and reads the whole answer.
type carrier func(f *wire.Forward, body []byte) error

func benchHop(b *testing.B, mtls bool, proto string, size int, stream bool, conc int) {
	var send carrier
	switch proto {
	case "http1":
		send = httpCarrier(b, mtls, false, stream)
	case "http2":
		send = httpCarrier(b, mtls, true, stream)
	case "frames":
		send = frameCarrier(b, mtls)
	}
	f := benchForward(size, stream)
	body := bytes.Repeat([]byte("x"), size)
	for range 4 * conc {
		if err := send(f, body); err != nil {
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, 0, 1<<16)
	b.ReportAllocs()
	var ops int
	cpu := cpuTime()
	if conc == 1 {
		for b.Loop() {
			begun := time.Now()
			if err := send(f, body); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begun))
		}
		ops = len(took)
	} else {
		var mu sync.Mutex
		b.SetParallelism((conc + 1) / 2) // of two CPUs
		b.RunParallel(func(pb *testing.PB) {
			var mine []time.Duration
			for pb.Next() {
				begun := time.Now()
				if err := send(f, body); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(begun))
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
		ops = len(took)
	}
	used := cpuTime() - cpu
	slices.Sort(took)
	b.ReportMetric(float64(used.Microseconds())/float64(ops), "cpu-us/op")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// benchForward is a request of a chat client: a prompt of the given size, a few headers.
func benchForward(size int, stream bool) *wire.Forward {
	f := &wire.Forward{ID: "0123456789abcdef", Method: "POST", Path: "/v1/chat/completions", Model: "SmolLM2-135M-Instruct",
		Header: []wire.Pair{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "*/*"},
			{Name: "User-Agent", Value: "OpenAI/Python 1.0"}, {Name: "X-Request-Id", Value: "0123456789abcdef"},
			{Name: "Traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
		Bytes: size, BodyLen: int64(size), MaxTokens: 64, Stream: stream}
	for i := range size / prefix.BlockBytes {
		f.Chain = append(f.Chain, prefix.Hash(uint64(i)*0x9e3779b97f4a7c15))
	}
	return f
}

var (
	benchPlain = []byte(strings.Repeat("a", 1000))
	benchChunk = []byte("data: " + strings.Repeat("c", 180) + "\n\n")
)

const benchChunks = 16

func benchServe(s *HopStream) {
	if len(s.Body()) != int(s.Forward().BodyLen) {
		panic("body")
	}
	s.Accept(&wire.Accept{})
	s.Head(&wire.Head{Status: 200, Header: []wire.Pair{{Name: "Content-Type", Value: "application/json"}}})
	if s.Forward().Stream {
		for range benchChunks {
			s.Data(benchChunk)
		}
	} else {
		s.Data(benchPlain)
	}
	s.End(&wire.End{})
}

func frameCarrier(b *testing.B, mtls bool) carrier {
	opts := []option{serving(benchServe), hooked(func(h *hooks) { h.tune = nil }), with(func(c *Config) {
		if mtls {
			c.Keys = []Key{{1}}
		}
		c.Interval = time.Hour
	})}
	one, _ := pair(b, opts...)
	return func(f *wire.Forward, body []byte) error {
		h, err := one.c.OpenHop(context.Background(), "b", f, body)
		if err != nil {
			return err
		}
		defer h.Close()
		for {
			t, p, err := h.Recv()
			if err != nil {
				return err
			}
			switch t {
			case wire.TypeHead:
				var head wire.Head
				if err := wire.DecodeHead(p, &head); err != nil {
					return err
				}
			case wire.TypeEnd:
				var end wire.End
				return wire.DecodeEnd(p, &end)
			}
		}
	}
}

// httpCarrier sends the Forward in front of the body, which is the cheapest that HTTP could do.
func httpCarrier(b *testing.B, mtls, h2, stream bool) carrier {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			panic(err)
		}
		var f wire.Forward
		n := binary.LittleEndian.Uint32(body)
		if err := wire.DecodeForward(body[4:4+n], &f); err != nil || len(body)-4-int(n) != int(f.BodyLen) {
			panic("body")
		}
		w.Header().Set("Content-Type", "application/json")
		if f.Stream {
			for range benchChunks {
				w.Write(benchChunk)
				w.(http.Flusher).Flush()
			}
			return
		}
		w.Write(benchPlain)
	})}
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	tr.Protocols, srv.Protocols = new(http.Protocols), new(http.Protocols)
	for _, p := range []*http.Protocols{tr.Protocols, srv.Protocols} {
		p.SetHTTP1(!h2)
		p.SetHTTP2(h2 && mtls)
		p.SetUnencryptedHTTP2(h2 && !mtls)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	url := "http://" + ln.Addr().String() + "/hop"
	if mtls {
		url = "https://" + ln.Addr().String() + "/hop"
		server, client, _, err := tlsConfigs("b", []Key{{1}})
		if err != nil {
			b.Fatal(err)
		}
		if h2 {
			server.NextProtos, client.NextProtos = []string{"h2"}, []string{"h2"}
		}
		tr.TLSClientConfig = client
		ln = tls.NewListener(ln, server)
	}
	go srv.Serve(ln)
	b.Cleanup(func() { srv.Close(); tr.CloseIdleConnections() })
	client := &http.Client{Transport: tr}
	bufs := sync.Pool{New: func() any { return new([]byte) }}
	scratch := sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}
	return func(f *wire.Forward, body []byte) error {
		buf := bufs.Get().(*[]byte)
		defer bufs.Put(buf)
		msg, err := wire.AppendForward(append((*buf)[:0], 0, 0, 0, 0), f)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(msg, uint32(len(msg)-4))
		msg = append(msg, body...)
		*buf = msg
		req, err := http.NewRequest("POST", url, bytes.NewReader(msg))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		p := scratch.Get().(*[]byte)
		defer scratch.Put(p)
		n, want := 0, len(benchPlain)
		if stream {
			want = benchChunks * len(benchChunk)
		}
		for {
			m, err := resp.Body.Read(*p)
			if n += m; err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
		if n != want {
			return fmt.Errorf("%d bytes of %d", n, want)
		}
		return nil
	}
}
