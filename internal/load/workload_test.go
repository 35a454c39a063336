package load

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func fewShot(t testing.TB, change func(*FewShotConfig)) *FewShot {
	t.Helper()
	cfg := DefaultFewShot()
	if change != nil {
		change(&cfg)
	}
	w, err := NewFewShot(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The digests are pinned: a change of them means that figures measured before and after cannot be compared.
func TestASeedAlwaysGivesTheSameWorkload(t *testing.T) {
	if got, want := Digest(fewShot(t, nil), 200), "249c5a3ddaaa8b1c"; got != want {
		t.Errorf("few-shot, seed 1: digest %s, want %s", got, want)
	}
	if got, want := Digest(trace(t, nil), 200), "49e3acdf636e6fe9"; got != want {
		t.Errorf("trace, seed 1: digest %s, want %s", got, want)
	}
}

func TestAnotherSeedGivesAnotherWorkload(t *testing.T) {
	a, b := Digest(fewShot(t, nil), 50), Digest(fewShot(t, func(c *FewShotConfig) { c.Seed = 2 }), 50)
	if a == b {
		t.Errorf("few-shot: seeds 1 and 2 both have digest %s", a)
	}
	a, b = Digest(trace(t, nil), 50), Digest(trace(t, func(c *TraceConfig) { c.Seed = 2 }), 50)
	if a == b {
		t.Errorf("trace: seeds 1 and 2 both have digest %s", a)
	}
}

func TestRequestsDoNotDependOnTheOrderInWhichTheyAreAskedFor(t *testing.T) {
	w := fewShot(t, nil)
	want := make([]Request, 50)
	for i := range want {
		want[i] = w.Request(i)
	}
	other := fewShot(t, nil)
	for i := len(want) - 1; i >= 0; i-- {
		if got := other.Request(i); got != want[i] {
			t.Fatalf("request %d: %+v, then %+v", i, want[i], got)
		}
	}
}

func TestRequestsOfOneSubjectShareItsPrefixAndOthersDoNot(t *testing.T) {
	w := fewShot(t, nil)
	seen := map[string]bool{}
	for i := range 200 {
		r := w.Request(i)
		if r.System != SystemPrompt {
			t.Fatalf("request %d has the system prompt %q", i, r.System)
		}
		for s, name := range w.names {
			if has := strings.HasPrefix(r.User, w.prefixes[s]); has != (name == r.Group) {
				t.Fatalf("request %d of %s: starts with the examples of %s: %v", i, r.Group, name, has)
			}
		}
		if seen[r.User] {
			t.Fatalf("request %d repeats a question", i)
		}
		seen[r.User] = true
	}
}

func TestSystemTokensGiveEverybodyOneLongFirstBlock(t *testing.T) {
	w := fewShot(t, func(c *FewShotConfig) { c.SystemTokens = 100 })
	r := w.Request(0)
	if n := units(r.System); n < 100 || n > 110 || !strings.HasPrefix(r.System, SystemPrompt+" ") {
		t.Fatalf("a system prompt of %d units: %q", n, r.System)
	}
	if other := w.Request(1); other.System != r.System {
		t.Fatalf("two system prompts: %q and %q", r.System, other.System)
	}
}

// units counts words and punctuation, as prose does.
func units(s string) int {
	n := 0
	for _, f := range strings.Fields(s) {
		n++
		for len(f) > 1 && strings.ContainsRune(".,:?)(", rune(f[len(f)-1])) {
			n, f = n+1, f[:len(f)-1]
		}
	}
	return n
}

func TestLengthsAreAboutWhatWasAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultFewShot()
		cfg.Subjects = 3
		cfg.PrefixTokens = rapid.IntRange(100, 1500).Draw(t, "prefix")
		cfg.QuestionMin = rapid.IntRange(1, 150).Draw(t, "min")
		cfg.QuestionMax = cfg.QuestionMin + rapid.IntRange(0, 50).Draw(t, "more")
		w, err := NewFewShot(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range w.prefixes {
			if n := units(p); math.Abs(float64(n-cfg.PrefixTokens)) > 0.15*float64(cfg.PrefixTokens)+10 {
				t.Fatalf("the prefix of subject %d has %d units, want about %d", i, n, cfg.PrefixTokens)
			}
		}
		r := w.Request(rapid.IntRange(0, 1000).Draw(t, "i"))
		n := units(r.User[strings.LastIndex(r.User, "Question:"):])
		if n < cfg.QuestionMin-10 || n > cfg.QuestionMax+10 {
			t.Fatalf("a question of %d units, want %d to %d", n, cfg.QuestionMin, cfg.QuestionMax)
		}
	})
}

func TestZipfDrawsByItsLaw(t *testing.T) {
	for _, s := range []float64{0, 0.7, 1, 2} {
		const n, draws = 24, 40_000
		z := newZipf(n, s)
		r := source(7, "test", 0)
		got := make([]float64, n)
		for range draws {
			got[z.draw(r.Uint64())]++
		}
		var total float64
		for k := range n {
			total += math.Pow(float64(k+1), -s)
		}
		var chi2 float64
		for k := range n {
			want := draws * math.Pow(float64(k+1), -s) / total
			chi2 += (got[k] - want) * (got[k] - want) / want
		}
		if chi2 > 49.7 { // 23 degrees of freedom, 0.1 %
			t.Errorf("s = %g: chi-square %.1f over %v", s, chi2, got)
		}
	}
}

func TestSubjectsAreSpreadByTheirPopularity(t *testing.T) {
	w := fewShot(t, nil)
	first := 0
	for i := range 4000 {
		if w.Request(i).Group == w.names[0] {
			first++
		}
	}
	// 1 / H(24) = 26.5 % of 4000 is 1059; four standard deviations are 112.
	if first < 947 || first > 1171 {
		t.Errorf("the most popular subject came %d times of 4000", first)
	}
}

func TestZipfDrawsStayInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, MaxSubjects).Draw(t, "n")
		z := newZipf(n, rapid.Float64Range(0, 10).Draw(t, "s"))
		for _, random := range []uint64{0, math.MaxUint64, rapid.Uint64().Draw(t, "random")} {
			if k := z.draw(random); k < 0 || k >= n {
				t.Fatalf("rank %d of %d", k, n)
			}
		}
	})
}

func TestPoissonArrivals(t *testing.T) {
	const rate, n = 50.0, 20_000
	r := newRun(&Config{Rate: rate, Seed: 3, Workload: fewShot(t, nil)}, nil, 0)
	arrival, open := r.arrivals()
	if !open {
		t.Fatal("a rate makes an open loop")
	}
	var last time.Duration
	var sum, squares, below float64
	for i := range n {
		at := arrival(i, nil)
		gap := (at - last).Seconds()
		last = at
		sum, squares = sum+gap, squares+gap*gap
		if gap < 1/rate {
			below++
		}
	}
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean*rate-1) > 0.03 || math.Abs(deviation*rate-1) > 0.05 || math.Abs(below/n-(1-1/math.E)) > 0.015 {
		t.Errorf("gaps have mean %.5f s, deviation %.5f s, %.3f below the mean; an exponential distribution has 0.02, 0.02, 0.632", mean, deviation, below/n)
	}
}

func TestFewShotRefusesWhatIsOutOfRange(t *testing.T) {
	for name, change := range map[string]func(*FewShotConfig){
		"0 subjects":                    func(c *FewShotConfig) { c.Subjects = 0 },
		"4097 subjects":                 func(c *FewShotConfig) { c.Subjects = MaxSubjects + 1 },
		"a prefix of -1 tokens":         func(c *FewShotConfig) { c.PrefixTokens = -1 },
		"a prefix of 200001 tokens":     func(c *FewShotConfig) { c.PrefixTokens = MaxPrefixTokens + 1 },
		"a system prompt of -1 tokens":  func(c *FewShotConfig) { c.SystemTokens = -1 },
		"a skew of -1":                  func(c *FewShotConfig) { c.Skew = -1 },
		"a skew of NaN":                 func(c *FewShotConfig) { c.Skew = math.NaN() },
		"questions of 0 to 160 tokens":  func(c *FewShotConfig) { c.QuestionMin = 0 },
		"questions of 170 to 160 token": func(c *FewShotConfig) { c.QuestionMin = 170 },
	} {
		cfg := DefaultFewShot()
		change(&cfg)
		if _, err := NewFewShot(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestFewShotAtItsLimits(t *testing.T) {
	w := fewShot(t, func(c *FewShotConfig) { c.Subjects, c.PrefixTokens = MaxSubjects, 0 })
	names := map[string]bool{}
	for _, n := range w.names {
		names[n] = true
	}
	if len(names) != MaxSubjects {
		t.Errorf("%d names for %d subjects", len(names), MaxSubjects)
	}
	if r := w.Request(0); r.User == "" {
		t.Error("no question without a prefix")
	}
}
