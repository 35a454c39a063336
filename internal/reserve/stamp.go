package reserve

import (
	"cmp"
	"fmt"
	"time"

	"shoal/internal/peer"
)

// MaxAhead is how far ahead of the own wall clock another peer's stamp may be. One that is further neither enters the
// table nor moves the clock, so that one wrong clock does not carry all others away.
const MaxAhead = 500 * time.Millisecond

const (
	countBits = 16
	maxStamp  = 1<<48 - 1 // ms
)

// Stamp is a hybrid logical time: 48 bits of wall time in ms, then 16 bits of count. Whoever has heard a stamp gives
// only greater ones afterwards, so that "reserved later, and knowing of it" shows in the order.
type Stamp uint64

// StampAt is the first stamp of the wall time.
func StampAt(wall time.Duration) Stamp {
	ms := max(0, min(wall/time.Millisecond, maxStamp))
	return Stamp(ms) << countBits
}

// Milliseconds is the wall time in the stamp.
func (s Stamp) Milliseconds() int64 { return int64(s >> countBits) }

func (s Stamp) String() string { return fmt.Sprintf("%d.%d", s>>countBits, s&(1<<countBits-1)) }

// clock gives the stamps of one peer.
type clock struct {
	last Stamp // given or heard
}

// next is a stamp greater than all given and heard before, whatever the wall clock does.
func (c *clock) next(wall time.Duration) Stamp {
	c.last = max(StampAt(wall), c.last+1)
	return c.last
}

// hear advances the clock, and is false, without doing so, for a stamp that is too far ahead.
func (c *clock) hear(s Stamp, wall time.Duration) bool {
	if s>>countBits > StampAt(wall+MaxAhead)>>countBits {
		return false
	}
	c.last = max(c.last, s)
	return true
}

// before is the order of conflicts, by the keys (Stamp, owner, ID): the lesser stays.
func (e *Entry) before(owner peer.ID, f *Entry, other peer.ID) bool {
	return cmp.Or(cmp.Compare(e.Stamp, f.Stamp), cmp.Compare(owner, other), cmp.Compare(e.ID, f.ID)) < 0
}
