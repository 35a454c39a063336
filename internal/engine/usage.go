package engine

import (
	"bytes"

	"shoal/internal/peer"
)

// findUsage reads the token counts out of the end of an answer, plain or streamed, without parsing the whole: the last
// "usage" object, and llama.cpp's "timings" for what it lacks. A key in quotation marks cannot stand inside a JSON string
// (there its marks are escaped), so that a search for the bytes is exact.
func findUsage(tail []byte) Usage {
	u := UnknownUsage()
	if o := lastObject(tail, `"usage":`); o != nil {
		u.Prompt = number(o, `"prompt_tokens":`, `"input_tokens":`)
		u.Completion = number(o, `"completion_tokens":`, `"output_tokens":`)
		u.Cached = number(o, `"cached_tokens":`, `"cache_read_input_tokens":`, `"prompt_cache_hit_tokens":`)
	}
	if t := lastObject(tail, `"timings":`); t != nil {
		cached, fresh := number(t, `"cache_n":`), number(t, `"prompt_n":`)
		if u.Cached == peer.Unknown {
			u.Cached = cached
		}
		if u.Prompt == peer.Unknown && cached != peer.Unknown && fresh != peer.Unknown {
			u.Prompt = cached + fresh
		}
		if u.Completion == peer.Unknown {
			u.Completion = number(t, `"predicted_n":`)
		}
	}
	return u
}

// lastObject returns the object that follows the last occurrence of the key with an object behind it, nil without one.
func lastObject(b []byte, key string) []byte {
	for {
		i := bytes.LastIndex(b, []byte(key))
		if i < 0 {
			return nil
		}
		if v := bytes.TrimLeft(b[i+len(key):], " \t\r\n"); len(v) > 0 && v[0] == '{' {
			return v[:objectEnd(v)]
		}
		b = b[:i]
	}
}

// objectEnd is where the object at the start of b ends, or all of b where it does not.
func objectEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// maxTokens bounds what is believed of a count that came from the network.
const maxTokens = 1 << 40

// number is the whole number behind the first of the keys that has one; Unknown without.
func number(object []byte, keys ...string) int {
	for _, key := range keys {
		i := bytes.Index(object, []byte(key))
		if i < 0 {
			continue
		}
		n, digits := 0, 0
		for _, c := range bytes.TrimLeft(object[i+len(key):], " \t\r\n") {
			if c < '0' || c > '9' || n > maxTokens {
				break
			}
			n = n*10 + int(c-'0')
			digits++
		}
		if digits > 0 && n <= maxTokens {
			return n
		}
	}
	return peer.Unknown
}
