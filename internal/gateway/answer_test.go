package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"shoal/internal/node"
)

// nobody asks an answer for its fields, in tests of the answer alone.
type nobody struct{ first int }

func (n *nobody) ownHeader(http.Header) {}
func (n *nobody) firstByte()            { n.first++ }

// However a stream is split on its way, the client gets the same bytes, in pieces that end with lines; and when it breaks
// off, what it has got is whole lines and an error event.
func TestStreamsArriveWhateverTheirPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"data: {\"n\":1}\n\n", "data: {\"n\":2}\r\n\r\n", ": ping\n\n", "event: x\ndata: y\n\n",
			"data: " + strings.Repeat("z", 300) + "\n\n", "\n", "data: [DONE]\n\n", "unfinished"}), 1, 12).Draw(t, "events"), "")
		w := httptest.NewRecorder()
		cfg := Defaults()
		var n nobody
		a := answer{w: w, ctl: http.NewResponseController(w), cfg: &cfg, about: &n, json: true}
		a.Head(200, http.Header{"Content-Type": {"text/event-stream"}})
		for left := stream; left != ""; {
			k := rapid.IntRange(1, len(left)).Draw(t, "piece")
			if err := a.Data([]byte(left[:k])); err != nil {
				t.Fatal(err)
			}
			left = left[k:]
			if got := w.Body.String(); !strings.HasPrefix(stream, got) || got != "" && !strings.HasSuffix(got, "\n") && !strings.HasSuffix(got, "\r") {
				t.Fatalf("sent %q of %q", got, stream)
			}
		}
		if n.first > 1 || n.first == 0 && strings.Contains(stream, "\n") {
			t.Fatalf("the first byte was told %d times", n.first)
		}
		if a.state == begun && rapid.Bool().Draw(t, "breaks") {
			before := w.Body.String()
			if !a.breakOff((&failure{cause: brokeOff}).ending()) {
				t.Fatal("not ended in an orderly way")
			}
			rest := strings.TrimPrefix(w.Body.String(), before)
			if !strings.HasPrefix(strings.TrimLeft(rest, "\n"), `data: {"error":`) || !strings.HasSuffix(rest, "}\n\n") || !endsInError(w.Body.Bytes()) {
				t.Fatalf("ended by %q", rest)
			}
			if !betweenEvents([]byte(before)) && !strings.HasPrefix(rest, "\n") {
				t.Fatalf("%q runs into %q", before, rest)
			}
			return
		}
		a.complete()
		if w.Body.String() != stream {
			t.Fatalf("got %q, sent %q", w.Body, stream)
		}
	})
}

func TestAnUnfinishedLineHasALimit(t *testing.T) {
	w := httptest.NewRecorder()
	cfg := Defaults()
	a := answer{w: w, ctl: http.NewResponseController(w), cfg: &cfg, about: &nobody{}}
	a.Head(200, http.Header{"Content-Type": {"text/event-stream"}})
	piece := bytes.Repeat([]byte("x"), maxLine)
	if a.Data(piece); w.Body.Len() != 0 {
		t.Errorf("at the limit %d bytes are sent", w.Body.Len())
	}
	if a.Data([]byte("y")); w.Body.Len() != maxLine+1 {
		t.Errorf("above the limit %d bytes are sent", w.Body.Len())
	}
}

func TestAPlainAnswerIsHeldBackUpToItsLimit(t *testing.T) {
	for n, sent := range map[int]bool{1000: false, 1001: true} {
		w := httptest.NewRecorder()
		cfg := Defaults()
		cfg.MaxPlain = 1000
		a := answer{w: w, ctl: http.NewResponseController(w), cfg: &cfg, about: &nobody{}, json: true}
		a.Head(200, http.Header{})
		for range n {
			a.Data([]byte("x"))
		}
		if (w.Body.Len() > 0) != sent {
			t.Errorf("of %d bytes %d are sent", n, w.Body.Len())
		}
		a.complete()
		if w.Body.Len() != n || (w.Header().Get("Content-Length") == "") != sent {
			t.Errorf("of %d bytes %d came, with Content-Length %q", n, w.Body.Len(), w.Header().Get("Content-Length"))
		}
	}
}

func TestErrorEventsAreRecognised(t *testing.T) {
	for tail, want := range map[string]bool{
		"": false, "\n\n": false, "data: {}\n\n": false, "data: [DONE]\n\n": false, "data: {\"error\":{}}\n\n": true, "data:{\"error\":1}\n\n": true,
		"data: {\"n\":1}\n\ndata: {\"error\":{}}\n\n": true, "data: {\"error\":{}}\n\ndata: {\"n\":1}\n\n": false, "event: error\ndata: x\n\n": true,
		"event: error\n\ndata: x\n\n": false, "error: {}\n\n": true, "x\r\n\r\ndata: {\"error\":{}}\r\n\r\n": true, "data: { \"error\" : {}}\n": true,
		"data: {\"text\":\"{\\\"error\\\":1}\"}\n\n": false, "half of it\n\ndata: {\"err": false,
	} {
		if got := endsInError([]byte(tail)); got != want {
			t.Errorf("%q: %v", tail, got)
		}
	}
}

func TestMetricsAreCounted(t *testing.T) {
	a := peersThat(fallSilent, decline(node.QueueFull), good)
	g, url := front(t, a)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(g); err != nil {
		t.Fatal(err)
	}
	post(t, url+pathChat, hello)
	post(t, url+pathChat, `{}`)
	do(t, http.MethodGet, url+pathModels, "")
	quiet(t, g, a)
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += "," + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"shoal_gateway_requests_total,200,chat,not-decided": 1, "shoal_gateway_requests_total,400,chat,": 1, "shoal_gateway_requests_total,200,models,": 1,
		"shoal_gateway_retries_total,silent": 1, "shoal_gateway_retries_total,queue-full": 1, "shoal_gateway_in_flight": 0,
		"shoal_gateway_hops_total,out,ended": 1, "shoal_gateway_hops_total,out,silent": 1, "shoal_gateway_hops_total,out,declined": 1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v; there are %v", name, v, got)
		}
	}
}
