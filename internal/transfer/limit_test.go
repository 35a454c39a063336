package transfer

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/peer"
)

func TestTicketsAreBoundedInAllAndAPeer(t *testing.T) {
	cfg := testConfig()
	cfg.MaxTickets, cfg.PeerTickets, cfg.MaxSize = 3, 2, 1000
	to := start(t, "d", cfg)
	ask := func(p peer.ID) error {
		_, err := to.Ticket(p, 1000, Discard())
		return err
	}
	if err := errors.Join(ask("p"), ask("p")); err != nil {
		t.Fatal(err)
	}
	if err := ask("p"); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	if err := ask("q"); err != nil {
		t.Fatal(err)
	}
	if err := ask("r"); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	for _, n := range []int64{-1, 1001, math.MaxInt64} {
		if _, err := to.Ticket("r", n, Discard()); err == nil {
			t.Errorf("a ticket for %d bytes", n)
		}
	}
	if _, err := to.Ticket("", 1, Discard()); err == nil {
		t.Error("a ticket for nobody")
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	cfg := testConfig()
	cfg.MaxTickets, cfg.PeerTickets = 4, 4
	to, from := pair(t, cfg)
	for range 20 {
		k, err := to.Ticket("p", 1, Discard())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := from.Send(t.Context(), "d", to.addr, k, Zeros(1), 1, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.incoming) != 4 || len(to.dead) != 4 || to.alive != 0 {
		t.Fatalf("%d known, %d dead, %d alive", len(to.incoming), len(to.dead), to.alive)
	}
}

// Above MaxTransfers a receiver says busy, and the sender tries again until there is room.
func TestTransfersAreBoundedAtBothSides(t *testing.T) {
	cfg := testConfig()
	cfg.MaxTransfers = 1
	to := start(t, "d", cfg)
	first, second := start(t, "p", cfg), start(t, "p", cfg)
	sink := newGate(Discard(), 0)
	k1, _ := to.Ticket("p", 1, sink)
	k2, _ := to.Ticket("p", 1, Discard())
	done := make(chan error, 2)
	send := func(a agent, k Ticket) {
		_, err := a.Send(t.Context(), "d", to.addr, k, Zeros(1), 1, nil, nil)
		done <- err
	}
	go send(first, k1)
	for to.Stats().Receiving == 0 {
		runtime.Gosched()
	}
	if _, err := first.Send(t.Context(), "d", to.addr, k2, Zeros(1), 1, nil, nil); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	go send(second, k2)
	for to.Stats().Refused == 0 {
		runtime.Gosched()
	}
	close(sink.opened)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
}

func TestAnIdleConnectionMakesRoomForANewOne(t *testing.T) {
	cfg := testConfig()
	cfg.MaxConns = 2
	to := start(t, "d", cfg)
	a, b, c := start(t, "a", cfg), start(t, "b", cfg), start(t, "c", cfg)
	for _, m := range []agent{a, b} {
		if err := m.Warm(t.Context(), "d", to.addr, []Leg{{}}); err != nil {
			t.Fatal(err)
		}
	}
	// a has proven a ticket: b, which has not, is the one to go.
	k, _ := to.Ticket("a", 1, Discard())
	if _, err := a.Send(t.Context(), "d", to.addr, k, Zeros(1), 1, nil, nil); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; { // its leave has to be heard first
		to.mu.Lock()
		for in := range to.inbound {
			seen = seen || in.seen && !in.idle.IsZero()
		}
		to.mu.Unlock()
	}
	if err := c.Warm(t.Context(), "d", to.addr, []Leg{{}}); err != nil {
		t.Fatal(err)
	}
	for b.Stats().ConnsOut > 0 {
		runtime.Gosched()
	}
	if s := a.Stats(); s.ConnsOut != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestOwnConnectionsAreBounded(t *testing.T) {
	cfg := testConfig()
	cfg.MaxConns = 2
	from := start(t, "p", cfg)
	var to []agent
	for _, id := range []peer.ID{"a", "b", "c"} {
		to = append(to, start(t, id, testConfig()))
	}
	for i, id := range []peer.ID{"a", "b", "c"} {
		if err := from.Warm(t.Context(), id, to[i].addr, []Leg{{}}); err != nil {
			t.Fatal(err)
		}
	}
	if s := from.Stats(); s.ConnsOut != 2 || from.pool.kept(target{"a", to[0].addr}, &Leg{}) {
		t.Fatalf("%+v: the oldest should have made room", s)
	}
	for _, g := range from.pool.groups { // in use, so that none can
		for c := range g.conns {
			from.pool.warm(c.to, &Leg{}, false)
		}
	}
	if err := from.Warm(t.Context(), "a", to[0].addr, []Leg{{}}); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
}

func TestLegsAndChunksAreBounded(t *testing.T) {
	cfg := testConfig()
	cfg.Chunk = minChunk
	to, from := pair(t, cfg)
	way := fixed{Legs: make([]Leg, MaxLegs)}
	for i := range way.Legs {
		way.Legs[i].ID = i
	}
	k, _ := to.Ticket("p", 1<<20, Discard())
	if _, err := from.Send(t.Context(), "d", to.addr, k, Zeros(1<<20), 1<<20, way, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, MaxLegs + 1} {
		if _, err := from.Send(t.Context(), "d", to.addr, k, Zeros(1), 1, fixed{Legs: make([]Leg, n)}, nil); err == nil {
			t.Errorf("%d legs", n)
		}
	}
	if err := from.Warm(t.Context(), "d", to.addr, make([]Leg, MaxLegs+1)); err == nil {
		t.Error("too many legs to warm")
	}
	const most = MaxChunks * minChunk
	k, _ = to.Ticket("p", most+1, Discard())
	if _, err := from.Send(t.Context(), "d", to.addr, k, Zeros(most+1), most+1, nil, nil); reasonOf(err) != WrongSize {
		t.Error(err)
	}
	if !(layout{most, minChunk}).fits() || (layout{most + 1, minChunk}).fits() || (layout{1, minChunk - 1}).fits() || (layout{1, maxChunk + 1}).fits() {
		t.Error("what fits")
	}
}

// 2 GiB go through a memory that would not hold a tenth of them. The source is read into buffers, as a file is.
func TestMemoryStaysAFewChunksWhateverTheSize(t *testing.T) {
	const size = int64(2 << 30)
	cfg := Defaults()
	to, from := pair(t, cfg)
	k, _ := to.Ticket("p", size, Discard())
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var most atomic.Uint64
	next := int64(0)
	way := fixed{Legs: []Leg{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}}
	r, err := from.Send(t.Context(), "d", to.addr, k, struct{ Source }{Zeros(size)}, size, way, func(moved int64) {
		if moved < next {
			return
		}
		next += size / 16
		runtime.ReadMemStats(&now)
		most.Store(max(most.Load(), now.HeapInuse))
	})
	if err != nil || r.Bytes != size {
		t.Fatal(err)
	}
	if grown := int64(most.Load()) - int64(before.HeapInuse); grown > 64<<20 {
		t.Fatalf("%d MiB for %d MiB", grown>>20, size>>20)
	}
}

func TestAFileGoesNowhereButIntoItsDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\x00b", `a\b`, strings.Repeat("x", maxName+1)} {
		if _, err := FileSink(dir, name); err == nil {
			t.Errorf("%q is a file's name", name)
		}
	}
	if _, err := FileSink(dir, strings.Repeat("x", maxName)); err != nil {
		t.Error(err)
	}
	// A link in place of the part is not followed: the part must be new.
	outside := filepath.Join(t.TempDir(), "outside")
	s := fileSinkIn(t, dir).(*fileSink)
	if err := os.Symlink(outside, filepath.Join(dir, s.part())); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(10); err == nil {
		t.Error("a link was followed")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("something was written outside")
	}
	gone, err := FileSink(filepath.Join(dir, "gone"), "kv")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.(*fileSink).Open(1); err == nil {
		t.Error("a directory that is not there was opened")
	}
	huge := fileSinkIn(t, t.TempDir()).(*fileSink)
	if err := huge.Open(1 << 60); err == nil {
		t.Error("a disk took an exabyte")
	}
	empty(t, huge.dir)
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"listen":        func(c *Config) { c.Listen = "x" },
		"directory":     func(c *Config) { c.Dir = "/nowhere/at/all" },
		"chunk":         func(c *Config) { c.Chunk = minChunk - 1 },
		"unsent":        func(c *Config) { c.Unsent = 0 },
		"max transfers": func(c *Config) { c.MaxTransfers = 0 },
		"max conns":     func(c *Config) { c.MaxConns = -1 },
		"max tickets":   func(c *Config) { c.MaxTickets = 1<<20 + 1 },
		"peer tickets":  func(c *Config) { c.PeerTickets = 0 },
		"max size":      func(c *Config) { c.MaxSize = 0 },
		"ticket life":   func(c *Config) { c.TicketLife = 0 },
		"keep":          func(c *Config) { c.Keep = time.Millisecond },
		"idle":          func(c *Config) { c.Idle = 0 },
		"silence":       func(c *Config) { c.Silence = -1 },
		"stall":         func(c *Config) { c.Stall = 0 },
	} {
		c := Defaults()
		change(&c)
		if _, err := New(c, "d", nil); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "transfer: ") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := New(Defaults(), "no good", nil); err == nil {
		t.Error("an ID with a space")
	}
}
