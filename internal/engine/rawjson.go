package engine

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Raw JSON: members and elements of valid JSON as they stand in it, so that what goes through is not written anew. A
// parser that decodes strings and encodes them again may change them.

// eachMember calls yield with every member of an object; of anything else, with none. v must be valid JSON.
func eachMember(v []byte, yield func(key string, value []byte)) {
	if v = bytes.TrimLeft(v, jsonSpace); len(v) == 0 || v[0] != '{' {
		return
	}
	v = v[1:]
	for {
		v = bytes.TrimLeft(v, jsonSpace+",")
		if len(v) == 0 || v[0] != '"' {
			return
		}
		n := valueEnd(v)
		key := unquote(v[:n])
		v = bytes.TrimLeft(v[n:], jsonSpace+":")
		n = valueEnd(v)
		yield(key, v[:n])
		v = v[n:]
	}
}

// eachElement calls yield with every element of an array; of anything else, with none. v must be valid JSON.
func eachElement(v []byte, yield func(value []byte)) {
	if v = bytes.TrimLeft(v, jsonSpace); len(v) == 0 || v[0] != '[' {
		return
	}
	v = v[1:]
	for {
		v = bytes.TrimLeft(v, jsonSpace+",")
		if len(v) == 0 || v[0] == ']' {
			return
		}
		n := valueEnd(v)
		yield(v[:n])
		v = v[n:]
	}
}

const jsonSpace = " \t\r\n"

// valueEnd is the length of the value at the start of b.
func valueEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 {
				return i // of a number or word that the brace follows
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return i
		}
	}
	return len(b)
}

func unquote(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	var s string
	_ = json.Unmarshal(v, &s) // valid by the caller's word
	return s
}

// quote appends s as JSON.
func quote(b []byte, s string) []byte {
	v, _ := json.Marshal(s) // a string always can be
	return append(b, v...)
}

// member is one member's value, nil where it is missing or null.
func member(object []byte, key string) (value []byte) {
	eachMember(object, func(k string, v []byte) {
		if k == key {
			value = v
		}
	})
	if isNull(value) {
		return nil
	}
	return value
}

func isNull(v []byte) bool   { return string(v) == "null" }
func isString(v []byte) bool { return len(v) > 1 && v[0] == '"' }
func isObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }

// whole is a whole number's value, and def for anything else.
func whole(v []byte, def int) int {
	if n, err := strconv.Atoi(string(v)); err == nil {
		return n
	}
	return def
}
