package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestGateLetsWaitersInInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 10)
		release, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 10 {
			go func() {
				release, err := g.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // one at a time, by the gate
				pass(time.Second)
				release()
			}()
			synctest.Wait()
		}
		if _, err := g.Acquire(t.Context()); !errors.Is(err, ErrFull) {
			t.Errorf("the eleventh waiter: %v", err)
		}
		release()
		pass(11 * time.Second)
		synctest.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
		if in, waiting, limit, queue := g.State(); len(order) != 10 || in != 0 || waiting != 0 || limit != 1 || queue != 10 {
			t.Errorf("at the end %d of 10, %d in flight, %d waiting", len(order), in, waiting)
		}
	})
}

// pitfalls 18
func TestGateKeepsNoPlaceForWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 2)
		release, _ := g.Acquire(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := g.Acquire(ctx)
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if _, waiting, _, _ := g.State(); waiting != 0 {
			t.Errorf("%d waiting", waiting)
		}
		release()
		release() // again: nothing happens
		if in, _, _, _ := g.State(); in != 0 {
			t.Errorf("%d in flight", in)
		}
	})
}

func TestGateWithoutALimitLetsAllIn(t *testing.T) {
	g := NewGate(0, 0)
	for range 1000 {
		if _, err := g.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if in, _, _, _ := g.State(); in != 1000 {
		t.Errorf("%d in flight", in)
	}
}

func TestGateWithAHigherLimitLetsWaitersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 5)
		g.Acquire(t.Context())
		for range 3 {
			go g.Acquire(t.Context())
		}
		synctest.Wait()
		g.SetLimit(3)
		synctest.Wait()
		if in, waiting, _, _ := g.State(); in != 3 || waiting != 1 {
			t.Errorf("%d in flight, %d waiting", in, waiting)
		}
		g.SetLimit(0)
		synctest.Wait()
	})
}

// Whatever comes and goes, the limits hold, and at the end nothing is left.
func TestGateCountsReturnToZero(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := NewGate(rapid.IntRange(1, 3).Draw(rt, "limit"), rapid.IntRange(0, 3).Draw(rt, "queue"))
		var wg sync.WaitGroup
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			ctx, cancel := context.WithCancel(t.Context())
			early := rapid.Bool().Draw(rt, "leaves early")
			wg.Go(func() {
				defer cancel()
				if release, err := g.Acquire(ctx); err == nil {
					if in, waiting, limit, queue := g.State(); in > limit || waiting > queue {
						t.Errorf("%d of %d in flight, %d of %d waiting", in, limit, waiting, queue)
					}
					release()
				}
			})
			if early {
				cancel()
			}
		}
		wg.Wait()
		if in, waiting, _, _ := g.State(); in != 0 || waiting != 0 {
			rt.Errorf("%d in flight, %d waiting", in, waiting)
		}
	})
}

func BenchmarkGate(b *testing.B) {
	g := NewGate(8, 8)
	b.ReportAllocs()
	for b.Loop() {
		release, _ := g.Acquire(b.Context())
		release()
	}
}
