package control

import (
	"errors"
	"fmt"
	"time"

	"shoal/internal/reserve"
	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
	"shoal/internal/wire"
)

// overhead is what a datagram has besides what package wire writes: Ethernet, IP and UDP headers, sequence number and tag.
const overhead = 14 + 20 + 8 + 24

// messages are those under way. A message to everybody is there once.
type messages struct {
	all    pool[message]
	rounds pool[told]
	out    []reserve.Message
	text   []byte
}

// pool is items whose places are used again.
type pool[T any] struct {
	items []T
	free  []int32
}

// take is a place; what is there is from an earlier use.
func (p *pool[T]) take() (n int32) {
	if k := len(p.free); k > 0 {
		n, p.free = p.free[k-1], p.free[:k-1]
		return n
	}
	var zero T
	p.items = append(p.items, zero)
	return int32(len(p.items) - 1)
}

func (p *pool[T]) give(n int32) { p.free = append(p.free, n) }

type message struct {
	from  int
	m     reserve.Message
	bytes int64
	left  int // hosts that have not got it or lost it
}

// told is what one host tells another in a round of anti-entropy.
type told struct {
	from     int
	own      *reserve.Section
	sections []*reserve.Section
}

// say sends what a table has to say, to every other host.
func (r *run) say(h *host) {
	m := &r.messages
	m.out = h.table.Take(m.out[:0])
	for i := range m.out {
		b, err := wire.AppendReserve(m.text[:0], &m.out[i])
		if err != nil {
			panic(fmt.Sprintf("control: %s: %v", h.id, err))
		}
		m.text = b
		r.broadcast(message{from: h.index, m: m.out[i], bytes: int64(len(b)) + overhead, left: len(r.hosts) - 1})
	}
}

func (r *run) broadcast(msg message) {
	if len(r.hosts) < 2 {
		return
	}
	n := r.messages.all.take()
	r.messages.all.items[n] = msg
	r.res.Counts.Messages += int64(msg.left)
	r.res.Counts.MessageBytes += int64(msg.left) * msg.bytes
	if !r.cfg.InFabric && r.cfg.Jitter == 0 { // all get it at once: one timer
		r.timers.Push(r.after(r.cfg.Delay), timer{kind: deliver, host: -1, n: n})
		return
	}
	for to := range r.hosts {
		if to == msg.from {
			continue
		}
		if r.cfg.InFabric {
			path := 0
			if k := len(r.net.Topology().Paths(msg.from, to)); k > 1 {
				path = r.path(msg.from, to, anyPort(r.routes))
			}
			r.net.Send(fabric.Message{Src: msg.from, Dst: to, Bytes: msg.bytes, Path: path, Tag: int64(n)<<32 | int64(to)})
			continue
		}
		r.timers.Push(r.after(r.delay()), timer{kind: deliver, host: int32(to), n: n})
	}
}

// delay is that of one message.
func (r *run) delay() time.Duration {
	d := r.cfg.Delay
	if r.cfg.Jitter > 0 {
		d += time.Duration(r.delays.Int64N(int64(r.cfg.Jitter) + 1))
	}
	return d
}

// arrived is told of a message that has crossed the data fabric.
func (r *run) arrived(tag int64) {
	r.timers.Push(r.after(r.delay()), timer{kind: deliver, host: int32(tag & (1<<32 - 1)), n: int32(tag >> 32)})
}

// deliver gives message n to a host, or to all.
func (r *run) deliver(n int32, to int) {
	all := &r.messages.all
	msg := all.items[n] // a copy: what follows may send messages
	if to >= 0 {
		r.hear(&msg, &r.hosts[to])
		if all.items[n].left--; all.items[n].left == 0 {
			all.give(n)
		}
		return
	}
	all.give(n)
	for i := range r.hosts {
		if i != msg.from {
			r.hear(&msg, &r.hosts[i])
		}
	}
}

func (r *run) lost() bool { return r.cfg.Loss > 0 && r.losses.Float64() < r.cfg.Loss }

func (r *run) hear(msg *message, h *host) {
	r.steps++
	if r.lost() {
		r.res.Counts.Lost++
		return
	}
	now := r.now()
	h.table.Heard(now, h.wall(now), r.hosts[msg.from].id, &msg.m)
	r.changed(h)
}

// round has every host ask one other for all that it knows.
func (r *run) round() {
	if len(r.hosts) < 2 {
		return
	}
	for i := range r.hosts {
		of := r.delays.IntN(len(r.hosts) - 1)
		if of >= i {
			of++
		}
		if r.lost() {
			continue
		}
		n := r.messages.rounds.take()
		t := &r.messages.rounds.items[n]
		t.from, t.own = of, r.hosts[of].table.Section()
		t.sections = append(t.sections[:0], r.hosts[of].known...)
		r.timers.Push(r.after(r.delay()), timer{kind: section, host: int32(i), n: n})
	}
}

// merge takes in what a host has been told.
func (r *run) merge(n int32, h *host) {
	t := &r.messages.rounds.items[n]
	now := r.now()
	changed := false
	r.steps += len(t.sections)
	for i, s := range t.sections {
		if i == t.from {
			s = t.own
		}
		// One that is older than what is known already, or the same, says nothing new.
		if s == nil || i == h.index || h.known[i] != nil && s.Seq <= h.known[i].Seq {
			continue
		}
		h.known[i], changed = s, true
		h.table.Merge(now, h.wall(now), r.hosts[i].id, 1, s)
	}
	r.messages.rounds.give(n)
	if changed {
		r.changed(h)
	}
}

// startMice lets the first of the short flows come: together they have their share of the bytes, over the time in which
// transfers come.
func (r *run) startMice() error {
	if r.cfg.Mice.Share == 0 {
		return nil
	}
	var bytes int64
	for i := range r.w.Flows {
		bytes += r.w.Flows[i].Bytes
	}
	span := sim.Of(r.w.Flows[len(r.w.Flows)-1].At)
	count := r.cfg.Mice.Share * float64(bytes) / float64(max(1, r.cfg.Mice.Bytes/r.cfg.Scale))
	switch r.miceGap = float64(span) / count; {
	case span == 0:
		return errors.New("control: mice come over the time in which transfers come, and all of these come at once; leave mice out, or give transfers with different starts")
	case count > MaxMice:
		return fmt.Errorf("control: a share of %g in mice of %d bytes is %.0f of them; at most %d are simulated: give larger mice, a smaller share, or fewer transfers", r.cfg.Mice.Share, r.cfg.Mice.Bytes, count, MaxMice)
	case r.miceGap < float64(sim.Nanosecond):
		return fmt.Errorf("control: %.0f mice in the %v in which transfers come; give larger mice, a smaller share, or transfers over a longer time", count, span)
	}
	r.timers.Push(r.nextMouse(), timer{kind: mouse})
	return nil
}

// nextMouse is when another one comes.
func (r *run) nextMouse() sim.Time { return r.net.Now() + sim.Time(r.mice.ExpFloat64()*r.miceGap) }

// mouse starts one, between any two hosts. They come as long as transfers do.
func (r *run) mouse() {
	n := len(r.hosts)
	src := r.mice.IntN(n)
	dst := r.mice.IntN(n - 1)
	if dst >= src {
		dst++
	}
	if r.net.Topology().Connected(src, dst) {
		r.begin(-1, src, dst, max(1, r.cfg.Mice.Bytes/r.cfg.Scale), anyPort(r.mice), fabric.First)
		r.res.Counts.Mice++
	}
	r.timers.Push(r.nextMouse(), timer{kind: mouse})
}
