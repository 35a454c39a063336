package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sink takes one answer. Head comes once and before Data; nothing that is given is kept. An error means that nobody is
// there to take the answer any more.
type sink interface {
	Head(status int, h http.Header) error
	Data(p []byte) error
}

// maxLine bounds how much of an unfinished line of an event stream is held back. A longer one goes out in pieces.
const maxLine = 64 << 10

// errGone is what a sink says of a client that takes nothing more.
var errGone = errors.New("gateway: the client is gone")

// answer is the client's side of a request, where the attempts to serve it end. Until the first byte of a body is due
// nothing is sent, not even the header, so that a failed attempt leaves no trace and another one may follow.
//
// What the first byte is depends on the answer:
//   - An event stream begins with its first event. Only whole lines are sent, each piece at once, so that a stream which
//     breaks off can always be ended by an error event.
//   - A plain answer (JSON, or whatever answers a chat, a completion or an embedding) is held back until it is complete,
//     since a client has no use for a part of it, and until then a failure can be tried elsewhere. One that grows above
//     Config.MaxPlain begins at that point.
//   - Anything else (audio, files, lines of JSON on other paths) begins with its first byte and is sent as it comes.
type answer struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	cfg    *Config
	about  about
	json   bool // the API's answers are JSON or events, whatever their Content-Type says
	noBody bool // an answer to HEAD

	status  int
	header  http.Header
	state   state
	kind    kind
	held    []byte // not yet sent: a plain answer, or an unfinished line
	apart   bool   // what was sent of an event stream ends between events
	stalled time.Time
	gone    bool
}

// about is what an answer asks of its request.
type about interface {
	ownHeader(http.Header) // sets the gateway's own fields
	firstByte()            // an event stream begins
}

type state uint8

const (
	nothing state = iota // no head yet
	headed               // a head is there, and perhaps bytes are held
	begun                // the first byte is due or out: no way back
)

type kind uint8

const (
	plain kind = iota
	events
	raw
)

// Head notes the head of an attempt's answer.
func (a *answer) Head(status int, h http.Header) error {
	if h == nil {
		h = http.Header{}
	}
	a.status, a.header, a.state = status, h, headed
	contentType := h.Get("Content-Type")
	switch {
	case isEvents(contentType):
		a.kind = events
	case a.json || strings.HasPrefix(contentType, "application/json"):
		a.kind = plain
	default:
		a.kind = raw
	}
	return nil
}

// Data takes the next bytes of the body.
func (a *answer) Data(p []byte) error {
	switch a.kind {
	case events:
		return a.lines(p)
	case plain:
		if a.state == headed {
			if len(a.held)+len(p) <= a.cfg.MaxPlain {
				a.held = append(a.held, p...)
				return nil
			}
			a.begin()
			if err := a.write(a.held); err != nil {
				return err
			}
			a.held = a.held[:0]
		}
		return a.write(p)
	}
	a.begin()
	if err := a.write(p); err != nil {
		return err
	}
	return a.flush()
}

// lines sends the whole lines that there are, and holds the rest back.
func (a *answer) lines(p []byte) error {
	if len(a.held) > 0 {
		a.held = append(a.held, p...)
		p = a.held
	}
	n := wholeLines(p)
	if n == 0 && len(p) > maxLine {
		n = len(p)
	}
	if n == 0 {
		a.held = append(a.held[:0], p...)
		return nil
	}
	if a.state == headed {
		a.begin()
		a.about.firstByte()
	}
	err := a.write(p[:n])
	a.apart = betweenEvents(p[:n])
	a.held = append(a.held[:0], p[n:]...)
	if err != nil {
		return err
	}
	return a.flush()
}

// begin sends the head: from here on the attempt stands.
func (a *answer) begin() {
	if a.state == begun {
		return
	}
	a.state = begun
	h := a.w.Header()
	for name, values := range a.header {
		if !strings.HasPrefix(name, ownPrefix) {
			h[name] = values
		}
	}
	if a.kind == events {
		delete(h, "Content-Length") // an error event may follow
	}
	a.about.ownHeader(h)
	a.w.WriteHeader(a.status)
}

func (a *answer) write(p []byte) error {
	a.deadline()
	if _, err := a.w.Write(p); err != nil {
		a.gone = true
		return errGone
	}
	return nil
}

func (a *answer) flush() error {
	if err := a.ctl.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		a.gone = true
		return errGone
	}
	return nil
}

// deadline gives the client StallTime, and a quarter of it less at most, to take what is written next.
func (a *answer) deadline() {
	now := time.Now()
	if a.stalled.IsZero() || now.Sub(a.stalled) > a.cfg.StallTime/4 {
		a.stalled = now
		a.ctl.SetWriteDeadline(now.Add(a.cfg.StallTime)) // not supported: a test's writer
	}
}

// forget drops what a failed attempt has left. Nothing of it was sent.
func (a *answer) forget() {
	a.state, a.header, a.held = nothing, nil, a.held[:0]
}

// complete ends the answer as it should end.
func (a *answer) complete() error {
	defer a.release()
	if a.kind == plain && a.state == headed && !a.noBody && a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		a.header.Set("Content-Length", strconv.Itoa(len(a.held)))
	}
	a.begin()
	if len(a.held) == 0 {
		return nil
	}
	return a.write(a.held)
}

// breakOff ends an answer that has begun and cannot be completed. An event stream gets an error as its last event, and no
// [DONE]. Of anything else it reports false, and the connection has to be cut: its length or framing then tells the
// client that the answer is not whole, while an orderly end would pass it off as such.
func (a *answer) breakOff(p *problem) (orderly bool) {
	if a.kind != events || a.gone {
		return false
	}
	defer a.release()
	end := p.event()
	if !a.apart {
		end = append([]byte("\n\n"), end...)
	}
	return a.write(end) == nil && a.flush() == nil
}

// refuse answers with an error of our own. Nothing has been sent.
func (a *answer) refuse(p *problem) {
	a.status = p.status
	a.about.ownHeader(a.w.Header())
	p.write(a.w)
}

// release takes the deadline away: the connection is kept for further requests.
func (a *answer) release() {
	if !a.stalled.IsZero() {
		a.ctl.SetWriteDeadline(time.Time{})
	}
}
