package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// codecOf is one kind of message for tests that treat all alike.
type codecOf struct {
	name   string
	gen    *rapid.Generator[any]
	encode func(any) ([]byte, error)
	decode func([]byte) (any, error)
}

func codecFor[T any](name string, gen func(*rapid.T) *T, enc func([]byte, *T) ([]byte, error), dec func([]byte, *T) error) codecOf {
	return codecOf{
		name:   name,
		gen:    rapid.Custom(func(t *rapid.T) any { return gen(t) }),
		encode: func(m any) ([]byte, error) { return enc(nil, m.(*T)) },
		decode: func(b []byte) (any, error) {
			m := new(T)
			if err := dec(b, m); err != nil {
				return nil, err
			}
			return m, nil
		},
	}
}

// sure makes an encoder that cannot fail look like one that can.
func sure[T any](enc func([]byte, *T) []byte) func([]byte, *T) ([]byte, error) {
	return func(b []byte, m *T) ([]byte, error) { return enc(b, m), nil }
}

// codecs are all messages of fields; Exchange has tests of its own.
func codecs() []codecOf {
	return []codecOf{
		codecFor("hello", genHello, AppendHello, DecodeHello),
		codecFor("welcome", genWelcome, sure(AppendWelcome), DecodeWelcome),
		codecFor("refuse", genRefuse, sure(AppendRefuse), DecodeRefuse),
		codecFor("forward", genForward, AppendForward, DecodeForward),
		codecFor("accept", genAccept, sure(AppendAccept), DecodeAccept),
		codecFor("decline", genDecline, sure(AppendDecline), DecodeDecline),
		codecFor("head", genHead, AppendHead, DecodeHead),
		codecFor("end", genEnd, sure(AppendEnd), DecodeEnd),
		codecFor("fail", genFail, sure(AppendFail), DecodeFail),
		codecFor("push-back", genPushBack, sure(func(b []byte, m *PushBack) []byte { return AppendPushBack(b, m)[2:] }), DecodePushBack),
		codecFor("reserve", genReserve, AppendReserve, decodeReserve),
		codecFor("reservations", genReservations, AppendReservations, DecodeReservations),
		codecFor("ask", genAsk, AppendAsk, DecodeAsk),
		codecFor("reply", genReply, AppendReply, DecodeReply),
		codecFor("delta", genDelta, AppendDelta, func(b []byte, m *replica.Delta) error {
			d, err := DecodeDelta(b)
			if err == nil {
				*m = *d
			}
			return err
		}),
	}
}

func genID(t *rapid.T) peer.ID {
	return peer.ID(rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "id"))
}

func genStamp(t *rapid.T) replica.Stamp {
	return replica.Stamp{Incarnation: rapid.Uint64().Draw(t, "incarnation"), Version: rapid.Uint64().Draw(t, "version")}
}

func genText(most int) *rapid.Generator[string] { return rapid.StringN(0, -1, most) }

func genHello(t *rapid.T) *Hello {
	return &Hello{Min: rapid.Uint8().Draw(t, "min"), Max: rapid.Uint8().Draw(t, "max"), ID: genID(t), Incarnation: rapid.Uint64().Draw(t, "inc"), Shoal: genText(MaxShoal).Draw(t, "shoal")}
}

func genWelcome(t *rapid.T) *Welcome {
	return &Welcome{Version: rapid.Uint8().Draw(t, "v"), ID: genID(t), Incarnation: rapid.Uint64().Draw(t, "inc")}
}

func genRefuse(t *rapid.T) *Refuse {
	return &Refuse{Reason: genText(MaxReason).Draw(t, "reason"), Min: rapid.Uint8().Draw(t, "min"), Max: rapid.Uint8().Draw(t, "max")}
}

func genPairs(t *rapid.T) []Pair {
	h := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pair {
		return Pair{Name: rapid.StringMatching(`[A-Za-z-]{1,20}`).Draw(t, "name"), Value: rapid.StringMatching("[ -~\t]{0,40}").Draw(t, "value")}
	}), 0, 20).Draw(t, "header")
	if len(h) == 0 {
		return nil
	}
	return h
}

func genTokens(t *rapid.T) int { return rapid.IntRange(peer.Unknown, 1<<40).Draw(t, "tokens") }

func genForward(t *rapid.T) *Forward {
	f := &Forward{
		ID: genText(MaxID).Draw(t, "id"), Method: rapid.SampledFrom([]string{"POST", "GET"}).Draw(t, "method"), Path: "/v1/" + rapid.StringMatching(`[a-z/]{0,30}`).Draw(t, "path"),
		Query: rapid.StringMatching(`[a-z=&]{0,30}`).Draw(t, "query"), Header: genPairs(t), Model: genText(MaxModel).Draw(t, "model"), Tail: prefix.Hash(rapid.Uint64().Draw(t, "tail")),
		Bytes: rapid.IntRange(0, 1<<40).Draw(t, "bytes"), BodyLen: rapid.Int64Range(0, 1<<40).Draw(t, "body"), MaxTokens: genTokens(t), Stream: rapid.Bool().Draw(t, "stream"),
		Expect: node.Expect{Hopped: true, MatchBlocks: rapid.IntRange(0, MaxChain).Draw(t, "match"), ServeCost: time.Duration(rapid.Int64().Draw(t, "cost")), Margin: time.Duration(rapid.Int64().Draw(t, "margin"))},
	}
	for range rapid.IntRange(0, 60).Draw(t, "blocks") {
		f.Chain = append(f.Chain, prefix.Hash(rapid.Uint64().Draw(t, "hash")))
	}
	return f
}

func genAccept(t *rapid.T) *Accept { return &Accept{Stamp: genStamp(t)} }

func genDecline(t *rapid.T) *Decline {
	return &Decline{Reason: node.DeclineReason(rapid.Uint8().Draw(t, "reason")), Load: *genLoad(t), Match: rapid.IntRange(0, MaxChain).Draw(t, "match"), Stamp: genStamp(t),
		RetryAfter: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "retry"))}
}

func genHead(t *rapid.T) *Head {
	return &Head{Status: rapid.IntRange(100, 999).Draw(t, "status"), Header: genPairs(t)}
}

func genEnd(t *rapid.T) *End {
	return &End{Usage: node.Usage{Prompt: genTokens(t), Cached: genTokens(t), Completion: genTokens(t)}}
}

func genFail(t *rapid.T) *Fail {
	return &Fail{Code: genText(MaxCode).Draw(t, "code"), Message: genText(MaxMessage).Draw(t, "message")}
}

func genPushBack(t *rapid.T) *PushBack {
	return &PushBack{Owner: genID(t), Stamp: genStamp(t), Load: *genLoad(t)}
}

func genLoad(t *rapid.T) *peer.Load {
	span := func(name string, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(most)).Draw(t, name))
	}
	count := func(name string, least int) int { return rapid.IntRange(least, 1<<30).Draw(t, name) }
	return &peer.Load{
		Up: rapid.Bool().Draw(t, "up"), Draining: rapid.Bool().Draw(t, "draining"), PushBack: rapid.Bool().Draw(t, "pushback"), InFlight: count("inflight", 0),
		Running: count("running", -1), Waiting: count("waiting", -1), QueuedTokens: int64(count("queued", 0)), CachePermille: rapid.IntRange(-1, 1000).Draw(t, "cache"),
		ReusePermille: rapid.IntRange(0, 1000).Draw(t, "reuse"), Work: span("work", time.Hour), Prefill: span("prefill", time.Second), Decode: span("decode", time.Minute),
		Service: span("service", time.Hour), MilliTokBytes: rapid.Int64Range(1, 1<<20).Draw(t, "bytes"), Samples: count("samples", 0),
	}
}

func genInfo(t *rapid.T) *peer.Info {
	text := rapid.StringMatching(`[a-zA-Z0-9 /:.]{0,40}`)
	i := &peer.Info{
		Version: text.Draw(t, "version"), Engine: text.Draw(t, "engine"), Emulated: rapid.Bool().Draw(t, "emulated"), Role: peer.Role(rapid.Uint8().Draw(t, "role")), Salts: rapid.Bool().Draw(t, "salts"),
		Cache: peer.Cache{Kind: peer.CacheKind(rapid.Uint8Range(0, 1).Draw(t, "kind")), Usable: peer.Usable(rapid.Uint8Range(0, 1).Draw(t, "usable")), Tokens: rapid.Int64Range(-1, 1<<40).Draw(t, "tokens"),
			BlockTokens: rapid.IntRange(1, 1<<20).Draw(t, "block")},
		Limit: rapid.IntRange(0, 1<<20).Draw(t, "limit"), Slots: rapid.IntRange(-1, 1<<20).Draw(t, "slots"),
		Epoch: peer.Epoch{Start: rapid.Int64().Draw(t, "start"), Counter: rapid.Int64().Draw(t, "counter")}, Gateway: text.Draw(t, "gateway"), Transfer: text.Draw(t, "transfer"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "models") {
		m := peer.Model{Name: text.Draw(t, "name"), Parent: text.Draw(t, "parent"), Context: rapid.IntRange(-1, 1<<40).Draw(t, "context")}
		for range rapid.IntRange(0, 3).Draw(t, "aliases") {
			m.Aliases = append(m.Aliases, text.Draw(t, "alias"))
		}
		i.Models = append(i.Models, m)
	}
	return i
}

// genDelta makes a valid delta as it is after decoding: with Raw records, and removals without depth.
func genDelta(t *rapid.T) *replica.Delta {
	d := &replica.Delta{Owner: genID(t), Incarnation: rapid.Uint64().Draw(t, "inc"), From: rapid.Uint64Range(0, 1<<40).Draw(t, "from"), Digest: rapid.Uint64().Draw(t, "digest"), Parts: 1}
	d.To = d.From + rapid.Uint64Range(1, 1<<40).Draw(t, "span")
	if d.Complete() {
		d.Parts = rapid.Uint16Range(1, replica.MaxParts).Draw(t, "parts")
		d.Part = rapid.Uint16Range(0, d.Parts-1).Draw(t, "part")
		d.Base = rapid.Uint64().Draw(t, "base")
	}
	version := rapid.Uint64Range(1, d.To)
	d.Values = append(d.Values, value(replica.KindInfo, version.Draw(t, "version"), genInfo(t)), value(replica.KindLoad, version.Draw(t, "version"), genLoad(t)))
	if d.Values = d.Values[:rapid.IntRange(0, 2).Draw(t, "values")]; len(d.Values) == 0 {
		d.Values = nil
	}
	if !d.Complete() && rapid.Bool().Draw(t, "removal") {
		d.Values = append(d.Values, replica.Value{Section: replica.Section{Kind: 200, Model: "gone"}, Version: 1})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "sets") {
		s := replica.SetOps{Section: replica.Section{Kind: replica.KindTextBlocks, Model: fmt.Sprint("m", i), BlockSize: rapid.Uint32().Draw(t, "size")}, Reset: rapid.Bool().Draw(t, "reset")}
		hash := uint64(0)
		for range rapid.IntRange(0, 20).Draw(t, "ops") {
			hash += rapid.Uint64Range(1, 1<<50).Draw(t, "gap")
			op := prefix.Change{Element: prefix.Element{Hash: prefix.Hash(hash)}, Removed: !d.Complete() && rapid.Bool().Draw(t, "removed")}
			if !op.Removed {
				op.Depth = rapid.Uint16().Draw(t, "depth")
			}
			s.Ops = append(s.Ops, op)
		}
		d.Sets = append(d.Sets, s)
	}
	return d
}

// value is a value section as it is once decoded.
func value(k replica.Kind, version uint64, content any) replica.Value {
	v := replica.Value{Section: replica.Section{Kind: k}, Version: version, Content: content}
	switch x := content.(type) {
	case *peer.Info:
		v.Raw = AppendInfo(nil, x)
	case *peer.Load:
		v.Raw = AppendLoad(nil, x)
	case Opaque:
		v.Raw = x
	}
	return v
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := c.gen.Draw(t, "message")
				b, err := c.encode(m)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.decode(b)
				if err != nil {
					t.Fatal(err)
				}
				if !same(got, m) {
					t.Fatalf("got  %+v\nwant %+v", got, m)
				}
			})
		})
	}
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// A later version appends fields; this one reads what it knows.
func TestFieldsOfALaterVersionAreIgnored(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := c.gen.Draw(t, "message")
				b, _ := c.encode(m)
				b = append(b, rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "later")...)
				if got, err := c.decode(b); err != nil || !same(got, m) {
					t.Fatalf("%v, %+v", err, got)
				}
			})
		})
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b, _ := c.encode(c.gen.Draw(t, "message"))
				n := rapid.IntRange(0, len(b)-1).Draw(t, "length")
				if _, err := c.decode(b[:n]); err == nil || !strings.HasPrefix(err.Error(), "wire: ") {
					t.Fatalf("%d of %d bytes: error %v", n, len(b), err)
				}
			})
		})
	}
}

func TestFlippedBitsNeverPanic(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b, _ := c.encode(c.gen.Draw(t, "message"))
				for range rapid.IntRange(1, 4).Draw(t, "flips") {
					i := rapid.IntRange(0, len(b)*8-1).Draw(t, "bit")
					b[i/8] ^= 1 << (i % 8)
				}
				if m, err := c.decode(b); err == nil {
					if _, err := c.encode(m); err != nil {
						t.Fatalf("decoded, but cannot be encoded: %v", err)
					}
				}
			})
		})
	}
}

// What a client or an engine sends as a header cannot split an HTTP message at the other end.
func TestHeaderFieldsThatSplitMessagesAreRefused(t *testing.T) {
	for _, p := range []Pair{{"", "x"}, {"a b", "x"}, {"a:", "x"}, {"a\r\nb", "x"}, {"a", "x\r\nb: y"}, {"a", "x\n"}, {"a", "x\x00"}} {
		b, err := AppendHead(nil, &Head{Status: 200, Header: []Pair{p}})
		if err != nil {
			t.Fatal(err)
		}
		if err := DecodeHead(b, new(Head)); !errors.Is(err, ErrLimit) {
			t.Errorf("%q: %v", p, err)
		}
		b, _ = AppendForward(nil, &Forward{Method: "POST", Path: "/", Header: []Pair{p}})
		if err := DecodeForward(b, new(Forward)); !errors.Is(err, ErrLimit) {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, f := range []Forward{{Method: "PO ST", Path: "/"}, {Method: "POST", Path: "x"}, {Method: "POST", Path: "/ \n"}, {Method: "POST", Path: "/", Query: "a\r\n"}, {Path: "/"}, {Method: "POST"}} {
		b, _ := AppendForward(nil, &f)
		if err := DecodeForward(b, new(Forward)); !errors.Is(err, ErrLimit) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// isPlain against the plain loop that it replaces.
func TestPlainTextIsSeenEightBytesAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 8, '\t', '\n', 0x1f, ' ', 'a', '~', 0x7f, 0x80, 0xff}), 0, 30).Draw(t, "text")
		for i := range b { // mostly plain
			if rapid.IntRange(0, 5).Draw(t, "keep") > 0 {
				b[i] = 'x'
			}
		}
		if isPlain(b) != isPlainSlow(b) {
			t.Fatalf("%q", b)
		}
	})
}

func TestFieldsAtTheirLimits(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	pairs := func(n int) []Pair {
		h := make([]Pair, n)
		for i := range h {
			h[i] = Pair{"a", "b"}
		}
		return h
	}
	base := func() *Forward { return &Forward{Method: "POST", Path: "/"} }
	for _, c := range []struct {
		name string
		at   func(n int) *Forward
		most int
	}{
		{"ID", func(n int) *Forward { f := base(); f.ID = long(n); return f }, MaxID},
		{"method", func(n int) *Forward { f := base(); f.Method = long(n); return f }, MaxMethod},
		{"path", func(n int) *Forward { f := base(); f.Path = "/" + long(n-1); return f }, MaxPath},
		{"query", func(n int) *Forward { f := base(); f.Query = long(n); return f }, MaxQuery},
		{"model", func(n int) *Forward { f := base(); f.Model = long(n); return f }, MaxModel},
		{"chain", func(n int) *Forward { f := base(); f.Chain = make([]prefix.Hash, n); return f }, MaxChain},
		{"header fields", func(n int) *Forward { f := base(); f.Header = pairs(n); return f }, MaxPairs},
		{"header bytes", func(n int) *Forward { f := base(); f.Header = []Pair{{"a", long(n - 1)}}; return f }, MaxHeader},
	} {
		b, err := AppendForward(nil, c.at(c.most))
		if err != nil {
			t.Errorf("%s at the limit: %v", c.name, err)
		}
		f := new(Forward)
		if err := DecodeForward(b, f); err != nil || !same(f.Header, c.at(c.most).Header) {
			t.Errorf("%s at the limit: %v", c.name, err)
		}
		if len(b) > MaxFrame {
			t.Errorf("%s at the limit does not fit a frame", c.name)
		}
		if _, err := AppendForward(nil, c.at(c.most+1)); !errors.Is(err, ErrLimit) {
			t.Errorf("%s over the limit: %v", c.name, err)
		}
	}
	if _, err := AppendHead(nil, &Head{Status: 200, Header: pairs(MaxPairs + 1)}); !errors.Is(err, ErrLimit) {
		t.Errorf("head: %v", err)
	}
	if _, err := AppendHead(nil, &Head{Status: 99}); !errors.Is(err, ErrLimit) {
		t.Errorf("head: %v", err)
	}
	if _, err := AppendHello(nil, &Hello{ID: "a", Shoal: long(MaxShoal + 1)}); !errors.Is(err, ErrLimit) {
		t.Errorf("hello: %v", err)
	}
	if _, err := AppendHello(nil, &Hello{ID: "a b"}); err == nil {
		t.Error("hello with an invalid ID")
	}
	// Texts for people are cut off instead.
	var r Refuse
	if err := DecodeRefuse(AppendRefuse(nil, &Refuse{Reason: long(MaxReason + 9)}), &r); err != nil || len(r.Reason) != MaxReason {
		t.Errorf("refuse: %v, %d", err, len(r.Reason))
	}
	var f Fail
	if err := DecodeFail(AppendFail(nil, &Fail{Code: long(MaxCode + 1), Message: long(MaxMessage + 1)}), &f); err != nil || len(f.Message) != MaxMessage || len(f.Code) != MaxCode {
		t.Errorf("fail: %v", err)
	}
}

// The decoders check limits themselves: encoders of other programs need not.
func TestDecodersRefuseWhatIsOverTheLimits(t *testing.T) {
	forward := func(blocks, fields uint64) []byte {
		b := append([]byte{0, 0, 0, 0, 0, 0, 0}, make([]byte, 8)...)
		b = appendUint(b, blocks)
		b = append(b, make([]byte, 8*blocks)...)
		for _, s := range []string{"", "POST", "/", "", ""} {
			b = appendStr(b, s)
		}
		b = appendUint(b, fields)
		for range fields {
			b = append(b, 1, 'a', 0)
		}
		return b
	}
	for _, c := range []struct {
		blocks, fields uint64
		ok             bool
	}{{MaxChain, MaxPairs, true}, {MaxChain + 1, 0, false}, {0, MaxPairs + 1, false}} {
		if err := DecodeForward(forward(c.blocks, c.fields), new(Forward)); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := DecodeForward(appendUint(append([]byte{0, 0, 0, 0, 0, 0, 0}, make([]byte, 8)...), MaxChain), new(Forward)); !errors.Is(err, ErrTruncated) {
		t.Errorf("blocks that are not there: %v", err)
	}
	if err := DecodeHello(append([]byte(magic), 1, 1, 1, 'a', 0, MaxShoal+1), new(Hello)); !errors.Is(err, ErrLimit) {
		t.Errorf("hello: %v", err)
	}
	if err := DecodeHello([]byte("GET / HTTP/1.1\r\n"), new(Hello)); !errors.Is(err, ErrLimit) {
		t.Errorf("another protocol: %v", err)
	}
}

func TestDecodedMessagesShareNoMemoryWithThePayload(t *testing.T) {
	for _, c := range codecs() {
		rapid.Check(t, func(t *rapid.T) {
			m := c.gen.Draw(t, "message")
			b, _ := c.encode(m)
			got, err := c.decode(b)
			clear(b)
			if err != nil || !same(got, m) {
				t.Fatalf("%s: %v", c.name, err)
			}
		})
	}
}

func TestEncodersAppend(t *testing.T) {
	for _, c := range []func([]byte) []byte{
		func(b []byte) []byte { b, _ = AppendForward(b, &Forward{Method: "GET", Path: "/"}); return b },
		func(b []byte) []byte { return AppendPushBack(b, &PushBack{Owner: "a"}) },
		func(b []byte) []byte { return AppendLoad(b, &peer.Load{}) },
		func(b []byte) []byte { return AppendFrame(b, TypeData, []byte("x")) },
	} {
		if got := c([]byte("before")); !bytes.HasPrefix(got, []byte("before")) || !bytes.Equal(got[6:], c(nil)) {
			t.Errorf("%q", got)
		}
	}
}
