package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/cluster"
	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/wire"
)

// pitfalls 18, 19
func TestAbortedStreamsFreeTheEngineAndLeaveNoCount(t *testing.T) {
	var at atomic.Int64 // requests at the engine
	h := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server looks for the client's going away once it has the body
		at.Add(1)
		defer at.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Header.Get("X-Silent") == "" {
			io.WriteString(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done() // decodes for nobody, until told
	}
	for _, hop := range []bool{false, true} {
		for _, silent := range []string{"", "1"} {
			t.Run(fmt.Sprintf("hop=%v,silent=%s", hop, silent), func(t *testing.T) {
				s := newShoal("b", engineAt(t, h))
				s.gate = engine.NewGate(30, 100) // some wait in the queue
				shoals := []*shoal{s}
				g, url := front(t, s)
				if hop {
					gb := g
					a := newShoal("a", nil)
					a.via("b")
					a.hop = func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
						return dial(ctx, f, body, func(p *hopPipe) { gb.ServeHop(p) }), nil
					}
					g, url = front(t, a)
					shoals = append(shoals, a)
				}
				client := &http.Client{Transport: &http.Transport{}}
				var wg sync.WaitGroup
				ctx, abort := context.WithCancel(t.Context())
				for range 50 {
					wg.Go(func() {
						r, _ := http.NewRequestWithContext(ctx, "POST", url+pathChat, strings.NewReader(helloStream))
						r.Header.Set("X-Silent", silent)
						res, err := client.Do(r)
						if err == nil {
							io.ReadAll(res.Body)
							res.Body.Close()
						}
					})
				}
				for waiting := 0; at.Load() < 30 || waiting < 20; _, waiting, _, _ = s.gate.State() {
					yield()
				}
				abort()
				wg.Wait()
				quiet(t, g, shoals...)
				for at.Load() != 0 {
					yield()
				}
				if n, waiting, _, _ := s.gate.State(); n != 0 || waiting != 0 {
					t.Errorf("%d in flight and %d waiting at the gate", n, waiting)
				}
				for _, s := range shoals {
					for _, o := range s.outcomes {
						if o.Kind != node.Canceled {
							t.Errorf("a hop ended as %v", o.Kind)
						}
					}
					if len(s.failed) != 0 {
						t.Errorf("the engine is blamed: %v", s.failed)
					}
				}
			})
		}
	}
}

// way is what one peer does with a hop.
type way func(p *hopPipe)

func accept(p *hopPipe) { p.Accept(&wire.Accept{}) }

func decline(reason node.DeclineReason) way {
	return func(p *hopPipe) {
		p.Decline(&node.Decline{Reason: reason, Load: peer.Load{InFlight: 5}, Match: 3, RetryAfter: 7 * time.Second})
	}
}

func failWith(code string) way {
	return func(p *hopPipe) {
		accept(p)
		p.Fail(&wire.Fail{Code: code, Message: "10.0.0.1 is down"})
	}
}

func lost(p *hopPipe) { accept(p) }

func fallSilent(p *hopPipe) {
	accept(p)
	p.why = fmt.Errorf("test: %w", cluster.ErrSilent)
}

func lostAfterHead(p *hopPipe) {
	accept(p)
	p.Head(&wire.Head{Status: 200, Header: []wire.Pair{{Name: "Content-Type", Value: "text/event-stream"}, {Name: "X-Of-The-Lost", Value: "1"}}})
}

func lostInPlain(p *hopPipe) {
	accept(p)
	p.Head(&wire.Head{Status: 200, Header: []wire.Pair{{Name: "Content-Type", Value: "application/json"}, {Name: "X-Of-The-Lost", Value: "1"}}})
	p.Data([]byte(`{"half":`))
}

func lostInTheFirstLine(p *hopPipe) {
	accept(p)
	p.Head(&wire.Head{Status: 200, Header: []wire.Pair{{Name: "Content-Type", Value: "text/event-stream"}}})
	p.Data([]byte(`data: {"half":`))
}

func garbage(p *hopPipe)          { p.send(wire.TypeDecline, []byte{0xff}) }
func dataFirst(p *hopPipe)        { accept(p); p.Data([]byte("x")) }
func endFirst(p *hopPipe)         { accept(p); p.End(&wire.End{}) }
func strangeFrame(p *hopPipe)     { p.send(wire.TypeHello, nil) }
func impossibleStatus(p *hopPipe) { accept(p); p.Head(&wire.Head{Status: 101}) }

func good(p *hopPipe) {
	accept(p)
	p.send(wire.TypeAlive, nil)
	p.send(wire.Type(200), []byte("from a later version"))
	p.Head(&wire.Head{Status: 200, Header: []wire.Pair{{Name: "Content-Type", Value: "application/json"}}})
	p.Data([]byte(`{"ok":true}`))
	p.End(&wire.End{})
}

// peersThat makes a with hops to b, c, d, e, which do as given; a nil way refuses the connection.
func peersThat(ways ...way) *shoal {
	a := newShoal("a", nil)
	names := []peer.ID{"b", "c", "d", "e"}
	a.via(names[:len(ways)]...)
	a.hop = func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
		w := ways[to[0]-'b']
		if w == nil {
			return nil, errors.New("test: dial 10.1.2.3: connection refused")
		}
		return dial(ctx, f, body, w), nil
	}
	return a
}

// pitfalls 20, 30
func TestWhatFailsBeforeTheFirstByteIsTriedAtTheNextBest(t *testing.T) {
	for name, w := range map[string]way{
		"refused": nil, "lost": lost, "silent": fallSilent, "lost after the head": lostAfterHead, "lost in a plain answer": lostInPlain, "lost in the first line": lostInTheFirstLine,
		"declined": decline(node.WorseThanExpected), "engine down": failWith("engine-down"), "unknown failure": failWith("from a later version"),
		"a failure that is ours to tell": failWith("canceled"),
		"garbage":                        garbage, "data first": dataFirst, "end first": endFirst, "strange frame": strangeFrame, "impossible status": impossibleStatus,
	} {
		t.Run(name, func(t *testing.T) {
			a := peersThat(w, good)
			_, url := front(t, a)
			res, b := post(t, url+pathChat, hello)
			if res.StatusCode != 200 || b != `{"ok":true}` || res.Header.Get(headerPeer) != "c" || res.Header.Get("X-Of-The-Lost") != "" || res.ContentLength != 11 {
				t.Errorf("%d %q %v", res.StatusCode, b, res.Header)
			}
			a.idle(t)
			kind := node.Failed
			if name == "declined" {
				kind = node.Declined
			}
			if len(a.outcomes) != 2 || a.outcomes[0].Kind != kind || a.outcomes[1].Kind != node.Ended {
				t.Errorf("outcomes %+v", a.outcomes)
			}
			if tried := a.routed[len(a.routed)-1].Tried; len(tried) != 1 || tried[0] != "b" {
				t.Errorf("tried %v", tried)
			}
		})
	}
}

func TestADeclineBringsTheFreshLoad(t *testing.T) {
	a := peersThat(decline(node.QueueFull), good)
	_, url := front(t, a)
	post(t, url+pathChat, hello)
	a.idle(t)
	if o := a.outcomes[0]; o.Kind != node.Declined || o.Load == nil || o.Load.InFlight != 5 || o.Match != 3 {
		t.Errorf("settled with %+v", o)
	}
}

func TestAtMostThreePeersAreTriedAndThenTheOwnEngine(t *testing.T) {
	a := peersThat(lost, nil, decline(node.WorseThanExpected), good)
	_, url := front(t, a)
	res, b := post(t, url+pathChat, hello)
	if e := errorOf(t, b); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || e.Error.Type != serverError {
		t.Errorf("without an own engine: %d %s", res.StatusCode, b)
	}
	a.idle(t)
	if len(a.outcomes) != node.MaxTries {
		t.Errorf("%d peers were tried", len(a.outcomes))
	}

	a = peersThat(lost, nil, decline(node.WorseThanExpected), good)
	a.eng = engineAt(t, answerJSON)
	_, url = front(t, a)
	res, b = post(t, url+pathChat, hello)
	if res.StatusCode != 200 || res.Header.Get(headerPeer) != "a" || res.Header.Get(headerReason) != reasonLastResort || res.Header.Get(headerMatched) != "" {
		t.Errorf("with an own engine: %d %s %v", res.StatusCode, b, res.Header)
	}
	a.idle(t)
}

func TestTheOwnEngineFailsOverToPeers(t *testing.T) {
	dead := httptest.NewServer(http.HandlerFunc(answerJSON))
	e := adapter(t, dead.URL)
	dead.Close()
	for name, e := range map[string]engine.Engine{
		"down": e,
		"busy": engineAt(t, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "server busy", http.StatusServiceUnavailable)
		}),
		"dies before the header": engineAt(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }),
		"dies in a plain answer": engineAt(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			a := peersThat(good)
			a.eng = e
			a.via("a", "b")
			_, url := front(t, a)
			if res, b := post(t, url+pathChat, hello); res.StatusCode != 200 || res.Header.Get(headerPeer) != "b" {
				t.Errorf("%d %s", res.StatusCode, b)
			}
			a.idle(t)
			if blamed := len(a.failed) == 1; blamed != (name != "busy") {
				t.Errorf("probes asked for: %v", a.failed)
			}
			if len(a.ends) != 1 || a.ends[0].ok {
				t.Errorf("ended %+v", a.ends)
			}
		})
	}
}

// pitfalls 33
func TestWithEveryEngineDownClientsAreToldWhenToComeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		a    *shoal
		code string
		wait string
	}{
		"nobody to route to": {func() *shoal {
			a := newShoal("a", nil)
			a.route = func(r *node.Request, d *node.Decision) { d.Legs, d.RetryAfter = nil, 2500*time.Millisecond }
			return a
		}(), "engine_unavailable", "3"},
		"all down":      {peersThat(failWith("engine-down"), nil), "engine_unavailable", "1"},
		"all push back": {peersThat(decline(node.QueueFull), decline(node.QueueFull)), "overloaded", "7"},
		"all draining":  {peersThat(decline(node.Draining)), "engine_unavailable", "7"},
		"own engine down": {func() *shoal {
			a := newShoal("a", nil)
			a.admit = func(*node.Request, node.Expect) *node.Decline {
				return &node.Decline{Reason: node.EngineDown, RetryAfter: 2 * time.Second}
			}
			return a
		}(), "engine_unavailable", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, url := front(t, c.a)
			for _, body := range []string{hello, helloStream} {
				res, b := post(t, url+pathChat, body)
				e := errorOf(t, b)
				if res.StatusCode != 503 || res.Header.Get("Retry-After") != c.wait || e.Error.Code == nil || *e.Error.Code != c.code {
					t.Errorf("%d, Retry-After %q, %s", res.StatusCode, res.Header.Get("Retry-After"), b)
				}
			}
			c.a.idle(t)
		})
	}
}

// pitfalls 30
func TestAStreamThatBreaksOffEndsInAnErrorEvent(t *testing.T) {
	const begun = "data: {\"n\":1}\n\n"
	break_ := func(more string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, begun)
			w.(http.Flusher).Flush()
			io.WriteString(w, more)
			w.(http.Flusher).Flush()
			if r.Header.Get("X-Orderly") == "" {
				panic(http.ErrAbortHandler)
			}
		}
	}
	for name, c := range map[string]struct{ more, orderly, sent string }{
		"killed":                       {"", "", begun},
		"killed within an event":       {"data: {\"n\":", "", begun},
		"killed before the blank line": {"data: {\"n\":2}\n", "", begun + "data: {\"n\":2}\n\n\n"},
		"ended without [DONE]":         {"", "1", begun},
		"[DONE] within a text":         {"data: {\"text\":\"data: [DONE]\"}\n\n", "1", begun + "data: {\"text\":\"data: [DONE]\"}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, break_(c.more), func(t *testing.T, url string, by peer.ID, idle func()) {
				res, b := post(t, url+pathChat, helloStream, "X-Orderly", c.orderly)
				rest, ok := strings.CutPrefix(b, c.sent)
				rest, ok2 := strings.CutPrefix(rest, "data: ")
				if res.StatusCode != 200 || !ok || !ok2 || !strings.HasSuffix(rest, "\n\n") {
					t.Fatalf("%d %q", res.StatusCode, b)
				}
				if e := errorOf(t, rest); *e.Error.Code != "answer_incomplete" {
					t.Error(rest)
				}
				idle()
			})
		})
	}
	t.Run("peer lost", func(t *testing.T) {
		a := peersThat(func(p *hopPipe) { lostAfterHead(p); p.Data([]byte(begun + "data: half")) }, good)
		_, url := front(t, a)
		_, b := post(t, url+pathChat, helloStream)
		rest, ok := strings.CutPrefix(b, begun+"data: ")
		if !ok {
			t.Fatalf("%q", b)
		}
		errorOf(t, rest)
		a.idle(t)
		if len(a.outcomes) != 1 || a.outcomes[0].Kind != node.Failed {
			t.Errorf("outcomes %+v", a.outcomes)
		}
		a.idle(t)
	})
}

func TestAnEnginesOwnErrorEventIsTheLastWord(t *testing.T) {
	for _, own := range []string{
		"data: {\"error\": {\"message\": \"out of memory\", \"code\": 500}}\n\n",
		"event: error\ndata: {\"message\":\"x\"}\n\n",
		"error: {\"code\":500}\n\n",
		"data: {\"n\":1}\r\n\r\ndata: {\"error\":{}}\r\n\r\n",
	} {
		eachWay(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"n\":0}\n\n"+own)
		}, func(t *testing.T, url string, by peer.ID, idle func()) {
			if _, b := post(t, url+pathChat, helloStream); b != "data: {\"n\":0}\n\n"+own {
				t.Errorf("got %q", b)
			}
			idle()
		})
	}
}

// A plain answer longer than what is held back has begun when it breaks off: the client sees that it is not whole.
func TestALongPlainAnswerThatBreaksOffIsCut(t *testing.T) {
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.Repeat("x", 3<<20))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		res, err := http.Post(url+pathChat, "application/json", strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%d bytes look whole", len(b))
		}
	})
}

func TestLongPlainAnswersPass(t *testing.T) {
	want := strings.Repeat("0123456789", 300_000)
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, want)
	}, func(t *testing.T, url string, by peer.ID, idle func()) {
		if _, b := post(t, url+pathEmbeddings, `{"model":"m","input":"x"}`); b != want {
			t.Errorf("got %d bytes", len(b))
		}
	})
}

func TestAHopIsDeclinedBeforeTheEngineIsAsked(t *testing.T) {
	b := newShoal("b", engineAt(t, func(w http.ResponseWriter, r *http.Request) { t.Error("the engine was asked") }))
	var expect node.Expect
	b.admit = func(r *node.Request, e node.Expect) *node.Decline {
		expect = e
		return &node.Decline{Reason: node.WorseThanExpected, Load: peer.Load{Waiting: 9}}
	}
	gb := gatewayOf(t, b)
	a := newShoal("a", nil)
	a.via("b")
	a.hop = func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
		return dial(ctx, f, body, func(p *hopPipe) { gb.ServeHop(p) }), nil
	}
	_, url := front(t, a)
	if res, _ := post(t, url+pathChat, hello); res.StatusCode != 503 {
		t.Error(res.StatusCode)
	}
	if expect != (node.Expect{Hopped: true, MatchBlocks: 7, ServeCost: 1000, Margin: 500}) {
		t.Errorf("expected %+v", expect)
	}
	if a.outcomes[0].Kind != node.Declined || a.outcomes[0].Load.Waiting != 9 || len(b.routed) != 0 {
		t.Errorf("outcome %+v, routed again %d times", a.outcomes[0], len(b.routed))
	}
}

// A hop whose origin goes away while it is being accepted is ended too.
func TestAHopGivenUpAtOnceLeavesNoCount(t *testing.T) {
	b := newShoal("b", engineAt(t, answerJSON))
	gb := gatewayOf(t, b)
	p := &hopPipe{f: &wire.Forward{Method: "POST", Path: pathChat, Model: "m"}, body: []byte(hello), frames: make(chan hopFrame), lost: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(t.Context())
	p.cancel(errHopClosed)
	gb.ServeHop(p)
	b.idle(t)
	if len(b.ends) != 1 || b.ends[0].ok {
		t.Errorf("ended %+v", b.ends)
	}
}

// Requests over hops that fail in every way at every point: whatever happens, each client gets one whole answer or one
// error, and every account is closed once.
func TestFaultsOfAllKindsAtOnceLeaveNoCount(t *testing.T) {
	faults := []way{nil, lost, lostAfterHead, lostInPlain, lostInTheFirstLine, garbage, dataFirst, decline(node.QueueFull), failWith("engine-silent"), good, good}
	var n atomic.Int64
	a := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 == 0 {
			panic(http.ErrAbortHandler)
		}
		answerJSON(w, r)
	}))
	a.gate = engine.NewGate(4, 1000)
	a.via("b", "c", "a", "d", "e")
	a.hop = func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
		w := faults[n.Add(1)%int64(len(faults))]
		if w == nil {
			return nil, errors.New("test: refused")
		}
		return dial(ctx, f, body, w), nil
	}
	g, url := front(t, a)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 60 {
				res, b := post(t, url+pathChat, hello)
				if res.StatusCode != 200 && res.StatusCode != 503 || !json.Valid([]byte(b)) {
					t.Errorf("%d %q", res.StatusCode, b)
				}
			}
		})
	}
	wg.Wait()
	quiet(t, g, a)
}
