package route

import (
	"fmt"
	"time"

	"shoal/internal/peer"
)

// PushBackConfig is the two watermarks between which a peer's push-back keeps its state.
type PushBackConfig struct {
	// High and Low are time until the engine would start on one more request. Above High the peer asks for nothing new, at
	// Low or below it takes requests again. A lower High moves a hot prefix to other peers sooner; a Low close to High makes
	// the state flap, and a Low near 0 leaves the engine idle until everyone has heard that it takes requests again.
	High, Low time.Duration
	// HighWaiting and LowWaiting are the same in requests that wait for a place at the engine: the safety net while the
	// rates are unknown. They count only where something tells how many requests the engine runs at once.
	HighWaiting, LowWaiting int
}

// PushBackDefaults returns watermarks for prompts of some thousand tokens on any engine.
func PushBackDefaults() PushBackConfig {
	return PushBackConfig{High: 10 * time.Second, Low: 4 * time.Second, HighWaiting: 64, LowWaiting: 16}
}

// Validate reports the first field that cannot be used, nil where all can.
func (c PushBackConfig) Validate() error {
	if c.High <= 0 || c.High > maxTime {
		return fmt.Errorf("route: push-back High is %v; use more than 0, at most %v", c.High, maxTime)
	}
	if c.Low < 0 || c.Low >= c.High {
		return fmt.Errorf("route: push-back Low is %v; use 0 up to less than High (%v)", c.Low, c.High)
	}
	if c.HighWaiting <= 0 || c.HighWaiting > maxRequests {
		return fmt.Errorf("route: push-back HighWaiting is %d; use 1 to %d", c.HighWaiting, maxRequests)
	}
	if c.LowWaiting < 0 || c.LowWaiting >= c.HighWaiting {
		return fmt.Errorf("route: push-back LowWaiting is %d; use 0 up to less than HighWaiting (%d)", c.LowWaiting, c.HighWaiting)
	}
	return nil
}

// PushBack is whether a peer asks for nothing new (the paper's specialist push-back), with hysteresis. It starts off.
type PushBack struct {
	cfg PushBackConfig
	on  bool
}

// NewPushBack returns a push-back that is off. The configuration must be valid.
func NewPushBack(cfg PushBackConfig) *PushBack {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	return &PushBack{cfg: cfg}
}

// On reports whether the peer pushes back.
func (b *PushBack) On() bool { return b.on }

// Update looks at the peer's load (of which the PushBack field is not used) and at how many requests its engine runs at
// once, peer.Unknown where nothing tells, and reports whether the state has changed. Either watermark switches it on; it
// goes off when the queue is at or below both low ones.
func (b *PushBack) Update(l *peer.Load, slots, limit int) (changed bool) {
	p := places(l, slots, limit)
	wait := max(term(clamp(l.QueuedTokens, 0, maxTokens), prefillRate(l)), placeWait(l, 0, p))
	waiting := int64(0)
	if p > 0 {
		waiting = max(present(l)-p, 0)
	}
	was := b.on
	switch {
	case wait > b.cfg.High || waiting > int64(b.cfg.HighWaiting):
		b.on = true
	case wait <= b.cfg.Low && waiting <= int64(b.cfg.LowWaiting):
		b.on = false
	}
	return b.on != was
}
