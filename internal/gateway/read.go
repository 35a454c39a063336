package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Memory for a request's body grows with what has arrived, not with what was announced.
const (
	firstRead = 4 << 10
	growRead  = 256 << 10
	keepBody  = 1 << 20 // larger bodies' memory is not kept for the next request
)

// hurry bounds the time in which a request's body must come. It stands until the whole body is there: where a request is
// refused before, the server itself reads some of the body behind the answer, and would wait for ever.
func (g *Gateway) hurry(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.cfg.BodyTime)) // not supported: a test's writer
	}
}

// readBody appends the whole body to buf, within the configured size. It is read to its end before anything is answered:
// the server then sees at once when the client goes away, and has no body left to close behind the answer.
func (g *Gateway) readBody(buf []byte, w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	limit := int64(g.cfg.MaxBody)
	if r.ContentLength > limit {
		return buf, g.tooLarge()
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return buf, nil
	}
	if want := min(int(r.ContentLength), growRead); want > cap(buf) { // -1: not told
		buf = make([]byte, 0, want)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, max(2*cap(buf), firstRead)), buf...)
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return buf, g.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			// Left standing, the deadline would end the watch for the client's going away, and with it the request.
			http.NewResponseController(w).SetReadDeadline(time.Time{})
			return buf, nil
		}
		if err != nil {
			return buf, bodyProblem(err)
		}
	}
}

func (g *Gateway) tooLarge() *problem {
	return &problem{status: http.StatusRequestEntityTooLarge, kind: invalidRequest, code: "request_too_large",
		message: "The body is larger than " + strconv.Itoa(g.cfg.MaxBody) + " bytes."}
}

func bodyProblem(err error) *problem {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &problem{status: http.StatusRequestTimeout, kind: invalidRequest, code: "request_timeout", message: "The body did not arrive in time."}
	}
	return invalid("", "The body could not be read to its end.")
}
