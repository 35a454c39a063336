package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/peer"
)

// split undoes appendFrame.
func split(tb testing.TB, b []byte) (head, []byte) {
	tb.Helper()
	h, err := decodeHead((*[headBytes]byte)(b))
	if err != nil {
		tb.Fatal(err)
	}
	p := b[headBytes:]
	if h.length != len(p) || h.verify(p) != nil {
		tb.Fatalf("%+v for %d bytes", h, len(p))
	}
	return h, p
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	longest := peer.ID(strings.Repeat("x", peer.MaxID))
	_, p := split(t, appendHello(nil, hello{version: 7, from: longest, to: "d"}))
	if h, err := decodeHello(p); err != nil || h != (hello{7, longest, "d"}) {
		t.Errorf("%+v %v", h, err)
	}
	w := welcome{version: 1, self: longest, nonce: [nonceBytes]byte{1, 2, 3}, chunk: 1 << 20}
	_, p = split(t, appendWelcome(nil, &w))
	if got, err := decodeWelcome(p); err != nil || got != w {
		t.Errorf("%+v %v", got, err)
	}
	secret := ticketSecret{9}
	j := join{ticket: ticketID{1}, session: session{2}, layout: layout{1 << 40, 1 << 20}, list: true}
	_, p = split(t, appendJoin(nil, &j, &secret, &w.nonce))
	got, err := decodeJoin(p)
	if err != nil || got.mac != proof(&secret, &w.nonce, p[:len(p)-macBytes]) {
		t.Fatalf("%+v %v", got, err)
	}
	if got.mac = j.mac; got != j {
		t.Errorf("%+v", got)
	}
	_, p = split(t, appendAck(nil, ack{number: 77, damaged: true}))
	if a, err := decodeAck(p); err != nil || a != (ack{77, true}) {
		t.Errorf("%+v %v", a, err)
	}
	_, p = split(t, appendSum(nil, kindEnd, 0xdeadbeef))
	if s, err := decodeSum(p); err != nil || s != 0xdeadbeef {
		t.Errorf("%x %v", s, err)
	}
	_, p = split(t, appendRefuse(nil, SinkFailed, strings.Repeat("disk\x1b[2J full ", 100)))
	if r, text, err := decodeRefuse(p); err != nil || r != SinkFailed || strings.Contains(text, "\x1b") || !strings.HasPrefix(text, `disk\x1b[2J full`) {
		t.Errorf("%v %q %v", r, text, err)
	}
	b := appendChunk(nil, 5, 6, 1000)
	h, err := decodeHead((*[headBytes]byte)(b))
	if err != nil || h.kind != kindChunk || h.length != chunkHead+1000 || h.verify(b[headBytes:]) != nil {
		t.Errorf("%+v %v", h, err)
	}
	if n, sum, err := decodeChunk(b[headBytes:]); n != 5 || sum != 6 || err != nil {
		t.Errorf("%d %d %v", n, sum, err)
	}
}

func TestWhatHasArrivedComesBackInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.SliceOfN(rapid.Bool(), 0, 100).Draw(t, "have")
		a := accept{chunks: len(have), have: make([]byte, (len(have)+7)/8)}
		var want []int
		for i, h := range have {
			if h {
				a.have[i/8] |= 1 << (i % 8)
				a.sums = binary.BigEndian.AppendUint32(a.sums, uint32(i*i))
				want = append(want, i)
			}
		}
		b := appendAccept(nil, &a)
		got, err := decodeAccept(b[headBytes:])
		if err != nil {
			t.Fatal(err)
		}
		var seen []int
		got.each(func(i int, sum uint32) {
			if sum != uint32(i*i) {
				t.Fatalf("chunk %d has %d", i, sum)
			}
			seen = append(seen, i)
		})
		if !reflect.DeepEqual(seen, want) {
			t.Fatalf("%v, not %v", seen, want)
		}
	})
}

// The longest list there can be is taken, and a longer one is not.
func TestTheListOfChunksIsBounded(t *testing.T) {
	a := accept{chunks: MaxChunks, have: bytes.Repeat([]byte{0xff}, MaxChunks/8), sums: make([]byte, 4*MaxChunks)}
	b := appendAccept(nil, &a)
	if _, err := decodeHead((*[headBytes]byte)(b)); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeAccept(b[headBytes:]); err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b[headBytes+1:], MaxChunks+1)
	if _, err := decodeAccept(b[headBytes:]); !errors.Is(err, errFrame) {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b[4:], maxAccept+1)
	if _, err := decodeHead((*[headBytes]byte)(b)); !errors.Is(err, errFrame) {
		t.Fatal(err)
	}
}

func TestAnyFlippedBitIsSeen(t *testing.T) {
	for _, b := range [][]byte{appendAck(nil, ack{number: 3}), appendSum(nil, kindDone, 1), appendFrame(nil, kindLeave, nil), appendChunk(nil, 1, 2, 0)} {
		for bit := range 8 * len(b) {
			c := bytes.Clone(b)
			c[bit/8] ^= 1 << (bit % 8)
			h, err := decodeHead((*[headBytes]byte)(c))
			if err == nil && h.length == len(c)-headBytes {
				err = h.verify(c[headBytes:])
			} else if err == nil {
				continue // a length that does not end here is seen by what follows
			}
			if err == nil {
				t.Errorf("bit %d of %x", bit, b)
			}
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add(appendAck(nil, ack{number: 3}))
	f.Add(appendChunk(nil, 1, 2, 1<<20))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headBytes {
			return
		}
		h, err := decodeHead((*[headBytes]byte)(b))
		if err != nil {
			return
		}
		if h.length > h.kind.maxLength() {
			t.Fatalf("%+v", h)
		}
		h.verify(b[headBytes:])
	})
}

// What is decoded and encoded again is the same bytes.
func FuzzMessages(f *testing.F) {
	add := func(b []byte) { f.Add(b[0], b[headBytes:]) }
	add(appendHello(nil, hello{version: 1, from: "p", to: "d"}))
	add(appendWelcome(nil, &welcome{version: 1, self: "d", chunk: 1 << 20}))
	add(appendJoin(nil, &join{layout: layout{5, 1 << 20}}, &ticketSecret{}, &[nonceBytes]byte{}))
	add(appendAccept(nil, &accept{chunks: 3, have: []byte{5}, sums: make([]byte, 8)}))
	add(appendAccept(nil, &accept{chunks: 3, finished: true, sum: 9}))
	add(appendAccept(nil, &accept{chunks: 3}))
	add(appendAck(nil, ack{number: 1}))
	add(appendSum(nil, kindEnd, 1))
	add(appendChunk(nil, 1, 2, 0))
	add(appendRefuse(nil, Busy, "so"))
	f.Fuzz(func(t *testing.T, k byte, p []byte) {
		var again []byte
		var err error
		switch kind(k) {
		case kindHello:
			var h hello
			h, err = decodeHello(p)
			again = appendHello(nil, h)
		case kindWelcome:
			var w welcome
			w, err = decodeWelcome(p)
			again = appendWelcome(nil, &w)
		case kindJoin:
			var j join
			if j, err = decodeJoin(p); err == nil {
				again = appendJoin(nil, &j, &ticketSecret{}, &[nonceBytes]byte{})
				copy(again[len(again)-macBytes:], j.mac[:])
			}
		case kindAccept:
			var a accept
			if a, err = decodeAccept(p); err == nil {
				n := 0
				a.each(func(i int, _ uint32) { n++ })
				if n > a.chunks {
					t.Fatalf("%d of %d", n, a.chunks)
				}
				again = appendAccept(nil, &a)
			}
		case kindAck:
			var a ack
			a, err = decodeAck(p)
			again = appendAck(nil, a)
		case kindEnd, kindDone:
			var s uint32
			s, err = decodeSum(p)
			again = appendSum(nil, kind(k), s)
		case kindChunk:
			var n, sum uint32
			n, sum, err = decodeChunk(p)
			again = appendChunk(nil, int(n), sum, 0)
		case kindRefuse:
			_, text, err := decodeRefuse(p)
			for _, c := range []byte(text) {
				if c < ' ' || c > '~' {
					t.Fatalf("%q", text)
				}
			}
			_ = err
			return
		default:
			return
		}
		if err == nil && !bytes.Equal(again[headBytes:], p) {
			t.Fatalf("%x became %x", p, again[headBytes:])
		}
	})
}

func FuzzTicketText(f *testing.F) {
	text, _ := Ticket{id: ticketID{1}, secret: ticketSecret{2}}.MarshalText()
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var k Ticket
		if k.UnmarshalText(text) != nil {
			return
		}
		if again, _ := k.MarshalText(); !bytes.Equal(again, text) {
			t.Fatalf("%s became %s", text, again)
		}
	})
}

func TestATicketIsNotPrintedWhole(t *testing.T) {
	k := Ticket{id: ticketID{1}, secret: ticketSecret{0xab, 0xab, 0xab}}
	text, err := k.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var again Ticket
	if err := again.UnmarshalText(text); err != nil || again != k {
		t.Fatal(err)
	}
	if s := k.String(); strings.Contains(s, "abab") {
		t.Fatal(s)
	}
	if err := again.UnmarshalText(text[1:]); err == nil {
		t.Fatal("a shorter one is taken")
	}
}

func TestTheSumOfEverythingFollowsFromTheChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "bytes")
		l := layout{int64(len(b)), int64(rapid.IntRange(1, 700).Draw(t, "chunk"))}
		var sums []uint32
		for i := range l.count() {
			off, n := l.extent(i)
			sums = append(sums, checksum(b[off:off+int64(n)]))
		}
		if got, want := combine(l, sums), checksum(b); got != want {
			t.Fatalf("%08x, not %08x", got, want)
		}
	})
}
