package ecmp

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestPublishedCheckValues(t *testing.T) {
	check := []byte("123456789")
	for _, c := range []struct {
		kind Kind
		seed uint32
		want uint32
	}{
		{CRC16CCITT, 0, 0x31C3},      // CRC-16/XMODEM
		{CRC16CCITT, 0xFFFF, 0x29B1}, // CRC-16/IBM-3740, also called CCITT-FALSE
		{CRC16CCITT, 0x1D0F, 0xE5CC}, // CRC-16/SPI-FUJITSU
		{CRC16Bisync, 0, 0xBB3D},     // CRC-16/ARC
		{CRC16Bisync, 0xFFFF, 0x4B37},
		{CRC32, 0, 0xCBF43926}, // CRC-32/ISO-HDLC
		{CRC32Low, 0, 0x3926},
		{CRC32High, 0, 0xCBF4},
	} {
		if got := c.kind.sum(c.seed, check); got != c.want {
			t.Errorf("%v from %#x is %#x, want %#x", c.kind, c.seed, got, c.want)
		}
		if got, _ := slowSum(c.kind, c.seed, check); got != c.want {
			t.Errorf("the oracle's %v from %#x is %#x, want %#x", c.kind, c.seed, got, c.want)
		}
	}
	if got := murmurEnd(murmurMix(0, 0x74736574), 4); got != 0xba6bd213 { // "test"
		t.Errorf("murmur3(\"test\", 0) is %#x", got)
	}
	if got := slowMurmur([]byte("test"), 0); got != 0xba6bd213 {
		t.Errorf("the oracle's murmur3(\"test\", 0) is %#x", got)
	}
	var key [15]byte
	for i := range key {
		key[i] = byte(i)
	}
	// The vector of the SipHash paper, appendix A.
	if got := slowSip(0x0706050403020100, 0x0f0e0d0c0b0a0908, key[:]); got != 0xa129ca6149be45e5 {
		t.Errorf("the oracle's SipHash of the paper's vector is %#x", got)
	}
}

// What the simulator that the paper used makes of its flows i to 8+i, of source port 10000, at leaf 16 with four spines.
func TestMurmurPlacesTheSimulatorsFlows(t *testing.T) {
	want := []int{0, 2, 1, 0, 3, 3, 0, 0}
	s, m := Selection{}, Model{Kind: Murmur3, Seed: 16}
	hostAddr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{11, 0, byte(i), 1}) }
	for i := range 8 {
		tu := Tuple{Src: hostAddr(i), Dst: hostAddr(8 + i), SrcPort: 10000, DstPort: 100, Proto: UDP}
		if got := s.Pick(m.Hash(tu), 4); got != want[i] {
			t.Errorf("flow %d goes to spine %d, want %d", i, got, want[i])
		}
	}
}

func TestEveryHashIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, tu := anyModel(t), anyTuple(t)
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		want := slowHash(m, tu)
		if got := m.Hash(tu); got != want {
			t.Fatalf("%+v of %+v is %#x, want %#x", m, tu, got, want)
		}
		if want>>m.Bits() != 0 {
			t.Fatalf("%#x has more than %d bits", want, m.Bits())
		}
	})
}

func TestFillAndAtGiveTheHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, tu := anyModel(t), anyTuple(t)
		p := m.Prepare(tu)
		from := rapid.Uint16().Draw(t, "from")
		out := make([]uint32, rapid.IntRange(0, 150).Draw(t, "n"))
		p.Fill(from, out)
		for i, got := range out {
			tu.SrcPort = from + uint16(i)
			if want := m.Hash(tu); got != want || p.At(tu.SrcPort) != want {
				t.Fatalf("%+v of %+v: Fill gives %#x, At %#x, Hash %#x", m, tu, got, p.At(tu.SrcPort), want)
			}
		}
	})
}

func TestFillGoesThroughAllPorts(t *testing.T) {
	for k := Murmur3; k < kinds; k++ {
		tu := Tuple{Src: addr("10.0.1.1"), Dst: addr("10.0.2.1"), DstPort: 4791, Proto: UDP}
		m := Model{Kind: k, Seed: 5}
		p := m.Prepare(tu)
		out := make([]uint32, 1<<16)
		p.Fill(0, out)
		for i := range out {
			tu.SrcPort = uint16(i)
			if want := m.Hash(tu); out[i] != want {
				t.Fatalf("%v of port %d is %#x, want %#x", k, i, out[i], want)
			}
		}
	}
}

// Both directions of a flow hash alike in Linux.
func TestLinuxIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Kind: Linux, Seed: rapid.Uint32Min(1).Draw(t, "seed")}
		a := anyTuple(t)
		b := Tuple{Src: a.Dst, Dst: a.Src, SrcPort: a.DstPort, DstPort: a.SrcPort, Proto: a.Proto}
		if m.Hash(a) != m.Hash(b) {
			t.Fatalf("%+v is %#x, and the way back %#x", a, m.Hash(a), m.Hash(b))
		}
	})
}

func TestLinearKindsAreLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, tu := anyModel(t), anyTuple(t)
		if !m.Kind.Linear() {
			return
		}
		h := func(port uint16) uint32 { tu.SrcPort = port; return m.Hash(tu) }
		a, b := rapid.Uint16().Draw(t, "a"), rapid.Uint16().Draw(t, "b")
		if h(a^b) != h(a)^h(b)^h(0) {
			t.Fatalf("%+v is not linear at %d and %d", m, a, b)
		}
	})
}

func TestHashingAllocatesNothing(t *testing.T) {
	for k := Unknown; k < kinds; k++ {
		m := Model{Kind: k, Seed: 5}
		tu := Tuple{Src: addr("10.0.1.1"), Dst: addr("10.0.2.1"), DstPort: 4791, Proto: UDP}
		p := m.Prepare(tu)
		out := make([]uint32, 100)
		if n := testing.AllocsPerRun(100, func() {
			tu.SrcPort++
			m.Hash(tu)
			p.At(tu.SrcPort)
			p.Fill(tu.SrcPort, out)
			fresh := m.Prepare(tu)
			fresh.At(7)
		}); n != 0 {
			t.Errorf("%v allocates %v times", k, n)
		}
	}
}

func TestWrongModelsNameTheField(t *testing.T) {
	for _, c := range []struct {
		m    Model
		want string
	}{
		{Model{Kind: kinds}, "model.kind: 9 is none"},
		{Model{Seed: 16}, "model.kind: missing"},
		{Model{Kind: CRC32, Offset: 32}, "model.offset: 32 is more than 31"},
		{Model{Kind: XOR16, Offset: 16}, "model.offset: 16 is more than 15"},
		{Model{Kind: Linux, Seed: 1, Offset: 1}, "model.offset: Linux does not"},
		{Model{Kind: CRC32, Fields: 0x08}, "model.fields: 0x8 has bits"},
		{Model{Kind: Murmur3, Fields: Proto}, "model.fields: murmur3 has no place"},
		{Model{Kind: Murmur3, Policy: 3}, "model.policy: murmur3 has none"},
		{Model{Kind: Linux, Seed: 1, Policy: 2}, "model.policy: 2 is not supported"},
		{Model{Kind: Linux, Seed: 1, Policy: 1, Fields: SrcIP}, "model.fields: Linux's policy 1"},
		{Model{Kind: CRC32, Local: true}, "model.local: crc32 makes no difference"},
		{Model{Kind: Linux}, "model.seed: missing"},
		{Model{Kind: CRC16CCITT, Seed: 0x10000}, "model.seed: 0x10000 is more than the 16 bits"},
	} {
		if err := c.m.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q in it", c.m, err, c.want)
		}
	}
	for _, m := range []Model{{}, {Kind: Murmur3}, {Kind: Linux, Seed: 1, Policy: 1, Fields: AllFields}, {Kind: CRC32, Seed: 1 << 31, Offset: 31}} {
		if err := m.Validate(); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestAddressesThatCannotBeHashed(t *testing.T) {
	ok := addr("10.0.0.1")
	for _, c := range []struct {
		t    Tuple
		want string
	}{
		{Tuple{Src: ok, Dst: addr("::ffff:10.0.0.2")}, ""},
		{Tuple{Dst: ok}, "source address: missing"},
		{Tuple{Src: ok, Dst: addr("2001:db8::1")}, "destination address: 2001:db8::1 is not IPv4"},
	} {
		err := c.t.Validate()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.t, err, c.want)
		}
		for k := Unknown; k < kinds; k++ {
			Model{Kind: k, Seed: 1}.Hash(c.t) // must not panic
		}
	}
	m := Model{Kind: Murmur3}
	if m.Hash(Tuple{Src: ok, Dst: addr("::ffff:10.0.0.2")}) != m.Hash(Tuple{Src: ok, Dst: addr("10.0.0.2")}) {
		t.Error("an IPv4 address in IPv6 form hashes as another")
	}
}

func TestTextForms(t *testing.T) {
	type all struct {
		Model     Model     `yaml:"model" json:"model"`
		Selection Selection `yaml:"selection" json:"selection"`
	}
	in := `
model: {kind: crc16-ccitt, seed: 0xffff, offset: 3, fields: "src_ip,dst_port"}
selection: {kind: range, weights: [1, 2]}
`
	want := all{Model{Kind: CRC16CCITT, Seed: 0xffff, Offset: 3, Fields: SrcIP | DstPort}, Selection{Kind: HashRange, Weights: []int{1, 2}}}
	var got all
	if err := yaml.Unmarshal([]byte(in), &got); err != nil || got.Model != want.Model || got.Selection.Kind != want.Selection.Kind {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	for name, through := range map[string]func(in, out *all) error{
		"yaml": func(in, out *all) error {
			b, err := yaml.Marshal(in)
			if err != nil {
				return err
			}
			return yaml.Unmarshal(b, out)
		},
		"json": func(in, out *all) error {
			b, err := json.Marshal(in)
			if err != nil {
				return err
			}
			return json.Unmarshal(b, out)
		},
	} {
		var back all
		if err := through(&got, &back); err != nil || back.Model != got.Model || back.Selection.Kind != got.Selection.Kind {
			t.Errorf("%s: %+v, %v; want %+v", name, back, err, got)
		}
	}
	for k := Unknown; k < kinds; k++ {
		b, _ := k.MarshalText()
		var back Kind
		if err := back.UnmarshalText(b); err != nil || back != k {
			t.Errorf("%s: %v, %v", b, back, err)
		}
	}
	for f := range Fields(0x40) {
		if f&^AllFields != 0 {
			continue
		}
		b, _ := f.MarshalText()
		var back Fields
		if err := back.UnmarshalText(b); err != nil || back != f {
			t.Errorf("%s: %v, %v", b, back, err)
		}
	}
	for _, bad := range []string{"kind: md5", "fields: colour", "fields: 0x48", "selection: roulette"} {
		var c struct {
			Kind      Kind
			Fields    Fields
			Selection SelectionKind
		}
		if err := yaml.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%q is taken: %+v", bad, c)
		}
	}
	var f Fields
	if err := f.UnmarshalText([]byte("0x37")); err != nil || f != AllFields {
		t.Errorf("0x37 is %v, %v", f, err)
	}
}

func TestFlowLabels(t *testing.T) {
	for label := range uint32(1 << 20) {
		want := uint16(label&0x3FFF ^ label&0xFC000>>14 | 0xC000)
		if got := PortOfFlowLabel(label); got != want || got < RoCE.First {
			t.Fatalf("label %#x gives port %#x, want %#x", label, got, want)
		}
	}
	for port := range 1 << 16 {
		label, ok := FlowLabelOfPort(uint16(port))
		if ok != (port >= 0xC000) || ok && (PortOfFlowLabel(label) != uint16(port) || label == 0 || label >= 1<<20) {
			t.Fatalf("port %#x: label %#x, %v", port, label, ok)
		}
	}
	if RoCE.Len() != 1<<14 || (Range{5, 4}).Len() != 0 || (Range{0, 65535}).Len() != 1<<16 {
		t.Error("lengths of ranges")
	}
}
