package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMetricsOfABenchmark(t *testing.T) {
	const out = `goos: linux
BenchmarkFigure_match_512x16_us-2   	     100	  11 ns/op	  7.25 distinct-us	  8.9 us	  0 B/op	  0 allocs/op
BenchmarkFigure_match_512x16_us-2   	     100	  11 ns/op	  9.1 us
BenchmarkFigure_match_512x16_us_more-2	 100	  11 ns/op	  77 us
BenchmarkFigure_match_512x16_us     	     100	  11 ns/op	  1e+03 us
PASS
`
	if got, want := metrics(out, "BenchmarkFigure_match_512x16_us", "us"), []float64{8.9, 9.1, 1000}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := metrics(out, "BenchmarkFigure_match_512x16_us", "allocs"); got != nil {
		t.Errorf("allocs/op is not the metric allocs: %v", got)
	}
}

func TestFiguresAreChosenByName(t *testing.T) {
	if got, err := choose(nil); err != nil || len(got) != len(figures) {
		t.Errorf("%d figures, %v", len(got), err)
	}
	if got, err := choose([]string{"index_remove_ns"}); err != nil || len(got) != 1 || got[0].limit != 500 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := choose([]string{"nonsense"}); err == nil || !strings.Contains(err.Error(), "there are match_512x16_us,") {
		t.Errorf("%v", err)
	}
}

func TestALimitOfZeroIsALimit(t *testing.T) {
	for _, c := range []struct {
		limit, value float64
		want         string
	}{{0, 0, "limit 0 holds"}, {0, 0.5, "limit 0 IS EXCEEDED"}, {20, 20, "limit 20 holds"}, {unlimited, 9e9, "no limit"}} {
		if got := (&figure{limit: c.limit}).verdict(c.value); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

func TestValuesArePrintedShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 8.9: "8.9", 8.12345: "8.123", 33.339: "33.34", 500: "500", 449.1234: "449.1", 12345.6: "12346"} {
		if got := format(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
