package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// childEnv makes this test program a sender and nothing else.
const childEnv = "SHOAL_TRANSFER_CHILD"

// order is what the sender is to do.
type order struct {
	Addr, Ticket, File string
	Size               int64
	Seed               uint64
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(text string) error {
	var o order
	var k Ticket
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if err := k.UnmarshalText([]byte(o.Ticket)); err != nil {
		return err
	}
	m, err := New(Defaults(), "p", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer m.Close()
	src := Pattern(o.Seed, o.Size)
	if o.File != "" {
		f, err := FileSource(o.File)
		if err != nil {
			return err
		}
		defer f.Close()
		src = f
	}
	r, err := m.Send(context.Background(), "d", o.Addr, k, src, o.Size, fixed{Legs: []Leg{{ID: 0}, {ID: 1}}}, nil)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func launch(t *testing.T, o order) (*exec.Cmd, io.Reader) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+string(text))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, out
}

// bytesEnv sets how much is moved: 64 MiB where it is not set. Must show 7 asks for 10 GB.
const bytesEnv = "SHOAL_TRANSFER_BYTES"

// The sending process is killed with SIGKILL in the middle; a new one, which knows nothing of the old, goes on with a new
// ticket, and what arrives has the right checksum.
func TestAKilledSenderIsGoneOnWithByANewOne(t *testing.T) {
	size := int64(64<<20 + 12345)
	if s := os.Getenv(bytesEnv); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	cfg := Defaults()
	cfg.Dir = dir
	to := start(t, "d", cfg)
	sink := newGate(fileSinkIn(t, dir), size/3)
	o := order{Addr: to.addr, Size: size, Seed: 42}
	give := func(s Sink) {
		k, err := to.Ticket("p", size, s)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := k.MarshalText()
		o.Ticket = string(text)
	}
	give(sink)
	first, _ := launch(t, o)
	<-sink.reached
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	err := first.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the sender was not killed: %v", err)
	}
	close(sink.opened)
	if _, err := os.Stat(filepath.Join(dir, "kv")); err == nil {
		t.Fatal("half of it is there under its name")
	}

	give(fileSinkIn(t, dir))
	second, out := launch(t, o)
	var r Result
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	if r.Had < size/3-4<<20 || r.Bytes != size || r.Had >= size {
		t.Errorf("%+v of %d", r, size)
	}
	want := sumOf(t, Pattern(o.Seed, size))
	f, err := FileSource(filepath.Join(dir, "kv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := sumOf(t, f); got != want || r.Checksum != want || f.Size() != size {
		t.Errorf("%d bytes with %08x, and %08x by the account; not %08x", f.Size(), got, r.Checksum, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	t.Logf("%d bytes, of which %d had arrived before the kill; the rest took %v", size, r.Had, r.Took)
}

func sumOf(t *testing.T, s Source) uint32 {
	t.Helper()
	h := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(s, 0, s.Size()), make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	return h.Sum32()
}

// interrupt sends until a part has arrived, and closes the sender.
func interrupt(t *testing.T, to agent, src Source, s Sink) {
	t.Helper()
	from := start(t, "p", testConfig())
	sink := newGate(s, src.Size()/3)
	k, err := to.Ticket("p", src.Size(), sink)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := from.Send(t.Context(), "d", to.addr, k, src, src.Size(), nil, nil)
		failed <- err
	}()
	<-sink.reached
	from.Close()
	close(sink.opened)
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestANewTicketGoesOnEvenWithOtherBytesOrOtherChunks(t *testing.T) {
	old := Pattern(1, 1<<20)
	changed := content(t, old)
	changed[5] ^= 1
	for _, c := range []struct {
		name  string
		src   Source
		chunk int
		had   bool
	}{
		{"the same", old, 16 << 10, true},
		{"a few others", MemorySource(changed), 16 << 10, true},
		{"all others", Pattern(2, 1<<20), 16 << 10, false},
		{"chunks of another size", old, 8 << 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			to := start(t, "d", testConfig())
			interrupt(t, to, old, fileSinkIn(t, dir))
			cfg := testConfig()
			cfg.Chunk = c.chunk
			from := start(t, "p", cfg)
			k, err := to.Ticket("p", c.src.Size(), fileSinkIn(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			r, err := from.Send(t.Context(), "d", to.addr, k, c.src, c.src.Size(), nil, nil)
			if err != nil || r.Had > 0 != c.had || r.Bytes != c.src.Size() {
				t.Fatalf("%+v %v", r, err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "kv"))
			if err != nil || !bytes.Equal(got, content(t, c.src)) {
				t.Fatal("it did not arrive as it is")
			}
		})
	}
}

func TestANewTicketOfAnotherSizeOrPeerBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	to := start(t, "d", testConfig())
	for _, id := range []string{"p", "q"} {
		interrupt(t, to, Pattern(1, 1<<20), fileSinkIn(t, dir))
		from := start(t, "q", testConfig())
		src := Pattern(1, 1<<20+int64(len(id)))
		k, err := to.Ticket("q", src.Size(), fileSinkIn(t, dir))
		for errors.Is(err, ErrBusy) { // the old one's connections are being closed
			runtime.Gosched()
			k, err = to.Ticket("q", src.Size(), fileSinkIn(t, dir))
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := from.Send(t.Context(), "d", to.addr, k, src, src.Size(), nil, nil); err != nil || r.Had != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Fatalf("%v %v", entries, err)
		}
	}
}

// The old sender, had it only been cut, is told that it was replaced.
func TestAReplacedTicketIsRefused(t *testing.T) {
	dir := t.TempDir()
	to := start(t, "d", testConfig())
	first, err := to.Ticket("p", 5, fileSinkIn(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	second, err := to.Ticket("p", 5, fileSinkIn(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	from := start(t, "p", testConfig())
	if _, err := from.Send(t.Context(), "d", to.addr, first, Zeros(5), 5, nil, nil); reasonOf(err) != Replaced {
		t.Fatal(err)
	}
	if _, err := from.Send(t.Context(), "d", to.addr, second, Zeros(5), 5, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// A receiver that was killed has left a part whose chunks nobody knows any more.
func TestAReceiverStartsWithoutTheUnfinishedFilesOfItsEarlierLife(t *testing.T) {
	dir := t.TempDir()
	s := fileSinkIn(t, dir).(*fileSink)
	if err := s.Open(1000); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []string{"kv", ".hidden", "x.shoal-part"} {
		if err := os.WriteFile(filepath.Join(dir, keep), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig()
	cfg.Dir = dir
	start(t, "d", cfg)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v %v", entries, err)
	}
}
