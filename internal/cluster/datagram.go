package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"shoal/internal/peer"
)

// MaxDatagram bounds a datagram, in bytes: with the headers of the gossip and its encryption it fits one packet.
const MaxDatagram = 1200

// What a gossip user message is. Unknown ones are ignored, so that later versions may add some.
const (
	sayDatagram = 1 // the Handler's
	sayBye      = 2 // the sender leaves; what would be its last gossip does not say so
)

// appendSay begins a user message: what it is, and who says it.
func appendSay(b []byte, what byte, from *Member) []byte {
	b = append(b, what)
	b = binary.LittleEndian.AppendUint64(b, from.Incarnation)
	b = append(b, byte(len(from.ID)))
	return append(b, from.ID...)
}

// cutSay takes a user message apart. It comes from the network.
func cutSay(b []byte) (what byte, id peer.ID, incarnation uint64, rest []byte, err error) {
	if len(b) < 10 {
		return 0, "", 0, nil, errors.New("cluster: datagram cut off")
	}
	name, rest, ok := cutField(b[9:], peer.MaxID)
	if !ok {
		return 0, "", 0, nil, errors.New("cluster: datagram cut off in the ID")
	}
	if len(rest) > MaxDatagram {
		return 0, "", 0, nil, fmt.Errorf("cluster: datagram of %d bytes", len(rest))
	}
	return b[0], peer.ID(name), binary.LittleEndian.Uint64(b[1:]), rest, nil
}

// Broadcast sends b to every live peer, best effort. b is at most MaxDatagram bytes, and not kept.
func (c *Cluster) Broadcast(b []byte) {
	if len(b) > MaxDatagram {
		c.count.datagramsLost.Add(1)
		return
	}
	c.say(sayDatagram, b)
}

// say sends a user message to every live peer.
func (c *Cluster) say(what byte, b []byte) {
	msg := append(appendSay(nil, what, &c.self), b...)
	for _, r := range c.members.all() {
		c.send(r, msg)
	}
}

// Send sends b to one live peer, best effort.
func (c *Cluster) Send(to peer.ID, b []byte) error {
	if len(b) > MaxDatagram {
		return fmt.Errorf("cluster: datagram of %d bytes; the limit is %d", len(b), MaxDatagram)
	}
	r := c.members.get(to)
	if r == nil {
		return fmt.Errorf("%w: %s", ErrUnknownPeer, to)
	}
	return c.send(r, append(appendSay(nil, sayDatagram, &c.self), b...))
}

func (c *Cluster) send(r *remote, msg []byte) error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if err := c.deliver(r.life, msg); err != nil {
		c.count.datagramsLost.Add(1)
		return fmt.Errorf("cluster: datagram to %s: %w", r.life.ID, err)
	}
	c.count.datagramsOut.Add(1)
	return nil
}

// deliver sends over the control network where both sides have one, else by the gossip.
func (c *Cluster) deliver(l *life, msg []byte) error {
	if c.control != nil && l.ControlAddr != "" && msg[0] == sayDatagram {
		return c.control.send(l.ControlAddr, msg)
	}
	return c.ml.SendBestEffort(&l.node, msg)
}

// delegate is what memberlist asks of its user besides events.
type delegate struct{ c *Cluster }

func (d delegate) NodeMeta(limit int) []byte {
	b := appendMeta(nil, &d.c.self)
	if len(b) > limit {
		panic(fmt.Sprintf("cluster: metadata of %d bytes", len(b))) // Start has bounded its parts
	}
	return b
}

// NotifyMsg takes in one user message. memberlist may reuse b afterwards, and waits.
func (d delegate) NotifyMsg(b []byte) { d.c.said(b) }

// said takes in one user message, of the gossip or of the control network.
func (c *Cluster) said(b []byte) {
	what, id, inc, rest, err := cutSay(b)
	if err != nil {
		c.refusedAddr("gossip", err)
		return
	}
	m := c.members
	m.mu.Lock()
	r := m.peers[id]
	var l *life
	if i := slices.IndexFunc(m.lives[id], func(l *life) bool { return l.Incarnation == inc }); i >= 0 {
		l = m.lives[id][i]
	}
	if l != nil && what == sayBye {
		l.leaving = true
	}
	m.mu.Unlock()
	if what != sayDatagram || r == nil || r.life != l || c.ctx.Err() != nil {
		return
	}
	c.count.datagramsIn.Add(1)
	c.tell(func(h Handler) { h.Datagram(id, slices.Clone(rest)) })
}

// memberlist's own broadcasts and state are enough: these three stay empty.

func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}
