package wire

import (
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// mapStore is a replica.Store of maps.
type mapStore struct{}

type mapSet map[prefix.Hash]prefix.Element

func newStore() mapStore { return mapStore{} }

func (mapStore) Open(peer.ID, replica.Section) replica.Set { return make(mapSet) }

func (mapStore) Each(sets []replica.Set, yield func(int, prefix.Element)) {
	for i, s := range sets {
		for _, e := range s.(mapSet) {
			yield(i, e)
		}
	}
}

func (s mapSet) Add(e prefix.Element) bool {
	_, ok := s[e.Hash]
	s[e.Hash] = e
	return !ok
}

func (s mapSet) Remove(h prefix.Hash) bool { _, ok := s[h]; delete(s, h); return ok }
func (mapSet) Expect([]prefix.Change)      {}

func (s mapSet) Has(h prefix.Hash) bool { _, ok := s[h]; return ok }
func (s mapSet) Len() int               { return len(s) }
func (s mapSet) Close()                 { clear(s) }
