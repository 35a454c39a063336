package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// wait is how long a test waits for what must happen.
const wait = 10 * time.Second

// agent is a Handler that notes what it is told, and a cluster.
type agent struct {
	t   testing.TB
	c   *Cluster
	cfg Config
	log *logLines

	serve    func(*HopStream)                             // nil: echo
	exchange func(peer.ID, *wire.Exchange) *wire.Exchange // nil: nothing
	summary  func() *wire.Exchange                        // nil: an empty Begin
	asked    func(context.Context, peer.ID, *wire.Ask) *wire.Reply
	ups      *mail[Member]
	downs    *mail[down]
	rtts     *mail[peer.ID]
	grams    *mail[gram]
	refusals *mail[refused]
	rounds   atomic.Int64 // messages of rounds that came in
}

type down struct {
	id   peer.ID
	left bool
}

type gram struct {
	from peer.ID
	b    string
}

type refused struct {
	addr string
	err  error
}

func (a *agent) PeerUp(m Member)                 { a.ups.push(m) }
func (a *agent) PeerDown(id peer.ID, left bool)  { a.downs.push(down{id, left}) }
func (a *agent) RTT(id peer.ID, d time.Duration) { a.rtts.push(id) }
func (a *agent) Datagram(from peer.ID, b []byte) { a.grams.push(gram{from, string(b)}) }
func (a *agent) Refused(addr string, err error)  { a.refusals.push(refused{addr, err}) }

func (a *agent) Asked(ctx context.Context, from peer.ID, m *wire.Ask) *wire.Reply {
	if a.asked != nil {
		return a.asked(ctx, from, m)
	}
	return &wire.Reply{Refused: "nobody asks here"}
}

func (a *agent) Summary() *wire.Exchange {
	if a.summary != nil {
		return a.summary()
	}
	return &wire.Exchange{Begin: true}
}

func (a *agent) Exchange(from peer.ID, in *wire.Exchange) *wire.Exchange {
	a.rounds.Add(1)
	if a.exchange != nil {
		return a.exchange(from, in)
	}
	return nil
}

func (a *agent) ServeHop(s *HopStream) {
	if a.serve != nil {
		a.serve(s)
		return
	}
	echo(s)
}

// echo answers with the request's body.
func echo(s *HopStream) {
	s.Accept(&wire.Accept{})
	s.Head(&wire.Head{Status: 200})
	s.Data(s.Body())
	s.End(&wire.End{})
}

// mail is what an agent was told, until a test takes it out, in any order.
type mail[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
}

func newMail[T any]() *mail[T] { return &mail[T]{wake: make(chan struct{}, 1)} }

// push never blocks, and forgets the oldest beyond a bound.
func (m *mail[T]) push(v T) {
	m.mu.Lock()
	if len(m.items) == 4096 {
		m.items = m.items[1:]
	}
	m.items = append(m.items, v)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take gives the first value that fits, and whether there is one.
func (m *mail[T]) take(fits func(T) bool) (v T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, v := range m.items {
		if fits(v) {
			m.items = append(m.items[:i:i], m.items[i+1:]...)
			return v, true
		}
	}
	return v, false
}

func (m *mail[T]) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.items)
}

// until waits for a value that fits, and takes it out.
func until[T any](t testing.TB, what string, m *mail[T], fits func(T) bool) T {
	t.Helper()
	deadline := time.After(wait)
	for {
		if v, ok := m.take(fits); ok {
			return v
		}
		select {
		case <-m.wake:
		case <-deadline:
			t.Fatalf("no %s within %v", what, wait)
		}
	}
}

// within waits for a value on a channel.
func within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(wait):
		t.Fatalf("no %s within %v", what, wait)
		panic("unreachable")
	}
}

// eventually waits for something that no channel tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(wait)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", wait, what)
		}
	}
}

func (a *agent) up(t testing.TB, id peer.ID) Member {
	t.Helper()
	return until(t, fmt.Sprintf("PeerUp(%s) at %s", id, a.c.Self().ID), a.ups, func(m Member) bool { return m.ID == id })
}

func (a *agent) down(t testing.TB, id peer.ID) down {
	t.Helper()
	return until(t, fmt.Sprintf("PeerDown(%s) at %s", id, a.c.Self().ID), a.downs, func(d down) bool { return d.id == id })
}

func (a *agent) refusedWith(t testing.TB, text string) refused {
	t.Helper()
	return until(t, fmt.Sprintf("refusal with %q at %s", text, a.c.Self().ID), a.refusals, func(r refused) bool {
		return strings.Contains(r.err.Error(), text)
	})
}

// fast makes time constants short enough for tests, except for the patience with those who do not answer: the machine may
// be busy.
func fast(t *timing) {
	t.probe, t.probeTimeout = 100*time.Millisecond, 80*time.Millisecond
	t.suspicionMult, t.suspicionMaxMult = 50, 1
	t.gossip = 20 * time.Millisecond
	t.stream = 2 * time.Second
	t.dead = time.Second
	t.pushPull = 500 * time.Millisecond
	t.retryMin, t.retryMax = 20*time.Millisecond, 200*time.Millisecond
	t.round = 20 * time.Millisecond
}

// mortal is for tests of death: it is found within about half a second.
func mortal(_ *agent, _ *Member, h *hooks) {
	h.tune = func(t *timing) {
		fast(t)
		t.suspicionMult = 2
	}
}

type option func(*agent, *Member, *hooks)

func with(f func(*Config)) option       { return func(a *agent, _ *Member, _ *hooks) { f(&a.cfg) } }
func serving(f func(*HopStream)) option { return func(a *agent, _ *Member, _ *hooks) { a.serve = f } }
func hooked(f func(*hooks)) option      { return func(_ *agent, _ *Member, h *hooks) { f(h) } }
func incarnation(n uint64) option       { return func(_ *agent, m *Member, _ *hooks) { m.Incarnation = n } }
func handling(f func(*agent)) option    { return func(a *agent, _ *Member, _ *hooks) { f(a) } }

// patient are the time constants as they are outside of tests.
func patient(_ *agent, _ *Member, h *hooks) { h.tune = nil }

func joining(others ...*agent) option {
	return func(a *agent, _ *Member, _ *hooks) {
		for _, o := range others {
			a.cfg.Join = append(a.cfg.Join, o.c.GossipAddr())
		}
	}
}

// newAgent makes an agent that is not started.
func newAgent(t testing.TB) *agent {
	cfg := Defaults()
	cfg.Preset = Local
	return &agent{t: t, cfg: cfg, log: &logLines{}, ups: newMail[Member](), downs: newMail[down](),
		rtts: newMail[peer.ID](), grams: newMail[gram](), refusals: newMail[refused]()}
}

// begin starts an agent on loopback; it is closed with the test.
func begin(t testing.TB, id peer.ID, opts ...option) *agent {
	t.Helper()
	a, err := tryBegin(t, id, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryBegin(t testing.TB, id peer.ID, opts ...option) (*agent, error) {
	a := newAgent(t)
	self := Member{ID: id, Incarnation: 1}
	hk := hooks{tune: fast}
	for _, o := range opts {
		o(a, &self, &hk)
	}
	c, err := start(a.cfg, self, a, slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})), hk)
	if err != nil {
		return nil, err
	}
	a.c = c
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", id, a.log.tail(60))
		}
	})
	return a, nil
}

// pair starts a and b, which know each other.
func pair(t testing.TB, opts ...option) (a, b *agent) {
	t.Helper()
	a = begin(t, "a", opts...)
	b = begin(t, "b", append([]option{joining(a)}, opts...)...)
	a.up(t, "b")
	b.up(t, "a")
	return a, b
}

// logLines collects what is logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

func (l *logLines) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "")
}

func (l *logLines) count(texts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
next:
	for _, line := range l.lines {
		for _, t := range texts {
			if !strings.Contains(line, t) {
				continue next
			}
		}
		n++
	}
	return n
}

// hop sends one request and gives the answer's body, and its last frame.
func hop(c *Cluster, to peer.ID, body string) (string, wire.Type, error) {
	return hopWith(context.Background(), c, to, &wire.Forward{Method: "POST", Path: "/v1/x", BodyLen: int64(len(body))}, []byte(body))
}

func hopWith(ctx context.Context, c *Cluster, to peer.ID, f *wire.Forward, body []byte) (string, wire.Type, error) {
	h, err := c.OpenHop(ctx, to, f, body)
	if err != nil {
		return "", 0, err
	}
	defer h.Close()
	var answer strings.Builder
	var last wire.Type
	for {
		typ, p, err := h.Recv()
		if err == io.EOF {
			return answer.String(), last, nil
		}
		if err != nil {
			return answer.String(), last, err
		}
		if last = typ; typ == wire.TypeData {
			answer.Write(p)
		}
	}
}

func port(addr string) uint16 { return netip.MustParseAddrPort(addr).Port() }
