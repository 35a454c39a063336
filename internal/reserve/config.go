package reserve

import (
	"fmt"
	"time"
)

// Config is what may be set of a Table. All peers of a shoal should have the same Lease.
type Config struct {
	// Lease is how long a reservation stands without a sign of life: at its owner without bytes having moved, elsewhere
	// without having heard of it. It is renewed every third of it. Longer survives a longer loss of messages; shorter frees
	// sooner what a crash left behind, and costs more messages.
	Lease time.Duration
	// MinSplit is from how many bytes on the split policy splits a transfer. Lower gains on smaller transfers, and keeps
	// more paths from others.
	MinSplit int64
	// Legs is over how many free paths the split policy spreads one transfer; at most MaxLegs.
	Legs int
	// Moves is how often one reservation moves for having lost a conflict; then it shares its path. It is a backstop: of
	// those that collide the least key never moves again, so that moving ends by itself, mostly after one move.
	Moves int
	// Capacity is taken for links of which nobody knows it, in bit/s. It matters only where other links' is known.
	Capacity int64
}

// Defaults are the settings where the configuration says nothing.
func Defaults() Config {
	return Config{Lease: 3 * time.Second, MinSplit: 64 << 20, Legs: 4, Moves: 16, Capacity: 100_000_000_000}
}

// Validate reports the first field that cannot be, nil where there is none.
func (c Config) Validate() error {
	for _, f := range []struct {
		name        string
		v, min, max int64
	}{
		{"Lease", int64(c.Lease), int64(30 * time.Millisecond), int64(time.Hour)}, {"MinSplit", c.MinSplit, 1, MaxBytes},
		{"Legs", int64(c.Legs), 2, MaxLegs}, {"Moves", int64(c.Moves), 0, 255}, {"Capacity", c.Capacity, 1, MaxCapacity},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("reserve: %s is %d; give a value from %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	return nil
}
