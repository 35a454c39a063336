package cluster

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/peer"
)

func drawMember(t *rapid.T) Member {
	v := rapid.Uint8().Draw(t, "min")
	return Member{
		ID:          peer.ID(rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "id")),
		Incarnation: rapid.Uint64().Draw(t, "incarnation"),
		PeerAddr:    rapid.SampledFrom([]string{"127.0.0.1:1", "10.1.2.3:65535", "[2001:db8::1]:80", "[fe80::1%eth0]:7"}).Draw(t, "addr"),
		ControlAddr: rapid.SampledFrom([]string{"", "10.9.0.1:7000", "[fd00::1]:7000"}).Draw(t, "control"),
		MinVersion:  v, MaxVersion: rapid.Uint8Min(v).Draw(t, "max"),
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMember(t)
		b := appendMeta(nil, &m)
		if len(b) > maxMeta {
			t.Fatalf("%d bytes", len(b))
		}
		// A later version may append fields.
		got, err := decodeMeta(append(b, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "later")...))
		if err != nil || got != m {
			t.Fatalf("%+v, %v", got, err)
		}
		for n := range len(b) {
			if _, err := decodeMeta(b[:n]); err == nil && n != len(b)-1-len(m.ControlAddr) { // a version before control networks sends no more
				t.Fatalf("%d bytes of %d are enough", n, len(b))
			}
		}
		name := m.gossipName()
		if id, _, ok := strings.Cut(name, "@"); !ok || peer.ID(id) != m.ID {
			t.Fatalf("name %q", name)
		}
	})
}

func TestMetadataThatCannotBeIsRefused(t *testing.T) {
	good := Member{ID: "a", PeerAddr: "10.0.0.1:1", MinVersion: 1, MaxVersion: 1}
	for _, f := range []func(*Member){
		func(m *Member) { m.ID = "" },
		func(m *Member) { m.ID = "a@b" },
		func(m *Member) { m.ID = peer.ID(strings.Repeat("x", 65)) },
		func(m *Member) { m.MinVersion = 2 },
		func(m *Member) { m.PeerAddr = "host:1" },
		func(m *Member) { m.PeerAddr = "10.0.0.1:0" },
		func(m *Member) { m.PeerAddr = "0.0.0.0:1" },
		func(m *Member) { m.PeerAddr = "[ff02::1]:1" },
		func(m *Member) { m.PeerAddr = strings.Repeat("1", 200) + ":1" },
	} {
		m := good
		f(&m)
		if _, err := decodeMeta(appendMeta(nil, &m)); err == nil {
			t.Errorf("%+v passes", m)
		}
	}
	if _, err := decodeMeta(append(appendMeta(nil, &good), make([]byte, maxMeta)...)); err == nil {
		t.Error("513 bytes pass")
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(appendMeta(nil, &Member{ID: "a", PeerAddr: "10.0.0.1:1"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again := appendMeta(nil, &m)
		if m.ControlAddr == "" {
			again = again[:len(again)-1] // may be left out
		}
		if len(again) > maxMeta || !bytes.HasPrefix(b[1:], again[1:]) {
			t.Fatalf("%x decodes to %+v", b, m)
		}
	})
}

func TestDatagramRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMember(t)
		payload := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "payload")
		b := append(appendSay(nil, sayDatagram, &m), payload...)
		what, id, inc, rest, err := cutSay(b)
		if err != nil || what != sayDatagram || id != m.ID || inc != m.Incarnation || !bytes.Equal(rest, payload) {
			t.Fatalf("%d %s %d %x %v", what, id, inc, rest, err)
		}
	})
}

func FuzzDatagram(f *testing.F) {
	f.Add(appendSay(nil, sayBye, &Member{ID: "a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, _, rest, err := cutSay(b); err == nil && len(rest) > MaxDatagram {
			t.Fatal("too long")
		}
	})
}
