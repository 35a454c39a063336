package transfer

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func reasonOf(err error) Reason {
	var r *RefusedError
	if errors.As(err, &r) && errors.Is(err, ErrRefused) {
		return r.Reason
	}
	return 0
}

func TestAWriteWithoutAGoodTicketIsRefusedAndLeavesNothing(t *testing.T) {
	to, from := pair(t, testConfig())
	other := start(t, "q", testConfig())
	dir := t.TempDir()
	give := func(size int64) Ticket {
		k, err := to.Ticket("p", size, fileSinkIn(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	send := func(a agent, k Ticket, size int64) error {
		_, err := a.Send(t.Context(), "d", to.addr, k, Pattern(1, size), size, nil, nil)
		return err
	}
	if err := send(from, Ticket{}, 100); reasonOf(err) != NoTicket {
		t.Error("none: ", err)
	}
	k := give(100)
	forged := k
	forged.secret[0] ^= 1
	if err := send(from, forged, 100); reasonOf(err) != NoTicket {
		t.Error("forged: ", err)
	}
	if err := send(other, k, 100); reasonOf(err) != NoTicket {
		t.Error("of another peer: ", err)
	}
	empty(t, dir)
	if err := send(from, k, 100); err != nil {
		t.Fatal("the right one, after those: ", err)
	}
	if err := os.Remove(filepath.Join(dir, "kv")); err != nil {
		t.Fatal(err)
	}
	if err := send(from, k, 100); reasonOf(err) != UsedTicket {
		t.Error("used: ", err)
	}
	empty(t, dir)
	for _, size := range []int64{99, 101, 1 << 30} {
		k := give(100)
		if err := send(from, k, size); reasonOf(err) != WrongSize {
			t.Error("another size: ", err)
		}
		empty(t, dir)
		if err := send(from, k, 100); reasonOf(err) == 0 {
			t.Error("after another size: ", err)
		}
		empty(t, dir)
	}
	if s := to.Stats(); s.Tickets != 0 || s.Receiving != 0 {
		t.Errorf("%+v", s)
	}
}

func TestATicketExpires(t *testing.T) {
	cfg := testConfig()
	cfg.TicketLife = 20 * time.Millisecond
	to, from := pair(t, cfg)
	k, err := to.Ticket("p", 1, Discard())
	if err != nil {
		t.Fatal(err)
	}
	// Nothing tells when: what is counted does.
	for until := time.Now().Add(5 * time.Second); to.Stats().Tickets > 0; {
		if time.Now().After(until) {
			t.Fatal("it does not expire")
		}
	}
	_, err = from.Send(t.Context(), "d", to.addr, k, Zeros(1), 1, nil, nil)
	if !errors.Is(err, ErrExpired) || !errors.Is(err, ErrRefused) || errors.Is(err, ErrMismatch) {
		t.Fatal(err)
	}
}

// raw is a sender that does as it likes.
type raw struct {
	tb testing.TB
	net.Conn
	nonce [nonceBytes]byte
}

func dialRaw(tb testing.TB, to agent) *raw {
	tb.Helper()
	nc, err := net.Dial("tcp", to.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	r := &raw{tb: tb, Conn: nc}
	r.write(appendHello(nil, hello{version: version, from: "p", to: "d"}))
	w, err := decodeWelcome(r.hear(kindWelcome))
	if err != nil {
		tb.Fatal(err)
	}
	r.nonce = w.nonce
	return r
}

func (r *raw) write(b []byte) {
	r.tb.Helper()
	if _, err := r.Write(b); err != nil {
		r.tb.Fatal(err)
	}
}

func (r *raw) hear(k kind) []byte {
	r.tb.Helper()
	h, p, err := receive(r)
	if err != nil || h.kind != k {
		r.tb.Fatalf("heard %d %q, not %d: %v", h.kind, p, k, err)
	}
	return p
}

func (r *raw) join(k Ticket, l layout) {
	r.tb.Helper()
	r.write(appendJoin(nil, &join{ticket: k.id, session: session{1}, layout: l}, &k.secret, &r.nonce))
	r.hear(kindAccept)
}

func (r *raw) refusedFor() Reason {
	r.tb.Helper()
	why, _, err := decodeRefuse(r.hear(kindRefuse))
	if err != nil {
		r.tb.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		r.tb.Errorf("after a refusal: %v", err)
	}
	return why
}

// chunk is a whole chunk message.
func chunk(number int, data string) []byte {
	return append(appendChunk(nil, number, checksum([]byte(data)), len(data)), data...)
}

func TestASenderThatDoesNotKeepToItsTicketIsRefusedAndLeavesNothing(t *testing.T) {
	a, b := strings.Repeat("a", minChunk), strings.Repeat("b", minChunk)
	const size = 2*minChunk + 100
	for _, c := range []struct {
		name string
		sent [][]byte
		acks int
		want Reason
	}{
		{"past the last chunk", [][]byte{chunk(3, a)}, 0, BadChunk},
		{"far past it", [][]byte{chunk(1<<32-1, a)}, 0, BadChunk},
		{"the last one too long", [][]byte{chunk(2, a)}, 0, BadChunk},
		{"too short", [][]byte{chunk(0, a[1:])}, 0, BadChunk},
		{"longer than a chunk", [][]byte{chunk(0, a+"x")}, 0, BadChunk},
		{"empty", [][]byte{chunk(0, "")}, 0, BadChunk},
		{"other bytes for what is there", [][]byte{chunk(0, a), chunk(0, b)}, 1, BadChunk},
		{"an end before the end", [][]byte{chunk(0, a), appendSum(nil, kindEnd, 1)}, 1, BadChunk},
		{"a wrong sum of everything", [][]byte{chunk(0, a), chunk(1, b), chunk(2, a[:100]), appendSum(nil, kindEnd, 1)}, 3, Mismatch},
		{"a second join", [][]byte{appendJoin(nil, &join{layout: layout{1, minChunk}}, &ticketSecret{}, &[nonceBytes]byte{})}, 0, Protocol},
		{"what a receiver says", [][]byte{appendAck(nil, ack{})}, 0, Protocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := start(t, "d", testConfig())
			dir := t.TempDir()
			sink := newGate(fileSinkIn(t, dir), 1<<40)
			k, err := to.Ticket("p", size, sink)
			if err != nil {
				t.Fatal(err)
			}
			r := dialRaw(t, to)
			r.join(k, layout{size, minChunk})
			for _, b := range c.sent {
				r.write(b)
			}
			for range c.acks {
				r.hear(kindAck)
			}
			if why := r.refusedFor(); why != c.want {
				t.Errorf("%v", why)
			}
			if err := <-sink.ended; err != errAborted {
				t.Error(err)
			}
			empty(t, dir)
			if s := to.Stats(); s.Receiving != 0 || s.Tickets != 0 || s.Refused != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What is sent twice with the same bytes is written once: an acknowledgement may have been lost.
func TestTheSameChunkTwiceIsWrittenOnce(t *testing.T) {
	to := start(t, "d", testConfig())
	sink := Discard()
	k, _ := to.Ticket("p", 5, sink)
	r := dialRaw(t, to)
	r.join(k, layout{5, minChunk})
	for range 3 {
		r.write(chunk(0, "hello"))
		r.hear(kindAck)
	}
	r.write(appendSum(nil, kindEnd, checksum([]byte("hello"))))
	r.hear(kindDone)
	if s := to.Stats(); sink.Bytes() != 5 || s.Duplicates != 2 || s.Received != 1 || s.BytesIn != 5 {
		t.Fatalf("%d bytes, %+v", sink.Bytes(), s)
	}
}

func TestWithoutAJoinNothingIsTaken(t *testing.T) {
	for _, b := range [][]byte{chunk(0, "hello"), appendSum(nil, kindEnd, 0), appendFrame(nil, kindLeave, nil), appendFrame(nil, kindCancel, nil)} {
		to := start(t, "d", testConfig())
		r := dialRaw(t, to)
		r.write(b)
		if why := r.refusedFor(); why != Protocol {
			t.Errorf("%v", why)
		}
	}
}

// A proof is good for one connection: whoever has listened cannot say it again on another.
func TestAProofCannotBeRepeated(t *testing.T) {
	to := start(t, "d", testConfig())
	k, _ := to.Ticket("p", 5, Discard())
	first, second := dialRaw(t, to), dialRaw(t, to)
	said := appendJoin(nil, &join{ticket: k.id, session: session{1}, layout: layout{5, minChunk}}, &k.secret, &first.nonce)
	first.write(said)
	first.hear(kindAccept)
	second.write(said)
	if why := second.refusedFor(); why != NoTicket {
		t.Fatal(why)
	}
}

func TestStrangersAreToldAndLetGo(t *testing.T) {
	to := start(t, "d", testConfig())
	for _, c := range []struct {
		said []byte
		want Reason // 0: nothing is said
	}{
		{appendHello(nil, hello{version: 2, from: "p", to: "d"}), BadVersion},
		{appendHello(nil, hello{version: version, from: "p", to: "e"}), WrongPeer},
		{[]byte("GET / HTTP/1.1\r\nHost: d\r\n\r\n"), 0},
		{appendAck(nil, ack{}), 0},
	} {
		nc, err := net.Dial("tcp", to.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		nc.Write(c.said)
		h, p, err := receive(nc)
		if c.want == 0 {
			if err == nil {
				t.Errorf("%q was answered: %v", c.said, h)
			}
			continue
		}
		if why, _, err2 := decodeRefuse(p); err != nil || err2 != nil || why != c.want {
			t.Errorf("%v %v %v", why, err, err2)
		}
	}
	from := start(t, "p", testConfig())
	if err := from.Warm(t.Context(), "e", to.addr, []Leg{{}}); reasonOf(err) != WrongPeer {
		t.Error(err)
	}
}

// Any bytes at all, as a stranger's and as a sender's that has a ticket.
func FuzzReceiver(f *testing.F) {
	f.Add(false, appendHello(nil, hello{version: version, from: "p", to: "d"}))
	f.Add(true, chunk(0, "hello"))
	f.Add(true, append(chunk(0, "hello"), appendSum(nil, kindEnd, checksum([]byte("hello")))...))
	cfg := testConfig()
	cfg.Idle, cfg.Stall = time.Second, time.Second
	f.Fuzz(func(t *testing.T, ticket bool, said []byte) {
		to, err := New(cfg, "d", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		sink := MemorySink(make([]byte, 5))
		k, err := to.Ticket("p", 5, sink)
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		to.enter(far)
		if ticket {
			near.Write(appendHello(nil, hello{version: version, from: "p", to: "d"}))
			_, p, _ := receive(near)
			w, _ := decodeWelcome(p)
			near.Write(appendJoin(nil, &join{ticket: k.id, layout: layout{5, minChunk}}, &k.secret, &w.nonce))
			receive(near)
		}
		go io.Copy(io.Discard, near)
		near.Write(said)
		near.Close()
		to.Close()
		if s := to.Stats(); s.Tickets != 0 || s.ConnsIn != 0 {
			t.Fatalf("%+v", s)
		}
	})
}
