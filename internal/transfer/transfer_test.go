package transfer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"shoal/internal/peer"
)

// testConfig is Defaults with small chunks and short times.
func testConfig() Config {
	c := Defaults()
	c.Chunk = 16 << 10
	c.Silence, c.Stall, c.Keep = 2*time.Second, 5*time.Second, 5*time.Second
	return c
}

// agent is a mover that listens.
type agent struct {
	*Mover
	addr string
}

func start(tb testing.TB, id peer.ID, cfg Config) agent {
	tb.Helper()
	m, err := New(cfg, id, nil)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve(l) }()
	tb.Cleanup(func() {
		m.Close()
		if err := <-served; err != nil && !errors.Is(err, ErrClosed) { // closed before it began
			tb.Error(err)
		}
	})
	return agent{m, l.Addr().String()}
}

// pair is a receiver and a sender.
func pair(tb testing.TB, cfg Config) (to, from agent) {
	return start(tb, "d", cfg), start(tb, "p", cfg)
}

func content(tb testing.TB, s Source) []byte {
	tb.Helper()
	b := make([]byte, s.Size())
	if n, err := s.ReadAt(b, 0); n < len(b) && err != io.EOF {
		tb.Fatal(err)
	}
	return b
}

func TestEverythingArrivesWhateverItsSize(t *testing.T) {
	to, from := pair(t, testConfig())
	for _, size := range []int64{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1<<20 + 12345} {
		src := Pattern(uint64(size), size)
		got := make([]byte, size)
		ticket, err := to.Ticket("p", size, MemorySink(got))
		if err != nil {
			t.Fatal(err)
		}
		r, err := from.Send(t.Context(), "d", to.addr, ticket, src, size, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := content(t, src)
		if !bytes.Equal(got, want) || r.Bytes != size || r.Checksum != checksum(want) {
			t.Fatalf("%d bytes: %+v", size, r)
		}
	}
	if s := from.Stats(); s.ConnsOut != 1 || s.ConnsIdle != 1 || s.Sent != 6 {
		t.Fatalf("%+v", s)
	}
	if s := to.Stats(); s.Tickets != 0 || s.Receiving != 0 || s.Received != 6 {
		t.Fatalf("%+v", s)
	}
}

// failing is a listener that cannot accept for a while.
type failing struct {
	net.Listener
	left int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

func TestAListenerThatFailsForAWhileIsListenedToAgain(t *testing.T) {
	to, err := New(testConfig(), "d", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- to.Serve(&failing{l, 3}) }()
	from := start(t, "p", testConfig())
	if err := from.Warm(t.Context(), "d", l.Addr().String(), []Leg{{}}); err != nil {
		t.Error(err)
	}
	to.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := to.Serve(l); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
