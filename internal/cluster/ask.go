package cluster

import (
	"sync"
	"time"
)

// asks remembers for a moment whether somebody answered, and lets only one at a time find out. It is bounded by the
// members and forgets by itself.
type asks struct {
	mu sync.Mutex
	m  map[string]*answer
}

type answer struct {
	done  chan struct{}
	yes   bool
	until time.Time
}

// askAgain is for how long an answer holds.
const askAgain = time.Second

// maxAsks bounds the answers remembered.
const maxAsks = 1024

func (a *asks) ask(name string, f func() bool) bool {
	a.mu.Lock()
	now := time.Now()
	if got, ok := a.m[name]; ok && (got.until.IsZero() || now.Before(got.until)) {
		a.mu.Unlock()
		<-got.done
		return got.yes
	}
	if a.m == nil {
		a.m = map[string]*answer{}
	}
	if len(a.m) >= maxAsks {
		for k, v := range a.m {
			if !v.until.IsZero() && now.After(v.until) {
				delete(a.m, k)
			}
		}
	}
	mine := &answer{done: make(chan struct{})}
	if len(a.m) < maxAsks {
		a.m[name] = mine
	}
	a.mu.Unlock()
	mine.yes = f()
	a.mu.Lock()
	mine.until = time.Now().Add(askAgain)
	a.mu.Unlock()
	close(mine.done)
	return mine.yes
}
