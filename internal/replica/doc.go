// Package replica keeps the documents by which peers know each other, and makes them equal everywhere.
//
// Every peer publishes one document about itself, and only it writes it; everyone else holds a read-only replica. So no
// two writers ever conflict: of two states of one document the one with the greater Stamp (incarnation, version) is
// right, and a merge is "take the greater". A document is a list of sections: value sections, each replaced whole and
// identified by the version that wrote it, and set sections, whose elements live in a Store (the node backs it with the
// prefix index, so that the index is the only copy).
//
// What travels is a Delta: either the changes from one version to another, or, with From 0, a complete copy. Deltas are
// immutable once made and shared by pointer: within one process sixteen peers hold one and the same delta in their logs.
// A round of anti-entropy is at most four Exchange messages (see Exchange); Docs.Start makes the first, Docs.Answer all
// others. Everybody may relay everybody's document, unchanged; nobody can overwrite its owner's.
//
// It is not a membership protocol (the node says who is Alive and who is Dead), knows no encoding (package wire does),
// and does not know what it carries. The main type is Docs. It is pure: no goroutine, lock, clock or random number;
// `now` is the local monotonic time since the agent's start.
//
// Invariants: the same stamp means the same content (a digest carried by every delta checks that); a complete copy is
// applied as a whole or not at all; applying is idempotent, and for any set of deltas the result does not depend on
// their order once anti-entropy has run; every table has a limit in Limits or in a constant below.
//
// The scheme is that of version vectors with a single writer each, as in Scuttlebutt (van Renesse et al., "Efficient
// Reconciliation and Flow Control for Anti-Entropy Protocols", LADIS 2008); the buckets of digests are the leaves of a
// two-level Merkle tree, as in Dynamo (SOSP 2007).
package replica

import (
	"cmp"
	"fmt"
	"math/bits"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// The limits that belong to the protocol, so that both sides know them and a delta always fits one frame.
const (
	MaxOps      = 32768             // operations on sets in one delta, or elements in one part of a complete copy
	MaxValues   = 16                // values in one delta or part
	MaxParts    = 32                // parts of one complete copy
	MaxElements = MaxOps * MaxParts // elements of one document, all sections together
	MaxSections = 64                // sections of one document
	MaxName     = 256               // bytes of a section's model or tokeniser
	MaxRows     = 4096              // documents in one summary
	MaxTrees    = 64                // digest trees in one message
	Buckets     = 256               // leaves of a digest tree
)

// Kind says what a section carries. 16 to 31 are sets of blocks; all others are values. Kinds that this program does not
// know are kept and relayed.
type Kind uint8

const (
	KindInfo         Kind = 1  // value: *peer.Info
	KindLoad         Kind = 2  // value: *peer.Load
	KindTextBlocks   Kind = 16 // set: text blocks in the engine's cache
	KindTokenBlocks  Kind = 17 // set, foreseen: token blocks
	KindReservations Kind = 32 // value, foreseen: paths that the peer holds
)

// IsSet reports whether sections of this kind are sets.
func (k Kind) IsSet() bool { return 16 <= k && k <= 31 }

// Section names one section of a document. Value sections about the peer as a whole leave all but Kind empty.
type Section struct {
	Kind      Kind
	Model     string // at most MaxName bytes
	Tokeniser string // at most MaxName bytes; empty for text blocks
	BlockSize uint32 // bytes of a text block, tokens of a token block
}

// Compare is the total order in which sections are kept and sent.
func (s Section) Compare(t Section) int {
	return cmp.Or(cmp.Compare(s.Kind, t.Kind), cmp.Compare(s.Model, t.Model), cmp.Compare(s.Tokeniser, t.Tokeniser),
		cmp.Compare(s.BlockSize, t.BlockSize))
}

func (s Section) String() string {
	return fmt.Sprintf("%d/%s/%s/%d", s.Kind, s.Model, s.Tokeniser, s.BlockSize)
}

// Value is one value section at one version, or the removal of a section (of a set too).
type Value struct {
	Section Section
	Version uint64 // that wrote it
	// Content is what the owner published; nobody changes it. Nil: the section is gone.
	Content any
	// Raw is the encoding that came from the network, and is relayed as it came, fields that this program does not know
	// included; nil for what was published in this process.
	Raw []byte
}

// SetOps is what happened to one set section, in order.
type SetOps struct {
	Section Section
	// Reset: the set is emptied before Ops. It has no meaning in a complete copy, which always lists whole sections.
	Reset bool
	// Patch, in a complete copy with a Base: Ops lists only the buckets marked here, and the others stay as they are.
	Patch *Marks
	Ops   []prefix.Change
}

// Marks is a set of buckets.
type Marks [Buckets / 64]uint64

// Has reports whether bucket b is marked.
func (m *Marks) Has(b uint8) bool { return m[b>>6]>>(b&63)&1 != 0 }

// Add marks bucket b.
func (m *Marks) Add(b uint8) { m[b>>6] |= 1 << (b & 63) }

func (m *Marks) count() int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// Delta carries one document from version From to version To of one incarnation. It is immutable once made, and shared
// by pointer. It may be applied to any version in [From, To): the operations name elements, so doing the first of them
// twice changes nothing.
//
// With From 0 it is a complete copy at version To, in Parts parts (1 for most). Its values in order of section are cut
// after every MaxValues, and its elements in order of section and hash after every MaxOps, so that parts of one copy from
// different peers fit together. With a Base as well it is a patch: complete for whoever holds a document with that digest.
type Delta struct {
	Owner       peer.ID
	Incarnation uint64
	From, To    uint64
	Base        uint64 // digest of the document that a patch applies to; 0: not a patch
	Digest      uint64 // of the document at To
	Part, Parts uint16 // Part < Parts; 0 and 1 for changes
	Values      []Value
	Sets        []SetOps
}

// Stamp is the stamp that the document has once the delta is applied.
func (d *Delta) Stamp() Stamp { return Stamp{d.Incarnation, d.To} }

// Complete reports whether d is a complete copy (a snapshot or a patch), or a part of one.
func (d *Delta) Complete() bool { return d.From == 0 }

// OpCount is the number of operations on sets in d.
func (d *Delta) OpCount() int {
	n := 0
	for i := range d.Sets {
		n += len(d.Sets[i].Ops)
	}
	return n
}
