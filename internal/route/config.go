package route

import (
	"errors"
	"fmt"
	"time"
)

// Kind names a policy. The zero value is Cost.
type Kind uint8

const (
	Cost Kind = iota
	LongestPrefix
	RoundRobin
	Random
	Local
)

var kindNames = [...]string{Cost: "cost", LongestPrefix: "longest-prefix", RoundRobin: "round-robin", Random: "random", Local: "local"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("policy(%d)", uint8(k))
}

// MarshalText writes the name, as configuration files have it.
func (k Kind) MarshalText() ([]byte, error) {
	if int(k) >= len(kindNames) {
		return nil, fmt.Errorf("route: policy %d does not exist; use one of %v", uint8(k), kindNames)
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText reads a policy's name.
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range kindNames {
		if string(text) == name {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("route: policy %.40q does not exist; use one of %v", text, kindNames)
}

// Config is what may be set of a policy. The zero value is the cost policy without any price but time: start from
// Defaults instead.
type Config struct {
	// Policy is the rule that chooses. The fields below are used by Cost, and by the explanations of the others.
	Policy Kind
	// GainMin and GainPermille (of the time to prefill the whole prompt) say which difference between two costs is one:
	// the greater of both is the margin. A peer that is not better by more does not draw a request away from home; between
	// costs closer than that the rendezvous hash decides; a peer that finds itself worse than expected by more than that,
	// and than the next best, declines. Raising it saves hops and declines and keeps stale views from making a herd;
	// lowering it takes small gains, and mistakes noise for some.
	GainMin      time.Duration
	GainPermille int
	// EvictionPermille is the price of computing at one peer what another has in its cache, in thousandths of the time
	// that it takes: it displaces as much from the one cache, and makes what the other holds useless. Requests that share a
	// popular prefix share the price, since they will share the copy. Raising it gives more hits and longer waits for a
	// busy holder, lowering it the opposite; at 0 a prefix moves as soon as that is faster for the one request.
	EvictionPermille int
	// BalancePermille is the price of the work that a peer has done lately or has begun more than the least busy one, in
	// thousandths of it. Raising it fills cold peers sooner and cuts the busiest peer's share; above 100 bursts pay for it
	// with time, since all of a burst see the same least busy peer until the next report.
	BalancePermille int
	// PriorRTT is taken for a peer whose round trip has not been measured.
	PriorRTT time.Duration
}

// Defaults returns the configuration whose measurements and reasons docs/decisions/0001-cost-policy.md gives.
func Defaults() Config {
	return Config{
		Policy:           Cost,
		GainMin:          2 * time.Millisecond,
		GainPermille:     200,
		EvictionPermille: 64_000,
		BalancePermille:  50,
		PriorRTT:         5 * time.Millisecond,
	}
}

// What a configuration may set at most, far beyond sense and far below overflow.
const (
	maxTime     = time.Hour
	maxPermille = 1_000_000
)

var errNoRand = errors.New("route: the random policy needs a generator; give New a *rand.Rand")

// Validate reports the first field that cannot be used, nil where all can.
func (c Config) Validate() error {
	if int(c.Policy) >= len(kindNames) {
		return fmt.Errorf("route: Policy is %d; use one of %v", uint8(c.Policy), kindNames)
	}
	for _, f := range [...]struct {
		name string
		d    time.Duration
	}{{"GainMin", c.GainMin}, {"PriorRTT", c.PriorRTT}} {
		if f.d < 0 || f.d > maxTime {
			return fmt.Errorf("route: %s is %v; use 0 to %v", f.name, f.d, maxTime)
		}
	}
	for _, f := range [...]struct {
		name string
		v    int
	}{{"GainPermille", c.GainPermille}, {"EvictionPermille", c.EvictionPermille}, {"BalancePermille", c.BalancePermille}} {
		if f.v < 0 || f.v > maxPermille {
			return fmt.Errorf("route: %s is %d; use 0 to %d", f.name, f.v, maxPermille)
		}
	}
	return nil
}
