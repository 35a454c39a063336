package transfer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// lane is a connection's part in a transfer that is sent: what went out on it and is not acknowledged.
type lane struct {
	x        *outgoing
	c        *conn
	leg      int // the path's ID
	unpinned bool
	layout   layout
	accepted chan error  // the join's answer
	done     chan uint32 // the end's

	out     map[int]struct{} // x.mu guards what follows
	joined  bool
	leaving bool // when it has heard its last answers
	left    bool
	isGone  bool
	err     error
}

// hear takes one answer. An error ends the connection.
func (l *lane) hear(h *head, p []byte) error {
	switch h.kind {
	case kindAck:
		a, err := decodeAck(p)
		if err != nil {
			return err
		}
		return l.ack(a)
	case kindAccept:
		a, err := decodeAccept(p)
		if err != nil {
			return err
		}
		return l.accept(&a)
	case kindDone:
		sum, err := decodeSum(p)
		if err != nil {
			return err
		}
		select {
		case l.done <- sum:
			return nil
		default:
			return errFrame
		}
	case kindRefuse:
		return refused(l.c.to, p)
	}
	return errFrame
}

func (l *lane) accept(a *accept) error {
	x := l.x
	x.mu.Lock()
	again := l.joined
	l.joined = true
	if !again {
		x.lanes[l] = struct{}{}
	}
	x.mu.Unlock()
	if again {
		return errFrame
	}
	if err := x.begin(l, a); err != nil {
		return err
	}
	l.accepted <- nil
	return nil
}

// ack accounts for a chunk that has arrived, or that has to be sent again.
func (l *lane) ack(a ack) error {
	x := l.x
	i := int(a.number)
	x.mu.Lock()
	if _, ok := l.out[i]; !ok {
		x.mu.Unlock()
		return errFrame
	}
	delete(l.out, i)
	if a.damaged {
		x.result.Damaged++
		if x.tries[i]++; x.tries[i] >= maxTries {
			x.broken(fmt.Errorf("%w: chunk %d arrived damaged %d times", ErrMismatch, i, maxTries))
		}
		x.again = append(x.again, i)
		x.more.Signal()
	} else {
		_, n := x.lay.extent(i)
		x.arrive(i, l.leg, n)
	}
	leave := l.leaving && len(l.out) == 0
	l.left = leave
	x.mu.Unlock()
	if leave {
		x.depart(l)
	}
	if !a.damaged {
		x.tell()
	}
	return nil
}

// cut puts back what was under way; the connection has ended.
func (l *lane) cut(err error) {
	x := l.x
	x.mu.Lock()
	defer x.mu.Unlock()
	l.isGone, l.err = true, fmt.Errorf("transfer: the connection to %s ended: %w", x.to.to, err)
	delete(x.lanes, l)
	if !l.joined {
		return
	}
	if x.stopped && len(l.out) == 0 {
		return
	}
	var r *RefusedError
	if errors.As(err, &r) {
		if l.err = r; !r.passing() {
			x.broken(r)
		}
	}
	x.cause = l.err
	x.result.Resumes++
	x.m.count.resumes.Add(1)
	for _, i := range slices.Sorted(maps.Keys(l.out)) {
		if x.state[i] != arrived {
			x.again = append(x.again, i)
			x.via[i] = l.leg
		}
	}
	clear(l.out)
	x.more.Broadcast()
	x.poke()
}

// failure is why the connection ended.
func (l *lane) failure() error {
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	var r *RefusedError
	if errors.As(l.err, &r) {
		return r
	}
	return l.err
}

func (l *lane) isCut() bool {
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	return l.isGone
}

// retire lets a lane hear its last answers and then frees its connection.
func (x *outgoing) retire(l *lane) {
	x.mu.Lock()
	l.leaving = true
	now := len(l.out) == 0 && !l.isGone
	l.left = now
	x.mu.Unlock()
	if now {
		x.depart(l)
	}
}

// regain takes back a lane of the leg's path that has not left yet: its ports may have no other connection to give.
func (x *outgoing) regain(leg *Leg) *lane {
	x.mu.Lock()
	defer x.mu.Unlock()
	for l := range x.lanes {
		if l.leaving && !l.left && !l.isGone && l.suits(leg) {
			l.leaving = false
			return l
		}
	}
	return nil
}

// depart takes the connection out of the transfer. Nobody else writes on it any more.
func (x *outgoing) depart(l *lane) {
	x.mu.Lock()
	delete(x.lanes, l)
	x.mu.Unlock()
	l.c.hand(nil)
	if _, err := l.c.nc.Write(appendFrame(nil, kindLeave, nil)); err != nil {
		l.c.nc.Close()
		return
	}
	x.m.pool.put(l.c)
}

// retireAll frees the connections at the end.
func (x *outgoing) retireAll() {
	x.mu.Lock()
	open := slices.Collect(maps.Keys(x.lanes))
	x.mu.Unlock()
	for _, l := range open {
		x.retire(l)
	}
}

// anyLane gives a connection that still takes part.
func (x *outgoing) anyLane() *lane {
	x.mu.Lock()
	defer x.mu.Unlock()
	for l := range x.lanes {
		if !l.leaving && !l.isGone {
			return l
		}
	}
	return nil
}

// abandon ends the connections of a transfer that has failed, and says so to the receiver where that is not what it
// said itself: nothing shall be left there. After a cut it keeps what it has, so that a new ticket may go on.
func (x *outgoing) abandon(err error) {
	x.mu.Lock()
	open := slices.Collect(maps.Keys(x.lanes))
	x.mu.Unlock()
	var r *RefusedError
	told := errors.As(err, &r) || errors.Is(err, ErrCut) || errors.Is(err, ErrClosed)
	for _, l := range open {
		if !told && !l.isCut() { // the stripes have ended, so what this one was writing is whole
			l.c.nc.SetWriteDeadline(time.Now().Add(lastWrite))
			if _, err := l.c.nc.Write(appendFrame(nil, kindCancel, nil)); err == nil && l.c.tcp.CloseWrite() == nil {
				told = true
				continue // its reader closes it, after the receiver
			}
		}
		l.c.nc.Close()
	}
}
