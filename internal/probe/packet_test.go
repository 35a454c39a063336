package probe

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
)

func drawProbe(t *rapid.T) Probe {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
	})
	return Probe{
		Tuple: ecmp.Tuple{Src: addr.Draw(t, "src"), Dst: addr.Draw(t, "dst"), SrcPort: rapid.Uint16().Draw(t, "sport"),
			DstPort: rapid.Uint16().Draw(t, "dport"), Proto: rapid.SampledFrom([]uint8{ecmp.TCP, ecmp.UDP}).Draw(t, "proto")},
		TTL: rapid.Uint8().Draw(t, "ttl"), ID: rapid.Uint16().Draw(t, "id"), Cookie: rapid.Uint32().Draw(t, "cookie"),
	}
}

// Both checksums hold, and what an ICMP error quotes says which probe it was.
func TestAProbeIsAValidPacketAndIsKnownByItsQuotation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProbe(t)
		b := appendProbe([]byte("x"), p)[1:]
		if len(b) > MaxPacket || int(binary.BigEndian.Uint16(b[2:])) != len(b) {
			t.Fatalf("%d bytes, header says %d", len(b), binary.BigEndian.Uint16(b[2:]))
		}
		if sum(0, b[:ipHeader]) != 0xFFFF {
			t.Fatal("the IP header's checksum is wrong")
		}
		l4 := b[ipHeader:]
		pseudo := append([]byte{0, p.Tuple.Proto, 0, byte(len(l4))}, b[12:20]...)
		if sum(sum(0, pseudo), l4) != 0xFFFF {
			t.Fatal("the checksum is wrong")
		}
		if p.Tuple.Proto == ecmp.UDP && binary.BigEndian.Uint16(l4[6:]) == 0 {
			t.Fatal("UDP without a checksum")
		}
		from := netip.MustParseAddr("10.1.2.3")
		a, err := parseAnswer(from, answerTo(b, [2]byte{11, 0}))
		if err != nil || a.From != from || a.Kind != Expired || !a.answers(&p) {
			t.Fatalf("%+v, %v", a, err)
		}
		if a, err = parseAnswer(from, answerTo(b, [2]byte{3, 3})); err != nil || a.Kind != Refused || !a.answers(&p) {
			t.Fatalf("%+v, %v", a, err)
		}
		for _, change := range []func(*Probe){
			func(p *Probe) { p.ID++ }, func(p *Probe) { p.Tuple.SrcPort++ }, func(p *Probe) { p.Tuple.DstPort++ },
			func(p *Probe) { p.Tuple.Dst = p.Tuple.Dst.Next() }, func(p *Probe) { p.Cookie += 0x1234 },
		} {
			other := p
			if change(&other); a.answers(&other) {
				t.Fatalf("%+v answers %+v as well", a, other)
			}
		}
	})
}

func TestMessagesThatAreNoAnswers(t *testing.T) {
	p := Probe{Tuple: to.Tuple(50000), TTL: 2, ID: 7, Cookie: 9}
	good := answerTo(appendProbe(nil, p), [2]byte{11, 0})
	mend := func(change func(b []byte)) []byte {
		b := append([]byte(nil), good...)
		change(b)
		b[2], b[3] = 0, 0
		binary.BigEndian.PutUint16(b[2:], ^sum(0, b))
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"whole", good, nil},
		{"empty", nil, errShort},
		{"cut in the quoted header", mend(func([]byte) {})[:icmpHeader+10], errDamaged},
		{"too long", append(good[:len(good):len(good)], make([]byte, maxAnswer)...), errOther},
		{"echo reply", mend(func(b []byte) { b[0], b[1] = 0, 0 }), errOther},
		{"reassembly time exceeded", mend(func(b []byte) { b[1] = 1 }), errOther},
		{"fragmentation needed", mend(func(b []byte) { b[0], b[1] = 3, 4 }), errOther},
		{"host unreachable", mend(func(b []byte) { b[0], b[1] = 3, 1 }), nil},
		{"damaged", append(append([]byte(nil), good[:30]...), 1, 2, 3, 4, 5, 6), errDamaged},
		{"IPv6 quoted", mend(func(b []byte) { b[8] = 0x65 }), errOther},
		{"a header of 16 bytes", mend(func(b []byte) { b[8] = 0x44 }), errOther},
		{"options that are cut off", mend(func(b []byte) { b[8] = 0x4F }), errShort},
		{"a later fragment", mend(func(b []byte) { b[8+7] = 1 }), errOther},
		{"ICMP quoted", mend(func(b []byte) { b[8+9] = 1 }), errOther},
	} {
		if a, err := parseAnswer(here, c.b); !errors.Is(err, c.want) || err == nil && !a.answers(&p) {
			t.Errorf("%s: %+v, %v; want %v", c.name, a, err, c.want)
		}
	}
	short := mend(func([]byte) {})[:icmpHeader+ipHeader+4]
	short[2], short[3] = 0, 0
	binary.BigEndian.PutUint16(short[2:], ^sum(0, short))
	if _, err := parseAnswer(here, short); !errors.Is(err, errShort) {
		t.Error(err)
	}
	// Options in the quoted header are passed over.
	b := append(append(append([]byte(nil), good[:icmpHeader+ipHeader]...), 1, 1, 1, 0), good[icmpHeader+ipHeader:]...)
	b[8], b[2], b[3] = 0x46, 0, 0
	binary.BigEndian.PutUint16(b[2:], ^sum(0, b))
	if a, err := parseAnswer(here, b); err != nil || !a.answers(&p) {
		t.Errorf("%+v, %v", a, err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, proto := range []uint8{ecmp.TCP, ecmp.UDP} {
		tuple := to.Tuple(50000)
		tuple.Proto = proto
		b := answerTo(appendProbe(nil, Probe{Tuple: tuple, TTL: 2, ID: 7, Cookie: 9}), [2]byte{11, 0})
		f.Add(b)
		f.Add(b[:20])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), maxAnswer+1)] // more is the same
		for range 2 {                    // as it is, and with the right checksum, so that the rest is reached
			a, err := parseAnswer(here, b)
			if err == nil {
				if len(b) < icmpHeader+ipHeader+8 || a.Kind == 0 || !a.Tuple.Src.Is4() || !a.Tuple.Dst.Is4() || a.Tuple.Proto != ecmp.TCP && a.Tuple.Proto != ecmp.UDP {
					t.Fatalf("%+v of %d bytes", a, len(b))
				}
				p := Probe{Tuple: a.Tuple, ID: a.ID, Cookie: a.Cookie}
				if p.Tuple.Proto == ecmp.TCP && !a.answers(&p) {
					t.Fatalf("%+v does not answer what it quotes", a)
				}
			}
			if len(b) < 4 {
				return
			}
			b = append([]byte(nil), b...)
			b[2], b[3] = 0, 0
			binary.BigEndian.PutUint16(b[2:], ^sum(0, b))
		}
	})
}

func BenchmarkParseAnswer(b *testing.B) {
	b.ReportAllocs()
	m := answerTo(appendProbe(nil, Probe{Tuple: to.Tuple(50000), TTL: 2, ID: 7, Cookie: 9}), [2]byte{11, 0})
	for b.Loop() {
		if _, err := parseAnswer(here, m); err != nil {
			b.Fatal(err)
		}
	}
}
