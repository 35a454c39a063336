package wire

import (
	"bytes"
	"errors"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

func TestFrameHeaders(t *testing.T) {
	header := func(n int, t Type) []byte {
		return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), byte(t)}
	}
	for _, c := range []struct {
		name string
		h    []byte
		want error
	}{
		{"a frame at the limit", header(MaxFrame, TypeData), nil},
		{"a frame over it", header(MaxFrame+1, TypeData), ErrLimit},
		{"a handshake at the limit", header(MaxHandshake, TypeHello), nil},
		{"a handshake over it", header(MaxHandshake+1, TypeHello), ErrLimit},
		{"an empty frame", header(0, TypeAlive), nil},
		{"a type of a later version that may be ignored", header(5, 128), nil},
		{"one over the limit", header(MaxFrame+1, 255), ErrLimit},
		{"one that may not", header(5, 127), ErrLimit},
		{"type 0", header(5, 0), ErrLimit},
		{"HTTP", []byte("GET /"), ErrLimit},
		{"TLS", []byte{22, 3, 1, 2, 0}, ErrLimit},
		{"half a header", header(5, TypeData)[:4], ErrTruncated},
	} {
		typ, n, err := ParseHeader(c.h)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && !bytes.Equal(header(n, typ), c.h) {
			t.Errorf("%s: %v, %d", c.name, typ, n)
		}
	}
}

func TestFramesInPlaceAreTheSame(t *testing.T) {
	b := BeginFrame([]byte("before"), TypeAccept)
	b = AppendAccept(b, &Accept{replica.Stamp{Incarnation: 1, Version: 2}})
	b, err := EndFrame(b, len("before"))
	if want := AppendFrame([]byte("before"), TypeAccept, []byte{1, 2}); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
	over := append(BeginFrame(nil, TypeData), make([]byte, MaxFrame+1)...)
	if _, err := EndFrame(over[:MaxFrame+HeaderLen], 0); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if b, err := EndFrame(over, 0); !errors.Is(err, ErrLimit) || len(b) != 0 {
		t.Errorf("over the limit: %v", err)
	}
}

func TestVersionsAreNegotiated(t *testing.T) {
	for _, c := range []struct {
		aMin, aMax, bMin, bMax uint8
		want                   uint8
		ok                     bool
	}{
		{1, 1, 1, 1, 1, true},
		{1, 3, 2, 5, 3, true}, // the greatest that both speak
		{2, 5, 1, 3, 3, true},
		{1, 2, 2, 2, 2, true},
		{1, 1, 2, 3, 0, false}, // none
		{4, 5, 1, 3, 0, false},
		{0, 255, 7, 7, 7, true},
		{1, 3, 3, 2, 0, false}, // not a range
	} {
		got, ok := negotiate(c.aMin, c.aMax, c.bMin, c.bMax)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%+v: %d, %v", c, got, ok)
		}
	}
	if v, ok := Negotiate(MinVersion, MaxVersion); !ok || v != MaxVersion {
		t.Errorf("with itself: %d, %v", v, ok)
	}
	if _, ok := Negotiate(MaxVersion+1, MaxVersion+1); ok {
		t.Error("with a peer that speaks later versions alone")
	}
}

func TestDatagrams(t *testing.T) {
	p := &PushBack{Owner: "a", Stamp: replica.Stamp{Incarnation: 1, Version: 2}, Load: peer.PriorLoad()}
	b := AppendPushBack(nil, p)
	typ, payload, err := ParseDatagram(b)
	var got PushBack
	if err != nil || typ != DatagramPushBack || DecodePushBack(payload, &got) != nil || !same(&got, p) {
		t.Errorf("%v, %v, %+v", err, typ, got)
	}
	later := append([]byte(nil), b...)
	later[0] = MaxVersion + 1
	if _, _, err := ParseDatagram(later); !errors.Is(err, ErrLimit) {
		t.Errorf("a later version: %v", err)
	}
	if typ, _, err := ParseDatagram([]byte{MaxVersion, 99}); err != nil || typ != 99 {
		t.Errorf("an unknown type is for the receiver to ignore: %v", err)
	}
	if _, _, err := ParseDatagram([]byte{1}); !errors.Is(err, ErrTruncated) {
		t.Errorf("one byte: %v", err)
	}
	if _, _, err := ParseDatagram(append([]byte{1, 1}, make([]byte, MaxDatagram-2)...)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, _, err := ParseDatagram(append([]byte{1, 1}, make([]byte, MaxDatagram-1)...)); !errors.Is(err, ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestLargestPushBackFitsADatagram(t *testing.T) {
	const most = 1<<63 - 1
	p := &PushBack{Owner: peer.ID(bytes.Repeat([]byte("p"), peer.MaxID)), Stamp: replica.Stamp{Incarnation: ^uint64(0), Version: ^uint64(0)}, Load: peer.Load{
		Up: true, Draining: true, PushBack: true, InFlight: most, Running: most, Waiting: most, QueuedTokens: most, CachePermille: most, ReusePermille: most, Work: most,
		Prefill: most, Decode: most, Service: most, MilliTokBytes: most, Samples: most}}
	if n := len(AppendPushBack(nil, p)); n > MaxDatagram/2 {
		t.Errorf("%d bytes", n)
	}
}

func TestTypesHaveNames(t *testing.T) {
	names := make(map[string]Type)
	for i := range 256 {
		if t2 := Type(i); t2.Known() {
			if other, twice := names[t2.String()]; twice || t2.Ignorable() {
				t.Errorf("%d and %d are both %v, or it may be ignored", other, i, t2)
			}
			names[t2.String()] = t2
		}
	}
	if len(names) != 16 || Type(200).String() != "type-200" {
		t.Errorf("%d types", len(names))
	}
}
