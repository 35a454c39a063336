package node

import (
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// maxSlots bounds the set sections that all known documents have together.
const maxSlots = 1 << 15

// store keeps the elements of every document's set sections in the prefix index, and nowhere else. A slot is one section
// of one document. One that is given back may be used again at once: the index tells its lives apart.
type store struct {
	index *prefix.Index
	used  int // slots handed out so far
	free  []prefix.Slot
	text  map[peer.ID]prefix.Slot // of each document's text blocks
}

func newStore(x *prefix.Index) *store {
	return &store{index: x, text: make(map[peer.ID]prefix.Slot)}
}

// Open implements replica.Store.
func (s *store) Open(owner peer.ID, sec replica.Section) replica.Set {
	var slot prefix.Slot
	switch {
	case len(s.free) > 0:
		slot = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
	case s.used < maxSlots:
		slot = prefix.Slot(s.used)
		s.used++
	default:
		return nil
	}
	isText := sec == textBlocks
	if isText {
		s.text[owner] = slot
	}
	return &set{store: s, slot: slot, owner: owner, text: isText}
}

// Each implements replica.Store.
func (s *store) Each(sets []replica.Set, yield func(i int, e prefix.Element)) {
	slots := make([]prefix.Slot, len(sets))
	for i := range sets {
		slots[i] = sets[i].(*set).slot
	}
	s.index.EachOf(slots, func(i int, e prefix.Element) bool { yield(i, e); return true })
}

// set is one open set section.
type set struct {
	store *store
	slot  prefix.Slot
	owner peer.ID
	text  bool
}

func (t *set) Expect(next []prefix.Change) { t.store.index.Expect(next) }

func (t *set) Add(e prefix.Element) bool { return t.store.index.Add(t.slot, e) }
func (t *set) Remove(h prefix.Hash) bool { return t.store.index.Remove(t.slot, h) }
func (t *set) Has(h prefix.Hash) bool    { return t.store.index.Has(t.slot, h) }
func (t *set) Len() int                  { return t.store.index.Len(t.slot) }
func (t *set) Clear()                    { t.store.index.Clear(t.slot) }

func (t *set) Close() {
	t.store.index.Clear(t.slot)
	t.store.free = append(t.store.free, t.slot)
	if t.text && t.store.text[t.owner] == t.slot {
		delete(t.store.text, t.owner)
	}
}
