package engine

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
)

// Gate limits the requests in flight at one engine, and keeps those above the limit in a bounded queue, first in first
// out. A waiter costs no goroutine but its own. Safe for concurrent use.
type Gate struct {
	mu       sync.Mutex
	limit    int // 0: none
	queue    int
	inFlight int
	waiting  list.List // of chan struct{}: closed when the place is given
}

// NewGate makes a gate for limit requests in flight (0: no limit, everything passes) and at most queue waiting ones.
func NewGate(limit, queue int) *Gate {
	return &Gate{limit: max(limit, 0), queue: max(queue, 0)}
}

// Acquire takes a place, waiting in line for it. It returns ErrFull at once where the queue is full, and ctx's error
// where that ends first. Call release exactly when the request has ended; calling it again does nothing.
func (g *Gate) Acquire(ctx context.Context) (release func(), err error) {
	g.mu.Lock()
	if g.limit == 0 || g.inFlight < g.limit && g.waiting.Len() == 0 {
		g.inFlight++
		g.mu.Unlock()
		return g.releaser(), nil
	}
	if g.waiting.Len() >= g.queue {
		g.mu.Unlock()
		return nil, failed(ErrFull, nil)
	}
	given := make(chan struct{})
	place := g.waiting.PushBack(given)
	g.mu.Unlock()

	select {
	case <-given:
		return g.releaser(), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	select {
	case <-given: // the place came in the same moment: hand it on
		g.free()
	default:
		g.waiting.Remove(place)
	}
	g.mu.Unlock()
	return nil, context.Cause(ctx)
}

func (g *Gate) releaser() func() {
	var done atomic.Bool
	return func() {
		if done.Swap(true) {
			return
		}
		g.mu.Lock()
		g.free()
		g.mu.Unlock()
	}
}

// free gives a place that has come free to the first in line.
func (g *Gate) free() {
	g.inFlight--
	g.admit()
}

func (g *Gate) admit() {
	for g.waiting.Len() > 0 && (g.limit == 0 || g.inFlight < g.limit) {
		first := g.waiting.Remove(g.waiting.Front()).(chan struct{})
		g.inFlight++
		close(first)
	}
}

// SetLimit changes the limit; requests above a lowered one end as they are.
func (g *Gate) SetLimit(limit int) {
	g.mu.Lock()
	g.limit = max(limit, 0)
	g.admit()
	g.mu.Unlock()
}

// State tells the requests in flight and waiting, and the limits of both (limit 0: none).
func (g *Gate) State() (inFlight, waiting, limit, queue int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight, g.waiting.Len(), g.limit, g.queue
}
