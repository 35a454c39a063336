package reserve

import (
	"fmt"
	"time"
)

// Config is what may be set of a Table. All peers of a shoal should have the same Lease, Capacity, Legs, Aging, MaxWait and
// GiveUp: those of policy shoal make the schedule, and peers that reckon it by other numbers come out at another one.
type Config struct {
	// Lease is how long a reservation stands without a sign of life: at its owner without bytes having moved, elsewhere
	// without having heard of it. It is renewed every third of it. Longer survives a longer loss of messages; shorter frees
	// sooner what a crash left behind, and costs more messages.
	Lease time.Duration
	// MinSplit is from how many bytes on the split policy splits a transfer. Lower gains on smaller transfers, and keeps
	// more paths from others.
	MinSplit int64
	// Legs is over how many free paths the policies split and shoal spread one transfer; at most MaxLegs.
	Legs int
	// Moves is how often one reservation moves for having lost a conflict; then it shares its path. It is a backstop: of
	// those that collide the least key never moves again, so that moving ends by itself, mostly after one move.
	Moves int
	// Capacity is taken for links of which nobody knows it, in bit/s. It matters only where other links' is known, and to
	// policy shoal, whose first prediction is made of it where nothing else is known.
	Capacity int64

	// What follows is policy shoal's; see shoal.go.

	// Aging is how many thousandths of a second of waiting weigh as much as a second of a transfer's own length. Higher is
	// closer to shortest first: the mean falls, and large transfers wait longer. Lower is closer to first come, first served.
	// The default is 1 GB for a second waited where a NIC moves 12.5 GB/s.
	Aging int64
	// MaxWait is from which age on a waiter keeps those after it off its NICs. Shorter bounds the longest wait more tightly;
	// longer leaves fewer NICs idle for it.
	MaxWait time.Duration
	// GiveUp is from which age on a waiter starts without its turn, as by least: the bound where others do not keep to the
	// schedule. Shorter costs order under overload, where long waits are right; longer waits longer for those who do not.
	// It is also for how long others believe that somebody waits.
	GiveUp time.Duration
	// MaxDelay is up to which control delay (99th percentile, clock skew included) transfers wait for their turn; beyond it
	// least decides. Transfers that are announced for longer than messages take lose nothing by the delay. Higher waits on news
	// so old that transfers collide, until MaxSlowdown ends it; lower gives gains up.
	MaxDelay time.Duration
	// Correct is by how many thousandths of a transfer's length its predicted end may be wrong before it is said anew. Lower
	// costs messages; higher leaves paths idle, or has the next transfer begin too soon.
	Correct int64
	// MaxSlowdown is how much longer than predicted transfers may take, on average over the own ones or over all others', in
	// thousandths, before least decides for a while: paths are not what they are taken for, or carry what reserves nothing.
	// 1000 is as predicted. Lower falls back for less; higher puts up with more; from 4000 on it never does, nor for what is slow
	// alone.
	MaxSlowdown int64
	// Distrust is for how long; twice as long each time that it was not over then, and up to four times as long while transfers
	// that move alone are slow. Longer tries less often whether it is over.
	Distrust time.Duration
}

// Defaults are the settings where the configuration says nothing.
func Defaults() Config {
	return Config{Lease: 3 * time.Second, MinSplit: 64 << 20, Legs: 4, Moves: 16, Capacity: 100_000_000_000,
		Aging: 12_500, MaxWait: 5 * time.Second, GiveUp: 15 * time.Second, MaxDelay: 200 * time.Millisecond, Correct: 50,
		MaxSlowdown: 1250, Distrust: 30 * time.Second}
}

// Validate reports the first field that cannot be, nil where there is none.
func (c Config) Validate() error {
	for _, f := range []struct {
		name        string
		v, min, max int64
	}{
		{"Lease", int64(c.Lease), int64(30 * time.Millisecond), int64(time.Hour)}, {"MinSplit", c.MinSplit, 1, MaxBytes},
		{"Legs", int64(c.Legs), 2, MaxLegs}, {"Moves", int64(c.Moves), 0, 255}, {"Capacity", c.Capacity, 1, MaxCapacity},
		{"Aging", c.Aging, 0, 1_000_000}, {"MaxWait", int64(c.MaxWait), int64(time.Millisecond), int64(time.Hour)},
		{"GiveUp", int64(c.GiveUp), int64(time.Millisecond), int64(time.Hour)}, {"MaxDelay", int64(c.MaxDelay), 0, int64(MaxAhead)},
		{"Correct", c.Correct, 1, 1_000_000}, {"MaxSlowdown", c.MaxSlowdown, 1001, 1_000_000},
		{"Distrust", int64(c.Distrust), int64(time.Millisecond), int64(time.Hour)},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("reserve: %s is %d; give a value from %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	return nil
}
