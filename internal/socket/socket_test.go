package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// pair gives the two ends of a TCP connection, wrapped.
func pair(tb testing.TB) (a, b net.Conn, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	if b, err = Listener(l).Accept(); err != nil {
		tb.Fatal(err)
	}
	a = Wrap(a)
	return a, b, func() { a.Close(); b.Close() }
}

// All that net.Conn promises: deadlines, closing, concurrent calls.
func TestConnKeepsThePromisesOfNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2, stop = pair(t)
		return c1, c2, stop, nil
	})
}

func TestTCPConnectionsAreWrappedAndOthersAreNot(t *testing.T) {
	a, b, stop := pair(t)
	defer stop()
	for _, nc := range []net.Conn{a, b} {
		if _, ok := nc.(*Conn); !ok && linux {
			t.Fatalf("%T", nc)
		}
	}
	p, q := net.Pipe()
	defer q.Close()
	if Wrap(p) != p {
		t.Fatal("a pipe is wrapped")
	}
	p.Close()
}

// More than the kernel takes at once, in pieces of which some are empty, and more of them than one call gathers.
func TestGatherWritesAllPiecesInOrder(t *testing.T) {
	a, b, stop := pair(t)
	defer stop()
	var pieces [][]byte
	var want []byte
	for i := range 11 {
		p := bytes.Repeat([]byte{byte(i)}, i*i*50_000%700_001)
		pieces, want = append(pieces, p), append(want, p...)
	}
	failed := make(chan error, 1)
	go func() {
		err := Gather(a, pieces...)
		a.Close()
		failed <- err
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d arrived, %v", len(got), len(want), err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func TestGatherToWhatIsNotTCP(t *testing.T) {
	p, q := net.Pipe()
	go func() {
		Gather(p, []byte("one "), nil, []byte("two"))
		p.Close()
	}()
	if got, err := io.ReadAll(q); string(got) != "one two" || err != nil {
		t.Fatalf("%q %v", got, err)
	}
	if err := Gather(p, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

func TestErrorsOfTheSocketAreNamed(t *testing.T) {
	a, b, stop := pair(t)
	defer stop()
	b.(interface{ SetLinger(int) error }).SetLinger(0)
	b.Close() // with a reset
	_, err := a.Read(make([]byte, 1))
	var op *net.OpError
	if !errors.As(err, &op) || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%v", err)
	}
	if err := Gather(a, []byte("x")); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%v", err)
	}
}

// A reader that does not read stops a writer; its deadline strikes, and what went out is counted.
func TestAWriteThatWaitsEndsAtItsDeadline(t *testing.T) {
	a, _, stop := pair(t)
	defer stop()
	a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := a.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := Gather(a, make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestACallCostsNoMemory(t *testing.T) {
	a, b, stop := pair(t)
	defer stop()
	p := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		a.Write(p)
		b.Read(p)
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
