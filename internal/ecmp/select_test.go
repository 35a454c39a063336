package ecmp

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The bounds that Linux has: the last hash of each next hop.
func TestRangesEndWhereLinuxEndsThem(t *testing.T) {
	for _, c := range []struct {
		bits    uint8
		weights []int
		n       int
		last    []uint32
	}{
		{31, nil, 2, []uint32{1<<30 - 1, 1<<31 - 1}},
		{31, nil, 3, []uint32{715827882, 1431655764, 1<<31 - 1}}, // 2^31/3 = 715827882.67, rounded, less one
		{31, nil, 4, []uint32{1<<29 - 1, 1<<30 - 1, 3<<29 - 1, 1<<31 - 1}},
		{31, []int{1, 3}, 2, []uint32{1<<29 - 1, 1<<31 - 1}},
		{31, []int{2, 1, 2}, 3, []uint32{858993458, 1288490188, 1<<31 - 1}},
		{32, nil, 3, []uint32{1431655764, 2863311530, 1<<32 - 1}},
		{32, nil, 2, []uint32{1<<31 - 1, 1<<32 - 1}},
		{0, nil, 2, []uint32{1<<31 - 1, 1<<32 - 1}}, // without a model: 32
		{16, nil, 3, []uint32{21844, 43690, 65535}},
	} {
		s := Selection{Kind: HashRange, Bits: c.bits, Weights: c.weights}
		fast := newChooser(&s, c.n)
		for k, last := range c.last {
			if got := s.Pick(last, c.n); got != k {
				t.Errorf("%d bits, %d next hops %v: hash %d goes to %d, want %d", c.bits, c.n, c.weights, last, got, k)
			}
			if got := fast.pick(last); got != k {
				t.Errorf("%d bits, %d next hops %v: hash %d goes to %d the fast way, want %d", c.bits, c.n, c.weights, last, got, k)
			}
			if k+1 < c.n && (s.Pick(last+1, c.n) != k+1 || fast.pick(last+1) != k+1) {
				t.Errorf("%d bits, %d next hops %v: hash %d does not go to %d", c.bits, c.n, c.weights, last+1, k+1)
			}
		}
	}
}

func TestModuloAndBuckets(t *testing.T) {
	weighted := Selection{Weights: []int{1, 3, 2}}
	resilient := Selection{Kind: Resilient, Buckets: []uint16{2, 0, 1, 1, 0}}
	for h, want := range []struct{ plain, weighted, resilient int }{{0, 0, 2}, {1, 1, 0}, {2, 1, 1}, {0, 1, 1}, {1, 2, 0}, {2, 2, 2}, {0, 0, 0}} {
		plain := Selection{}
		if got := plain.Pick(uint32(h), 3); got != want.plain {
			t.Errorf("hash %d goes to %d by modulo, want %d", h, got, want.plain)
		}
		if got := weighted.Pick(uint32(h), 3); got != want.weighted {
			t.Errorf("hash %d goes to %d by weights, want %d", h, got, want.weighted)
		}
		if got := resilient.Pick(uint32(h), 3); got != want.resilient {
			t.Errorf("hash %d goes to %d by buckets, want %d", h, got, want.resilient)
		}
	}
}

func TestChoosersPickWhatSelectionsPick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 300)).Draw(t, "n")
		s := anySelection(t, m, n)
		s.Bits = uint8(m.Bits())
		c := newChooser(&s, n)
		hashes := rapid.SliceOfN(rapid.OneOf(rapid.Uint32(), rapid.Just(uint32(math.MaxUint32))), 1, 30).Draw(t, "hashes")
		for i := range hashes {
			hashes[i] &= uint32(s.width() - 1)
		}
		for _, l := range c.limits {
			hashes = append(hashes, l&uint32(s.width()-1), (l-1)&uint32(s.width()-1))
		}
		picks := make([]uint16, len(hashes))
		c.each(hashes, picks)
		for i, h := range hashes {
			want := s.Pick(h, n)
			if want < 0 || want >= n {
				t.Fatalf("%+v of %d picks %d", s, n, want)
			}
			if got := c.pick(h); got != want || int(picks[i]) != want {
				t.Fatalf("%+v of %d: hash %#x goes to %d, by pick to %d, by each to %d", s, n, h, want, got, picks[i])
			}
		}
	})
}

// The parts of next hops are in proportion to their weights.
func TestWeightsAreKept(t *testing.T) {
	weights := []int{1, 2, 5}
	for _, kind := range []SelectionKind{Modulo, HashRange} {
		s := Selection{Kind: kind, Weights: weights, Bits: 16}
		count := make([]int, 3)
		for h := range uint32(1 << 16) {
			count[s.Pick(h, 3)]++
		}
		for k, w := range weights {
			if want := (1 << 16) * w / 8; count[k] < want-1 || count[k] > want+1 {
				t.Errorf("%v: next hop %d gets %d of 65536, want %d", kind, k, count[k], want)
			}
		}
	}
}

func TestPickingAllocatesNothing(t *testing.T) {
	for _, s := range []Selection{{}, {Kind: HashRange}, {Weights: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}}, {Kind: Resilient, Buckets: []uint16{0, 1, 2}}} {
		c := newChooser(&s, 12)
		if n := testing.AllocsPerRun(100, func() { s.Pick(7, 12); c.pick(7) }); n != 0 {
			t.Errorf("%+v allocates %v times", s, n)
		}
	}
}

func TestWrongSelectionsNameTheField(t *testing.T) {
	for _, c := range []struct {
		s    Selection
		want string
	}{
		{Selection{Kind: selectionKinds}, "selection.kind: 3 is none"},
		{Selection{Weights: []int{1, 0}}, "selection.weights[1]: 0 is not from 1 to 65535"},
		{Selection{Weights: []int{MaxWeight + 1}}, "selection.weights[0]: 65536"},
		{Selection{Weights: make([]int, MaxPaths+1)}, "selection.weights: 4097 are more"},
		{Selection{Kind: Resilient}, "selection.buckets: there are 0"},
		{Selection{Kind: Resilient, Buckets: make([]uint16, MaxBuckets+1)}, "selection.buckets: there are 65536"},
		{Selection{Kind: Resilient, Buckets: []uint16{0}, Weights: []int{1}}, "selection.weights: resilient has none"},
		{Selection{Buckets: []uint16{0}}, "selection.buckets: modulo has none"},
		{Selection{Kind: HashRange, Bits: 8}, "selection.bits: 8"},
	} {
		if err := c.s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
	}
	for _, s := range []Selection{{}, {Kind: HashRange, Bits: 31, Weights: []int{MaxWeight}}, {Kind: Resilient, Buckets: make([]uint16, MaxBuckets)},
		{Weights: slices.Repeat([]int{MaxWeight}, MaxPaths)}} {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// The most and heaviest next hops that there may be: nothing overflows.
func TestTheHeaviestSelection(t *testing.T) {
	for _, kind := range []SelectionKind{Modulo, HashRange} {
		for _, width := range []uint8{16, 31, 32} {
			s := Selection{Kind: kind, Bits: width, Weights: slices.Repeat([]int{MaxWeight}, MaxPaths)}
			c := newChooser(&s, MaxPaths)
			last := uint32(s.width() - 1)
			for _, h := range []uint32{0, 1, last / 2, last - 1, last} {
				if got, want := c.pick(h), s.Pick(h, MaxPaths); got != want {
					t.Errorf("%v of %d bits: hash %#x goes to %d, want %d", kind, width, h, got, want)
				}
			}
		}
	}
}
