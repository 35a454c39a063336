package wire

import (
	"encoding/binary"
	"fmt"
)

// What goes into an HTTP message at the other end is checked here, so that no peer can make one message into two.

// token reads a method or the name of a header field (RFC 9110, 5.6.2).
func (c *cursor) token(field string, most int) string {
	at := c.b
	s := c.str(field, most)
	if c.err == nil && !isToken(bytesOf(at, c.b, s)) {
		c.limit(field, fmt.Sprintf("%.64q", s))
	}
	return s
}

// plain reads a text without control characters but tab.
func (c *cursor) plain(field string, most int) string {
	at := c.b
	s := c.str(field, most)
	if c.err == nil && !isPlain(bytesOf(at, c.b, s)) {
		c.limit(field, fmt.Sprintf("%.64q", s))
	}
	return s
}

// bytesOf is the string that was read between two states of a cursor, as it stands in the payload.
func bytesOf(before, after []byte, s string) []byte {
	end := len(before) - len(after)
	return before[end-len(s) : end]
}

// tokenByte is fixed: the characters of an HTTP token.
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenByte[c] {
			return false
		}
	}
	return len(b) > 0
}

// isPlain looks at eight bytes at once: of a word without control characters no byte is below 0x20 or 0x7f.
func isPlain(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		del := x ^ 0x7f*ones
		if ((x-0x20*ones)&^x|(del-ones)&^del)&highs != 0 && !isPlainSlow(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return isPlainSlow(b)
}

func isPlainSlow(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
