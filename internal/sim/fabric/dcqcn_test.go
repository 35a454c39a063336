package fabric

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"shoal/internal/sim"
)

func TestDCQCNEqualsReferenceWithoutMarks(t *testing.T) {
	dir := referenceData(t)
	for _, name := range []string{"2x20MB_samehost", "8x20MB", "mix12"} {
		t.Run(name, func(t *testing.T) { sameAsReference(t, dir, "dcqcn", name, checked(DCQCN)) })
	}
}

// TestDCQCNNearReference: marks are random, so that the averages over seeds are compared.
func TestDCQCNNearReference(t *testing.T) {
	dir := referenceData(t)
	const seeds = 20
	for _, name := range []string{"incast8", "18on1", "poisson100_s1"} {
		t.Run(name, func(t *testing.T) {
			list := readTransfers(t, filepath.Join(dir, name+".flows"))
			text, err := os.ReadFile(filepath.Join(dir, "dcqcn."+name+".out"))
			if err != nil {
				t.Fatal(err)
			}
			var wantMean, wantLast float64
			lines := 0
			for line := range bytes.Lines(text) {
				var a [4]int
				var size, start, fct int64
				if _, err := fmt.Sscanf(string(line), "FCT %d %d %d %d %d %d %d", &a[0], &a[1], &a[2], &a[3], &size, &start, &fct); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				lines++
				wantMean += float64(fct)
				wantLast = max(wantLast, float64(start+fct))
			}
			wantMean /= float64(lines)
			var mean, last, marked float64
			for seed := range seeds {
				cfg := checked(DCQCN)
				cfg.Seed = uint64(seed)
				n := reference(t, cfg)
				done, err := Replay(n, list)
				if err != nil {
					t.Fatal(err)
				}
				sum := sim.Time(0)
				for _, c := range done {
					sum += c.FCT
				}
				mean += float64(sum/sim.Nanosecond) / float64(len(done)) / seeds
				last += float64(n.Now()/sim.Nanosecond) / seeds
				marked += float64(n.Stats().Marked) / seeds
			}
			offMean, offLast := 100*(mean/wantMean-1), 100*(last/wantLast-1)
			t.Logf("%d seeds: mean FCT %.0f ns, reference %.0f (%+.2f %%); last completion %.0f ns, reference %.0f (%+.2f %%); %.0f packets marked", seeds, mean, wantMean, offMean, last, wantLast, offLast, marked)
			if math.Abs(offMean) > 1.5 || math.Abs(offLast) > 3 {
				t.Error("off by more than 1.5 % in the mean, or 3 % in the last completion")
			}
		})
	}
}
