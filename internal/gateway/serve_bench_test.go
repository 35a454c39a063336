package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/wire"
)

// still is a Shoal that counts nothing, before an engine that answers at once.
type still struct{ e engine.Engine }

func (s still) Self() peer.ID { return "a" }
func (s still) Resolve(string) (ModelEntry, bool) {
	return ModelEntry{Name: "m", Salts: true}, true
}
func (s still) Models() []ModelEntry { return nil }
func (s still) Route(r *node.Request, d *node.Decision) {
	d.Legs = append(d.Legs[:0], node.Leg{Peer: "a", Self: true})
}
func (s still) Dispatch(*node.Request, node.Leg) node.Ticket { return 1 }
func (s still) Accepted(node.Ticket, replica.Stamp)          {}
func (s still) Settle(node.Ticket, node.Outcome)             {}
func (s still) Admit(*node.Request, node.Expect) (node.Serving, *node.Decline) {
	return 1, nil
}
func (s still) Stamp(node.Serving) replica.Stamp   { return replica.Stamp{} }
func (s still) Started(node.Serving)               {}
func (s still) FirstToken(node.Serving)            {}
func (s still) End(node.Serving, node.Usage, bool) {}
func (s still) Engine() engine.Engine              { return s.e }
func (s still) Gate() *engine.Gate                 { return nil }
func (s still) EngineFailed(error)                 {}
func (s still) OpenHop(context.Context, peer.ID, *wire.Forward, []byte) (Hop, error) {
	return nil, io.EOF
}

type canned struct{ body string }

func (c canned) Do(context.Context, *engine.Request) (*engine.Response, error) {
	return &engine.Response{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(c.body)), Usage: engine.UnknownUsage}, nil
}
func (c canned) Probe(context.Context) (engine.Report, error) { return engine.Report{}, nil }
func (c canned) Traits() engine.Traits                        { return engine.Traits{} }
func (c canned) Close() error                                 { return nil }

type sinkWriter struct{ h http.Header }

func (w *sinkWriter) Header() http.Header         { return w.h }
func (w *sinkWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *sinkWriter) WriteHeader(int)             {}
func (w *sinkWriter) Flush()                      {}

func (w *sinkWriter) SetReadDeadline(time.Time) error  { return nil }
func (w *sinkWriter) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkServe is the gateway's own work for one request, without any network.
func BenchmarkServe(b *testing.B) {
	g := gatewayOf(b, newShoal("a", nil))
	g.shoal = still{canned{`{"choices":[]}`}}
	for _, size := range []int{500, 10_000, 100_000} {
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("some words of a prompt\\n ", size/25) + `"}]}`)
		b.Run("bytes="+strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest(http.MethodPost, pathChat, nil)
			r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer x"}, "User-Agent": {"x"}, "Accept": {"*/*"}}
			r.ContentLength = int64(len(body))
			rd := bytes.NewReader(body)
			w := &sinkWriter{h: http.Header{}}
			for b.Loop() {
				rd.Reset(body)
				r.Body = io.NopCloser(rd)
				clear(w.h)
				g.ServeHTTP(w, r)
			}
		})
	}
}
