package ecmp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// look gives n answers for ports of the range, at random.
func look(r *Route, t Tuple, ports Range, n int, random *rand.Rand) []Seen {
	var out []Seen
	for range n {
		t.SrcPort = ports.First + uint16(random.IntN(ports.Len()))
		out = append(out, Seen{t.SrcPort, r.PathOf(t)})
	}
	return out
}

func TestLinearHashesAreFitted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []int{2, 3, 4, 5, 8, 16}
	if raced {
		sizes = []int{3, 8}
	}
	for k := Murmur3; k < kinds; k++ {
		for _, s := range []Selection{{}, {Kind: HashRange}} {
			for _, paths := range sizes {
				for _, ports := range []Range{{0, 65535}, RoCE, {20000, 24000}} {
					m := Model{Kind: k, Seed: 77}
					r, tu := figureRoute(t, m, s, paths)
					seen := look(r, tu, ports, 20*paths+60, random)
					f, ok := FitLinear(seen, paths)
					// Where all ports of the range are on one path, nothing can be told.
					alone := !slices.ContainsFunc(seen, func(s Seen) bool { return s.Path != seen[0].Path })
					if want := k.Linear() && paths&(paths-1) == 0 && !alone; ok != want {
						t.Fatalf("%v %v %d paths of %v: fitted is %v, want %v", k, s.Kind, paths, ports, ok, want)
					}
					if !ok {
						continue
					}
					unknown := 0
					for p := int(ports.First); p <= int(ports.Last); p++ {
						tu.SrcPort = uint16(p)
						switch got := f(tu.SrcPort); got {
						case -1:
							unknown++
						case r.PathOf(tu):
						default:
							t.Fatalf("%v %v %d paths: port %d is fitted to %d, want %d", k, s.Kind, paths, p, got, r.PathOf(tu))
						}
					}
					if unknown > 0 {
						t.Errorf("%v %v %d paths of %v: %d ports are not decided", k, s.Kind, paths, ports, unknown)
					}
				}
			}
		}
	}
}

// The numbers of paths may be dealt in any way: a probe numbers them as it finds them.
func TestFitTakesAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		if !m.Kind.Linear() {
			m = Model{Kind: CRC32, Seed: m.Seed}
		}
		m.Fields |= SrcPort
		p := m.Prepare(anyTuple(t))
		s := Selection{Kind: rapid.SampledFrom([]SelectionKind{Modulo, HashRange}).Draw(t, "selection"), Bits: uint8(m.Bits())}
		paths := rapid.SampledFrom([]int{2, 4, 8, 16}).Draw(t, "paths")
		deal := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "deal"), 0))
		number := deal.Perm(paths)
		var seen []Seen
		for range 100 {
			port := uint16(deal.Uint32())
			seen = append(seen, Seen{port, number[s.Pick(p.At(port), paths)]})
		}
		f, ok := FitLinear(seen, paths)
		if !ok {
			t.Fatal("not fitted")
		}
		for range 20 {
			port := uint16(deal.Uint32())
			want := number[s.Pick(p.At(port), paths)]
			if !slices.ContainsFunc(seen, func(s Seen) bool { return s.Path == want }) {
				want = -1
			}
			if got := f(port); got != want && got != -1 {
				t.Fatalf("port %d is fitted to %d, want %d", port, got, want)
			}
		}
	})
}

// What does not follow a linear hash is never taken for one: hashes of other kinds, noise, and one wrong answer.
func TestFitRefuses(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	fitted := 0
	for range 20000 {
		paths := 2 << random.IntN(4)
		n := 1 + random.IntN(200)
		seen := make([]Seen, n)
		for i := range seen {
			seen[i] = Seen{uint16(random.Uint32()), random.IntN(paths)}
		}
		if _, ok := FitLinear(seen, paths); ok {
			fitted++
		}
	}
	if fitted > 3 { // one in 2^16 may be
		t.Errorf("%d of 20000 draws of noise were fitted", fitted)
	}
	r, tu := figureRoute(t, Model{Kind: CRC32}, Selection{}, 4)
	for range 200 {
		seen := look(r, tu, Range{0, 65535}, 60, random)
		seen[random.IntN(len(seen))].Path ^= 1
		if _, ok := FitLinear(seen, 4); ok {
			t.Fatal("a wrong answer was fitted")
		}
	}
	weighted, tu := figureRoute(t, Model{Kind: CRC32}, Selection{Weights: []int{1, 1, 1, 2}}, 4)
	if _, ok := FitLinear(look(weighted, tu, Range{0, 65535}, 200, random), 4); ok {
		t.Error("unequal paths were fitted")
	}
	for name, c := range map[string]struct {
		seen  []Seen
		paths int
	}{
		"nothing":                {nil, 4},
		"one path":               {look(r, tu, RoCE, 100, random), 1},
		"no power of two":        {look(r, tu, RoCE, 100, random), 3},
		"too little":             {look(r, tu, RoCE, 20, random), 4},
		"paths beyond":           {look(r, tu, RoCE, 100, random), 2},
		"a path below 0":         {append(look(r, tu, RoCE, 100, random), Seen{1, -1}), 4},
		"one port on two paths":  {append(look(r, tu, RoCE, 100, random), Seen{50000, 0}, Seen{50000, 1}), 4},
		"one port all the time":  {make([]Seen, 100), 4},
		"paths beyond all reach": {append(look(r, tu, RoCE, 100, random), Seen{1, 1 << 40}), 4},
	} {
		if _, ok := FitLinear(c.seen, c.paths); ok {
			t.Errorf("%s: fitted", name)
		}
	}
}

// A port with a bit that was never seen changed is not decided.
func TestFitSaysWhatItDoesNotKnow(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	r, tu := figureRoute(t, Model{Kind: CRC16CCITT}, Selection{}, 4)
	f, ok := FitLinear(look(r, tu, RoCE, 100, random), 4)
	if !ok {
		t.Fatal("not fitted")
	}
	for p := range 1 << 16 {
		if got := f(uint16(p)); (got == -1) != (p < 0xC000) {
			t.Fatalf("port %#x is fitted to %d", p, got)
		}
	}
}

func TestTheRightModelIsFitted(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for k := Murmur3; k < kinds; k++ {
		c := fatTree(4, func(i int) Model { return Model{Kind: k, Seed: 50} }, Selection{})
		f := mustNew(t, c)
		base, tu := mustRoute(t, f, "h1.1", "h3.1"), flow(f, "h1.1", "h3.1")
		var candidates []*Route
		for seed := range uint32(100) {
			r, err := base.With(func(_ string, m Model) Model { m.Seed = seed + 1; return m })
			if err != nil {
				t.Fatal(err)
			}
			candidates = append(candidates, r)
		}
		seen := look(base, tu, Range{0, 65535}, 60, random)
		got, ok := FitModel(candidates, tu, seen)
		if !ok {
			t.Fatalf("%v: none fits", k)
		}
		for p := range 2000 {
			tu.SrcPort = uint16(p)
			if got.PathOf(tu) != base.PathOf(tu) {
				t.Fatalf("%v: the model that was fitted is another", k)
			}
		}
		seen[30].Path ^= 1
		if _, ok := FitModel(candidates, tu, seen); ok {
			t.Errorf("%v: a wrong answer was fitted", k)
		}
	}
}

func TestWrongModelsAreRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	truth, tu := figureRoute(t, linuxModel(1), Selection{Kind: HashRange}, 4)
	other, _ := figureRoute(t, linuxModel(2), Selection{Kind: HashRange}, 4)
	modulo, _ := figureRoute(t, linuxModel(1), Selection{}, 4)
	unknown, _ := figureRoute(t, Model{}, Selection{}, 4)
	seen := look(truth, tu, RoCE, 100, random)
	if _, ok := FitModel([]*Route{other, modulo, unknown}, tu, seen); ok {
		t.Error("a wrong model was fitted")
	}
	if got, ok := FitModel([]*Route{other, truth}, tu, seen); !ok || got != truth {
		t.Error("the right model was not fitted")
	}
	if _, ok := FitModel([]*Route{truth}, tu, seen[:5]); ok {
		t.Error("five answers were enough")
	}
	if _, ok := FitModel(nil, tu, seen); ok {
		t.Error("no model was fitted")
	}
	if _, ok := FitModel([]*Route{truth}, tu, nil); ok {
		t.Error("nothing was enough")
	}
	one, _ := figureRoute(t, linuxModel(1), Selection{}, 1)
	if _, ok := FitModel([]*Route{one}, tu, look(one, tu, RoCE, 100, random)); ok {
		t.Error("a single path proves nothing, and was fitted")
	}
}
