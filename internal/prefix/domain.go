package prefix

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// renderingTag names the canonical rendering and its version. A rendering that changes gets another tag: peers that render
// differently then share no block, instead of wrong ones.
const renderingTag = "shoal text blocks 1"

// Domain is what separates prompts that must not share blocks although they read the same. The zero value is a domain
// too.
//
// Whether two tenants share blocks is the gateway's choice, and it has to tell the engine too (by its cache salt): only
// then is the engine's cache separated as well. The hashes of a domain whose Salt or Tenant is secret cannot be computed
// without it.
type Domain struct {
	Model  string // the name that engines know
	LoRA   string // adapter, where it is not a model of its own
	Salt   string // the request's cache salt
	Tenant string
}

// Root is the hash that a chain of this domain starts from. Every field goes in with its number and its length, so that no
// two domains concatenate to one.
func (d Domain) Root() Hash {
	var room [256]byte
	b := append(room[:0], renderingTag...)
	for i, field := range [...]string{d.Model, d.LoRA, d.Salt, d.Tenant} {
		b = append(b, byte(i))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(field)))
		b = append(b, field...)
	}
	return Hash(xxh3.Hash(b))
}
