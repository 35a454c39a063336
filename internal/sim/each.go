package sim

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f for every point from 0 to n-1, on as many cores as there are (at most workers, where that is above 0), and
// returns when all calls have. The points are independent, so that the order of the calls says nothing about the results.
// The first error ends it, and no further point begins; so does the end of ctx.
func Each(ctx context.Context, n, workers int, f func(ctx context.Context, point int) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, n) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
