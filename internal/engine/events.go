package engine

import (
	"bytes"
	"fmt"
	"io"
)

// maxEvent bounds one event of a stream that has to be looked into, in bytes.
const maxEvent = 8 << 20

// events splits a stream of server-sent events. The zero value with r and max is ready.
type events struct {
	r    io.Reader
	max  int
	buf  []byte
	from int // buf[from:] is still to be handed out
	seen int // no end of an event lies before it
	err  error
}

// ready reports whether the next event is here already.
func (e *events) ready() bool { return e.end() > 0 || e.err != nil }

// next returns the next event with the blank line that ends it; valid until the next call. With the stream's end comes
// its error, and what was left as the last event.
func (e *events) next() ([]byte, error) {
	for {
		if end := e.end(); end > 0 {
			event := e.buf[e.from:end]
			e.from, e.seen = end, end
			return event, nil
		}
		if e.err != nil {
			event := e.buf[e.from:]
			e.from, e.seen = len(e.buf), len(e.buf)
			return event, e.err
		}
		e.fill()
	}
}

// end is where the first event ends, 0 where that has not come.
func (e *events) end() int {
	at := e.seen
	for {
		i := bytes.IndexByte(e.buf[at:], '\n')
		if i < 0 {
			e.seen = max(len(e.buf)-2, e.seen)
			return 0
		}
		at += i + 1
		rest := e.buf[at:]
		switch {
		case len(rest) > 0 && rest[0] == '\n':
			return at + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return at + 2
		}
	}
}

func (e *events) fill() {
	if e.from > 0 { // what next has returned is not valid any more
		n := copy(e.buf, e.buf[e.from:])
		e.seen -= e.from
		e.buf, e.from = e.buf[:n], 0
	}
	if len(e.buf) == cap(e.buf) {
		if len(e.buf) >= e.max {
			e.err = failed(ErrTooLong, fmt.Errorf("an event of the stream has more than %d bytes", e.max))
			return
		}
		grown := make([]byte, len(e.buf), max(2*cap(e.buf), 4<<10))
		copy(grown, e.buf)
		e.buf = grown
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	e.err = err
}

// data is the payload of an event: what stands behind "data:", without it nil. Several lines are joined.
func data(event []byte) []byte {
	var d []byte
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		v, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		v = bytes.TrimPrefix(v, []byte(" "))
		if d == nil {
			d = v
		} else {
			d = append(append(d[:len(d):len(d)], '\n'), v...)
		}
	}
	return d
}
