package sim

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The paper's workload: 13,048 tokens in the mean, as its figures imply, and 6.71 GB at most.
func TestTokensHaveThePublishedMeanAndMaximum(t *testing.T) {
	c := DefaultWorkload()
	z := newZipf(c.MaxTokens-c.MinTokens+1, c.Skew)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 400_000
	var sum, most, least int64
	least = math.MaxInt64
	for range n {
		tokens := int64(c.MinTokens + z.next(r))
		sum, most, least = sum+tokens, max(most, tokens), min(least, tokens)
	}
	if mean := float64(sum) / n; math.Abs(mean-13_048) > 130 { // 1 %
		t.Errorf("a mean of %.0f tokens, want 13,048", mean)
	}
	if least != 1000 || most > 51_200 || most < 51_100 {
		t.Errorf("%d to %d tokens", least, most)
	}
	if b := float64(c.MaxTokens) * float64(c.TokenBytes); math.Abs(b/1e9-6.71) > 0.01 {
		t.Errorf("at most %g bytes", b)
	}
}

// The generator follows Zipf's law: its distribution stays close to the exact one, which a naive sum gives.
func TestZipfFollowsItsLaw(t *testing.T) {
	for _, c := range []struct {
		n    int
		skew float64
	}{{1, 0.7}, {2, 0.7}, {3, 0.7}, {100, 0}, {100, 0.7}, {5000, 0.9}} {
		z := newZipf(c.n, c.skew)
		r := rand.New(rand.NewPCG(3, 4))
		const draws = 100_000
		got := make([]float64, c.n)
		for range draws {
			got[z.next(r)]++
		}
		var total, exact, seen, worst float64
		for k := range c.n {
			total += math.Pow(float64(k+1), -c.skew)
		}
		for k := range c.n {
			exact += math.Pow(float64(k+1), -c.skew) / total
			seen += got[k] / draws
			worst = max(worst, math.Abs(exact-seen))
		}
		if worst > 0.05 { // the method's own error, over few ranks, is up to there
			t.Errorf("n %d, exponent %g: the cumulative distribution is off by %.3f", c.n, c.skew, worst)
		}
	}
}

func TestArrivalsAndHostsAreUniform(t *testing.T) {
	c := DefaultWorkload()
	c.Requests = 20_000
	w, err := Generate(c)
	if err != nil {
		t.Fatal(err)
	}
	if rate := float64(len(w.Flows)) / w.Flows[len(w.Flows)-1].At.Seconds(); math.Abs(rate-25) > 0.6 {
		t.Errorf("%.2f flows a second", rate)
	}
	uses := map[int]int{}
	var sum int64
	for i, f := range w.Flows {
		if f.ID != i || f.Src < 0 || f.Src > 7 || f.Dst < 8 || f.Dst > 15 || f.Port != 0 {
			t.Fatalf("flow %d is %+v", i, f)
		}
		uses[f.Src]++
		uses[f.Dst]++
		sum += f.Bytes
	}
	for h := range 16 {
		if n := uses[h]; n < 2300 || n > 2700 {
			t.Errorf("host %d has %d of 20,000 flows, want about 2,500", h, n)
		}
	}
	// 342 Mb/s offered, a thousandth of the paper's 342 Gb/s
	if offered := float64(sum) * 8 / w.Flows[len(w.Flows)-1].At.Seconds() / 1e6; math.Abs(offered-342) > 12 {
		t.Errorf("%.0f Mb/s offered", offered)
	}
}

// Sizes and hosts do not change with the rate: what differs between two rates is the load alone.
func TestTheSameSeedGivesTheSameFlows(t *testing.T) {
	c := DefaultWorkload()
	a, _ := Generate(c)
	b, _ := Generate(c)
	if a.Digest() != b.Digest() {
		t.Error("two workloads of one seed")
	}
	if got, want := a.Digest(), "eb3d2243dd4d4c1d"; got != want {
		t.Errorf("digest %s, want %s: the workloads of earlier measurements cannot be made again", got, want)
	}
	c.QPS = 5
	d, _ := Generate(c)
	for i := range a.Flows {
		x, y := a.Flows[i], d.Flows[i]
		if x.Bytes != y.Bytes || x.Src != y.Src || x.Dst != y.Dst {
			t.Fatalf("flow %d is %+v at 25 a second, %+v at 5", i, x, y)
		}
	}
	c.Seed = 2
	e, _ := Generate(c)
	if e.Digest() == d.Digest() {
		t.Error("two seeds, one workload")
	}
}

func TestWorkloadsAreReadAsTheyWereWritten(t *testing.T) {
	w, err := Generate(DefaultWorkload())
	if err != nil {
		t.Fatal(err)
	}
	w.Flows[3].Port = 50_000
	path := t.TempDir() + "/w.flows"
	if err := w.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := LoadWorkload(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Title != w.Title || got.QPS != 25 || got.Seed != 1 || got.Name != "w" || got.Digest() != w.Digest() || got.Flows[3] != w.Flows[3] {
		t.Errorf("%q, %q", got.Title, w.Title)
	}
	// the form that packet simulators use, without remarks
	got, err = ReadWorkload(strings.NewReader("1 12 17727 39945502 57716\n\n6 11 16151 6520832 331339\n"), "x")
	if err != nil || len(got.Flows) != 2 || got.Flows[1] != (Flow{ID: 1, At: 331339, Src: 6, Dst: 11, Port: 16151, Bytes: 6520832}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadLinesAreRefusedByNumber(t *testing.T) {
	good := "# title\n0 8 0 100 5\n"
	for _, c := range []struct{ text, want string }{
		{good + "0 8 0 100\n", "line 3: 4 words"},
		{good + "0 8 0 100 5 6\n", "line 3: 6 words"},
		{good + "0 4096 0 100 5\n", `line 3: dst is "4096"; give a whole number from 0 to 4095`},
		{good + "-1 8 0 100 5\n", `line 3: src is "-1"`},
		{good + "0 8 65536 100 5\n", "line 3: sport"},
		{good + "0 8 0 0 5\n", "line 3: bytes"},
		{good + "0 8 0 1e3 5\n", "line 3: bytes"},
		{good + "0 8 0 100 86400000000001\n", "line 3: start_ns"},
		{good + "0 8 0 100 4\n", "line 3: start 4 is before"},
		{good + "8 8 0 100 6\n", "line 3: src and dst are both 8"},
		{"", "has no flows"},
		{"# only a title\n", "has no flows"},
		{strings.Repeat("x", MaxFlowLine+1), "longer than 4096 bytes"},
		{strings.Repeat("0 8 0 1 0\n", MaxFlows+1), "line 100001: more than 100000 flows"},
	} {
		_, err := ReadWorkload(strings.NewReader(c.text), "w")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "sim: ") {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
	if w, err := ReadWorkload(strings.NewReader(strings.Repeat("0 8 0 1 0\n", MaxFlows)), "w"); err != nil || len(w.Flows) != MaxFlows {
		t.Errorf("at the limit: %v", err)
	}
}

func FuzzReadWorkload(f *testing.F) {
	f.Add([]byte("# title\n0 8 0 100 5\n"))
	f.Add([]byte("0 8 0 100 5 \n\n#\n1 2 3 4 5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := ReadWorkload(bytes.NewReader(b), "fuzz")
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := w.Write(&out); err != nil {
			t.Fatal(err)
		}
		again, err := ReadWorkload(&out, "again")
		if err != nil || again.Digest() != w.Digest() {
			t.Fatalf("%q is read back as something else: %v", b, err)
		}
	})
}

func TestWorkloadsOutOfRangeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*WorkloadConfig){
		"requests a second": func(c *WorkloadConfig) { c.QPS = math.NaN() },
		"requests;":         func(c *WorkloadConfig) { c.Requests = MaxFlows + 1 },
		"take longer":       func(c *WorkloadConfig) { c.QPS, c.Requests = 0.01, 1000 },
		"tokens;":           func(c *WorkloadConfig) { c.MaxTokens = 999 },
		"exponent":          func(c *WorkloadConfig) { c.Skew = 1 },
		"bytes a token":     func(c *WorkloadConfig) { c.TokenBytes = 0 },
		"divided":           func(c *WorkloadConfig) { c.Scale = 0 },
		"sources":           func(c *WorkloadConfig) { c.Sources = maxFlowHosts },
	} {
		c := DefaultWorkload()
		change(&c)
		if _, err := Generate(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
