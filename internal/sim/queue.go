package sim

// Queue is events in the order of their times; those of one time in the order in which they were pushed. The zero value
// is empty. It allocates only to grow. It is for what happens now and then: a network's packets have a faster one.
type Queue[T any] struct {
	items  []item[T]
	pushed uint64
}

type item[T any] struct {
	at    Time
	seq   uint64
	value T
}

func (a *item[T]) before(b *item[T]) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Len is the number of events.
func (q *Queue[T]) Len() int { return len(q.items) }

// Next is the time of the first event, Never where there is none.
func (q *Queue[T]) Next() Time {
	if len(q.items) == 0 {
		return Never
	}
	return q.items[0].at
}

// Push adds an event.
func (q *Queue[T]) Push(at Time, value T) {
	q.items = append(q.items, item[T]{at, q.pushed, value})
	q.pushed++
	h := q.items
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// Pop takes the first event; there is one.
func (q *Queue[T]) Pop() (Time, T) {
	h := q.items
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = item[T]{}
	h = h[:last]
	q.items = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if right := down + 1; right < last && h[right].before(&h[down]) {
			down = right
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	return first.at, first.value
}
