package gateway

import (
	"net/http"
	"strings"

	"shoal/internal/wire"
)

// The gateway's own header fields. Whatever else begins with ownPrefix is dropped on the way in both directions: nobody
// but the gateway speaks for it.
const (
	ownPrefix         = "X-Shoal-"
	headerPeer        = "X-Shoal-Peer"
	headerMatched     = "X-Shoal-Matched-Tokens"
	headerReason      = "X-Shoal-Reason"
	headerEmulated    = "X-Shoal-Emulated"
	headerExplain     = "X-Shoal-Explain"
	headerExplanation = "X-Shoal-Explanation"
)

// local reports whether a field ends here. Accept-Encoding does: an answer must be legible for its end to be seen.
func local(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Expect", "Accept-Encoding":
		return true
	}
	return strings.HasPrefix(name, ownPrefix)
}

// named reports whether a Connection field lists name, which therefore ends here too.
func named(connection []string, name string) bool {
	for _, v := range connection {
		for one := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(one), name) {
				return true
			}
		}
	}
	return false
}

// onward is the part of a client's header that goes on to an engine. The values are shared with h.
func onward(h http.Header, authorization bool) http.Header {
	out := make(http.Header, len(h))
	connection := h["Connection"]
	for name, values := range h {
		if local(name) || name == "Authorization" && !authorization || connection != nil && named(connection, name) {
			continue
		}
		out[name] = values
	}
	return out
}

// pairs is a header as it travels over a hop.
func pairs(h http.Header) []wire.Pair {
	out := make([]wire.Pair, 0, len(h))
	for name, values := range h {
		for _, v := range values {
			out = append(out, wire.Pair{Name: name, Value: v})
		}
	}
	return out
}

// unpair is a header that came over a hop. Names come in canonical form from a gateway; whatever else does is made so.
func unpair(ps []wire.Pair) http.Header {
	h := make(http.Header, len(ps))
	values := make([]string, len(ps))
	for i, p := range ps {
		name := http.CanonicalHeaderKey(p.Name)
		values[i] = p.Value
		if old, ok := h[name]; ok {
			h[name] = append(old, p.Value)
		} else {
			h[name] = values[i : i+1 : i+1]
		}
	}
	return h
}

// oversize reports whether a request's head is more than a hop carries.
func oversize(r *http.Request) *problem {
	bytes, fields := 0, 0
	for name, values := range r.Header {
		for _, v := range values {
			bytes += len(name) + len(v)
			fields++
		}
	}
	switch {
	case fields > wire.MaxPairs || bytes > wire.MaxHeader:
		return &problem{status: http.StatusRequestHeaderFieldsTooLarge, kind: invalidRequest, message: "The header has too many fields, or too long ones."}
	case len(r.Method) > wire.MaxMethod:
		return &problem{status: http.StatusNotImplemented, kind: invalidRequest, message: "The method is not known."}
	case len(r.URL.Path) > wire.MaxPath || len(r.URL.RawPath) > wire.MaxPath || len(r.URL.RawQuery) > wire.MaxQuery:
		return &problem{status: http.StatusRequestURITooLong, kind: invalidRequest, message: "The URL is too long."}
	}
	return nil
}
