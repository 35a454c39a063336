package fabric

import "fmt"

// lookEvery is how many events are between two looks of Config.Checks.
const lookEvery = 1 << 20

// fail remembers the first thing that is wrong.
func (n *Packets) fail(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf("fabric: at %v: %s", n.now, fmt.Sprintf(format, args...))
	}
}

// lookAround is Check, now and then.
func (n *Packets) lookAround() {
	n.nextLook = n.stats.Events + lookEvery
	if n.cfg.Checks {
		_ = n.Check()
	}
}

// Check says what is wrong: bytes or packets that are neither here nor there, packets of a flow on one path that overtook
// each other, losses in spite of PFC. What Packets saw happen it remembers; accounts are compared with all queues and wires.
func (n *Packets) Check() error {
	var present [kinds]int64
	inside := make([]int32, len(n.flows))
	messages := 0
	see := func(p packet) {
		present[p.kind()]++
		switch p.kind() {
		case data, ack, nack:
			inside[p.flow()]++
		case message:
			messages++
		}
	}
	used := make([]int64, len(n.buffers))
	for id := range n.links {
		l := &n.links[id]
		name := n.topology.Links[id].Name
		for i := range l.wire.len() {
			f := l.wire.at(i)
			see(f.packet)
			if i > 0 && f.at < l.wire.at(i-1).at || f.at < n.now {
				n.fail("link %s: a packet arrives at %d ps, before the one in front of it, or before now", name, f.at)
			}
		}
		bytes := int64(0)
		for q := range l.queue {
			for i := range l.queue[q].len() {
				p := *l.queue[q].at(i)
				see(p)
				if q == bulk {
					bytes += int64(p.size())
				}
			}
		}
		if waiting := l.queue[bulk].len() + l.queue[strict].len(); int(l.waiting) != waiting || l.bytes != bytes {
			n.fail("link %s: %d packets and %d bytes wait, and its account says %d and %d", name, waiting, bytes, l.waiting, l.bytes)
		}
		if l.host == nobody {
			used[l.node] += bytes
		}
	}
	for i := range n.buffers {
		if n.buffers[i].used != used[i] {
			n.fail("node %d: its queues have %d bytes, and its account says %d", i, used[i], n.buffers[i].used)
		}
		n.checkIngress(i)
	}
	for k := range present {
		if present[k] != n.census[k] {
			n.fail("%d packets of kind %d are in the network, and %d have come in and not gone", present[k], k, n.census[k])
		}
	}
	if s := &n.stats; s.Data != s.Delivered+n.lostData+present[data] {
		n.fail("%d data packets were sent, %d arrived, %d were lost and %d are under way", s.Data, s.Delivered, n.lostData, present[data])
	}
	if messages != len(n.messages)-len(n.vacant) {
		n.fail("%d messages are under way, and %d are known", messages, len(n.messages)-len(n.vacant))
	}
	for id := range n.flows {
		f := &n.flows[id]
		if inside[id] != f.inside {
			n.fail("flow %d: %d packets are in the network, and its account says %d", id, inside[id], f.inside)
		}
		if f.active && (f.acked > f.next || f.next > f.total || f.expected > f.total || f.acked > f.expected && (f.ways == nil || !f.ways.anyOrder)) {
			n.fail("flow %d: %d packets acknowledged, %d received, %d sent of %d", id, f.acked, f.expected, f.next, f.total)
		}
	}
	return n.err
}

// checkIngress compares what a switch counts by port with its queues, where it counts.
func (n *Packets) checkIngress(node int) {
	b := &n.buffers[node]
	if !b.exact {
		return
	}
	held := map[int32]int64{}
	for _, id := range b.out {
		q := &n.links[id].queue[bulk]
		for i := range q.len() {
			held[n.hops[q.at(i).hop()-1]] += int64(q.at(i).size())
		}
	}
	shared, headroom, pausing := int64(0), int64(0), 0
	for _, id := range b.in {
		in := &n.links[id].ingress
		if in.bytes+in.headroom != held[id] {
			n.fail("node %d: %d bytes came over %s, and its account says %d", node, held[id], n.topology.Links[id].Name, in.bytes+in.headroom)
		}
		shared += max(0, in.bytes-n.cfg.Reserve)
		headroom += in.headroom
		if in.pausing {
			pausing++
		}
	}
	if shared != b.shared || headroom != b.headroom || pausing != b.pausing || shared > b.space {
		n.fail("node %d: ports hold %d shared bytes of %d and %d of headroom, and %d pause; its account says %d, %d and %d",
			node, shared, b.space, headroom, pausing, b.shared, b.headroom, b.pausing)
	}
}
