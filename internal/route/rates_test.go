package route

import (
	"testing"
	"time"

	"shoal/internal/peer"

	"pgregory.net/rapid"
)

func learned(r *Rates) peer.Load {
	var l peer.Load
	r.Fill(&l)
	return l
}

func TestRatesStartFromThePriors(t *testing.T) {
	r := NewRates()
	for range minSamples - 1 {
		r.Prefill(time.Second, 1000)
		r.Decode(time.Second, 100)
		r.Service(time.Minute)
		r.Bytes(3000, 1000)
	}
	l := learned(r)
	if l.Prefill != peer.PriorPrefill || l.Decode != peer.PriorDecode || l.Service != peer.PriorService || l.MilliTokBytes != peer.PriorMilliTokBytes {
		t.Errorf("with %d samples: %+v", minSamples-1, l)
	}
	r.Prefill(time.Second, 1000)
	r.Decode(time.Second, 100)
	r.Service(time.Minute)
	r.Bytes(3000, 1000)
	l = learned(r)
	if l.Prefill != time.Millisecond || l.Decode != 10*time.Millisecond || l.Service != time.Minute || l.MilliTokBytes != 3000 || l.Samples != minSamples {
		t.Errorf("with %d samples: %+v", minSamples, l)
	}
}

func TestOutliersMoveNothing(t *testing.T) {
	r := NewRates()
	for i := range 40 {
		switch i % 3 {
		case 0: // a paused engine, a sleeping laptop, a wrong count
			r.Prefill(10*time.Minute, 700)
			r.Decode(time.Hour, 2)
			r.Service(10 * time.Hour)
			r.Bytes(4000, 7)
		default:
			r.Prefill(time.Duration(700+i)*time.Millisecond, 700+int64(i))
			r.Decode(5*time.Second, 500)
			r.Service(3 * time.Second)
			r.Bytes(4200, 1000)
		}
	}
	l := learned(r)
	if l.Prefill != time.Millisecond || l.Decode != 10*time.Millisecond || l.Service != 3*time.Second || l.MilliTokBytes != 4200 {
		t.Errorf("a third outliers: %+v", l)
	}
}

func TestAFewUncachedTokensDoNotHideTheRate(t *testing.T) {
	r := NewRates()
	for i := range 60 { // 15 ms of constant delay, 100 µs a token
		tokens := int64(8)
		if i%6 == 0 {
			tokens = 4000
		}
		r.Prefill(15*time.Millisecond+time.Duration(tokens)*100*time.Microsecond, tokens)
	}
	if got := learned(r).Prefill; got < 100*time.Microsecond || got > 110*time.Microsecond {
		t.Errorf("learned %v a token", got)
	}
	alone := NewRates()
	for range 5 {
		alone.Prefill(10*time.Millisecond, 10)
	}
	alone.Prefill(time.Minute, 100_000) // one prompt, however long, does not outweigh all the others
	if got := learned(alone).Prefill; got != time.Millisecond {
		t.Errorf("learned %v a token", got)
	}
}

func TestRatesFollowAChange(t *testing.T) {
	r := NewRates()
	for range 1000 {
		r.Prefill(100*time.Millisecond, 1000)
	}
	n := 0
	for learned(r).Prefill != 300*time.Microsecond {
		r.Prefill(300*time.Millisecond, 1000)
		if n++; n > windowSamples {
			t.Fatal("the engine is throttled, and the window does not show it")
		}
	}
	if n <= windowSamples/4 {
		t.Errorf("%d slow prefills of %d are enough to change the rate", n, windowSamples)
	}
}

func TestWhatCannotBeASampleIsDropped(t *testing.T) {
	r := NewRates()
	for range 10 {
		r.Prefill(0, 10)
		r.Prefill(-time.Second, 10)
		r.Prefill(time.Second, 0)
		r.Prefill(time.Second, -4)
		r.Prefill(1<<62, 10)
		r.Decode(time.Second, 0)
		r.Service(0)
		r.Service(1 << 62)
		r.Bytes(0, 10)
		r.Bytes(10, 0)
		r.Bytes(1<<62, 1<<62)
	}
	if l := learned(r); l.Samples != 0 || l.Service != peer.PriorService || l.MilliTokBytes != peer.PriorMilliTokBytes {
		t.Errorf("%+v", l)
	}
	r.Prefill(1, 1<<30)
	r.Prefill(1, 1<<30)
	r.Prefill(1, 1<<30)
	if got := learned(r).Prefill; got != 1 {
		t.Errorf("an engine without delay: %v a token; unknown is what 0 would mean", got)
	}
}

func TestMedianIsThatOfTheLastSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sample {
			return sample{rapid.Int64Range(1, 20).Draw(t, "value"), rapid.Int64Range(1, 9).Draw(t, "weight")}
		}), 1, 3*windowSamples).Draw(t, "samples")
		for _, s := range all {
			w.add(s.value, s.weight)
		}
		last := all[max(len(all)-windowSamples, 0):]
		if got, want := w.mid, naiveMedian(last); got != want {
			t.Fatalf("%v: median %d, want %d", last, got, want)
		}
	})
}

// naiveMedian is the least value that half of the weight does not exceed, no sample weighing as much as all others.
func naiveMedian(s []sample) int64 {
	total, heaviest := int64(0), 0
	for i := range s {
		total += s[i].weight
		if s[i].weight > s[heaviest].weight {
			heaviest = i
		}
	}
	weight := func(i int) int64 {
		if others := total - s[heaviest].weight; others > 1 && i == heaviest && s[i].weight >= others {
			return others - 1
		}
		return s[i].weight
	}
	for v := int64(1); ; v++ {
		below, all := int64(0), int64(0)
		for i := range s {
			all += weight(i)
			if s[i].value <= v {
				below += weight(i)
			}
		}
		if 2*below >= all {
			return v
		}
	}
}

func TestPushBackHasTwoWatermarks(t *testing.T) {
	b := NewPushBack(PushBackConfig{High: 10 * time.Second, Low: 4 * time.Second, HighWaiting: 8, LowWaiting: 2})
	l := peer.PriorLoad() // 200 µs a token, 2 s a request
	for i, step := range []struct {
		tokens   int64
		inFlight int
		slots    int
		on       bool
	}{
		{0, 0, 4, false},
		{50_000, 0, 4, false}, // 10 s: at the mark, not above it
		{50_001, 0, 4, true},
		{20_001, 0, 4, true}, // between the marks it stays
		{50_001, 0, 4, true},
		{20_000, 0, 4, false}, // at the low mark
		{50_000, 0, 4, false}, // between the marks it stays
		{0, 12, 4, false},     // 8 wait
		{0, 13, 4, true},
		{0, 7, 4, true},                 // 3 wait
		{0, 6, 4, false},                // 2 wait
		{0, 24, 4, true},                // 21 x 2 s / 4 is above 10 s
		{0, 24, peer.Unknown, false},    // nothing tells how many it runs, so nothing tells that any waits
		{0, 24, 100, false},             // a larger engine
		{1 << 60, 1 << 60, 4, true},     // no overflow
		{-5, -5, peer.Unknown, false},   // nor nonsense
		{50_001, 0, peer.Unknown, true}, // the queue's time alone is enough
	} {
		l.QueuedTokens, l.InFlight = step.tokens, step.inFlight
		was := b.On()
		changed := b.Update(&l, step.slots, 0)
		if b.On() != step.on || changed != (was != step.on) {
			t.Errorf("step %d %+v: on %v, changed %v", i, step, b.On(), changed)
		}
	}
}

func TestPushBackCountsTheEnginesOtherClients(t *testing.T) {
	b := NewPushBack(PushBackDefaults())
	l := peer.PriorLoad()
	l.Running, l.Waiting, l.Service = 8, 65, 100*time.Millisecond
	if b.Update(&l, peer.Unknown, 0); !b.On() {
		t.Error("65 of other clients wait at the engine, and it does not push back")
	}
}

func TestConfigsNameTheFieldThatIsWrong(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"Policy":           func(c *Config) { c.Policy = 99 },
		"GainMin":          func(c *Config) { c.GainMin = -1 },
		"GainPermille":     func(c *Config) { c.GainPermille = -1 },
		"EvictionPermille": func(c *Config) { c.EvictionPermille = maxPermille + 1 },
		"BalancePermille":  func(c *Config) { c.BalancePermille = -1 },
		"PriorRTT":         func(c *Config) { c.PriorRTT = 2 * maxTime },
	} {
		c := Defaults()
		change(&c)
		_, err := New(c, nil)
		wantError(t, err, field)
	}
	for field, change := range map[string]func(*PushBackConfig){
		"High ":       func(c *PushBackConfig) { c.High = 0 },
		"Low ":        func(c *PushBackConfig) { c.Low = c.High },
		"HighWaiting": func(c *PushBackConfig) { c.HighWaiting = 0 },
		"LowWaiting":  func(c *PushBackConfig) { c.LowWaiting = c.HighWaiting },
	} {
		c := PushBackDefaults()
		change(&c)
		wantError(t, c.Validate(), field)
	}
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	if err := PushBackDefaults().Validate(); err != nil {
		t.Error(err)
	}
	_, err := New(policyOf(Random), nil)
	wantError(t, err, "generator")
}

// Plain answers show an upper bound only: it counts where it is below what is believed.
func TestPlainAnswersBoundThePrefill(t *testing.T) {
	r := NewRates()
	for range minSamples {
		r.PrefillWithin(time.Hour, 1000) // far above the prior
	}
	if got := learned(r).Prefill; got != peer.PriorPrefill {
		t.Fatalf("%v after answers that tell nothing", got)
	}
	for range minSamples {
		r.PrefillWithin(time.Millisecond, 1000)
	}
	if got := learned(r).Prefill; got != time.Microsecond {
		t.Fatalf("%v after answers of 1,000 tokens within 1 ms", got)
	}
	for range minSamples {
		r.PrefillWithin(time.Second, 1000)
	}
	r.PrefillWithin(time.Millisecond, 0)
	r.PrefillWithin(0, 1000)
	if got := learned(r).Prefill; got != time.Microsecond {
		t.Fatalf("%v after slow ones", got)
	}
}
