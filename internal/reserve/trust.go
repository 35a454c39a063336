package reserve

import (
	"fmt"
	"time"
)

// Mode says whether policy shoal has transfers wait for their turn, and if not, why not. The zero value is Waiting.
type Mode uint8

const (
	Waiting    Mode = iota
	Late            // the control delay is beyond Config.MaxDelay
	Stale           // the driver says that what is heard of the others is old
	Distrusted      // transfers took longer than predicted: see Config.MaxSlowdown and doubt.go
	Crowded         // MaxWaiters wait already
)

func (m Mode) String() string {
	switch m {
	case Waiting:
		return "waiting"
	case Late:
		return "least: messages are late"
	case Stale:
		return "least: the table is stale"
	case Distrusted:
		return "least: transfers take longer than predicted"
	case Crowded:
		return "least: too many wait"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Mode is what policy shoal does with a transfer that asks now.
func (t *Table) Mode(now time.Duration) Mode {
	switch {
	case t.stale:
		return Stale
	case t.delays.late:
		return Late
	case now < t.distrust || t.doubt > 0 && now < t.probation:
		return Distrusted
	case t.waiting()-len(t.ours) >= MaxWaiters:
		return Crowded
	}
	return Waiting
}

// Stale says whether what this peer hears of the others is too old to wait by: it has lost touch with them.
func (t *Table) Stale(stale bool) {
	if t.stale != stale {
		t.stale = stale
		t.version++
	}
}

// Schedule is what policy shoal does, and what it goes by.
type Schedule struct {
	Mode       Mode
	Waiters    int           // transfers of all peers that wait or are announced
	Own        int           // of this peer
	Delay      time.Duration // 99th percentile of the control delay, whole ms; 0 where nothing was heard yet
	Efficiency int64         // what moves of a NIC's nominal rate, in thousandths; 0: not learned yet
	Slowdown   int64         // transfers' times over the predicted ones, in thousandths: the own ones', or all others' where that is more
}

// Schedule tells it.
func (t *Table) Schedule(now time.Duration) Schedule {
	return Schedule{t.Mode(now), t.waiting(), len(t.ours), t.delays.p99(), t.efficiency * 1000 >> efficiencyBits,
		max(t.slow.permille(), t.othersSlow.permille())}
}

// window is how many of the last messages' delays count.
const window = 256

// delays are the last messages', in ms: how far the own wall clock was from the time in the stamp. That covers the way of a
// message, its time in queues, and what the two clocks differ. Nothing of it matters beyond what an uint16 holds.
type delays struct {
	ms     [window]uint16
	n, at  int
	beyond [2]int // of them: above the bound, above three quarters of it
	late   bool
}

// heard takes in one message's. Late begins where the 99th percentile is above the bound, and ends where it is below three
// quarters of it, so that it does not flap.
func (d *delays) heard(delay, bound time.Duration) {
	v := uint16(min(max(delay, 0)/time.Millisecond, 1<<16-1))
	hi := uint16(bound / time.Millisecond)
	lo := hi * 3 / 4
	count := func(v uint16, by int) {
		if v > hi {
			d.beyond[0] += by
		}
		if v > lo {
			d.beyond[1] += by
		}
	}
	if d.n == window {
		count(d.ms[d.at], -1)
	} else {
		d.n++
	}
	d.ms[d.at] = v
	d.at = (d.at + 1) % window
	count(v, 1)
	if d.n < minDelays {
		return
	}
	if rank := d.n / 100; d.late {
		d.late = d.beyond[1] > rank
	} else {
		d.late = d.beyond[0] > rank
	}
}

// minDelays is from how many messages on the percentile says anything.
const minDelays = 16

func (d *delays) p99() time.Duration {
	var over [window]uint16 // insertion keeps the greatest few in order
	k := d.n/100 + 1
	n := 0
	for _, v := range d.ms[:d.n] {
		i := n
		for ; i > 0 && over[i-1] < v; i-- {
			if i < k {
				over[i] = over[i-1]
			}
		}
		if i < k {
			over[i] = v
			n = min(n+1, k)
		}
	}
	if n < k {
		return 0
	}
	return time.Duration(over[k-1]) * time.Millisecond
}

// hearDelay measures the control delay by a stamp that is newer than all others of its owner, in a message before which none
// is missing: a renewal tells nothing, and where something is missing it may be one of that.
func (t *Table) hearDelay(o *owner, s Stamp, wall time.Duration) {
	if s <= o.stamp {
		return
	}
	o.stamp = s
	delay := wall - time.Duration(s.Milliseconds())*time.Millisecond
	if delay < 0 {
		delay = -delay
	} else {
		delay -= min(delay, time.Millisecond) // the stamp's is cut off
	}
	was := t.delays.late
	t.delays.heard(delay, t.cfg.MaxDelay)
	if t.delays.late != was {
		t.version++
	}
}

// The efficiency is kept in parts of 1 << efficiencyBits. Before anything is learned it is that of packets of 1,000 bytes with
// headers of 36.
const (
	efficiencyBits  = 20
	firstEfficiency = 1000 << efficiencyBits / 1036
)

// predict is how long a transfer will take, in us, at a nominal rate in bit/s.
func (t *Table) predict(bytes, rate int64) int64 {
	return max(1, min(lengthOf(bytes, t.expected(rate)), maxLength-t.overhead)+t.overhead)
}

// expected is the rate in bit/s that is expected of a nominal one.
func (t *Table) expected(rate int64) int64 {
	e := t.efficiency
	if e == 0 {
		e = firstEfficiency
	}
	return max(1, mulShift(rate, e))
}

func mulShift(a, b int64) int64 {
	return a>>efficiencyBits*b + a&(1<<efficiencyBits-1)*b>>efficiencyBits
}

const (
	minLearned     = 1000   // us that a transfer must have taken to tell anything
	slowest        = 4      // times its predicted time: the most that one transfer can count in the slowdown
	efficiencyUp   = 2      // a faster transfer than expected counts for so much of the difference,
	efficiencyDown = 32     // a slower one for so much: those that were disturbed are slower, and most are not
	overheadWeight = 16     // a short one counts for so much in what is added to all,
	maxOverhead    = 20_000 // and says at most so many us
	ownWeight      = 32     // transfers that the own slowdown remembers,
	theirWeight    = 64     // and that of all others'
)

// slowdown is how much longer than predicted transfers took: sums of both over the last of them, so that a long transfer
// counts for more than a short one, whose time is mostly that of its beginning.
type slowdown struct {
	took, predicted int64 // us
	n               int64
}

// permille is the slowdown in thousandths; 1000 where too few transfers tell.
func (s *slowdown) permille() int64 {
	if s.predicted == 0 {
		return 1000
	}
	return s.took * 1000 / s.predicted
}

func (s *slowdown) add(took, predicted, weight int64) {
	if s.n++; s.n > weight {
		s.took -= s.took / weight
		s.predicted -= s.predicted / weight
	}
	s.took += min(took, slowest*predicted)
	s.predicted += predicted
}

// mean is the predicted time of a transfer, in us.
func (s *slowdown) mean(weight int64) int64 { return s.predicted / max(1, min(s.n, weight)) }

// slowed takes what a transfer took, in us, and what was predicted of it, into a slowdown.
func (t *Table) slowed(now time.Duration, s *slowdown, took, predicted, weight int64) {
	s.add(took, predicted, weight)
	if s.n >= weight/2 && s.permille() > t.cfg.MaxSlowdown && now >= t.distrust {
		t.loseTrust(now, t.doubt)
	}
}

// learn compares a scheduled transfer that has ended with what was predicted of it.
func (t *Table) learn(now time.Duration, o *own) {
	took := (now - o.began).Microseconds() + 1 // rounded up: rather late than early
	if o.length == 0 || o.several || took < minLearned {
		return
	}
	nominal := lengthOf(o.total, o.rate)
	if nominal > maxLength || nominal > took+took/50 {
		return // it did not move all that it was to move
	}
	long := o.length >= t.slow.mean(ownWeight)
	if o.learned {
		t.slowed(now, &t.slow, took, o.length, ownWeight)
	}
	if o.disturbed {
		return
	}
	switch sample := (nominal - 1) << efficiencyBits / max(1, took-t.overhead); { // rounded down
	case t.efficiency == 0:
		t.efficiency = max(1, sample)
	case !long: // it says more of what a transfer takes whatever its length
		over := took - lengthOf(o.total, t.expected(o.rate))
		t.overhead += (max(0, min(over, maxOverhead)) - t.overhead) / overheadWeight
		if sample := (nominal - 1) << efficiencyBits / took; sample > t.efficiency {
			t.efficiency += (sample - t.efficiency) / efficiencyUp
		}
	case sample > t.efficiency:
		t.efficiency += (min(sample, 2*t.efficiency) - t.efficiency) / efficiencyUp
	default:
		t.efficiency = max(1, t.efficiency-(t.efficiency-sample)/efficiencyDown)
	}
}

// learnOf takes another peer's transfer that is over, by what its owner said of its end first and last: so that peers lose
// their trust together, and nobody waits for those who do not.
func (t *Table) learnOf(now time.Duration, at uint32) {
	if h := &t.held[at]; h.entry.Phase == Active && h.end-h.began >= 5*minLearned && h.end-h.began <= maxLength && h.entry.End > h.began {
		t.slowed(now, &t.othersSlow, h.entry.End-h.began, h.end-h.began, theirWeight)
	}
}

// distrustFor has least decide for Config.Distrust, and for twice as long as the last time where that was over for less
// than it had lasted.
func (t *Table) distrustFor(now time.Duration) {
	last := t.distrusted
	t.distrusted = t.cfg.Distrust
	if last > 0 && now-t.probation < last {
		t.distrusted = min(2*last, maxDistrust*t.cfg.Distrust)
	}
	t.distrust = now + t.distrusted
	t.probation = t.distrust + probation*t.distrusted
}

// maxDistrust bounds how many times Config.Distrust that becomes.
const maxDistrust = 32

// The predicted end is not looked at before a part of the bytes has moved, nor again before another part has: the beginning
// of a transfer tells little, and each correction is a message to everybody.
const foreseeParts = 8

// foresee is when a transfer that moves will end by what has moved of it, and whether that is far enough from what was said
// to say it anew.
func (t *Table) foresee(now, wall time.Duration, o *own) (end int64, wrong bool) {
	moved := o.total - o.left
	if o.length == 0 || moved <= 0 {
		return 0, false
	}
	if end, slow := t.slowSoFar(now, wall, o, moved); slow {
		return end, true
	}
	if o.foreseen == 0 { // the rate counts from here: how a transfer begins says nothing of it
		o.foreseen, o.first, o.firstAt = moved, moved, now
	}
	took := (now - o.firstAt).Microseconds()
	if moved-o.foreseen < o.total/foreseeParts || took <= 0 {
		return 0, false
	}
	o.foreseen = moved
	rest := lengthOf(o.left, max(1, lengthOf(moved-o.first, took))) // the rate in bit/s is the same quotient
	if rest > maxLength {
		return 0, false
	}
	end = wall.Microseconds() + rest
	off := end - o.entry.End
	if off < 0 {
		off = -off
	}
	return end, off*1000 > o.length*t.cfg.Correct
}
