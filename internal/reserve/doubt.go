package reserve

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"shoal/internal/ecmp"
)

// Where the map of the paths is wrong, or a path carries what reserves nothing, what moves alone by all that is known is slow all
// the same. With a right map next to nothing is, however late or lost messages are; so a few such transfers are enough for
// distrust, and it does not end by the time alone: they are looked at in the fallback too.
//
// It is a sequential test: one that is slow adds slowWeighs to the doubt, one that is not takes 1 away, and distrustAt ends the
// waiting. In the fallback doubtLeft has to go first; where too few move alone for that, Config.Distrust's time and probation
// times as much ends it. In that time a single slow one is enough to fall back again.
const (
	slowFor    = 1500 // thousandths of the predicted time
	fineFor    = 1250
	slowWeighs = 8
	distrustAt = 20
	doubtLeft  = 4
	maxDoubt   = 64
	probation  = 3
	// minSince is from how many us on the beginning of a transfer tells that it is slow, and earliest from which part of its
	// predicted time.
	minSince = 20_000
	earliest = 4
)

// testify takes in one that moved alone. That the same end is slow again says something of
// that end, and not of the paths; and where messages of many are missing it may not have been alone.
func (t *Table) testify(now time.Duration, src, dst *nic, slow bool) {
	if !slow {
		t.doubt = max(0, t.doubt-1)
		return
	}
	if t.cfg.MaxSlowdown >= slowest*1000 || t.gaps*4 > len(t.owners) || src == t.slowEnds[0] || dst == t.slowEnds[1] {
		return
	}
	t.slowEnds = [2]*nic{src, dst}
	t.doubt = min(t.doubt+slowWeighs, maxDoubt)
	if t.doubt >= distrustAt && t.Mode(now) != Distrusted {
		t.loseTrust(now, doubtLeft)
	}
}

// loseTrust has least decide for a while.
func (t *Table) loseTrust(now time.Duration, doubt int) {
	t.slow, t.othersSlow, t.doubt = slowdown{}, slowdown{}, doubt
	t.distrustFor(now)
	t.stats.Distrusts++
	t.version++
}

// attest judges an own transfer that has ended.
func (t *Table) attest(now time.Duration, o *own) {
	took := (now - o.began).Microseconds()
	switch {
	case !o.alone || o.foretold < minLearned || took < o.foretold/2:
	case took <= o.foretold*fineFor/1000:
		if t.aloneOwn(o) {
			t.testify(now, t.selfNIC, o.nic, false)
		}
	case took > o.foretold*slowFor/1000 && t.undisturbed(t.selfNIC, o.nic, o.set.paths[o.path].Links, o.promised, nil, o):
		t.testify(now, t.selfNIC, o.nic, true)
	}
}

// slowSoFar judges one that moves, and says when it will end if it goes on like that.
func (t *Table) slowSoFar(now, wall time.Duration, o *own, moved int64) (end int64, slow bool) {
	since := (now - o.began).Microseconds()
	if !o.alone || since < max(o.foretold/earliest, minSince) || moved*slowFor >= mulDiv(o.total, since, o.foretold)*1000 ||
		!t.undisturbed(t.selfNIC, o.nic, o.set.paths[o.path].Links, o.promised, nil, o) {
		return 0, false
	}
	o.alone = false
	t.testify(now, t.selfNIC, o.nic, true)
	rest := lengthOf(o.left, max(1, lengthOf(moved, since)))
	return wall.Microseconds() + rest, rest <= maxLength
}

// mulDiv is a*b/c.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// witness judges another peer's transfer by when its release is heard: what that leaves open counts for nothing.
func (t *Table) witness(now, wall time.Duration, h *held) {
	predicted, known := h.foretold()
	if !known {
		return
	}
	took, off := wall.Microseconds()-h.began, t.delays.p99().Microseconds()+1000
	switch {
	case took < predicted*fineFor/1000+off:
		if alone(h.owner.nic, h.nic, h.links[:len(h.entry.Links)]) {
			t.testify(now, h.owner.nic, h.nic, false)
		}
	case took-off > predicted*slowFor/1000 && t.undisturbed(h.owner.nic, h.nic, h.entry.Links, h.end, h, nil):
		t.testify(now, h.owner.nic, h.nic, true)
	}
}

// suspect judges one whose end has been said anew.
func (t *Table) suspect(now time.Duration, h *held) {
	if predicted, known := h.foretold(); known && h.entry.End-h.began > predicted*slowFor/1000 && t.undisturbed(h.owner.nic, h.nic, h.entry.Links, h.end, h, nil) {
		h.alone = false
		t.testify(now, h.owner.nic, h.nic, true)
	}
}

// undisturbed reports whether nobody but the given transfer is known to take any of this who began before it was to end: who
// comes after that comes because it is late.
func (t *Table) undisturbed(src, dst *nic, links []ecmp.LinkID, end int64, but *held, own *own) bool {
	meets := func(s, d *nic, other []ecmp.LinkID) bool {
		return s == src || d == dst || slices.ContainsFunc(other, func(l ecmp.LinkID) bool { return slices.Contains(links, l) })
	}
	for _, i := range t.active {
		if h := &t.held[i]; h != but && h.began < end && meets(h.owner.nic, h.nic, h.entry.Links) {
			return false
		}
	}
	for i := range t.own {
		if o := &t.own[i]; o != own && o.live && o.entry.Phase == Active && o.entry.Stamp.Milliseconds()*1000 < end && meets(t.selfNIC, o.nic, o.entry.Links) {
			return false
		}
	}
	return true
}

// foretold is how long it was said that another peer's transfer would take, in us. Of the first one of its owner nothing is:
// it may not have known what its NIC can do.
func (h *held) foretold() (us int64, known bool) {
	us = h.end - h.began
	return us, h.entry.Phase == Active && h.alone && h.owner.taught && us >= 5*minLearned && us <= maxLength
}

func (t *Table) aloneOwn(o *own) bool {
	return alone(t.selfNIC, o.nic, o.set.links(o.path)) && alone(t.selfNIC, o.nic, o.set.common)
}

// alone reports whether only one transfer is known to take these.
func alone(src, dst *nic, links []*link) bool {
	return src.sends == 1 && dst.receives == 1 && !slices.ContainsFunc(links, func(l *link) bool { return l.flows > 1 })
}
