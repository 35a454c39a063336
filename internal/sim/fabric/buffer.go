package fabric

import (
	"fmt"
	"math"

	"shoal/internal/sim"
)

// buffer is the shared memory of a switch, and who may have how much of it. All counts are of the bulk queues: what is
// strict is little, and is neither counted nor paused, as in the ns-3 family.
//
// While little waits in the whole switch, no port can be near its threshold, and nothing is counted by port. When more
// waits (crowded), the counts are made from the queues, and kept exactly: every packet that leaves is then an event, since
// it may end a pause.
type buffer struct {
	used     int64 // bytes that wait; more than in truth while links lag
	calm     int64 // up to here no port can reach its threshold
	exact    bool  // the following are kept, and those of ingress
	shared   int64 // bytes beyond the ports' reserves
	headroom int64 // bytes in the ports' headrooms
	pausing  int   // ports that have sent a pause
	space    int64 // memory that ports share
	out, in  []int32
}

// ingress is what a switch holds that came over one link.
type ingress struct {
	bytes    int64 // in the reserve and in shared memory
	headroom int64 // bytes that came after a pause
	limit    int64 // of headroom
	share    uint8 // the threshold is the free space >> share
	pausing  bool  // the sender was told to pause
}

// ecn is when a queue marks packets.
type ecn struct {
	min, max int64
	draws    uint64
}

func (b *buffer) threshold(in *ingress) int64 { return (b.space - b.shared) >> in.share }

// headroom of a port, in bytes. With little delay or large packets the family's formula loses packets: what comes after a
// port is full is the packet that filled it, what is sent while the pause waits for a packet and travels, and a packet that
// has begun.
func (c *Config) headroom(rate int64, delay sim.Time) int64 {
	perDelay := mulDiv(rate, int64(delay), bitTime)
	return max(c.Headroom*perDelay, 2*perDelay+4*c.longest())
}

// longest is the size of the largest packet that waits with data.
func (c *Config) longest() int64 {
	if c.MessagesWithData {
		return max(MaxMessage, int64(c.Payload)+HeaderBytes)
	}
	return int64(c.Payload) + HeaderBytes
}

func (n *Packets) newBuffers() error {
	n.buffers = make([]buffer, n.topology.Nodes())
	hostRate := int64(math.MaxInt64)
	for h := range n.topology.Hosts() {
		hostRate = min(hostRate, n.links[n.topology.Up(h)].rate)
	}
	for id := range n.links {
		l := &n.links[id]
		l.ecn.min, l.ecn.max = n.cfg.ecnThresholds(l.rate)
		n.buffers[l.node].out = append(n.buffers[l.node].out, int32(id))
		n.buffers[l.to].in = append(n.buffers[l.to].in, int32(id))
		in := &l.ingress
		if n.cfg.PFC && l.reverse != nobody {
			in.limit = n.cfg.headroom(l.rate, l.delay)
		}
		in.share = uint8(n.cfg.Share)
		for r := l.rate; r > hostRate && in.share > 0; r /= 2 {
			in.share--
		}
	}
	for i := range n.buffers {
		b := &n.buffers[i]
		b.space = n.cfg.Buffer
		most := uint8(0)
		for _, id := range b.in {
			in := &n.links[id].ingress
			b.space -= in.limit + n.cfg.Reserve
			most = max(most, in.share)
		}
		// If one port had everything, it would reach its threshold at bytes = (space - bytes) >> share. Two packets less,
		// for the one that comes and for rounding.
		parts := int64(1)<<most + 1
		b.calm = b.space/parts - 2*n.cfg.longest() - parts
		if i < n.topology.Hosts() {
			b.calm = math.MaxInt64
		} else if b.calm <= 0 && len(b.in) > 0 {
			return fmt.Errorf("fabric: Config.Buffer is %d bytes, of which headrooms and reserves of the switch behind %s leave %d to share: give %d",
				n.cfg.Buffer, n.topology.Links[b.in[0]].Name, b.space, n.cfg.Buffer-b.space+parts*(2*n.cfg.longest()+2*parts))
		}
	}
	return nil
}

// ecnThresholds has the family's table for 25, 40, 100, 200 and 400 Gb/s, and straight lines between and below; it stays
// as it is above. A slow link marks from four full packets on, at the earliest.
func (c *Config) ecnThresholds(rate int64) (from, all int64) {
	table := [...][2]float64{{0, 0}, {25e9, 0.25}, {40e9, 0.5}, {100e9, 1}, {200e9, 1.5}, {400e9, 2}, {math.MaxInt64, 2}}
	r, i := float64(rate), 1
	for r > table[i][0] {
		i++
	}
	a, b := table[i-1], table[i]
	part := a[1]
	part += float64((b[1] - a[1]) * ((r - a[0]) / (b[0] - a[0])))
	least := 4 * int64(c.Payload+HeaderBytes)
	from = max(int64(float64(c.ECNMin)*part), min(c.ECNMin, least))
	all = max(int64(float64(c.ECNMax)*part), from+min(c.ECNMax-c.ECNMin, 3*least))
	return from, all
}

// congested says whether a packet that leaves this link's queue is marked. Every link has draws of its own, so that what
// happens elsewhere changes nothing.
func (n *Packets) congested(l *link, id int32) bool {
	switch e := &l.ecn; {
	case l.bytes <= e.min:
		return false
	case l.bytes > e.max:
		return true
	default:
		e.draws++
		p := n.cfg.ECNProbability * float64(l.bytes-e.min) / float64(e.max-e.min)
		return unit(n.cfg.Seed, uint64(id), e.draws) < p
	}
}

// mix is a random number that belongs to its arguments: the finaliser of SplitMix64, over each.
func mix(seed uint64, values ...uint64) uint64 {
	z := seed
	for _, v := range values {
		z += 0x9E3779B97F4A7C15 + v
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
	}
	return z
}

// unit is one in [0, 1).
func unit(seed, a, b uint64) float64 { return float64(mix(seed, a, b)>>11) / (1 << 53) }

// crowded begins to count exactly, if the switch is as full as it seems.
func (n *Packets) crowded(node int32) {
	b := &n.buffers[node]
	for _, id := range b.out {
		n.catchUp(&n.links[id], id)
	}
	if b.used <= b.calm || b.exact {
		return
	}
	b.exact, b.shared, b.headroom = true, 0, 0
	for _, id := range b.in {
		n.links[id].ingress.bytes = 0
	}
	for _, id := range b.out {
		l := &n.links[id]
		q := &l.queue[bulk]
		for i := range q.len() {
			p := q.at(i)
			n.links[n.hops[p.hop()-1]].ingress.bytes += int64(p.size())
		}
		n.setEager(l, id, true)
	}
	for _, id := range b.in {
		b.shared += max(0, n.links[id].ingress.bytes-n.cfg.Reserve)
	}
}

// setEager makes the ends of a link's transmissions events, or not.
func (n *Packets) setEager(l *link, id int32, eager bool) {
	l.eager = eager || l.delay == 0
	l.slow = l.eager || l.paused || l.down
	if l.eager && (l.waiting > 0 || l.host != nobody && !l.idle) {
		n.remind(l, id)
	}
}

// admit finds room for a packet, and pauses the link that it came over where that is getting full.
func (n *Packets) admit(b *buffer, p packet) bool {
	from := n.hops[p.hop()-1]
	in := &n.links[from].ingress
	size := int64(p.size())
	if size+in.headroom > in.limit && size+max(0, in.bytes-n.cfg.Reserve) > b.threshold(in) {
		return false
	}
	switch over := in.bytes + size - n.cfg.Reserve; {
	case over <= 0:
		in.bytes += size
	case over > b.threshold(in):
		in.headroom += size
		b.headroom += size
	default:
		in.bytes += size
		b.shared += min(size, over)
	}
	if n.cfg.PFC && !in.pausing && (in.headroom > 0 || max(0, in.bytes-n.cfg.Reserve) >= b.threshold(in)) {
		n.tell(from, pause)
	}
	return true
}

// release gives a packet's room back, and ends the pause of the link that it came over.
func (n *Packets) release(b *buffer, p packet) {
	from := n.hops[p.hop()-1]
	in := &n.links[from].ingress
	size := int64(p.size())
	head := min(in.headroom, size)
	shared := min(size-head, max(0, in.bytes-n.cfg.Reserve))
	in.headroom -= head
	b.headroom -= head
	in.bytes -= size - head
	b.shared -= shared
	if in.pausing && in.headroom == 0 {
		if used := max(0, in.bytes-n.cfg.Reserve); used == 0 || used+n.cfg.ResumeBelow <= b.threshold(in) {
			n.tell(from, resume)
		}
	}
	if b.used < b.calm/2 && b.pausing == 0 && b.headroom == 0 {
		b.exact = false
		for _, id := range b.out {
			n.setEager(&n.links[id], id, false)
		}
	}
}

// tell sends a pause or a resume to the sender of a link.
func (n *Packets) tell(from int32, kind uint8) {
	l := &n.links[from]
	back := l.reverse
	if back == nobody || n.links[back].down {
		return
	}
	b := &n.buffers[l.to]
	if l.ingress.pausing = kind == pause; l.ingress.pausing {
		b.pausing++
		n.stats.Pauses++
	} else {
		b.pausing--
		n.stats.Resumes++
	}
	n.inject(kind)
	n.enqueue(&n.links[back], back, newPacket(kind, nobody, nowhere, l.flaps, PauseBytes))
}

// obey is the other end of tell: the sender of the link back is paused, or goes on.
func (n *Packets) obey(over int32, p packet) {
	id := n.links[over].reverse
	l := &n.links[id]
	if p.seq() != l.flaps {
		return // the link has been down since
	}
	n.settle(l, id)
	l.paused = p.kind() == pause
	l.slow = l.eager || l.paused || l.down
	if l.paused {
		return
	}
	if l.host != nobody {
		n.wakeCard(l, id)
	} else if l.waiting > 0 {
		n.wake(l, id)
	}
}
