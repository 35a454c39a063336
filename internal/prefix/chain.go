package prefix

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// mark begins every mark of a rendering. No UTF-8 text holds this byte; where content holds it nevertheless, Write doubles
// it, so that content cannot forge a mark.
const mark = 0xFF

// What follows a mark byte. docs/protocol.md, "Text blocks", has the whole grammar.
const (
	markTools   = 'T'
	markMessage = 'M'
	markPart    = 'P'
	markValue   = ':'
	markDigest  = 'D'
)

// Chain turns a prompt into block hashes while its canonical rendering is written:
//
//	h[i] = XXH3(le64(h[i-1]) || block i), h[-1] = the root
//
// Marks (Tools, Message, Part, Digest) only ever begin something, so that the rendering of a conversation's beginning is a
// prefix of the rendering of the whole. The zero value is ready, with a root of 0; Reset starts the next prompt, and
// keeps the memory (at most 64 KiB). A warm Chain allocates nothing.
type Chain struct {
	buf    [8 + BlockBytes]byte // the hash before the block being filled, then the block
	n      int                  // bytes of that block
	bytes  int
	blocks []Hash
	tail   Hash
}

// Reset starts a prompt of the domain that has this root.
func (c *Chain) Reset(root Hash) {
	binary.LittleEndian.PutUint64(c.buf[:8], uint64(root))
	c.n, c.bytes, c.blocks, c.tail = 0, 0, c.blocks[:0], 0
}

// Tools begins the definitions of tools, to be written as JSON.
func (c *Chain) Tools() { c.fill([]byte{mark, markTools}) }

// Message begins a message of this role. Its parts follow.
func (c *Chain) Message(role string) {
	c.fill([]byte{mark, markMessage})
	c.WriteString(role)
}

// Part begins a part of the current message, or of the whole request where no message has begun: one content part, or one
// further member. What is written next is its value.
func (c *Chain) Part(kind string) {
	c.fill([]byte{mark, markPart})
	c.WriteString(kind)
	c.fill([]byte{mark, markValue})
}

// Digest writes a value's 128-bit digest in its place: images and audio, whose bytes say nothing of how many tokens they
// become, and which would fill the chain.
func (c *Chain) Digest(value []byte) {
	d := xxh3.Hash128(value).Bytes()
	c.fill([]byte{mark, markDigest})
	c.Write(d[:])
}

// Write adds content. It always takes all of p and returns no error, as an io.Writer.
func (c *Chain) Write(p []byte) (int, error) {
	n := len(p)
	for len(c.blocks) < MaxBlocks {
		i := bytes.IndexByte(p, mark)
		if i < 0 {
			break
		}
		c.fill(p[:i+1])
		c.fill([]byte{mark})
		p = p[i+1:]
	}
	c.fill(p)
	return n, nil
}

// WriteString adds content, like Write.
func (c *Chain) WriteString(s string) (int, error) {
	return c.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// WriteByte adds one byte of content. The error is always nil.
func (c *Chain) WriteByte(b byte) error {
	c.Write([]byte{b})
	return nil
}

// WriteToken adds one token of a prompt that is given as token ids: four bytes, little-endian.
func (c *Chain) WriteToken(id uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], id)
	c.Write(b[:])
}

// WriteJSON adds a JSON value without the white space between its tokens, which no chat template keeps. What is no JSON is
// written all the same, by the same lexical rule.
func (c *Chain) WriteJSON(raw []byte) {
	for len(raw) > 0 {
		i := 0
		for i < len(raw) && !isSpace(raw[i]) {
			if raw[i] == '"' {
				i += stringLen(raw[i:])
			} else {
				i++
			}
		}
		c.Write(raw[:i])
		for i < len(raw) && isSpace(raw[i]) {
			i++
		}
		raw = raw[i:]
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// stringLen is the length of the JSON string that b begins with, quotes included; all of b where it does not end.
func stringLen(b []byte) int {
	for end := 1; ; {
		i := bytes.IndexByte(b[end:], '"')
		if i < 0 {
			return len(b)
		}
		end += i + 1
		escapes := 0
		for b[end-2-escapes] == '\\' { // ends at the opening quote at the latest
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
	}
}

// fill adds bytes of the rendering, marks included.
func (c *Chain) fill(p []byte) {
	c.bytes += len(p)
	if len(c.blocks) == MaxBlocks {
		return
	}
	if c.n > 0 || len(p) < BlockBytes {
		k := copy(c.buf[8+c.n:], p)
		c.n += k
		if c.n < BlockBytes {
			return
		}
		c.hash()
		p = p[k:]
	}
	for len(p) >= BlockBytes && len(c.blocks) < MaxBlocks {
		copy(c.buf[8:], p[:BlockBytes])
		c.hash()
		p = p[BlockBytes:]
	}
	if len(c.blocks) < MaxBlocks {
		c.n = copy(c.buf[8:], p)
	}
}

// hash ends the block that is full.
func (c *Chain) hash() {
	h := xxh3.Hash(c.buf[:])
	binary.LittleEndian.PutUint64(c.buf[:8], h)
	c.blocks = append(c.blocks, Hash(h))
	c.n = 0
}

// Finish ends the prompt: Blocks and Tail are valid until Reset.
func (c *Chain) Finish() { c.tail = Hash(xxh3.Hash(c.buf[:8+c.n])) }

// Blocks is the hashes of the prompt's full blocks, the first one first: at most MaxBlocks, none for a prompt shorter than
// a block. The chain owns the slice.
func (c *Chain) Blocks() []Hash { return c.blocks }

// Tail is the chained hash of what follows the last full block, also where that is nothing: it tells prompts apart that
// have no block of their own yet. What lies beyond MaxBlocks is not in it.
func (c *Chain) Tail() Hash { return c.tail }

// Bytes is the length of the rendering, all of it. (Beyond MaxBlocks, doubled marks count once.)
func (c *Chain) Bytes() int { return c.bytes }
