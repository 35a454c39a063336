package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds one server-sent event, in bytes.
const MaxEvent = 1 << 20

// errEventTooLong is a server-sent event beyond MaxEvent.
var errEventTooLong = fmt.Errorf("load: an event of more than %d bytes in the stream", MaxEvent)

// events reads the data of server-sent events (WHATWG HTML, section 9.2), whatever way the network has cut them: fields
// other than data and comments are skipped, several data lines are joined, lines end in LF or CRLF. (A lone CR, which
// the standard allows too, is sent by no engine known.)
type events struct {
	r    *bufio.Reader
	line []byte
	data []byte
}

func newEvents(r io.Reader) *events { return &events{r: bufio.NewReaderSize(r, 8<<10)} }

// next returns the next event's data, valid until the next call; io.EOF at a clean end. An event that the end cuts off
// is dropped, as the standard says.
func (e *events) next() ([]byte, error) {
	e.data = e.data[:0]
	any := false
	for {
		line, err := e.readLine()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if any {
				return e.data, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if any {
			e.data = append(e.data, '\n')
		}
		if any = true; len(e.data)+len(value) > MaxEvent {
			return nil, errEventTooLong
		}
		e.data = append(e.data, value...)
	}
}

// readLine returns one line without its end.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(e.line)+len(part) > MaxEvent {
			return nil, errEventTooLong
		}
		if err == nil && len(e.line) == 0 {
			return trimEnd(part), nil
		}
		e.line = append(e.line, part...)
		if err == nil {
			return trimEnd(e.line), nil
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
