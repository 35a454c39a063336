package study

import (
	"math"
	"slices"

	"shoal/internal/lab"
)

// Spread is one quantity over the runs of several seeds.
type Spread struct {
	Runs int     `json:"runs"`
	Mean float64 `json:"mean"`
	// Low and High are the 95 % confidence interval of the mean, by Student's t over the runs: where the mean of very many
	// seeds is. With one run it is not known, and they are null.
	Low  *float64 `json:"ci_low"`
	High *float64 `json:"ci_high"`
	// SingleLow and SingleHigh are the percentiles 2.5 and 97.5 of single runs: where one further run would be. They are
	// interpolated between runs; null below 5 runs.
	SingleLow  *float64 `json:"single_low"`
	SingleHigh *float64 `json:"single_high"`
}

// minSingle is from how many runs on percentiles of single runs are given.
const minSingle = 5

func newSpread(values []float64) Spread {
	s := Spread{Runs: len(values), Mean: round(lab.Mean(values))}
	if len(values) >= 2 {
		half := tQuantile(len(values)-1) * deviation(values) / math.Sqrt(float64(len(values)))
		s.Low, s.High = new(round(lab.Mean(values)-half)), new(round(lab.Mean(values)+half))
	}
	if len(values) >= minSingle {
		sorted := slices.Sorted(slices.Values(values))
		s.SingleLow, s.SingleHigh = new(round(interpolated(sorted, 0.025))), new(round(interpolated(sorted, 0.975)))
	}
	return s
}

// Half is half the width of the confidence interval; 0 where it is not known.
func (s *Spread) Half() float64 {
	if s.High == nil {
		return 0
	}
	return *s.High - s.Mean
}

// deviation is the sample's standard deviation.
func deviation(v []float64) float64 {
	m := lab.Mean(v)
	var sum float64
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(len(v)-1))
}

// interpolated is the quantile between the two values around it.
func interpolated(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// tQuantile is the 97.5 % quantile of Student's t.
func tQuantile(freedom int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
		2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	if freedom <= len(table) {
		return table[max(1, freedom)-1]
	}
	return 1.96 + 2.4/float64(freedom) // within 0.002 from 31 on
}

// round keeps six digits after the point.
func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }
