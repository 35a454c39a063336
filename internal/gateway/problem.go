package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// problem is an error as clients see it, in OpenAI's shape. Its texts are ours: no address, no word of an engine.
type problem struct {
	status     int
	kind       string // OpenAI's "type"
	code       string
	param      string // the field at fault; empty: null
	message    string
	retryAfter time.Duration // 0: none
}

const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// object is the JSON of p, one line.
func (p *problem) object() []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	in := inner{Message: p.message, Type: p.kind}
	if p.param != "" {
		in.Param = &p.param
	}
	if p.code != "" {
		in.Code = &p.code
	}
	b, err := json.Marshal(struct {
		Error inner `json:"error"`
	}{in})
	if err != nil {
		panic("gateway: strings do not become JSON: " + err.Error())
	}
	return b
}

// write answers with p. Nothing has been written before.
func (p *problem) write(w http.ResponseWriter) {
	b := append(p.object(), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("X-Content-Type-Options", "nosniff")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(p.retryAfter)))
	}
	w.WriteHeader(p.status)
	w.Write(b)
}

// seconds rounds up, to at least one: what Retry-After can say.
func seconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}

func invalid(param, message string) *problem {
	return &problem{status: http.StatusBadRequest, kind: invalidRequest, param: param, message: message}
}

func unknownModel(name string) *problem {
	if len(name) > 100 {
		name = name[:100] + "…"
	}
	return &problem{status: http.StatusNotFound, kind: invalidRequest, param: "model", code: "model_not_found",
		message: "The model `" + name + "` does not exist here; GET /v1/models lists those that do."}
}

func unknownPath() *problem {
	return &problem{status: http.StatusNotFound, kind: invalidRequest, code: "unknown_url",
		message: "There is nothing at this URL; the API is below /v1/."}
}

func overloaded(message string, after time.Duration) *problem {
	return &problem{status: http.StatusServiceUnavailable, kind: serverError, code: "overloaded", message: message, retryAfter: max(after, time.Second)}
}
