package wire

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
	"shoal/internal/replica"
	"shoal/internal/reserve"
)

func genEntry(t *rapid.T) reserve.Entry {
	e := reserve.Entry{ID: rapid.Uint64().Draw(t, "id"), Seq: rapid.Uint64().Draw(t, "seq"), Stamp: reserve.Stamp(rapid.Uint64().Draw(t, "stamp")),
		Phase: reserve.Phase(rapid.Byte().Draw(t, "phase")), Dst: genID(t), Bytes: rapid.Int64Min(0).Draw(t, "bytes"), Group: rapid.Uint64().Draw(t, "group"),
		Ready: rapid.Int64Min(0).Draw(t, "ready"), End: rapid.Int64Min(0).Draw(t, "end")}
	for i := range rapid.IntRange(0, reserve.MaxLinks).Draw(t, "links") {
		e.Links = append(e.Links, ecmp.LinkID(rapid.Uint32().Draw(t, fmt.Sprint("link", i))))
	}
	return e
}

func genReserve(t *rapid.T) *reserve.Message {
	m := &reserve.Message{Owner: genID(t), Incarnation: rapid.Uint64().Draw(t, "incarnation"), Released: rapid.Bool().Draw(t, "released")}
	if e := genEntry(t); m.Released {
		m.Entry.ID, m.Entry.Seq = e.ID, e.Seq
	} else {
		m.Entry = e
	}
	return m
}

func genReservations(t *rapid.T) *reserve.Section {
	s := &reserve.Section{Seq: rapid.Uint64().Draw(t, "seq"), Fabric: rapid.Uint64().Draw(t, "fabric")}
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		s.Entries = append(s.Entries, genEntry(t))
	}
	return s
}

func genAsk(t *rapid.T) *Ask {
	text := rapid.StringN(0, 40, 100)
	return &Ask{What: AskKind(rapid.Byte().Draw(t, "what")), Bytes: rapid.Int64Min(0).Draw(t, "bytes"), Name: text.Draw(t, "name"), To: text.Draw(t, "to"), Policy: text.Draw(t, "policy")}
}

func genReply(t *rapid.T) *Reply {
	text := rapid.StringN(0, 40, 100)
	r := &Reply{Refused: text.Draw(t, "refused"), Addr: text.Draw(t, "addr"), Bytes: rapid.Int64().Draw(t, "bytes"), TookNS: rapid.Int64().Draw(t, "took")}
	if b := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "ticket"); len(b) > 0 {
		r.Ticket = b
	}
	return r
}

// decodeReserve reads a whole datagram.
func decodeReserve(b []byte, m *reserve.Message) error {
	t, payload, err := ParseDatagram(b)
	if err != nil {
		return err
	}
	return DecodeReserve(t, payload, m)
}

// The most that one owner can reserve fits its document, and the largest message a datagram.
func TestReservationsFitAtTheirLimits(t *testing.T) {
	e := reserve.Entry{ID: 1<<64 - 1, Seq: 1<<64 - 1, Stamp: 1<<64 - 1, Phase: reserve.Active, Dst: peer.ID(strings.Repeat("d", peer.MaxID)), Bytes: 1<<63 - 1,
		Group: 1<<64 - 1, Ready: 1<<63 - 1, End: 1<<63 - 1}
	for i := range reserve.MaxLinks {
		e.Links = append(e.Links, ecmp.LinkID(1<<32-1-i))
	}
	s := &reserve.Section{Seq: 1<<64 - 1, Fabric: 1<<64 - 1}
	for range reserve.MaxPerOwner {
		s.Entries = append(s.Entries, e)
	}
	b, err := AppendReservations(nil, s)
	if err != nil || len(b) > maxReservations {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	d := &replica.Delta{Owner: "p1", Incarnation: 1, From: 1, To: 2, Parts: 1, Values: []replica.Value{{Section: replica.Section{Kind: replica.KindReservations}, Version: 2, Content: s}}}
	b, err = AppendDelta(nil, d)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeDelta(b)
	if err != nil || !reflect.DeepEqual(back.Values[0].Content, s) {
		t.Fatalf("%v, a %T", err, back.Values[0].Content)
	}
	s.Entries = append(s.Entries, e)
	if _, err := AppendReservations(nil, s); err == nil {
		t.Fatal("one entry too many passes")
	}
	b, err = AppendReserve(nil, &reserve.Message{Owner: peer.ID(strings.Repeat("o", peer.MaxID)), Incarnation: 1<<64 - 1, Entry: e})
	if err != nil || len(b) > MaxDatagram {
		t.Fatalf("a datagram of %d bytes, %v", len(b), err)
	}
}

func TestWhatCannotBeReservedIsNotWritten(t *testing.T) {
	good := reserve.Entry{ID: 1, Seq: 1, Dst: "d"}
	for name, change := range map[string]func(*reserve.Message){
		"owner":    func(m *reserve.Message) { m.Owner = "" },
		"dst":      func(m *reserve.Message) { m.Entry.Dst = "no ID" },
		"bytes":    func(m *reserve.Message) { m.Entry.Bytes = -1 },
		"links":    func(m *reserve.Message) { m.Entry.Links = make([]ecmp.LinkID, reserve.MaxLinks+1) },
		"negative": func(m *reserve.Message) { m.Entry.Ready = -1 },
	} {
		m := &reserve.Message{Owner: "o", Entry: good}
		change(m)
		if _, err := AppendReserve(nil, m); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if _, err := AppendAsk(nil, &Ask{Name: strings.Repeat("x", MaxName+1)}); err == nil {
		t.Error("a name that is too long passes")
	}
	if _, err := AppendReply(nil, &Reply{Ticket: make([]byte, MaxTicket+1)}); err == nil {
		t.Error("a ticket that is too long passes")
	}
}

func FuzzDecodeReservations(f *testing.F) {
	fuzz(f, AppendReservations, DecodeReservations, "reservations")
}
func FuzzDecodeReserve(f *testing.F) { fuzz(f, AppendReserve, decodeReserve, "reserve", "release") }
func FuzzDecodeAsk(f *testing.F)     { fuzz(f, AppendAsk, DecodeAsk, "ask") }
func FuzzDecodeReply(f *testing.F)   { fuzz(f, AppendReply, DecodeReply, "reply") }
