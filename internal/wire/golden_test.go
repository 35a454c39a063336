package wire

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
	"shoal/internal/reserve"
)

// examples are one message of each kind, whose bytes testdata/golden.txt keeps: they do not change within a version.
func examples(t testing.TB) map[string]func() []byte {
	sure := func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stamp := replica.Stamp{Incarnation: 1_790_000_000_000, Version: 300}
	load := &peer.Load{Up: true, PushBack: true, InFlight: 9, Running: 8, Waiting: peer.Unknown, QueuedTokens: 4096, CachePermille: 750, ReusePermille: 120, Work: 90 * time.Second,
		Prefill: 180 * time.Microsecond, Decode: 12 * time.Millisecond, Service: 1500 * time.Millisecond, MilliTokBytes: 4200, Samples: 55}
	info := &peer.Info{Version: "0.1.0", Engine: "llamacpp", Models: []peer.Model{{Name: "smol", Aliases: []string{"small"}, Context: 2048}, {Name: "smol-poet", Parent: "smol", Context: peer.Unknown}},
		Cache: peer.Cache{Kind: peer.Slots, Usable: peer.AfterEnd, Tokens: 8192, BlockTokens: 1}, Slots: 4, Epoch: peer.Epoch{Start: 1_790_000_000_123}, Gateway: "127.0.0.1:8080"}
	entry := reserve.Entry{ID: 1025, Seq: 7, Stamp: 0x0190aabbccdd0001, Phase: reserve.Active, Links: []ecmp.LinkID{0xdeadbeef, 5}, Dst: "p2", Bytes: 1 << 30, Group: 9, Ready: 1_790_000_000_123, End: 1_790_000_001_123}
	text := replica.Section{Kind: replica.KindTextBlocks, BlockSize: 256}
	marks := &replica.Marks{1, 0, 0, 1 << 63}
	changes := &replica.Delta{Owner: "p1", Incarnation: stamp.Incarnation, From: 299, To: 300, Digest: 0x1122334455667788, Parts: 1,
		Values: []replica.Value{{Section: replica.Section{Kind: replica.KindLoad}, Version: 300, Content: load}, {Section: replica.Section{Kind: 200, Model: "gone"}, Version: 300}},
		Sets: []replica.SetOps{{Section: text, Reset: true, Ops: []prefix.Change{
			{Element: prefix.Element{Hash: 0xa1, Depth: 0}}, {Element: prefix.Element{Hash: 0xa2, Depth: 1}}, {Element: prefix.Element{Hash: 0xa3}, Removed: true}, {Element: prefix.Element{Hash: 0xa4, Depth: 500}}}}}}
	patch := &replica.Delta{Owner: "p1", Incarnation: stamp.Incarnation, To: 300, Base: 7, Digest: 8, Part: 1, Parts: 2, Sets: []replica.SetOps{{Section: text, Patch: marks}}}
	sums := new([replica.Buckets]uint64)
	exchange := func(x *Exchange) func() []byte {
		return func() []byte { return payloads(t, x)[0] }
	}
	return map[string]func() []byte{
		"hello": func() []byte {
			return sure(AppendHello(nil, &Hello{Min: 1, Max: 3, ID: "p1", Incarnation: stamp.Incarnation, Shoal: "home"}))
		},
		"welcome": func() []byte { return AppendWelcome(nil, &Welcome{Version: 1, ID: "p2", Incarnation: 5}) },
		"refuse":  func() []byte { return AppendRefuse(nil, &Refuse{Reason: "no version in common", Min: 4, Max: 5}) },
		"forward": func() []byte {
			return sure(AppendForward(nil, &Forward{ID: "r-1", Method: "POST", Path: "/v1/chat/completions", Query: "a=b", Header: []Pair{{"Content-Type", "application/json"}}, Model: "smol",
				Chain: []prefix.Hash{1, 2}, Tail: 3, Bytes: 600, BodyLen: 1000, MaxTokens: 64, Stream: true, Expect: node.Expect{Hopped: true, MatchBlocks: 2, ServeCost: 5 * time.Millisecond, Margin: time.Millisecond}}))
		},
		"accept": func() []byte { return AppendAccept(nil, &Accept{stamp}) },
		"decline": func() []byte {
			return AppendDecline(nil, &Decline{Reason: node.QueueFull, Load: *load, Match: 3, Stamp: stamp, RetryAfter: time.Second})
		},
		"head": func() []byte {
			return sure(AppendHead(nil, &Head{Status: 200, Header: []Pair{{"Content-Type", "text/event-stream"}}}))
		},
		"end": func() []byte {
			return AppendEnd(nil, &End{node.Usage{Prompt: 100, Cached: 90, Completion: peer.Unknown}})
		},
		"fail":      func() []byte { return AppendFail(nil, &Fail{Code: "engine_down", Message: "the engine has gone away"}) },
		"push-back": func() []byte { return AppendPushBack(nil, &PushBack{Owner: "p1", Stamp: stamp, Load: *load}) },
		"reserve": func() []byte {
			return sure(AppendReserve(nil, &reserve.Message{Owner: "p1", Incarnation: stamp.Incarnation, Entry: entry}))
		},
		"release": func() []byte {
			return sure(AppendReserve(nil, &reserve.Message{Owner: "p1", Incarnation: stamp.Incarnation, Released: true, Entry: reserve.Entry{ID: 1025, Seq: 8}}))
		},
		"reservations": func() []byte {
			return sure(AppendReservations(nil, &reserve.Section{Seq: 7, Fabric: 0x0102030405060708, Entries: []reserve.Entry{entry}}))
		},
		"ask": func() []byte {
			return sure(AppendAsk(nil, &Ask{What: AskPull, Bytes: 1 << 20, Name: "kv-1", To: "kv-2", Policy: "least"}))
		},
		"reply": func() []byte {
			return sure(AppendReply(nil, &Reply{Ticket: []byte("ticket"), Addr: "10.1.0.1:9000", Bytes: 5, TookNS: 6}))
		},
		"info":    func() []byte { return AppendInfo(nil, info) },
		"load":    func() []byte { return AppendLoad(nil, load) },
		"changes": func() []byte { return sure(AppendDelta(nil, changes)) },
		"patch":   func() []byte { return sure(AppendDelta(nil, patch)) },
		"begin":   exchange(&Exchange{Begin: true, Summaries: []replica.Summary{{Owner: "p1", Stamp: stamp, Digest: 5}, {Owner: "p2", Stamp: stamp, Digest: 6, Dead: true}}}),
		"answer": exchange(&Exchange{Offers: []replica.Summary{{Owner: "p3", Stamp: stamp, Digest: 7}}, Deltas: []*replica.Delta{patch},
			Wants: []replica.Want{{Owner: "p4", Have: stamp, Digest: 9}}}),
		"trees": exchange(&Exchange{Wants: []replica.Want{{Owner: "p4", Trees: []replica.Tree{{Section: text, Sums: sums}}}}}),
		"frame": func() []byte { return AppendFrame(nil, TypeData, []byte("data: x\n\n")) },
	}
}

func TestBytesDoNotChangeWithinAVersion(t *testing.T) {
	all := examples(t)
	seen := make(map[string]bool)
	datadriven.RunTest(t, "testdata/golden.txt", func(t *testing.T, d *datadriven.TestData) string {
		enc := all[d.Cmd]
		if enc == nil {
			td := fmt.Sprintf("no example %q", d.Cmd)
			d.Fatalf(t, "%s", td)
		}
		seen[d.Cmd] = true
		b := enc()
		if zeros := strings.Repeat("\x00", 8*replica.Buckets); strings.HasSuffix(string(b), zeros) {
			return hex.Dump(b[:len(b)-len(zeros)]) + fmt.Sprintf("and %d zeros\n", len(zeros))
		}
		return hex.Dump(b)
	})
	for name := range all {
		if !seen[name] {
			t.Errorf("testdata/golden.txt lacks %s", name)
		}
	}
}
