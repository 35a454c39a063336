package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/wire"
)

// shoal is a Shoal for tests: it routes by a script, and checks that every ticket and serving is given back once.
type shoal struct {
	self   peer.ID
	eng    engine.Engine
	gate   *engine.Gate
	models []ModelEntry
	// route answers the nth Route of a request with a peer's name, or "" for nobody. Nil: the own engine.
	route func(r *node.Request, d *node.Decision)
	admit func(r *node.Request, e node.Expect) *node.Decline
	hop   func(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error)

	mu       sync.Mutex
	next     uint64
	tickets  map[node.Ticket]peer.ID
	servings map[node.Serving]bool
	outcomes []node.Outcome
	ends     []ended_
	accepted []replica.Stamp
	started  int
	firsts   int
	failed   []error
	routed   []node.Request
	admitted []node.Request
	faults   []string
}

type ended_ struct {
	usage node.Usage
	ok    bool
}

func newShoal(self peer.ID, e engine.Engine) *shoal {
	return &shoal{self: self, eng: e, models: []ModelEntry{{Name: "m", Context: 8192, Salts: true}}, tickets: map[node.Ticket]peer.ID{}, servings: map[node.Serving]bool{}}
}

func (s *shoal) Self() peer.ID { return s.self }

func (s *shoal) Resolve(model string) (ModelEntry, bool) {
	for _, m := range s.models {
		if m.Name == model || m.Name+"-alias" == model {
			return m, true
		}
	}
	return ModelEntry{}, false
}

func (s *shoal) Models() []ModelEntry { return s.models }

func (s *shoal) Route(r *node.Request, d *node.Decision) {
	s.mu.Lock()
	kept := *r
	kept.Tried = append([]peer.ID(nil), r.Tried...)
	s.routed = append(s.routed, kept)
	s.mu.Unlock()
	*d = node.Decision{Legs: d.Legs[:0]}
	if s.route == nil {
		to(s.self)(s, r, d)
		return
	}
	s.route(r, d)
}

// to routes to the first of these peers that was not tried.
func to(peers ...peer.ID) func(s *shoal, r *node.Request, d *node.Decision) {
	return func(s *shoal, r *node.Request, d *node.Decision) {
		for _, p := range peers {
			tried := false
			for _, t := range r.Tried {
				tried = tried || t == p
			}
			if !tried {
				d.Legs = append(d.Legs[:0], node.Leg{Peer: p, Self: p == s.self})
				d.MatchBlocks, d.MatchTokens, d.ServeCost, d.Margin = 7, 448, 1000, 500
				if r.Explain {
					d.Explanation = &node.Explanation{Policy: "cost", Reason: "prefix", Candidates: []node.ExplanationCandidate{{Peer: p, Chosen: true}}}
				}
				return
			}
		}
		d.Legs = d.Legs[:0]
	}
}

func (s *shoal) via(peers ...peer.ID) {
	f := to(peers...)
	s.route = func(r *node.Request, d *node.Decision) { f(s, r, d) }
}

func (s *shoal) Dispatch(r *node.Request, leg node.Leg) node.Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.tickets[node.Ticket(s.next)] = leg.Peer
	return node.Ticket(s.next)
}

func (s *shoal) Accepted(t node.Ticket, stamp replica.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted = append(s.accepted, stamp)
}

func (s *shoal) Settle(t node.Ticket, o node.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tickets[t]; !ok {
		s.faults = append(s.faults, fmt.Sprintf("ticket %d settled twice", t))
	}
	delete(s.tickets, t)
	s.outcomes = append(s.outcomes, o)
}

func (s *shoal) Admit(r *node.Request, e node.Expect) (node.Serving, *node.Decline) {
	if s.admit != nil {
		if d := s.admit(r, e); d != nil {
			return 0, d
		}
	}
	if s.eng == nil {
		return 0, &node.Decline{Reason: node.NotServed}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.servings[node.Serving(s.next)] = true
	s.admitted = append(s.admitted, *r)
	return node.Serving(s.next), nil
}

func (s *shoal) Stamp(node.Serving) replica.Stamp { return replica.Stamp{Incarnation: 1, Version: 2} }

func (s *shoal) Started(node.Serving) { s.mu.Lock(); s.started++; s.mu.Unlock() }

func (s *shoal) FirstToken(node.Serving) { s.mu.Lock(); s.firsts++; s.mu.Unlock() }

func (s *shoal) End(v node.Serving, u node.Usage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.servings[v] {
		s.faults = append(s.faults, fmt.Sprintf("serving %d ended twice", v))
	}
	delete(s.servings, v)
	s.ends = append(s.ends, ended_{u, ok})
}

func (s *shoal) OpenHop(ctx context.Context, to peer.ID, f *wire.Forward, body []byte) (Hop, error) {
	if s.hop == nil {
		return nil, errors.New("test: connection refused by 10.1.2.3:4567")
	}
	return s.hop(ctx, to, f, body)
}

func (s *shoal) Engine() engine.Engine { return s.eng }

func (s *shoal) Gate() *engine.Gate { return s.gate }

func (s *shoal) EngineFailed(err error) { s.mu.Lock(); s.failed = append(s.failed, err); s.mu.Unlock() }

// idle waits until nothing is counted any more, which may be a moment after a client has its answer, and fails the test
// where something stays, or was given back twice.
func (s *shoal) idle(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; yield() {
		s.mu.Lock()
		left, faults := len(s.tickets)+len(s.servings), s.faults
		s.mu.Unlock()
		if len(faults) > 0 || left > 0 && time.Now().After(until) {
			t.Fatalf("%s: %d tickets and servings are left; faults: %v", s.self, left, faults)
		}
		if left == 0 {
			return
		}
	}
}

// hopPipe is a hop in memory: frames go through the encoders of package wire, one at a time.
type hopPipe struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	f      *wire.Forward
	body   []byte
	frames chan hopFrame
	last   bool // an End, Fail or Decline was received
	lost   chan struct{}
	why    error // how it was lost, where that matters
	lose   sync.Once
}

type hopFrame struct {
	t wire.Type
	b []byte
}

var errHopClosed = errors.New("test: the hop is closed")

// dial makes a hop whose other end is served by serve in a goroutine of its own.
func dial(ctx context.Context, f *wire.Forward, body []byte, serve func(*hopPipe)) *hopPipe {
	raw, err := wire.AppendForward(nil, f)
	if err != nil {
		panic(err)
	}
	var got wire.Forward
	if err := wire.DecodeForward(raw, &got); err != nil {
		panic(err)
	}
	p := &hopPipe{f: &got, body: append([]byte(nil), body...), frames: make(chan hopFrame), lost: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	go func() {
		serve(p)
		p.drop()
	}()
	return p
}

// drop loses the connection.
func (p *hopPipe) drop() {
	p.lose.Do(func() { close(p.lost) })
	p.cancel(cmp.Or(p.why, errHopClosed))
}

func (p *hopPipe) Recv() (wire.Type, []byte, error) {
	if p.last {
		return 0, nil, errHopClosed
	}
	select {
	case f := <-p.frames:
		p.last = f.t == wire.TypeEnd || f.t == wire.TypeFail || f.t == wire.TypeDecline
		return f.t, f.b, nil
	case <-p.lost:
		if p.why != nil {
			return 0, nil, p.why
		}
		return 0, nil, errors.New("test: connection to 10.9.9.9:1 reset")
	case <-p.ctx.Done():
		return 0, nil, context.Cause(p.ctx)
	}
}

func (p *hopPipe) Close() error { p.cancel(errHopClosed); return nil }

func (p *hopPipe) Context() context.Context { return p.ctx }
func (p *hopPipe) Forward() *wire.Forward   { return p.f }
func (p *hopPipe) Body() []byte             { return p.body }

func (p *hopPipe) send(t wire.Type, b []byte) error {
	select {
	case p.frames <- hopFrame{t, append([]byte(nil), b...)}:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p *hopPipe) Accept(m *wire.Accept) error {
	return p.send(wire.TypeAccept, wire.AppendAccept(nil, m))
}
func (p *hopPipe) Decline(m *wire.Decline) error {
	return p.send(wire.TypeDecline, wire.AppendDecline(nil, m))
}
func (p *hopPipe) Head(m *wire.Head) error {
	b, err := wire.AppendHead(nil, m)
	if err != nil {
		return err
	}
	return p.send(wire.TypeHead, b)
}
func (p *hopPipe) Data(b []byte) error     { return p.send(wire.TypeData, b) }
func (p *hopPipe) End(m *wire.End) error   { return p.send(wire.TypeEnd, wire.AppendEnd(nil, m)) }
func (p *hopPipe) Fail(m *wire.Fail) error { return p.send(wire.TypeFail, wire.AppendFail(nil, m)) }

// engineAt is the openai adapter before a handler, which stands for an engine.
func engineAt(t testing.TB, h http.HandlerFunc) engine.Engine {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return adapter(t, srv.URL)
}

func adapter(t testing.TB, url string) engine.Engine {
	t.Helper()
	cfg := engine.Defaults()
	cfg.Adapter, cfg.URL = engine.OpenAI, url
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// front is a gateway in its own server.
func front(t testing.TB, s *shoal, change ...func(*Config)) (*Gateway, string) {
	t.Helper()
	g := gatewayOf(t, s, change...)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = g.Server(g)
	srv.Start()
	t.Cleanup(srv.Close)
	return g, srv.URL
}

func gatewayOf(t testing.TB, s *shoal, change ...func(*Config)) *Gateway {
	t.Helper()
	cfg := Defaults()
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// emulated is an engine that says that it is.
type emulated struct{ engine.Engine }

func (e emulated) Traits() engine.Traits {
	t := e.Engine.Traits()
	t.Emulated = true
	return t
}

// yield lets the other goroutines run, where a test has nothing to wait on but their effect.
func yield() { runtime.Gosched() }
