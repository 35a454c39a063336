package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// payloads encodes an exchange; the frames' payloads are copies.
func payloads(t interface{ Fatal(...any) }, x *Exchange) [][]byte {
	var out [][]byte
	if err := ExchangeFrames(x, nil, func(p []byte) error {
		if len(p) > MaxFrame {
			t.Fatal("a frame of ", len(p), " bytes")
		}
		out = append(out, append([]byte(nil), p...))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// join decodes what payloads has made.
func join(t interface{ Fatal(...any) }, frames [][]byte) *Exchange {
	x := new(Exchange)
	for i, p := range frames {
		more, err := DecodeExchange(p, x)
		if err != nil || more != (i < len(frames)-1) {
			t.Fatal("frame ", i, " of ", len(frames), ": more ", more, ", error ", err)
		}
	}
	return x
}

func genExchange(t *rapid.T) *Exchange {
	x := &Exchange{Begin: rapid.Bool().Draw(t, "begin")}
	row := func() replica.Summary {
		return replica.Summary{Owner: genID(t), Stamp: genStamp(t), Digest: rapid.Uint64().Draw(t, "digest"), Dead: rapid.Bool().Draw(t, "dead")}
	}
	for range rapid.IntRange(0, 3).Draw(t, "rows") {
		x.Summaries = append(x.Summaries, row())
		x.Offers = append(x.Offers, row())
	}
	for range rapid.IntRange(0, 2).Draw(t, "wants") {
		w := replica.Want{Owner: genID(t), Have: genStamp(t), Digest: rapid.Uint64().Draw(t, "digest")}
		for range rapid.IntRange(0, 2).Draw(t, "trees") {
			sums := new([replica.Buckets]uint64)
			sums[rapid.IntRange(0, 255).Draw(t, "bucket")] = rapid.Uint64().Draw(t, "sum")
			w.Trees = append(w.Trees, replica.Tree{Section: replica.Section{Kind: 16, Model: "m", BlockSize: 256}, Sums: sums})
		}
		x.Wants = append(x.Wants, w)
	}
	for range rapid.IntRange(0, 3).Draw(t, "deltas") {
		x.Deltas = append(x.Deltas, genDelta(t))
	}
	return x
}

func TestExchangeIsDecodedAsItWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := genExchange(t)
		frames := payloads(t, x)
		if got := join(t, frames); !same(got, x) {
			t.Fatalf("got  %+v\nwant %+v", got, x)
		}
		// Items of a type that this version does not know are skipped.
		frames[len(frames)-1] = append(frames[len(frames)-1], 99, 3, 0, 0, 0, 1, 2, 3)
		if got := join(t, frames); !same(got, x) {
			t.Fatalf("with an unknown item: %+v", got)
		}
		// So are bits of the flags.
		frames[0][0] |= 0xf0
		if got := join(t, frames); !same(got, x) {
			t.Fatalf("with unknown flags: %+v", got)
		}
	})
}

func TestTruncatedExchangeIsAnErrorOrEndsBetweenItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := payloads(t, genExchange(t))[0]
		n := rapid.IntRange(0, len(b)-1).Draw(t, "length")
		x := new(Exchange)
		if _, err := DecodeExchange(b[:n], x); err == nil && n == 0 {
			t.Fatal("nothing was accepted as an exchange")
		}
	})
}

// A field that a later version appends to a row, a value or a set is ignored.
func TestInnerFieldsOfALaterVersionAreIgnored(t *testing.T) {
	row := appendRow(nil, &replica.Summary{Owner: "a", Stamp: replica.Stamp{Incarnation: 1, Version: 2}, Digest: 3})
	row[0] += 2
	row = append(row, 7, 7)
	b := append([]byte{0, itemSummaries}, 0, 0, 0, 0)
	b = endBlock(append(appendUint(b, 2), append(row, row...)...), 2)
	x := new(Exchange)
	if _, err := DecodeExchange(b, x); err != nil || len(x.Summaries) != 2 || x.Summaries[1].Digest != 3 {
		t.Errorf("rows: %v, %+v", err, x)
	}
	d := &replica.Delta{Owner: "a", From: 1, To: 2, Parts: 1, Values: []replica.Value{value(replica.KindLoad, 2, &peer.Load{})},
		Sets: []replica.SetOps{{Section: replica.Section{Kind: 16}, Ops: []prefix.Change{{Element: prefix.Element{Hash: 9, Depth: 1}}}}}}
	var later []byte
	later = appendStr(later, "a")
	for _, v := range []uint64{0, 1, 2} {
		later = appendUint(later, v)
	}
	later = append(later, make([]byte, 16)...)
	later = append(later, 0, 1, 1)
	later, _ = appendValue(later, &d.Values[0])
	later = grow(later, 21+3, 5)
	later = append(later, 1)
	at := len(later)
	later = appendSet(later, &d.Sets[0])
	later = grow(later, at, 3)
	got, err := DecodeDelta(later)
	if err != nil || len(got.Values) != 1 || len(got.Sets) != 1 || got.Sets[0].Ops[0].Hash != 9 {
		t.Errorf("delta: %v, %+v", err, got)
	}
}

// grow appends n bytes to the block that begins at that offset and ends b.
func grow(b []byte, at, n int) []byte { return endBlock(append(b, make([]byte, n)...), at) }

// pitfalls 15: one undecodable event drops its whole batch
func TestOneUnreadableDeltaSpoilsNoOther(t *testing.T) {
	d := func(to uint64) *replica.Delta {
		return &replica.Delta{Owner: "a", Incarnation: 1, From: to - 1, To: to, Parts: 1}
	}
	b := payloads(t, &Exchange{Deltas: []*replica.Delta{d(2), d(3), d(4)}})[0]
	second := 1 + (len(b)-1)/3 // where its item begins
	b[second+5] = 0            // an owner without a name
	x := new(Exchange)
	if _, err := DecodeExchange(b, x); err != nil || len(x.Deltas) != 3 || x.Deltas[0] == nil || x.Deltas[1] != nil || x.Deltas[2] == nil {
		t.Errorf("%v, %v", err, x.Deltas)
	}
}

// pitfalls 14: a new encoding must not make what is known of a peer vanish without a word
func TestRecordsThatCannotBeReadAreKeptAndRelayed(t *testing.T) {
	for _, raw := range []Opaque{[]byte("not CBOR"), {0xa1, 0x01, 0x81, 0x00}, {}} { // the second: key 1 is a list
		for _, k := range []replica.Kind{replica.KindInfo, replica.KindLoad, replica.KindReservations, 200} {
			d := &replica.Delta{Owner: "a", Incarnation: 1, To: 1, Parts: 1, Values: []replica.Value{{Section: replica.Section{Kind: k}, Version: 1, Content: raw}}}
			b, err := AppendDelta(nil, d)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeDelta(b)
			if err != nil {
				t.Fatal(err)
			}
			if o, ok := got.Values[0].Content.(Opaque); !ok || string(o) != string(raw) {
				t.Errorf("kind %d, %x: content is %T", k, raw, got.Values[0].Content)
			}
			if again, err := AppendDelta(nil, got); err != nil || string(again) != string(b) {
				t.Errorf("relayed as %x, came as %x", again, b)
			}
		}
	}
}

// What a later version adds to a record goes through a peer of this version unchanged.
func TestRelayKeepsFieldsOfALaterVersion(t *testing.T) {
	later, err := codec.enc.Marshal(map[int]any{1: true, 4: 7, 99: "of a later version"})
	if err != nil {
		t.Fatal(err)
	}
	d := &replica.Delta{Owner: "a", Incarnation: 1, To: 1, Parts: 1, Values: []replica.Value{{Section: replica.Section{Kind: replica.KindLoad}, Version: 1, Content: Opaque(later)}}}
	b, _ := AppendDelta(nil, d)
	got, err := DecodeDelta(b)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := got.Values[0].Content.(*peer.Load); !ok || !l.Up || l.InFlight != 7 || l.Running != peer.Unknown {
		t.Errorf("content %+v", got.Values[0].Content)
	}
	if again, _ := AppendDelta(nil, got); string(again) != string(b) {
		t.Error("the relayed record has lost something")
	}
}

func bigCopy(t testing.TB, n int) []*replica.Delta {
	t.Helper()
	d := replica.New("owner", 1, newStore(), replica.Limits{Elements: replica.MaxElements})
	c := make([]prefix.Change, n)
	for i := range c {
		c[i].Hash, c[i].Depth = prefix.Hash(i)*0x9e3779b97f4a7c15, uint16(i)
	}
	if err := d.Change(replica.Section{Kind: replica.KindTextBlocks, BlockSize: 256}, c); err != nil {
		t.Fatal(err)
	}
	return d.Snapshot("owner")
}

func TestDocumentLargerThanAFrameTakesSeveral(t *testing.T) {
	x := &Exchange{Deltas: bigCopy(t, 131072)}
	frames := payloads(t, x)
	total := 0
	for _, p := range frames {
		total += len(p)
	}
	if len(frames) < 2 || total > 131072*12 {
		t.Errorf("%d frames of %d bytes together", len(frames), total)
	}
	if got := join(t, frames); !same(got, x) {
		t.Error("not decoded as it was encoded")
	}
}

// The largest delta, want and list of rows that the limits allow fit a frame.
func TestLargestItemsFitAFrame(t *testing.T) {
	name := strings.Repeat("n", replica.MaxName)
	long := peer.ID(strings.Repeat("p", peer.MaxID))
	max := ^uint64(0)
	d := &replica.Delta{Owner: long, Incarnation: max, To: max, Base: max, Digest: max, Part: replica.MaxParts - 1, Parts: replica.MaxParts}
	for i := range replica.MaxValues {
		d.Values = append(d.Values, replica.Value{Section: replica.Section{Kind: 200, Model: name, Tokeniser: name, BlockSize: uint32(i)}, Version: max, Content: Opaque(make([]byte, MaxRecord))})
	}
	for i := range replica.MaxSections {
		d.Sets = append(d.Sets, replica.SetOps{Section: replica.Section{Kind: 16, Model: name, Tokeniser: name, BlockSize: uint32(i)}, Patch: &replica.Marks{max, max, max, max}})
	}
	for i := range replica.MaxOps {
		depth := uint16(0)
		if i%2 == 0 {
			depth = 65535 // the longest differences
		}
		d.Sets[0].Ops = append(d.Sets[0].Ops, prefix.Change{Element: prefix.Element{Hash: prefix.Hash(i), Depth: depth}})
	}
	rows := make([]replica.Summary, replica.MaxRows)
	for i := range rows {
		id := peer.ID(fmt.Sprintf("%s%05d", long[5:], i))
		rows[i] = replica.Summary{Owner: id, Stamp: replica.Stamp{Incarnation: max, Version: max}, Digest: max, Dead: true}
	}
	w := replica.Want{Owner: long, Have: rows[0].Stamp, Digest: max}
	for i := range replica.MaxTrees {
		w.Trees = append(w.Trees, replica.Tree{Section: replica.Section{Kind: 16, Model: name, Tokeniser: name, BlockSize: uint32(i)}, Sums: new([replica.Buckets]uint64)})
	}
	x := &Exchange{Begin: true, Summaries: rows, Offers: rows, Wants: []replica.Want{w}, Deltas: []*replica.Delta{d, d}}
	frames := payloads(t, x)
	got := join(t, frames)
	if len(got.Summaries) != replica.MaxRows || len(got.Offers) != replica.MaxRows || len(got.Wants[0].Trees) != replica.MaxTrees || len(got.Deltas) != 2 || got.Deltas[1] == nil {
		t.Error("something is missing")
	}
	if b, err := AppendDelta(nil, d); err != nil || len(b) > MaxFrame-6 {
		t.Errorf("the largest delta has %d bytes: %v", len(b), err)
	}
	over := *d
	over.Values = append([]replica.Value(nil), d.Values...)
	over.Values[0].Content = Opaque(make([]byte, MaxRecord+1))
	if _, err := AppendDelta(nil, &over); !errors.Is(err, ErrLimit) {
		t.Errorf("a record over its limit: %v", err)
	}
}

func TestExchangeOverItsLimitsIsRefused(t *testing.T) {
	row := replica.Summary{Owner: "a"}
	rows := make([]replica.Summary, replica.MaxRows+1)
	wants := make([]replica.Want, replica.MaxRows+1)
	deltas := make([]*replica.Delta, maxDeltas+1)
	for i := range rows {
		rows[i], wants[i] = row, replica.Want{Owner: "a"}
	}
	for i := range deltas {
		deltas[i] = &replica.Delta{Owner: "a", To: 1, Parts: 1}
	}
	sections := make([]replica.Tree, replica.MaxTrees)
	for i := range sections {
		sections[i] = replica.Tree{Section: replica.Section{Kind: 16}, Sums: new([replica.Buckets]uint64)}
	}
	for _, c := range []struct {
		name string
		x    Exchange
		ok   bool
	}{
		{"rows at the limit", Exchange{Summaries: rows[1:]}, true},
		{"rows over it", Exchange{Summaries: rows}, false},
		{"offers over it", Exchange{Offers: rows}, false},
		{"wants at the limit", Exchange{Wants: wants[1:]}, true},
		{"wants over it", Exchange{Wants: wants}, false},
		{"deltas at the limit", Exchange{Deltas: deltas[1:]}, true},
		{"deltas over it", Exchange{Deltas: deltas}, false},
		{"trees over it", Exchange{Wants: []replica.Want{{Owner: "a", Trees: sections}, {Owner: "b", Trees: sections[:1]}}}, false},
	} {
		x := new(Exchange)
		var err error
		for _, p := range payloads(t, &c.x) {
			if _, err = DecodeExchange(p, x); err != nil {
				break
			}
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestErrorOfTheWriterEndsTheFrames(t *testing.T) {
	broken := errors.New("broken pipe")
	n := 0
	err := ExchangeFrames(&Exchange{Deltas: bigCopy(t, 131072)}, nil, func([]byte) error { n++; return broken })
	if !errors.Is(err, broken) || n != 1 {
		t.Errorf("%v after %d frames", err, n)
	}
}
