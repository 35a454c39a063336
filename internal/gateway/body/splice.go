package body

import (
	"encoding/json"
	"slices"
)

// Splice appends the body to dst with the model and the cache_salt replaced, wherever they stand: an engine that takes the
// first of several members, or the last, sees the same. An empty name or salt leaves that member as it is; a salt that
// the body does not have is added at its end. Everything else stays as it was, byte for byte. A body from which Scan took
// nothing gives nothing.
func (s *Scanner) Splice(dst []byte, name, salt string) []byte {
	type cut struct {
		span
		with []byte
	}
	var cuts []cut
	if name != "" {
		for _, v := range s.models {
			cuts = append(cuts, cut{v, quote(name)})
		}
	}
	if salt != "" {
		for _, v := range s.salts {
			cuts = append(cuts, cut{v, quote(salt)})
		}
		if len(s.salts) == 0 {
			comma := ","
			if s.empty {
				comma = ""
			}
			cuts = append(cuts, cut{span{s.end, s.end}, append([]byte(comma+`"cache_salt":`), quote(salt)...)})
		}
	}
	slices.SortFunc(cuts, func(a, b cut) int { return a.from - b.from })
	from := 0
	for _, c := range cuts {
		dst = append(dst, s.w.b[from:c.from]...)
		dst = append(dst, c.with...)
		from = c.to
	}
	return append(dst, s.w.b[from:]...)
}

func quote(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic("body: a string does not become JSON: " + err.Error())
	}
	return b
}
