package prefix

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check runs a property 300 times, three times rapid's own number.
func check(t *testing.T, property func(*rapid.T)) {
	for range 3 {
		rapid.Check(t, property)
	}
}

// quiet is the time that a tenth of the passes stayed within. All passes do the same work, so what a shared machine adds is
// no part of it. It stands beside the median, which is the figure.
func quiet(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/10]
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
