package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// gate is a sink that stops after so many bytes until it is opened, and says when.
type gate struct {
	Sink
	after   int64
	mu      sync.Mutex
	bytes   int64
	reached chan struct{}
	opened  chan struct{}
	ended   chan error // nil: committed
}

var errAborted = errors.New("aborted")

func newGate(s Sink, after int64) *gate {
	return &gate{Sink: s, after: after, reached: make(chan struct{}), opened: make(chan struct{}), ended: make(chan error, 1)}
}

func (g *gate) Open(size int64) error {
	if o, ok := g.Sink.(opener); ok {
		return o.Open(size)
	}
	return nil
}

func (g *gate) Key() string {
	if k, ok := g.Sink.(keyed); ok {
		return k.Key()
	}
	return ""
}

func (g *gate) WriteAt(p []byte, off int64) (int, error) {
	g.mu.Lock()
	was := g.bytes
	g.bytes += int64(len(p))
	if was < g.after && g.bytes >= g.after {
		close(g.reached)
	}
	wait := g.bytes > g.after
	g.mu.Unlock()
	if wait {
		<-g.opened
	}
	return g.Sink.WriteAt(p, off)
}

func (g *gate) Commit() error {
	err := g.Sink.Commit()
	g.ended <- err
	return err
}

func (g *gate) Abort() error {
	err := g.Sink.Abort()
	g.ended <- errAborted
	return err
}

// empty fails where the directory holds anything.
func empty(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		tb.Fatalf("%v is left, %v", entries, err)
	}
}

func fileSinkIn(tb testing.TB, dir string) Sink {
	tb.Helper()
	s, err := FileSink(dir, "kv")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestACutTransferGoesOnOverTheNextConnection(t *testing.T) {
	for name, what := range map[string]act{"between chunks": cut, "within one": split2} {
		t.Run(name, func(t *testing.T) {
			to, from := pair(t, testConfig())
			chunks := 0
			p := newProxy(t, to.addr, func(fromSender bool, k kind, conn int) act {
				if k == kindChunk {
					if chunks++; chunks%10 == 7 && chunks < 40 {
						return what
					}
				}
				return pass
			})
			src := Pattern(1, 1<<20)
			dir := t.TempDir()
			ticket, err := to.Ticket("p", src.Size(), fileSinkIn(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			r, err := from.Send(t.Context(), "d", p.addr, ticket, src, src.Size(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "kv"))
			if err != nil || !bytes.Equal(got, content(t, src)) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if r.Resumes < 3 || r.Bytes != src.Size() || len(r.Paths) != 1 || r.Paths[0].Bytes != src.Size() {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// The acknowledgements of what was written are lost with the connection: the receiver says it once more.
func TestLostAcknowledgementsAndALostEndAreAskedFor(t *testing.T) {
	to, from := pair(t, testConfig())
	acks, dones := 0, 0
	p := newProxy(t, to.addr, func(fromSender bool, k kind, conn int) act {
		switch k {
		case kindAck:
			if acks++; acks == 5 {
				return cut
			}
		case kindDone:
			if dones++; dones <= 2 {
				return cut
			}
		}
		return pass
	})
	src := Pattern(1, 1<<20)
	got := make([]byte, src.Size())
	ticket, err := to.Ticket("p", src.Size(), MemorySink(got))
	if err != nil {
		t.Fatal(err)
	}
	r, err := from.Send(t.Context(), "d", p.addr, ticket, src, src.Size(), nil, nil)
	if err != nil || !bytes.Equal(got, content(t, src)) || r.Bytes != src.Size() {
		t.Fatalf("%+v %v", r, err)
	}
	if s := to.Stats(); s.Received != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestADamagedChunkIsSentAgain(t *testing.T) {
	to, from := pair(t, testConfig())
	chunks := 0
	p := newProxy(t, to.addr, func(_ bool, k kind, _ int) act {
		if k == kindChunk {
			if chunks++; chunks == 3 {
				return flip
			}
		}
		return pass
	})
	src := Pattern(1, 1<<20)
	got := make([]byte, src.Size())
	ticket, _ := to.Ticket("p", src.Size(), MemorySink(got))
	r, err := from.Send(t.Context(), "d", p.addr, ticket, src, src.Size(), nil, nil)
	if err != nil || r.Damaged != 1 || r.Resumes != 0 || !bytes.Equal(got, content(t, src)) {
		t.Fatalf("%+v %v", r, err)
	}
	if s := to.Stats(); s.Damaged != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestAChunkThatIsAlwaysDamagedEndsTheTransferAndLeavesNothing(t *testing.T) {
	to, from := pair(t, testConfig())
	sent := 0
	p := newProxy(t, to.addr, func(_ bool, k kind, _ int) act {
		if k == kindChunk {
			sent++
			return flip
		}
		return pass
	})
	dir := t.TempDir()
	sink := newGate(fileSinkIn(t, dir), 0)
	ticket, _ := to.Ticket("p", 5, sink)
	_, err := from.Send(t.Context(), "d", p.addr, ticket, Pattern(1, 5), 5, nil, nil)
	if !errors.Is(err, ErrMismatch) || sent != maxTries {
		t.Fatalf("sent %d times: %v", sent, err)
	}
	if err := <-sink.ended; err != errAborted {
		t.Fatal(err)
	}
	empty(t, dir)
}

func TestAReceiverThatIsGoneIsGivenUpAfterAWhile(t *testing.T) {
	cfg := testConfig()
	cfg.Stall, cfg.Silence = 200*time.Millisecond, 100*time.Millisecond
	from := start(t, "p", cfg)
	_, err := from.Send(t.Context(), "d", "127.0.0.1:1", Ticket{}, Zeros(1), 1, nil, nil)
	if !errors.Is(err, ErrCut) || errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if s := from.Stats(); s.Sending != 0 || s.ConnsOut != 0 || s.Failed != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestACancelledTransferLeavesNothing(t *testing.T) {
	to, from := pair(t, testConfig())
	dir := t.TempDir()
	sink := newGate(fileSinkIn(t, dir), 100<<10)
	ticket, _ := to.Ticket("p", 64<<20, sink)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := from.Send(ctx, "d", to.addr, ticket, Zeros(64<<20), 64<<20, nil, nil)
		failed <- err
	}()
	<-sink.reached
	cancel()
	close(sink.opened)
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := <-sink.ended; err != errAborted {
		t.Fatal(err)
	}
	empty(t, dir)
}

// A sender that dies without a word leaves what has arrived, for Keep.
func TestWhatNobodyGoesOnWithIsRemoved(t *testing.T) {
	cfg := testConfig()
	cfg.Keep = 50 * time.Millisecond
	to, from := pair(t, cfg)
	dir := t.TempDir()
	sink := newGate(fileSinkIn(t, dir), 100<<10)
	close(sink.opened)
	ticket, _ := to.Ticket("p", 1<<30, sink)
	failed := make(chan error, 1)
	go func() {
		_, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1<<30), 1<<30, nil, nil)
		failed <- err
	}()
	<-sink.reached
	from.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := <-sink.ended; err != errAborted {
		t.Fatal(err)
	}
	empty(t, dir)
}

func TestAClosedReceiverLeavesNothing(t *testing.T) {
	cfg := testConfig()
	cfg.Stall = 300 * time.Millisecond
	to, from := pair(t, cfg)
	dir := t.TempDir()
	sink := newGate(fileSinkIn(t, dir), 100<<10)
	close(sink.opened)
	ticket, _ := to.Ticket("p", 1<<30, sink)
	failed := make(chan error, 1)
	go func() {
		_, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1<<30), 1<<30, nil, nil)
		failed <- err
	}()
	<-sink.reached
	to.Close()
	if err := <-sink.ended; err != errAborted {
		t.Fatal(err)
	}
	empty(t, dir)
	if err := <-failed; !errors.Is(err, ErrCut) {
		t.Fatal(err)
	}
	if _, err := to.Ticket("p", 1, Discard()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// brokenSource fails from a place on.
type brokenSource struct {
	Source
	from int64
}

func (s brokenSource) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > s.from {
		return 0, io.ErrUnexpectedEOF
	}
	return s.Source.ReadAt(p, off)
}

func TestASourceThatFailsEndsTheTransferAtBothSides(t *testing.T) {
	to, from := pair(t, testConfig())
	sink := newGate(Discard(), 0)
	close(sink.opened)
	ticket, _ := to.Ticket("p", 1<<20, sink)
	_, err := from.Send(t.Context(), "d", to.addr, ticket, brokenSource{Pattern(1, 1<<20), 600_000}, 1<<20, nil, nil)
	if !errors.Is(err, ErrSource) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if err := <-sink.ended; err != errAborted {
		t.Fatal(err)
	}
	if _, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1), 2, nil, nil); !errors.Is(err, ErrSource) {
		t.Fatal(err)
	}
}

func TestASinkThatFailsEndsTheTransferAtBothSides(t *testing.T) {
	to, from := pair(t, testConfig())
	ticket, _ := to.Ticket("p", 1<<20, MemorySink(make([]byte, 7)))
	_, err := from.Send(t.Context(), "d", to.addr, ticket, Zeros(1<<20), 1<<20, nil, nil)
	var r *RefusedError
	if !errors.As(err, &r) || r.Reason != SinkFailed {
		t.Fatal(err)
	}
}
