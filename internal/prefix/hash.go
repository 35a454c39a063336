package prefix

// Hash identifies a block and all that came before it in its prompt.
type Hash uint64

// Slot is one section of one peer's document, as the index knows it.
type Slot uint16

// Element is one cached block: its hash, and how many blocks come before it in its prompt.
type Element struct {
	Hash  Hash
	Depth uint16
}

// Change is one element that came into a set of blocks, or left it.
type Change struct {
	Element
	Removed bool
}
