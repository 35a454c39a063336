package route

import (
	"math"
	"slices"
	"time"

	"shoal/internal/peer"
)

// Rates learns how fast a peer's own engine is, from what its agent measures of finished requests. Every figure is a
// median over the last samples, so that a pause of the engine, a cold start or a miscounted prompt moves nothing; before
// minSamples of them it is the stated prior (peer.PriorPrefill and the others). The caller gives clean samples only: of
// prefills that ran alone, of answers that came to their end. What cannot be a sample (no time, no tokens) is dropped.
//
// Rates and the ratio are weighed by tokens: a prompt of which four tokens were computed tells of the engine's constant
// delay, not of its rate. No single sample weighs as much as all others together.
type Rates struct {
	prefill, decode, service, bytes window
}

const (
	windowSamples = 64 // of each figure: old enough to be robust, young enough to follow a throttled engine in minutes
	minSamples    = 3
)

// NewRates returns rates that know the priors only.
func NewRates() *Rates { return &Rates{} }

// Prefill takes the time of one prefill that ran alone, and the prompt tokens computed in it.
func (r *Rates) Prefill(d time.Duration, tokens int64) { r.prefill.perToken(d, tokens) }

// PrefillWithin takes a time that one prefill did not exceed. It tells something where it is below what is believed: plain
// answers do not show their first token, and an engine that gives nothing else must not be taken for as slow as the prior
// for ever.
func (r *Rates) PrefillWithin(d time.Duration, tokens int64) {
	if tokens > 0 && int64(d)/tokens < r.prefill.median(int64(peer.PriorPrefill)) {
		r.prefill.perToken(d, tokens)
	}
}

// Decode takes the time from the first token of an answer to its last, and how many came after the first.
func (r *Rates) Decode(d time.Duration, tokens int64) { r.decode.perToken(d, tokens) }

// Service takes the whole time of a request at the engine.
func (r *Rates) Service(d time.Duration) {
	if d > 0 && d <= maxTerm {
		r.service.add(int64(d), 1)
	}
}

// Bytes takes the length of a prompt's canonical rendering, and the tokens that the engine counted in it.
func (r *Rates) Bytes(bytes, tokens int64) {
	if tokens > 0 && tokens <= maxTokens && bytes > 0 && bytes <= maxTokens {
		r.bytes.add(bytes*1000/tokens, tokens)
	}
}

// Fill writes what is known into l: Prefill, Decode, Service, MilliTokBytes and Samples.
func (r *Rates) Fill(l *peer.Load) {
	l.Prefill = time.Duration(r.prefill.median(int64(peer.PriorPrefill)))
	l.Decode = time.Duration(r.decode.median(int64(peer.PriorDecode)))
	l.Service = time.Duration(r.service.median(int64(peer.PriorService)))
	l.MilliTokBytes = r.bytes.median(peer.PriorMilliTokBytes)
	l.Samples = r.prefill.count
}

type sample struct{ value, weight int64 }

// window is the last samples of one figure, and their weighted median.
type window struct {
	samples [windowSamples]sample
	sorted  [windowSamples]sample // scratch
	next, n int
	count   int // all that were ever taken
	mid     int64
}

func (w *window) perToken(d time.Duration, tokens int64) {
	if d > 0 && d <= maxTerm && tokens > 0 && tokens <= maxTokens {
		w.add(clamp(int64(d)/tokens, 1, int64(maxRate)), tokens)
	}
}

func (w *window) add(value, weight int64) {
	w.samples[w.next] = sample{value, weight}
	w.next = (w.next + 1) % windowSamples
	w.n = min(w.n+1, windowSamples)
	if w.count < math.MaxInt {
		w.count++
	}
	w.update()
}

// median is that of the window, or the prior where it has too few samples.
func (w *window) median(prior int64) int64 {
	if w.n < minSamples {
		return prior
	}
	return w.mid
}

func (w *window) update() {
	s := w.sorted[:w.n]
	copy(s, w.samples[:w.n])
	total, heaviest := int64(0), 0
	for i := range s {
		total += s[i].weight
		if s[i].weight > s[heaviest].weight {
			heaviest = i
		}
	}
	if others := total - s[heaviest].weight; others > 1 && s[heaviest].weight >= others {
		s[heaviest].weight = others - 1
		total = 2*others - 1
	}
	slices.SortFunc(s, func(a, b sample) int { // by value; equal ones are interchangeable
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	below := int64(0)
	for _, x := range s {
		below += x.weight
		if 2*below >= total {
			w.mid = x.value
			return
		}
	}
}
