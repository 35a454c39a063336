package body

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// read checks the string whose opening quote is at i, as walker.str does, and in the same pass puts its text into s.text:
// text[t.from:t.to]. It copies eight bytes before it knows how many of them belong to the run, and goes on after those
// that do. A run that turns out to be long it takes in one piece.
func (s *Scanner) read(i int) (end int, t span) {
	b, dst, o := s.w.b, s.text, s.used
	t.from = o
	quote := 0 // where the next quote at or after i is, once it is known
	for i++; ; {
		long := i + longRun
		for m := uint64(0); ; {
			if i >= long {
				var n int
				n, quote = plain(b, i, quote)
				for o+n > len(dst) {
					dst = s.grow(o)
				}
				o += copy(dst[o:], b[i:i+n])
				i += n
				break
			}
			if o+8 > len(dst) {
				dst = s.grow(o)
			}
			if i+8 > len(b) {
				n := special(b, i) - i
				o += copy(dst[o:], b[i:i+n])
				i += n
				break
			}
			x := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(dst[o:], x)
			if m = flags(x); m != 0 {
				n := bits.TrailingZeros64(m) >> 3
				i += n
				o += n
				break
			}
			i += 8
			o += 8
		}
		if i >= len(b) {
			return s.w.fail(i, "the body ends within a string"), span{}
		}
		if b[i] == '"' {
			s.used, t.to = o, o
			return i + 1, t
		}
		if b[i] == '\\' && i+1 < len(b) {
			if c := plainEscape[b[i+1]]; c != 0 {
				dst[o] = c // there is room: the loop above has left it, or copied less than eight bytes
				i += 2
				o++
				continue
			}
		}
		n := escape(b[i:])
		if n == 0 {
			return s.w.badString(i), span{}
		}
		var room [utf8.UTFMax]byte
		r, left := unescapeOne(room[:0], b[i:])
		i = len(b) - left
		if o+len(r) > len(dst) {
			dst = s.grow(o)
		}
		o += copy(dst[o:], r)
	}
}

// longRun is from how many bytes on a run of plain text is looked at as a whole: what finds its end so is three times as fast
// by the byte, and costs as much as some dozens of bytes to begin with.
const longRun = 128

// plain gives the length of the run of plain text at i, and where the first quote at or after i is; quote is what it gave for
// an earlier i, so that a string of many runs is searched once.
func plain(b []byte, i, quote int) (int, int) {
	if quote < i {
		if quote = bytes.IndexByte(b[i:], '"') + i; quote < i {
			quote = len(b)
		}
	}
	run := b[i:quote]
	if n := bytes.IndexByte(run, '\\'); n >= 0 {
		run = run[:n]
	}
	return control(run), quote
}

// control gives the position of the first control character; len(b) where there is none.
func control(b []byte) int {
	i := 0
	for ; i+32 <= len(b); i += 32 {
		c := b[i : i+32]
		w, x := binary.LittleEndian.Uint64(c), binary.LittleEndian.Uint64(c[8:])
		y, z := binary.LittleEndian.Uint64(c[16:]), binary.LittleEndian.Uint64(c[24:])
		if ((w-ones*' ')&^w|(x-ones*' ')&^x|(y-ones*' ')&^y|(z-ones*' ')&^z)&highs != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] < ' ' {
			return i
		}
	}
	return i
}

// plainEscape is what the escapes of one letter stand for.
var plainEscape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// grow makes room for more text after the first o bytes.
func (s *Scanner) grow(o int) []byte {
	dst := make([]byte, max(4<<10, 2*len(s.text)))
	copy(dst, s.text[:o])
	s.text = dst
	return dst
}

// decode gives the text of a string of the body, v without its quotes. The result is valid until the next decode.
func (s *Scanner) decode(v span) []byte {
	b := s.w.b[v.from:v.to]
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	s.name = unescape(s.name[:0], b)
	return s.name
}

// unescape appends the text of b, whose escapes are valid. Half a surrogate pair becomes U+FFFD, as in Go's own reader.
func unescape(dst, b []byte) []byte {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\\')
		if n < 0 {
			break
		}
		dst = append(dst, b[:n]...)
		dst, n = unescapeOne(dst, b[n:])
		b = b[len(b)-n:]
	}
	return append(dst, b...)
}

// unescapeOne appends what the escape at the start of b stands for, and gives how many bytes of b are left.
func unescapeOne(dst, b []byte) ([]byte, int) {
	if b[1] != 'u' {
		return append(dst, plainEscape[b[1]]), len(b) - 2
	}
	r := hex4(b[2:6])
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), len(b) - 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[8:12])); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), len(b) - 12
		}
	}
	return utf8.AppendRune(dst, utf8.RuneError), len(b) - 6
}
