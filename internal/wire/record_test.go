package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

func TestRecordsAreDecodedAsTheyWereEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load, info := genLoad(t), genInfo(t)
		var l peer.Load
		if err := DecodeLoad(AppendLoad(nil, load), &l); err != nil || !same(&l, load) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, l, load)
		}
		var i peer.Info
		if err := DecodeInfo(AppendInfo(nil, info), &i); err != nil || !same(&i, info) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, i, info)
		}
	})
}

// What a peer does not say is unknown, or at its prior: never zero.
func TestAbsentFieldsAreUnknownNotZero(t *testing.T) {
	empty := []byte{0xa0}
	var l peer.Load
	if err := DecodeLoad(empty, &l); err != nil || l != peer.PriorLoad() {
		t.Errorf("load: %v, %+v", err, l)
	}
	var i peer.Info
	want := peer.Info{Slots: peer.Unknown, Cache: peer.Cache{Tokens: peer.Unknown, BlockTokens: 1}}
	if err := DecodeInfo(empty, &i); err != nil || !same(i, want) {
		t.Errorf("info: %v, %+v", err, i)
	}
}

func TestUnknownKeysOfRecordsAreIgnored(t *testing.T) {
	b, err := codec.enc.Marshal(map[int]any{1: true, 4: 12, 77: []string{"later"}, 1000: map[int]int{1: 2}})
	if err != nil {
		t.Fatal(err)
	}
	var l peer.Load
	if err := DecodeLoad(b, &l); err != nil || !l.Up || l.InFlight != 12 {
		t.Errorf("%v, %+v", err, l)
	}
}

// Numbers that no engine has cannot make sums of products overflow.
func TestAbsurdLoadsAreBroughtIntoBounds(t *testing.T) {
	for _, x := range []int64{-1 << 63, -5, 1<<63 - 1} {
		b, err := codec.enc.Marshal(map[int]any{4: x, 5: x, 6: x, 7: x, 8: x, 9: x, 10: x, 11: x, 12: x, 13: x, 14: x, 15: x})
		if err != nil {
			t.Fatal(err)
		}
		var l peer.Load
		if err := DecodeLoad(b, &l); err != nil {
			t.Fatal(err)
		}
		if l.InFlight < 0 || l.Running < peer.Unknown || l.QueuedTokens < 0 || l.CachePermille > 1000 || l.Prefill < 1 || l.Prefill > time.Second || l.Decode > time.Minute ||
			l.MilliTokBytes < 1 || l.ReusePermille < 0 || l.Work < 0 || int64(l.Prefill)*l.QueuedTokens < 0 {
			t.Errorf("%d: %+v", x, l)
		}
	}
}

func TestRecordsThatAreNotOnesAreErrors(t *testing.T) {
	long, _ := codec.enc.Marshal(map[int]any{1: strings.Repeat("x", MaxModel+1)})
	alias, _ := codec.enc.Marshal(map[int]any{5: []any{map[int]any{1: "m", 2: []string{strings.Repeat("x", MaxModel+1)}, 4: 1}}})
	models, _ := codec.enc.Marshal(map[int]any{5: make([]map[int]any, maxModels+1)})
	for name, b := range map[string][]byte{
		"nothing": {}, "not CBOR": []byte("hello"), "a list": {0x80}, "indefinite length": {0xbf, 0xff}, "a tag": {0xc1, 0xa0}, "more than one": {0xa0, 0xa0},
		"a key twice": {0xa2, 0x01, 0xf5, 0x01, 0xf5}, "too long": make([]byte, MaxRecord+1), "nested deeply": []byte("\xa1\x18\x63" + strings.Repeat("\x81", 20) + "\x00"),
		"a long text": long, "a long alias": alias, "too many models": models,
	} {
		var i peer.Info
		if err := DecodeInfo(b, &i); err == nil || !strings.HasPrefix(err.Error(), "wire: info: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var l peer.Load
	if err := DecodeLoad([]byte{0x80}, &l); err == nil {
		t.Error("a list is not a load")
	}
}

// Engines with hundreds of adapters are published as far as the record goes.
func TestInfoOfManyModelsIsCutToItsLimit(t *testing.T) {
	i := &peer.Info{Version: strings.Repeat("v", 999)}
	i.Models = append(i.Models, peer.Model{Name: strings.Repeat("x", MaxModel+1)})
	for k := range 400 {
		m := peer.Model{Name: fmt.Sprintf("%0256d", k), Parent: strings.Repeat("p", MaxModel)}
		for a := range 40 {
			m.Aliases = append(m.Aliases, fmt.Sprintf("%0100d", a))
		}
		i.Models = append(i.Models, m)
	}
	b := AppendInfo(nil, i)
	var got peer.Info
	if err := DecodeInfo(b, &got); err != nil || len(b) > MaxRecord {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	if len(got.Models) < 10 || got.Models[0].Name != i.Models[1].Name || len(got.Models[0].Aliases) != maxAliases {
		t.Errorf("%d models left", len(got.Models))
	}
	d := &replica.Delta{Owner: "a", To: 1, Parts: 1, Values: []replica.Value{{Section: replica.Section{Kind: replica.KindInfo}, Version: 1, Content: i}}}
	if _, err := AppendDelta(nil, d); err != nil {
		t.Error(err)
	}
}

func TestContentWithoutAnEncodingIsAnError(t *testing.T) {
	d := &replica.Delta{Owner: "a", To: 1, Parts: 1, Values: []replica.Value{{Section: replica.Section{Kind: 99}, Version: 1, Content: 3}}}
	if b, err := AppendDelta([]byte("x"), d); err == nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := AppendDelta(nil, &replica.Delta{}); err == nil {
		t.Error("an invalid delta was encoded")
	}
}
