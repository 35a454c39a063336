package replica

import (
	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// Store holds the elements of every set section of every document. The node implements it over the prefix index.
type Store interface {
	// Open gives a new, empty set for one section of one document, nil where there is no room for one more. Docs opens a
	// section at most once at a time.
	Open(owner peer.ID, s Section) Set
	// Each yields every element of these sets once, in any order, with the position of its set in the list. It may be one
	// pass over everything that the store holds, so Docs calls it for many sets at once, and seldom. The sets do not
	// change meanwhile.
	Each(sets []Set, yield func(i int, e prefix.Element))
}

// ExpectAhead is after how many changes Docs tells a Set what comes next.
const ExpectAhead = 64

// Set is one open set of a Store. A hash determines its depth, so elements are the same where their hashes are.
type Set interface {
	// Expect says which changes come next, ExpectAhead of them at most: a Set that waits for memory at each can do that
	// for all of them at once. It may be ignored.
	Expect(next []prefix.Change)
	Add(e prefix.Element) bool // false: it was there
	Remove(h prefix.Hash) bool // false: it was not there
	Has(h prefix.Hash) bool
	Len() int
	Close() // empties it and gives it back: it is not used again
}
