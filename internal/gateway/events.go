package gateway

import (
	"bytes"
	"strings"
)

// isEvents reports whether a Content-Type is that of an event stream.
func isEvents(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

// event is an error as the last event of a stream.
func (p *problem) event() []byte {
	b := append([]byte("data: "), p.object()...)
	return append(b, "\n\n"...)
}

// wholeLines is the length of the part of p that ends with its last line. Engines send whole events, so that the first
// look nearly always tells.
func wholeLines(p []byte) int {
	if n := len(p); n == 0 || p[n-1] == '\n' || p[n-1] == '\r' {
		return n
	}
	return bytes.LastIndexAny(p, "\r\n") + 1
}

// betweenEvents reports whether nothing of an event follows the last blank line of p, which ends with a line.
func betweenEvents(p []byte) bool {
	return bytes.HasSuffix(p, []byte("\n\n")) || bytes.HasSuffix(p, []byte("\r\n\r\n")) || bytes.HasSuffix(p, []byte("\r\r"))
}

// endsInError reports whether the last event of a stream, whose last bytes are tail, is an error that the engine reports
// itself. An event longer than tail does not count as one.
func endsInError(tail []byte) bool {
	tail = bytes.TrimRight(tail, "\r\n")
	last := max(bytes.LastIndex(tail, []byte("\n\n"))+2, bytes.LastIndex(tail, []byte("\n\r\n"))+3)
	if last < 3 {
		last = 0
	}
	for line := range bytes.Lines(tail[last:]) {
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		value = bytes.TrimLeft(value, " ")
		switch string(name) {
		case "event":
			if string(value) == "error" {
				return true
			}
		case "data", "error": // llama.cpp has written "error: {…}"
			if string(name) == "error" || bytes.HasPrefix(squeeze(value), []byte(`{"error":`)) {
				return true
			}
		}
	}
	return false
}

// squeeze drops white space from the beginning of a JSON object, as far as its first value.
func squeeze(b []byte) []byte {
	out := make([]byte, 0, 16)
	for _, c := range b {
		if len(out) == cap(out) {
			break
		}
		if c != ' ' && c != '\t' {
			out = append(out, c)
		}
	}
	return out
}
