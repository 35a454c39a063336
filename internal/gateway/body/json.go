package body

import (
	"encoding/binary"
	"math/bits"
)

// MaxDepth bounds how deep a body may nest. Tools' schemas reach some thirty levels; Python's own reader gives up at
// about a thousand.
const MaxDepth = 256

// span is a piece of the body: b[from:to]. The zero value is none, since no value starts a body's first byte but the
// body itself.
type span struct{ from, to int }

func (s span) there() bool { return s.to != 0 }

// walker reads JSON by RFC 8259 and stops at the first fault. Positions go in and out; -1 says that fault is set.
type walker struct {
	b     []byte
	fault *Error
}

func (w *walker) fail(at int, what string) int {
	if w.fault == nil {
		w.fault = &Error{Offset: at, What: what, Syntax: true}
	}
	return -1
}

// space gives the position of the first byte at or after i that is not white space.
func (w *walker) space(i int) int {
	for i < len(w.b) && w.b[i] <= ' ' {
		switch w.b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// value checks the value that starts at i and gives the position after it.
func (w *walker) value(i, depth int) int {
	if i >= len(w.b) {
		return w.fail(i, "the body ends where a value is expected")
	}
	switch c := w.b[i]; {
	case c == '"':
		return w.str(i)
	case c == '{':
		return w.object(i, depth+1)
	case c == '[':
		return w.array(i, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		return w.number(i)
	case c == 't':
		return w.literal(i, "true")
	case c == 'f':
		return w.literal(i, "false")
	case c == 'n':
		return w.literal(i, "null")
	}
	return w.fail(i, "a value is expected")
}

func (w *walker) literal(i int, s string) int {
	if len(w.b)-i < len(s) || string(w.b[i:i+len(s)]) != s {
		return w.fail(i, "a value is expected")
	}
	return i + len(s)
}

func (w *walker) object(i, depth int) int {
	if depth > MaxDepth {
		return w.fail(i, "the body nests too deep")
	}
	for first := true; ; first = false {
		_, at, more := w.member(i, first)
		if !more {
			return at
		}
		if i = w.value(at, depth); i < 0 {
			return -1
		}
	}
}

// member reads up to an object's next value: the object starts at i where first is set, else its last value ended there.
// It gives the key, still escaped, and where the value starts; without more members, the position after the object.
func (w *walker) member(i int, first bool) (key span, at int, more bool) {
	if first {
		i = w.space(i + 1)
		if i < len(w.b) && w.b[i] == '}' {
			return span{}, i + 1, false
		}
	} else {
		i = w.space(i)
		if i < len(w.b) && w.b[i] == '}' {
			return span{}, i + 1, false
		}
		if i >= len(w.b) || w.b[i] != ',' {
			return span{}, w.fail(i, "',' or '}' is expected"), false
		}
		i = w.space(i + 1)
	}
	if i >= len(w.b) || w.b[i] != '"' {
		return span{}, w.fail(i, "a key in double quotes is expected"), false
	}
	end := w.str(i)
	if end < 0 {
		return span{}, -1, false
	}
	key = span{i + 1, end - 1}
	i = w.space(end)
	if i >= len(w.b) || w.b[i] != ':' {
		return span{}, w.fail(i, "':' is expected after a key"), false
	}
	return key, w.space(i + 1), true
}

func (w *walker) array(i, depth int) int {
	if depth > MaxDepth {
		return w.fail(i, "the body nests too deep")
	}
	for first := true; ; first = false {
		at, more := w.element(i, first)
		if !more {
			return at
		}
		if i = w.value(at, depth); i < 0 {
			return -1
		}
	}
}

// element is to arrays what member is to objects.
func (w *walker) element(i int, first bool) (at int, more bool) {
	if first {
		i = w.space(i + 1)
		if i < len(w.b) && w.b[i] == ']' {
			return i + 1, false
		}
		return i, true
	}
	i = w.space(i)
	if i < len(w.b) && w.b[i] == ']' {
		return i + 1, false
	}
	if i >= len(w.b) || w.b[i] != ',' {
		return w.fail(i, "',' or ']' is expected"), false
	}
	return w.space(i + 1), true
}

// str checks the string whose opening quote is at i, and gives the position after its closing quote.
func (w *walker) str(i int) (end int) {
	for i++; ; {
		i = special(w.b, i)
		if i >= len(w.b) {
			return w.fail(i, "the body ends within a string")
		}
		if w.b[i] == '"' {
			return i + 1
		}
		n := escape(w.b[i:])
		if n == 0 {
			return w.badString(i)
		}
		i += n
	}
}

func (w *walker) badString(i int) int {
	if w.b[i] == '\\' {
		return w.fail(i, "an escape in a string is not valid")
	}
	return w.fail(i, "a control character in a string must be escaped")
}

const ones, highs = 0x0101010101010101, 0x8080808080808080

// flags raises the top bit of the first byte of x, eight bytes of a string, that ends a run of plain text: a quote, a
// backslash, or a control character. Bytes before it raise none; what those after it raise means nothing, since a borrow
// spreads upwards. With 0x02 flipped, quotes and control characters are the bytes below 0x21.
func flags(x uint64) uint64 {
	low, back := x^ones*2, x^ones*'\\'
	return ((low-ones*0x21)&^low | (back-ones)&^back) & highs
}

// special gives the position of the first byte at or after i that ends a run of plain text; len(b) where there is none.
func special(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := flags(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}

// escape gives the length of the escape sequence at the start of b, 0 where it is none.
func escape(b []byte) int {
	if len(b) < 2 || b[0] != '\\' {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) >= 6 && hex4(b[2:6]) >= 0 {
			return 6
		}
	}
	return 0
}

// hex4 reads four hexadecimal digits, -1 where b holds something else.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func (w *walker) number(i int) int {
	start := i
	if w.b[i] == '-' {
		i++
	}
	switch {
	case i < len(w.b) && w.b[i] == '0':
		i++
	case i < len(w.b) && '1' <= w.b[i] && w.b[i] <= '9':
		i = digits(w.b, i)
	default:
		return w.fail(start, "a number is not valid")
	}
	if i < len(w.b) && w.b[i] == '.' {
		from := i + 1
		if i = digits(w.b, from); i == from {
			return w.fail(start, "a number is not valid")
		}
	}
	if i < len(w.b) && (w.b[i] == 'e' || w.b[i] == 'E') {
		i++
		if i < len(w.b) && (w.b[i] == '+' || w.b[i] == '-') {
			i++
		}
		from := i
		if i = digits(w.b, from); i == from {
			return w.fail(start, "a number is not valid")
		}
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}
