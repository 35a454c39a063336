// Package sim is what the simulators share: virtual time, a queue of events, named random streams, the digest of a run,
// runs of independent points on all cores, and the workload of transfers that the lab plays as well. It knows nothing of networks or engines; those are the packages below it.
//
// Time is a whole number of picoseconds, so that 1,036 bytes at 100 Gb/s (82.88 ns) are exact. Events of one time come in
// the order in which they were scheduled. Nothing here looks at a clock or draws from a global generator: the same seed
// gives the same run, and the same Digest, on every machine and on any number of cores.
package sim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"
)

// Time is virtual time since the start of a run, in picoseconds: up to 106 days.
type Time int64

// Units of Time.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is later than everything.
const Never = Time(1<<63 - 1)

// Of makes a Time of a duration.
func Of(d time.Duration) Time { return Time(d) * Nanosecond }

// Duration is the time in whole nanoseconds, rounded down.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// Seconds is the time as a number, for reports.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return t.Duration().String()
}

// Transmission is how long so many bytes take at a rate in bit/s, rounded up to whole picoseconds.
func Transmission(bytes, rate int64) Time {
	whole, rest := bytes*8/rate, bytes*8%rate
	hi, lo := bits.Mul64(uint64(rest), uint64(Second))
	q, r := bits.Div64(hi, lo, uint64(rate)) // rest is less than rate
	if r > 0 {
		q++
	}
	return Time(whole)*Second + Time(q)
}

// Stream is the random stream of this name: streams of different names have nothing to do with each other, so that what
// one component draws does not change what another one gets.
func Stream(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, xxh3.HashString(name)))
}

// Digest is a fingerprint of what happened in a run, in its order. The zero value is that of nothing.
type Digest uint64

// Add takes in some numbers.
func (d *Digest) Add(values ...int64) {
	h := uint64(*d)
	for _, v := range values {
		h = (h ^ uint64(v) ^ 0xA0761D6478BD642F) * 0x9E3779B97F4A7C15 // so that zeros, too, change a digest of nothing
		h ^= h >> 32
	}
	*d = Digest(h)
}

func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }
