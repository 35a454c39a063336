package cluster

import (
	"strings"
	"testing"
)

func TestHopCarriesRequestAndAnswer(t *testing.T) {
	for _, size := range []int{0, 1, 500, 20_000, 100_000, 3 << 20} {
		for name, opts := range map[string][]option{"clear": nil, "tls": {with(func(c *Config) { c.Keys = []Key{{1}} })}} {
			t.Run(name, func(t *testing.T) {
				a, b := pair(t, opts...)
				body := strings.Repeat("x", size)
				for range 3 {
					got, last, err := hop(a.c, "b", body)
					if err != nil || got != body {
						t.Fatalf("%d bytes of %d, last %v, %v", len(got), size, last, err)
					}
				}
				if n := b.c.Stats().HopsServed; n != 3 {
					t.Fatalf("%d hops served", n)
				}
			})
		}
	}
}
