package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/memberlist"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// life is one start of one agent, as long as the gossip holds it for alive. An agent that was killed and came back has two
// lives for a while, until the first one is found dead; two agents under one ID have two for good.
type life struct {
	Member
	name    string
	node    memberlist.Node // a copy: where its gossip is
	leaving bool            // it said that it goes
	told    bool            // that it shares no version with this peer, or has its ID, is known
	gone    bool            // it did not answer for itself when another life of its ID was there
	twin    bool            // another agent of its ID was there first, and answers
}

func (l *life) String() string {
	return fmt.Sprintf("%s (incarnation %x, peer port %s, gossip %s)", l.ID, l.Incarnation, l.PeerAddr, l.node.Address())
}

// members is the table of lives and of the peers made of them. It takes in the gossip's news at once, whatever the
// rest of the cluster is doing, and is level-triggered: news only marks an ID, and one worker brings what the Handler
// was told in line with the table. So it is bounded by the number of members, and news may come in any order.
type members struct {
	mu    sync.Mutex
	lives map[peer.ID][]*life
	count int                  // of all lives
	peers map[peer.ID]*remote  // what the Handler was told
	dirty map[peer.ID]struct{} // IDs to look at
	left  map[peer.ID]bool     // whether the last life that ended said so
	busy  map[peer.ID]bool     // IDs about which a check is on its way
	wake  chan struct{}
}

func newMembers() *members {
	return &members{lives: map[peer.ID][]*life{}, peers: map[peer.ID]*remote{}, dirty: map[peer.ID]struct{}{},
		left: map[peer.ID]bool{}, busy: map[peer.ID]bool{}, wake: make(chan struct{}, 1)}
}

// mark asks the worker to look at an ID. m.mu is held.
func (m *members) mark(id peer.ID) {
	m.dirty[id] = struct{}{}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// find gives the life of a gossip name, nil where there is none. m.mu is held.
func (m *members) find(name string) *life {
	id, _, _ := strings.Cut(name, "@")
	for _, l := range m.lives[peer.ID(id)] {
		if l.name == name {
			return l
		}
	}
	return nil
}

// get gives a peer by its ID, nil where none is up.
func (m *members) get(id peer.ID) *remote {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[id]
}

// all gives the peers, by ID.
func (m *members) all() []*remote {
	m.mu.Lock()
	all := make([]*remote, 0, len(m.peers))
	for _, r := range m.peers {
		all = append(all, r)
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b *remote) int { return cmp.Compare(a.life.ID, b.life.ID) })
	return all
}

// gossipAddrs are the addresses at which somebody is alive.
func (m *members) gossipAddrs() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	addrs := make(map[string]bool, m.count)
	for _, lives := range m.lives {
		for _, l := range lives {
			addrs[l.node.Address()] = true
		}
	}
	return addrs
}

// events is what memberlist calls, under its own lock: nothing here may call memberlist back, or wait.
type events struct{ c *Cluster }

// NotifyAlive refuses members that cannot be, before memberlist spreads them.
func (e events) NotifyAlive(n *memberlist.Node) error {
	if n.Name == e.c.self.gossipName() {
		return nil
	}
	mem, err := decodeMeta(n.Meta)
	if err == nil && mem.gossipName() != n.Name {
		err = fmt.Errorf("cluster: gossip name %.80q with the metadata of %s", n.Name, mem.gossipName())
	}
	if err != nil {
		e.c.refusedAddr(n.Address(), err)
		return err
	}
	m := e.c.members
	m.mu.Lock()
	full := m.count >= e.c.cfg.Limits.Members && m.find(n.Name) == nil
	m.mu.Unlock()
	if full {
		err = fmt.Errorf("cluster: the shoal has %d members, the limit", e.c.cfg.Limits.Members)
		e.c.refusedPeer(mem.ID, n.Address(), err)
	}
	return err
}

func (e events) NotifyJoin(n *memberlist.Node) {
	mem, err := decodeMeta(n.Meta)
	if err != nil || n.Name == e.c.self.gossipName() {
		return // NotifyAlive has refused it; or it is this peer itself
	}
	l := &life{Member: mem, name: n.Name, node: *n}
	l.node.Addr, l.node.Meta = slices.Clone(n.Addr), nil
	m := e.c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.find(n.Name) == nil {
		m.lives[mem.ID] = append(m.lives[mem.ID], l)
		m.count++
	}
	m.mark(mem.ID)
}

func (e events) NotifyLeave(n *memberlist.Node) {
	m := e.c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(n.Name)
	if l == nil {
		return
	}
	m.lives[l.ID] = slices.DeleteFunc(m.lives[l.ID], func(x *life) bool { return x == l })
	m.count--
	if len(m.lives[l.ID]) == 0 {
		delete(m.lives, l.ID)
	}
	m.left[l.ID] = l.leaving
	if !l.leaving {
		e.c.lost.add(l.node.Address())
		select {
		case e.c.rejoin <- struct{}{}:
		default:
		}
	}
	m.mark(l.ID)
}

// NotifyUpdate has nothing to do: nothing in the metadata changes during a life.
func (e events) NotifyUpdate(*memberlist.Node) {}

// watchMembers is the worker that brings the Handler in line with the table.
func (c *Cluster) watchMembers() {
	defer c.wg.Done()
	for {
		select {
		case <-c.members.wake:
		case <-c.ctx.Done():
			return
		}
		for c.ctx.Err() == nil {
			id, ok := c.members.take()
			if !ok {
				break
			}
			c.reconcile(id)
		}
	}
}

// take gives one marked ID, the least, so that the order is the same every time.
func (m *members) take() (peer.ID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var least peer.ID
	for id := range m.dirty {
		if least == "" || id < least {
			least = id
		}
	}
	delete(m.dirty, least)
	return least, least != ""
}

// reconcile tells the Handler what has become of one ID.
func (c *Cluster) reconcile(id peer.ID) {
	if id == c.self.ID {
		c.lookAtTwins()
		return
	}
	m := c.members
	m.mu.Lock()
	cur := m.peers[id]
	want, holder := m.choose(id, cur)
	if holder != nil && !m.busy[id] {
		m.busy[id] = true
		c.wg.Add(1)
		go c.contest(holder)
	}
	left := m.left[id]
	if len(m.lives[id]) == 0 {
		delete(m.left, id)
	}
	m.mu.Unlock()
	if want != nil && !c.common(want) {
		want = nil
	}
	switch {
	case want == nil && cur == nil, want != nil && cur != nil && cur.life == want:
	case want == nil:
		m.setPeer(id, nil)
		cur.shut()
		c.log.Debug("cluster: peer down", "peer", id, "left", left)
		c.h.PeerDown(id, left)
	default:
		r := newRemote(c, want)
		m.setPeer(id, r)
		if cur != nil {
			cur.shut()
		}
		c.log.Debug("cluster: peer up", "peer", id, "incarnation", want.Incarnation, "addr", want.PeerAddr)
		c.h.PeerUp(want.Member)
		c.wg.Add(1)
		go c.firstRTT(r)
		c.rounds.now(r)
	}
}

func (m *members) setPeer(id peer.ID, r *remote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r == nil {
		delete(m.peers, id)
		return
	}
	m.peers[id] = r
}

// choose says which life of an ID is the peer. Where several claim it, want is the one that was it before, if any, and
// holder the one that has to answer for itself: that one, or else the eldest. m.mu is held.
func (m *members) choose(id peer.ID, cur *remote) (want, holder *life) {
	open := m.open(id)
	if len(open) == 0 {
		// Whoever was passed over may have it again: the others are no more.
		for _, l := range m.lives[id] {
			l.gone, l.twin = false, false
		}
		open = m.open(id)
	}
	if len(open) == 0 {
		return nil, nil
	}
	if len(open) == 1 {
		return open[0], nil
	}
	for _, l := range open {
		if cur != nil && l == cur.life {
			return l, l
		}
	}
	return nil, open[0]
}

// open are the lives of an ID that may claim it, the eldest first. Of two at one address the elder is over: nobody can
// listen where somebody else does. m.mu is held.
func (m *members) open(id peer.ID) []*life {
	var open []*life
	for _, l := range m.lives[id] {
		for _, o := range m.lives[id] {
			if o.PeerAddr == l.PeerAddr && o.Incarnation > l.Incarnation {
				l.gone = true
			}
		}
		if !l.gone && !l.twin {
			open = append(open, l)
		}
	}
	slices.SortFunc(open, func(a, b *life) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	return open
}

// contest asks the holder of an ID whether it is still there, now that others claim the ID too.
func (c *Cluster) contest(holder *life) {
	defer c.wg.Done()
	id := holder.ID
	there := c.answers(holder)
	var twins []*life
	m := c.members
	m.mu.Lock()
	delete(m.busy, id)
	if there {
		for _, l := range m.open(id) {
			if l != holder {
				l.twin = true
				twins = append(twins, l)
			}
		}
	} else {
		holder.gone = true
	}
	m.mark(id)
	m.mu.Unlock()
	for _, l := range twins {
		c.refusedPeer(id, l.node.Address(), twinError(holder.String(), l.String()))
	}
}

// common reports whether a life speaks a version that this peer speaks too. Where it does not it is told of once.
func (c *Cluster) common(l *life) bool {
	if _, ok := wire.Negotiate(l.MinVersion, l.MaxVersion); ok {
		return true
	}
	m := c.members
	m.mu.Lock()
	told := l.told
	l.told = true
	m.mu.Unlock()
	if !told {
		c.refusedPeer(l.ID, l.node.Address(), fmt.Errorf("cluster: no version in common: %v speaks %d to %d, %s %d to %d", l,
			l.MinVersion, l.MaxVersion, c.self.ID, c.self.MinVersion, c.self.MaxVersion))
	}
	return false
}

// lookAtTwins finds out about lives that have this peer's own ID.
func (c *Cluster) lookAtTwins() {
	m := c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lives[c.self.ID] {
		if !l.told {
			l.told = true
			c.wg.Add(1)
			go c.twins(l)
		}
	}
}

func twinError(first, second string) error {
	return fmt.Errorf("cluster: two agents have one ID: %s was there first, so that %s is refused; give one of them another id", first, second)
}

// udpAddr is where a life's gossip is.
func (l *life) udpAddr() net.Addr { return &net.UDPAddr{IP: l.node.Addr, Port: int(l.node.Port)} }
