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

// Config is what may be set of a policy. The zero value is not usable: start from Defaults.
type Config struct {
	// Policy is the rule that chooses. The fields below are used by Cost, and by the explanations of the others.
	Policy Kind
	// GainMin and GainPermille (of the cost at home) are how much cheaper another peer must be before a request leaves
	// home, and how much worse than expected a peer may find itself before it declines. Raising them saves hops and
	// declines and forgoes small gains; at 0 every whim of stale views moves requests.
	GainMin      time.Duration
	GainPermille int
	// NearMin and NearPermille (of the least cost) are the band of costs above the least one within which the rendezvous
	// hash decides. Raising them keeps equal prompts together and stale views from making a herd, and gives away up to
	// that much time a request.
	NearMin      time.Duration
	NearPermille int
	// EvictionPermille is the weight of what a peer's cache loses for the request: 1000 takes an evicted token that would
	// have been reused for as dear as computing it again. Raising it keeps requests where their prefix is for longer.
	EvictionPermille int
	// BalancePermille is the weight of the work that a peer has done lately beyond the others: TODO.
	BalancePermille int
	// PriorRTT is taken for a peer whose round trip has not been measured.
	PriorRTT time.Duration
}

// Defaults returns the configuration whose reasons and measurements docs/decisions/0001-cost-policy.md gives.
func Defaults() Config {
	return Config{
		Policy:           Cost,
		GainMin:          2 * time.Millisecond,
		GainPermille:     20,
		NearMin:          2 * time.Millisecond,
		NearPermille:     20,
		EvictionPermille: 1000,
		BalancePermille:  100,
		PriorRTT:         5 * time.Millisecond,
	}
}

// maxTime bounds what a configuration may set, far beyond sense and far below overflow.
const maxTime = time.Hour

var errNoRand = errors.New("route: the random policy needs a generator; give New a *rand.Rand")

// Validate reports the first field that cannot be used, nil where all can.
func (c Config) Validate() error {
	if int(c.Policy) >= len(kindNames) {
		return fmt.Errorf("route: Policy is %d; use one of %v", uint8(c.Policy), kindNames)
	}
	for _, f := range [...]struct {
		name string
		d    time.Duration
	}{{"GainMin", c.GainMin}, {"NearMin", c.NearMin}, {"PriorRTT", c.PriorRTT}} {
		if f.d < 0 || f.d > maxTime {
			return fmt.Errorf("route: %s is %v; use 0 to %v", f.name, f.d, maxTime)
		}
	}
	for _, f := range [...]struct {
		name string
		v    int
	}{{"GainPermille", c.GainPermille}, {"NearPermille", c.NearPermille}, {"EvictionPermille", c.EvictionPermille}, {"BalancePermille", c.BalancePermille}} {
		if f.v < 0 || f.v > 100_000 {
			return fmt.Errorf("route: %s is %d; use 0 to 100000", f.name, f.v)
		}
	}
	return nil
}
