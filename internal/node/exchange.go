package node

import (
	"cmp"
	"slices"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// Start makes the first message of a round of anti-entropy.
func (n *Node) Start(now time.Duration) *replica.Exchange {
	if n.dirty {
		n.publish(now)
	}
	return n.docs.Start(now)
}

// Answer takes in a message of a round and gives the answer, nil where none is to be sent.
func (n *Node) Answer(now time.Duration, from peer.ID, in *replica.Exchange) *replica.Exchange {
	if n.dirty {
		n.publish(now)
	}
	var out *replica.Exchange
	out, n.events = n.docs.Answer(from, in, now, n.events[:0])
	recalled := false
	for _, e := range n.events {
		switch e.Outcome {
		case replica.Applied, replica.Diverged, replica.OverLimit:
			n.refresh(now, e.Owner)
		case replica.Recalled:
			recalled = true
		}
	}
	if recalled { // with all that the message brought of it
		n.recall(now)
	}
	return out
}

// refresh takes what a document says now into the record of its owner.
func (n *Node) refresh(now time.Duration, id peer.ID) {
	if id == n.self {
		return
	}
	stamp, ok := n.docs.Stamp(id)
	if !ok { // dropped at a limit: nothing is known of the peer any more
		if m := n.members[id]; m != nil {
			m.info, m.load, m.hasSlot = nil, nil, false
			n.generation++
		}
		return
	}
	m := n.member(id)
	if m.incarnation < stamp.Incarnation { // its new life's document is here before membership has told
		m.incarnation = stamp.Incarnation
		m.overlay = overlay{}
	}
	if info, _ := n.docs.Content(id, infoSection).(*peer.Info); info != m.info {
		m.info = info
		n.generation++
	}
	n.mergeTable(now, id, stamp.Incarnation)
	if m.loadStamp.Less(stamp) {
		m.load, _ = n.docs.Content(id, loadSection).(*peer.Load)
		m.loadStamp, m.loadAt = stamp, now
		m.overlay.covered(stamp)
	}
	n.refreshSlot(m)
}

func (n *Node) refreshSlot(m *member) { m.slot, m.hasSlot = n.store.text[m.id] }

// Coming back. An agent that restarts beside a warm engine takes its own old document over: from its state file (Restore)
// or from a peer that has kept it. Either is believed only where the engine's epoch says that it is still the same engine,
// and only once that engine has been heard.

// Restore gives the node what its state file holds: the epoch of the engine then, and its blocks, first used ones first.
// Call it before the first EngineUp; the peers' copies are not asked for then.
func (n *Node) Restore(e peer.Epoch, blocks []prefix.Element) {
	n.former = &former{epoch: e, blocks: blocks}
	n.docs.EndRecall()
}

// former is what an earlier life of this agent knew.
type former struct {
	epoch  peer.Epoch
	blocks []prefix.Element
}

func (n *Node) recall(now time.Duration) {
	doc := n.docs.Recalled()
	if doc == nil || n.former != nil {
		return
	}
	f := &former{}
	for _, v := range doc.Values {
		if info, ok := v.Content.(*peer.Info); ok && v.Section == infoSection {
			f.epoch = info.Epoch
		}
	}
	for _, s := range doc.Sets {
		if s.Section != textBlocks {
			continue
		}
		for _, c := range s.Ops {
			f.blocks = append(f.blocks, c.Element)
		}
	}
	// In the order of their hashes, a tree with less room would take every other one. The deepest go without harm.
	slices.SortStableFunc(f.blocks, func(a, b prefix.Element) int { return cmp.Compare(a.Depth, b.Depth) })
	n.former = f
	n.docs.EndRecall()
	n.adopt(now)
}

// adopt takes the former life's blocks over where the engine has been heard and is the same.
func (n *Node) adopt(now time.Duration) {
	f := n.former
	if f == nil || !n.heardEngine || n.adoptDone || f.epoch != (peer.Epoch{}) && n.firstEpoch == (peer.Epoch{}) {
		return // nothing to take over, or nothing yet to tell whether it is the same engine
	}
	n.adoptDone = true
	n.former = nil
	if !f.epoch.Same(n.firstEpoch) || n.count.EngineRestarts > 0 {
		n.count.AdoptRefused++
		return
	}
	n.changes = n.changes[:0]
	for _, e := range f.blocks {
		if n.tree.Adopt(e) {
			n.changes = append(n.changes, prefix.Change{Element: e})
		}
	}
	n.count.Adopted += int64(len(n.changes))
	n.apply()
}

// State is what a state file keeps: the engine's epoch and the blocks believed to be in its cache, least recently used
// first. ok is false where nothing is known of the engine.
func (n *Node) State() (e peer.Epoch, blocks []prefix.Element, ok bool) {
	if !n.heardEngine {
		return peer.Epoch{}, nil, false
	}
	blocks = make([]prefix.Element, 0, n.tree.Len())
	n.tree.Each(func(e prefix.Element) bool { blocks = append(blocks, e); return true })
	return n.epoch, blocks, true
}
