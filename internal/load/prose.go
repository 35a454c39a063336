package load

import (
	"math/rand/v2"
	"strings"
)

// prose writes English-like text without meaning. Its unit is a word or a punctuation mark: with the tokenisers of today
// that is close to one token for such common words, which is as near as a text gets without asking a tokeniser. The same
// stream gives the same text, and a longer text begins with the shorter one.
type prose struct {
	r    *rand.Rand
	left []string // what is still to come of the sentence begun
	used int      // of left
}

func newProse(r *rand.Rand) *prose { return &prose{r: r} }

// next returns the next unit, a word or a punctuation mark; the first word of a sentence has a capital.
func (p *prose) next() string {
	if p.used == len(p.left) {
		p.sentence()
	}
	u := p.left[p.used]
	p.used++
	return u
}

// write appends n units to b. Where b does not end in white space, a space comes before a word.
func (p *prose) write(b []byte, n int) []byte {
	for range n {
		u := p.next()
		if len(b) > 0 && u != "." && u != "," && u != "?" && b[len(b)-1] != ' ' && b[len(b)-1] != '\n' {
			b = append(b, ' ')
		}
		b = append(b, u...)
	}
	return b
}

// fresh drops what is left of the sentence begun.
func (p *prose) fresh() { p.used = len(p.left) }

func (p *prose) sentence() {
	p.left, p.used = p.left[:0], 0
	for i, w := range strings.Fields(pick(p.r, patterns[:])) {
		switch w {
		case "A":
			w = pick(p.r, adjectives[:])
		case "N":
			w = pick(p.r, nouns[:])
		case "V":
			w = pick(p.r, verbs[:])
		case "P":
			w = pick(p.r, prepositions[:])
		case "D":
			w = pick(p.r, adverbs[:])
		}
		if i == 0 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		p.left = append(p.left, w)
	}
}

func pick(r *rand.Rand, words []string) string { return words[r.IntN(len(words))] }

// The grammar: capitals stand for a word of their kind, everything else for itself.
var patterns = [...]string{
	"the A N V the N of the N P the A N .",
	"when the N V the N , the A N D V the N .",
	"each N P the N V one N and the other N .",
	"in the A N , the N D V the N P the N .",
	"most N of this kind V the A N , but some N V the N .",
	"if the N is A , then the N P it V the N .",
	"the N and the N V the same N P the N .",
	"it is A that the N V the N before the N V it .",
	"which of the N V the A N P the N , and which V the N ?",
	"after the N , the A N may V the N of the N .",
	"no A N can V the N while the N V the A N .",
	"the first N V the N , and the second N V the N D .",
}

var adjectives = [...]string{"large", "small", "early", "late", "simple", "common", "public", "local", "direct", "open",
	"free", "final", "strong", "weak", "high", "low", "general", "special", "single", "whole", "clear", "certain", "real",
	"natural", "modern", "old", "new", "short", "long", "hard", "deep", "dry", "warm", "cold", "fast", "slow", "heavy",
	"light", "equal", "central"}

var nouns = [...]string{"system", "state", "law", "theory", "model", "value", "rate", "force", "cell", "field", "group",
	"city", "river", "market", "price", "court", "body", "water", "light", "sound", "line", "point", "number", "set",
	"question", "answer", "word", "language", "history", "war", "trade", "bank", "tax", "case", "test", "rule", "plan",
	"report", "study", "method", "result", "effect", "cause", "process", "product", "part", "surface", "region", "season",
	"plant", "animal", "heart", "brain", "engine", "machine", "network", "signal", "memory", "letter", "paper", "school",
	"student", "teacher", "doctor", "worker", "family", "nation", "party", "vote", "right", "power", "energy", "metal",
	"stone", "ocean", "wind", "star", "planet", "road", "house"}

var verbs = [...]string{"change", "follow", "support", "reach", "carry", "cover", "cause", "limit", "keep", "move", "join",
	"leave", "build", "break", "hold", "show", "describe", "explain", "produce", "reduce", "raise", "divide", "measure",
	"control", "protect", "require", "replace", "prevent", "allow", "include"}

var prepositions = [...]string{"in", "under", "over", "near", "with", "without", "between", "behind", "through", "against"}

var adverbs = [...]string{"often", "rarely", "slowly", "quickly", "always", "never", "usually", "directly", "only", "then"}

// subjects are what the few-shot workload asks about; more of them than names are numbered.
var subjects = [...]string{"abstract algebra", "anatomy", "astronomy", "business ethics", "clinical knowledge", "biology",
	"chemistry", "computer science", "mathematics", "medicine", "physics", "computer security", "econometrics",
	"electrical engineering", "formal logic", "world facts", "geography", "government", "macroeconomics", "microeconomics",
	"psychology", "statistics", "European history", "world history", "human aging", "international law", "jurisprudence",
	"machine learning", "management", "marketing", "genetics", "moral disputes", "nutrition", "philosophy", "prehistory",
	"accounting", "public relations", "security studies", "sociology", "foreign policy", "virology", "world religions"}
