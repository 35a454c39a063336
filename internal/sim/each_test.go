package sim

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestEachCallsEveryPointOnce(t *testing.T) {
	for _, workers := range []int{-1, 0, 1, 2, 7, 1000} {
		for _, n := range []int{0, 1, 3, 100} {
			calls := make([]atomic.Int32, n)
			err := Each(t.Context(), n, workers, func(_ context.Context, i int) error {
				calls[i].Add(1)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range calls {
				if c := calls[i].Load(); c != 1 {
					t.Errorf("%d points, %d workers: %d calls of point %d", n, workers, c, i)
				}
			}
		}
	}
}

// So many points are computed at once, and no more.
func TestEachKeepsToItsWorkers(t *testing.T) {
	const workers = 3
	var running, most atomic.Int32
	var first sync.WaitGroup
	first.Add(workers)
	err := Each(t.Context(), 50, workers, func(_ context.Context, i int) error {
		now := running.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		if i < workers { // the first ones wait for each other
			first.Done()
			first.Wait()
		}
		runtime.Gosched()
		running.Add(-1)
		return nil
	})
	if err != nil || most.Load() != workers {
		t.Errorf("%d at once, want %d; %v", most.Load(), workers, err)
	}
}

func TestEachEndsWithTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	var calls atomic.Int32
	err := Each(t.Context(), 1000, 2, func(ctx context.Context, i int) error {
		calls.Add(1)
		if i == 5 {
			return boom
		}
		if i > 5 {
			<-ctx.Done() // the others are told
			return errors.New("a later error")
		}
		return nil
	})
	if !errors.Is(err, boom) {
		t.Errorf("%v, want %v", err, boom)
	}
	if c := calls.Load(); c > 7 {
		t.Errorf("%d points were begun, and the sixth has failed", c)
	}
}

func TestEachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var calls atomic.Int32
	err := Each(ctx, 1000, 2, func(ctx context.Context, i int) error {
		if calls.Add(1) == 10 {
			cancel(enough)
		}
		return nil
	})
	if !errors.Is(err, enough) || calls.Load() > 12 {
		t.Errorf("%v after %d points", err, calls.Load())
	}
	err = Each(ctx, 10, 1, func(context.Context, int) error { t.Error("a point was begun after the end"); return nil })
	if !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}
