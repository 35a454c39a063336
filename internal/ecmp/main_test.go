package ecmp

import (
	"flag"
	"net/netip"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes property tests run 10,000 cases, where the command line does not say.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", checks)
	}
	os.Exit(m.Run())
}

func anyAddr(t *rapid.T, label string) netip.Addr {
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)))
}

func anyTuple(t *rapid.T) Tuple {
	return Tuple{Src: anyAddr(t, "src"), Dst: anyAddr(t, "dst"), SrcPort: rapid.Uint16().Draw(t, "sport"),
		DstPort: rapid.Uint16().Draw(t, "dport"), Proto: rapid.SampledFrom([]uint8{TCP, UDP, 0, 255}).Draw(t, "proto")}
}

// anyModel is a valid model with a known hash.
func anyModel(t *rapid.T) Model {
	m := Model{Kind: Kind(rapid.IntRange(1, int(kinds)-1).Draw(t, "kind")), Seed: rapid.Uint32().Draw(t, "seed")}
	m.Fields = Fields(rapid.Byte().Draw(t, "fields")) & AllFields
	switch m.Kind {
	case Linux:
		m.Seed = max(m.Seed, 1)
		m.Local = rapid.Bool().Draw(t, "local")
		if m.Policy = rapid.SampledFrom([]uint8{0, 1, 3}).Draw(t, "policy"); m.Policy == 1 {
			m.Fields = 0
		}
		return m
	case Murmur3:
		m.Fields &^= Proto
	case CRC16CCITT, CRC16Bisync, XOR16:
		m.Seed &= 0xFFFF
	}
	m.Offset = uint8(rapid.IntRange(0, m.Bits()-1).Draw(t, "offset"))
	return m
}

// anySelection fits a choice among n, for this model.
func anySelection(t *rapid.T, m Model, n int) Selection {
	s := Selection{Kind: SelectionKind(rapid.IntRange(0, int(selectionKinds)-1).Draw(t, "selection"))}
	switch {
	case s.Kind == Resilient:
		s.Buckets = rapid.SliceOfN(rapid.Uint16Range(0, uint16(n-1)), 1, 70).Draw(t, "buckets")
	case rapid.Bool().Draw(t, "weighted"):
		weight := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, MaxWeight))
		s.Weights = rapid.SliceOfN(weight, n, n).Draw(t, "weights")
	}
	if rapid.Bool().Draw(t, "width") {
		s.Bits = uint8(m.Bits())
	}
	return s
}
