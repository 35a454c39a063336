package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"shoal/internal/socket"
)

// exchange is one HTTP request to be sent. It keeps nothing.
type exchange struct {
	method, path, query string
	header              http.Header
	without             string // one more header field, in canonical form, that does not go on
	body                []byte
	tail                []byte // follows body
}

// check refuses what HTTP cannot carry. Fields that came over HTTP pass; those that came over a hop or from a
// configuration may not.
func (x *exchange) check() error {
	if x.path == "" || x.path[0] != '/' || !printable(x.path) || !printable(x.query) || !httpguts.ValidHeaderFieldName(orPost(x.method)) {
		return failed(ErrRequest, fmt.Errorf("method %.20q path %.80q", x.method, x.path))
	}
	for name, values := range x.header {
		if !httpguts.ValidHeaderFieldName(name) {
			return failed(ErrRequest, fmt.Errorf("header field name %.80q", name))
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return failed(ErrRequest, fmt.Errorf("value of header field %q", name))
			}
		}
	}
	return nil
}

func orPost(method string) string {
	if method == "" {
		return http.MethodPost
	}
	return method
}

// printable reports whether s can stand in a request line.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// hop reports whether a header field ends at this hop. Accept-Encoding does too: a compressed answer could not be looked
// into for its usage.
func hop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Expect", "Accept-Encoding":
		return true
	}
	return false
}

// write sends head and body, in one system call where they are small or the connection can gather.
func (x *exchange) write(cl *client, c *conn) error {
	b := c.head[:0]
	b = append(append(b, orPost(x.method)...), ' ')
	b = append(append(b, cl.prefix...), x.path...)
	if x.query != "" {
		b = append(append(b, '?'), x.query...)
	}
	b = append(append(b, " HTTP/1.1\r\nHost: "...), cl.host...)
	b = x.fields(cl, append(b, "\r\n"...))
	if len(x.body) > 0 || x.method != http.MethodGet && x.method != http.MethodHead {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(x.body)+len(x.tail)), 10), "\r\n"...)
	}
	b = append(b, "\r\n"...)
	if len(x.body)+len(x.tail) <= 8<<10 {
		b = append(append(b, x.body...), x.tail...)
		c.head = b
		_, err := c.nc.Write(b)
		return err
	}
	c.head = b
	return x.gather(c, b)
}

// gather writes a long body without copying it.
func (x *exchange) gather(c *conn, head []byte) error {
	return socket.Gather(c.nc, head, x.body, x.tail)
}

// fields appends the request's header fields.
func (x *exchange) fields(cl *client, b []byte) []byte {
	auth, ctype := false, false
	named := x.header["Connection"] // names further fields of this hop
	for name, values := range x.header {
		if hop(name) || name == x.without || listed(named, name) {
			continue
		}
		switch name {
		case "Authorization":
			if auth = true; cl.auth != "" {
				values = []string{cl.auth}
			}
		case "Content-Type":
			ctype = true
		}
		for _, v := range values {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if !auth && cl.auth != "" {
		b = append(append(append(b, "Authorization: "...), cl.auth...), "\r\n"...)
	}
	if !ctype && len(x.body) > 0 {
		b = append(b, "Content-Type: application/json\r\n"...)
	}
	return b
}

// listed reports whether a Connection field names the header field.
func listed(connection []string, name string) bool {
	for _, v := range connection {
		for one := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(one), name) {
				return true
			}
		}
	}
	return false
}

// tailBytes is how much of an answer's end is kept: the usage, and [DONE], are there.
const tailBytes = 4 << 10

// afterDone bounds the wait for the end of the framing once [DONE] is there.
const afterDone = time.Second

// answer is a response whose head has been read. It is the io.ReadCloser of its own body.
type answer struct {
	cl    *client
	c     *conn // nil once given back or closed
	ctx   context.Context
	stop  func() bool // ends the watch over ctx
	res   *http.Response
	sse   bool  // an event stream that is complete only with [DONE]
	usage Usage // of a complete answer
	err   error // how it ended
}

// The methods of requests as http.ReadResponse wants them, which reads no other field.
var requestOf = map[string]*http.Request{http.MethodHead: {Method: http.MethodHead}}

// readHead reads the head of the final response; interim ones are passed over, at most a few.
func (a *answer) readHead(x *exchange) error {
	for range 8 {
		res, err := http.ReadResponse(a.c.br, requestOf[x.method])
		if err != nil {
			return err
		}
		if res.StatusCode < 100 || res.StatusCode > 199 || res.StatusCode == http.StatusSwitchingProtocols {
			a.res = res
			a.sse = res.StatusCode == http.StatusOK && endsInDone(x.path) && eventStreamed(res.Header)
			a.prune()
			return nil
		}
	}
	return errors.New("malformed HTTP response: too many interim ones")
}

// endsInDone reports whether event streams of this path end with [DONE]. Those of other APIs (/v1/responses, /v1/messages)
// end in their own ways; there the end of the framing has to do.
func endsInDone(path string) bool {
	return strings.HasSuffix(path, "/completions")
}

func eventStreamed(h http.Header) bool {
	const kind = "text/event-stream"
	t := h.Get("Content-Type")
	return len(t) >= len(kind) && strings.EqualFold(t[:len(kind)], kind)
}

// response makes the Response of an answer that goes on as it comes.
func (a *answer) response() *Response {
	return &Response{Status: a.res.StatusCode, Header: a.res.Header, Body: a, Usage: a.counted}
}

func (a *answer) counted() Usage { return a.usage }

// prune takes the hop-by-hop fields from the response.
func (a *answer) prune() {
	h := a.res.Header
	named := h["Connection"]
	for name := range h {
		if name != "Content-Length" && hop(name) || listed(named, name) {
			delete(h, name)
		}
	}
}

// abort ends an exchange that has no response, and says why in this package's words.
func (a *answer) abort(err error) error {
	c := a.c
	a.c = nil
	c.nc.Close()
	if a.stop != nil {
		a.stop()
	}
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	var ne net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout():
		return failed(ErrSilent, fmt.Errorf("%s: no response within %v", a.cl.addr, a.cl.cfg.FirstByte))
	case errors.Is(err, errHead):
		return failed(ErrProtocol, fmt.Errorf("%s: %w (over %d bytes)", a.cl.addr, err, a.cl.cfg.MaxHeader))
	case !c.untouched && !c.lost:
		return failed(ErrProtocol, fmt.Errorf("%s: %w", a.cl.addr, err))
	}
	return failed(ErrDown, fmt.Errorf("%s: lost before the response: %w", a.cl.addr, err))
}

// Read yields the body as it comes; see Response.Body.
func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	n, err := a.res.Body.Read(p)
	if n > 0 {
		c := a.c
		c.remember(p[:n])
		if a.sse && c.limit > afterDone && finished(c.tail) {
			c.limit, c.armed = afterDone, time.Time{}
		}
	}
	if err != nil {
		a.end(err)
		return n, a.err
	}
	return n, nil
}

// remember keeps the last bytes.
func (c *conn) remember(p []byte) {
	if len(p) >= tailBytes {
		c.tail = append(c.tail[:0], p[len(p)-tailBytes:]...)
		return
	}
	if len(c.tail)+len(p) > 2*tailBytes {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-tailBytes:]...)
	}
	c.tail = append(c.tail, p...)
}

// end settles the connection and names how the body ended.
func (a *answer) end(err error) {
	done := a.sse && finished(a.c.tail)
	if done || err == io.EOF && !a.sse {
		a.usage = findUsage(a.c.tail)
	}
	switch {
	case err == io.EOF && (done || !a.sse):
		a.err = io.EOF
		a.give(!a.res.Close)
		return
	case done: // all is there but the end of the framing
		a.err = io.EOF
	case a.ctx.Err() != nil:
		a.err = context.Cause(a.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		a.err = failed(ErrSilent, fmt.Errorf("%s: nothing for %v in the middle of an answer", a.cl.addr, a.cl.cfg.Silence))
	case err == io.EOF:
		a.err = failed(ErrIncomplete, fmt.Errorf("%s: the stream ended without [DONE]", a.cl.addr))
	default:
		a.err = failed(ErrIncomplete, fmt.Errorf("%s: %w", a.cl.addr, err))
	}
	a.give(false)
}

// finished reports whether an event stream's last event is [DONE].
func finished(tail []byte) bool {
	t := bytes.TrimRight(tail, " \r\n")
	t, ok := bytes.CutSuffix(t, []byte("[DONE]"))
	if !ok {
		return false
	}
	t, ok = bytes.CutSuffix(bytes.TrimRight(t, " "), []byte("data:"))
	return ok && (len(t) == 0 || t[len(t)-1] == '\n' || t[len(t)-1] == '\r')
}

// give returns the connection to the pool, or closes it.
func (a *answer) give(reuse bool) {
	c := a.c
	if c == nil {
		return
	}
	a.c = nil
	if a.stop != nil && !a.stop() {
		reuse = false // ctx has ended, and the connection is being cut
	}
	if !reuse || c.br.Buffered() > 0 {
		c.nc.Close()
		return
	}
	a.cl.keep(c)
}

// Close gives the connection back. A body that was not read to its end costs the connection, which is how the engine
// learns that nobody wants the rest.
func (a *answer) Close() error {
	if a.c == nil {
		return nil
	}
	if a.err == nil {
		a.err = errors.New("engine: read after close")
	}
	a.give(false)
	return nil
}
