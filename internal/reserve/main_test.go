package reserve

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// TestMain makes property tests run as many cases as the command line says, or checks; -rapid.checks=100000 for a longer look.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", checks)
	}
	os.Exit(m.Run())
}

// noon is a wall time: tests begin there, and it is 0 by the monotonic clock.
const noon = 1_780_000_000 * time.Second

func newTable(tb failer, self peer.ID, incarnation, seed uint64) *Table {
	t, err := New(Defaults(), self, incarnation, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return t
}

func paths(tb failer, t *Table, p []ecmp.Path) *Set {
	s, err := t.Paths(p, gigabits(100))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// mustReserve asks for one transfer now.
func mustReserve(tb failer, t *Table, now time.Duration, req Request) Grant {
	tb.Helper()
	return mustReserveAt(tb, t, now, noon+now, req)
}

func mustReserveAt(tb failer, t *Table, now, wall time.Duration, req Request) Grant {
	tb.Helper()
	var g Grant
	if req.Dst == "" {
		req.Dst = "dst"
	}
	if err := t.Reserve(now, wall, &req, &g); err != nil {
		tb.Fatalf("%v", err)
	}
	return g
}
