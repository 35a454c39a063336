package prefix

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check runs a property 500 times, five times rapid's own number.
func check(t *testing.T, property func(*rapid.T)) {
	for range 5 {
		rapid.Check(t, property)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
