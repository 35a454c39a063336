package load

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// FewShotConfig describes the built-in workload: questions on many subjects, each asked below the same worked examples
// of its subject, and all of them below one system prompt. It is the shape of a benchmark such as MMLU, and of any
// service that puts a long instruction before a short question. Sizes are in tokens as prose counts them, roughly those
// of a real tokeniser.
type FewShotConfig struct {
	// Subjects is how many different prefixes there are, 1 to MaxSubjects. More of them than the peers' caches hold make
	// every policy miss; fewer make every policy hit.
	Subjects int
	// PrefixTokens is the length of a subject's examples, at most MaxPrefixTokens. Longer ones make a hit worth more.
	PrefixTokens int
	// SystemTokens lengthens the system prompt that everybody shares by text of its own; 0 leaves the plain sentence
	// SystemPrompt. A long one is a first block that all requests have in common: the case in which routing by the
	// longest prefix alone sends everything to one peer.
	SystemTokens int
	// Skew is the exponent s of Zipf's law over the subjects: the k-th most popular is asked 1/k^s as often as the first.
	// 0 is uniform.
	Skew float64
	// QuestionMin and QuestionMax bound the length of a question; lengths are uniform between them.
	QuestionMin, QuestionMax int
	// Seed decides every text and every choice.
	Seed uint64
}

// Limits of a few-shot workload.
const (
	MaxSubjects     = 4096
	MaxPrefixTokens = 200_000
)

// SystemPrompt is the first message of every few-shot request.
const SystemPrompt = "You are a helpful assistant."

// DefaultFewShot is what `shoal bench` sends unless told otherwise.
func DefaultFewShot() FewShotConfig {
	return FewShotConfig{Subjects: 24, PrefixTokens: 500, Skew: 1, QuestionMin: 40, QuestionMax: 160, Seed: 1}
}

// Validate reports the first field that is out of its range.
func (c FewShotConfig) Validate() error {
	switch {
	case c.Subjects < 1 || c.Subjects > MaxSubjects:
		return fmt.Errorf("load: few-shot workload: %d subjects; give 1 to %d", c.Subjects, MaxSubjects)
	case c.PrefixTokens < 0 || c.PrefixTokens > MaxPrefixTokens:
		return fmt.Errorf("load: few-shot workload: a prefix of %d tokens; give 0 to %d", c.PrefixTokens, MaxPrefixTokens)
	case c.SystemTokens < 0 || c.SystemTokens > MaxPrefixTokens:
		return fmt.Errorf("load: few-shot workload: a system prompt of %d tokens; give 0 to %d", c.SystemTokens, MaxPrefixTokens)
	case math.IsNaN(c.Skew) || c.Skew < 0 || c.Skew > 10:
		return fmt.Errorf("load: few-shot workload: a skew of %g; give 0 (uniform) to 10", c.Skew)
	case c.QuestionMin < 1 || c.QuestionMax < c.QuestionMin || c.QuestionMax > MaxPrefixTokens:
		return fmt.Errorf("load: few-shot workload: questions of %d to %d tokens; give 1 <= min <= max <= %d", c.QuestionMin, c.QuestionMax, MaxPrefixTokens)
	}
	return nil
}

// FewShot is the built-in workload. It is safe for concurrent use.
type FewShot struct {
	cfg      FewShotConfig
	system   string
	names    []string
	prefixes []string
	popular  zipf
}

// NewFewShot writes the prefixes of all subjects.
func NewFewShot(cfg FewShotConfig) (*FewShot, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &FewShot{cfg: cfg, system: SystemPrompt, popular: newZipf(cfg.Subjects, cfg.Skew)}
	if cfg.SystemTokens > 0 {
		f.system = string(newProse(source(cfg.Seed, "system", 0)).write([]byte(SystemPrompt), cfg.SystemTokens))
	}
	for i := range cfg.Subjects {
		name := subjects[i%len(subjects)]
		if n := i / len(subjects); n > 0 {
			name = fmt.Sprintf("%s %d", name, n+1)
		}
		f.names = append(f.names, name)
		f.prefixes = append(f.prefixes, examples(newProse(source(cfg.Seed, "examples", uint64(i))), name, cfg.PrefixTokens))
	}
	return f, nil
}

func (f *FewShot) Describe() string {
	c := f.cfg
	s := fmt.Sprintf("few-shot: %d subjects, prefixes of %d tokens, questions of %d to %d, Zipf %g", c.Subjects, c.PrefixTokens, c.QuestionMin, c.QuestionMax, c.Skew)
	if c.SystemTokens > 0 {
		s += fmt.Sprintf(", a common system prompt of %d", c.SystemTokens)
	}
	return s
}

func (f *FewShot) Len() int    { return Endless }
func (f *FewShot) Timed() bool { return false }

// Request draws the subject of request i by popularity, and a question that is asked only once.
func (f *FewShot) Request(i int) Request {
	s := f.popular.draw(source(f.cfg.Seed, "subject", uint64(i)).Uint64())
	r := source(f.cfg.Seed, "question", uint64(i))
	n := f.cfg.QuestionMin + r.IntN(f.cfg.QuestionMax-f.cfg.QuestionMin+1)
	var b []byte
	b = append(b, f.prefixes[s]...)
	b = question(newProse(r), b, n)
	return Request{Group: f.names[s], System: f.system, User: string(b)}
}

// overheadUnits is what a question costs beside its prose: "Question:", four letters with their dots, "Answer:", and the
// line ends.
const overheadUnits = 20

// examples writes worked examples about one subject until they have about n tokens.
func examples(p *prose, subject string, n int) string {
	if n == 0 {
		return ""
	}
	b := []byte("The following are multiple choice questions (with answers) about " + subject + ".\n\n")
	for left := n - 13 - strings.Count(subject, " "); left > 0; {
		k := min(left, 60+p.r.IntN(60))
		b = question(p, b, k)
		b = append(b, ' ', "ABCD"[p.r.IntN(4)])
		b = append(b, "\n\n"...)
		left -= k + 2
	}
	return string(b)
}

// question writes one question of about n tokens: a text, four choices and the word before the answer.
func question(p *prose, b []byte, n int) []byte {
	p.fresh()
	if n <= overheadUnits+8 { // too short for choices
		b = append(b, "Question: "...)
		b = p.write(b, max(1, n-5))
		return append(b, "\nAnswer:"...)
	}
	words := n - overheadUnits
	choice := min(8, max(1, words/8))
	b = append(b, "Question: "...)
	b = p.write(b, words-4*choice)
	for c := range 4 {
		b = append(b, '\n', "ABCD"[c])
		b = append(b, ". "...)
		p.fresh()
		b = p.write(b, choice)
	}
	return append(b, "\nAnswer:"...)
}

// zipf draws ranks with probability proportional to 1/rank^s. It keeps the cumulated weights as integers, so that a draw
// compares integers only.
type zipf struct{ upto []uint64 }

func newZipf(n int, s float64) zipf {
	weights := make([]float64, n)
	var total float64
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -s)
		total += weights[k]
	}
	z := zipf{upto: make([]uint64, n)}
	var sum float64
	for k, w := range weights {
		sum += w
		z.upto[k] = uint64(sum / total * (1 << 53))
	}
	z.upto[n-1] = 1 << 53 // whatever rounding lost
	return z
}

// draw maps 64 random bits to a rank, 0 for the most popular.
func (z zipf) draw(random uint64) int {
	x := random >> 11
	return sort.Search(len(z.upto), func(k int) bool { return x < z.upto[k] })
}
