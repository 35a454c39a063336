package main

import (
	"testing"

	"shoal/internal/lab"
	"shoal/internal/sim"
)

// Sizes go with the rate of the links, unless somebody says by what they are divided.
func TestLabSizesAreDividedByTheScaleThatIsGiven(t *testing.T) {
	l := labFlags{cfg: lab.Defaults()}
	l.cfg.Rate = 50_000_000
	for given, want := range map[int64]int64{0: 2000, 500: 500} {
		if got := l.workload(sim.DefaultWorkload(), given).Scale; got != want {
			t.Errorf("--scale %d: sizes are divided by %d, want %d", given, got, want)
		}
	}
	if _, err := labWorkloads(l.workload(sim.DefaultWorkload(), -1), "25", 1, nil); err == nil {
		t.Error("sizes divided by -1")
	}
}
