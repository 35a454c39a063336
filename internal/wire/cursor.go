package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTruncated: a payload ends before its fields do. ErrLimit: a field is outside the limits of the protocol, or is not
// what may stand there. Every decoder's error wraps one of them or the CBOR library's.
var (
	ErrTruncated = errors.New("wire: the message ends too early")
	ErrLimit     = errors.New("wire: a field is outside its limits")
)

// cursor reads fields one after another. After the first error all further reads give zero values, so that a decoder
// checks once at its end.
type cursor struct {
	b    []byte
	text string // a copy of the bytes that b ends with, where strings are to be cut from one allocation
	err  error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

func (c *cursor) limit(field string, value any) {
	c.fail(fmt.Errorf("%w: %s is %v", ErrLimit, field, value))
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail(ErrTruncated)
		return 0
	}
	x := c.b[0]
	c.b = c.b[1:]
	return x
}

func (c *cursor) uint() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most are small
		x := c.b[0]
		c.b = c.b[1:]
		return uint64(x)
	}
	x, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail(ErrTruncated)
		return 0
	}
	c.b = c.b[n:]
	return x
}

// int reads a signed number: zigzag, as binary.PutVarint writes it.
func (c *cursor) int() int64 {
	u := c.uint()
	return int64(u>>1) ^ -int64(u&1)
}

// upTo reads an unsigned number that is at most most.
func (c *cursor) upTo(field string, most uint64) int {
	x := c.uint()
	if x > most {
		c.limit(field, x)
		return 0
	}
	return int(x)
}

func (c *cursor) word() uint64 {
	if len(c.b) < 8 {
		c.fail(ErrTruncated)
		return 0
	}
	x := binary.LittleEndian.Uint64(c.b)
	c.b = c.b[8:]
	return x
}

// raw reads so many bytes, which stay part of the payload.
func (c *cursor) raw(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.fail(ErrTruncated)
		return nil
	}
	x := c.b[:n:n]
	c.b = c.b[n:]
	return x
}

// bytes reads a length and so many bytes, which stay part of the payload.
func (c *cursor) bytes(field string, most int) []byte {
	return c.raw(c.upTo(field, uint64(most)))
}

// block reads a four-byte length and so many bytes, which stay part of the payload.
func (c *cursor) block(field string, most int) []byte {
	if len(c.b) < 4 {
		c.fail(ErrTruncated)
		return nil
	}
	n := binary.LittleEndian.Uint32(c.b)
	c.b = c.b[4:]
	if uint64(n) > uint64(most) {
		c.limit(field, n)
		return nil
	}
	return c.raw(int(n))
}

// str reads a length and a string of so many bytes.
func (c *cursor) str(field string, most int) string {
	n := c.upTo(field, uint64(most))
	if n > len(c.b) {
		c.fail(ErrTruncated)
		return ""
	}
	var s string
	if at := len(c.text) - len(c.b); at >= 0 && c.text != "" {
		s = c.text[at : at+n]
	} else {
		s = string(c.b[:n])
	}
	c.b = c.b[n:]
	return s
}

// cutText makes all further strings parts of one.
func (c *cursor) cutText() { c.text = string(c.b) }

// count reads the length of a list whose entries take at least size bytes each.
func (c *cursor) count(field string, most, size int) int {
	n := c.upTo(field, uint64(most))
	if n*size > len(c.b) {
		c.fail(ErrTruncated)
		return 0
	}
	return n
}

// end gives the error of the whole message; bytes that are left belong to a later version.
func (c *cursor) end(message string) error {
	if c.err != nil {
		return fmt.Errorf("wire: %s: %w", message, c.err)
	}
	return nil
}

func appendUint(b []byte, x uint64) []byte { return binary.AppendUvarint(b, x) }
func appendInt(b []byte, x int64) []byte   { return binary.AppendVarint(b, x) }
func appendWord(b []byte, x uint64) []byte { return binary.LittleEndian.AppendUint64(b, x) }

func appendStr(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// beginBlock leaves room for a block's length, endBlock fills it in.
func beginBlock(b []byte) ([]byte, int) { return append(b, 0, 0, 0, 0), len(b) }

func endBlock(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// clip shortens a text for people to what fits.
func clip(s string, most int) string { return s[:min(len(s), most)] }

// within reports an error where a field that is about to be written is longer than its limit.
func within(message, field string, n, most int) error {
	if n > most {
		return fmt.Errorf("wire: %s: %w: %s has %d, at most %d", message, ErrLimit, field, n, most)
	}
	return nil
}
