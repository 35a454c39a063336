package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/valyala/fastjson"

	"shoal/internal/emulate"
	"shoal/internal/prefix"
)

// job is a completion request as the server has understood it, with the memory that serves one after the other.
type job struct {
	parser   fastjson.Parser
	body     []byte
	rendered []byte // prompt, and the answer behind it
	out      []byte
	prompt   int // bytes
	chat     bool
	stream   bool
	usage    bool // asked for in a stream
	limited  bool // the client has set the number of tokens
	choices  int
	request  emulate.Request
	seed     uint64
	root     prefix.Hash
	head     []byte // of every chunk
}

const maxKept = 1 << 20 // bytes of a job's buffer that are kept for the next

func (s *Server) job() *job {
	if j, ok := s.jobs.Get().(*job); ok {
		return j
	}
	return new(job)
}

func (s *Server) free(j *job) {
	if cap(j.body) <= maxKept && cap(j.rendered) <= maxKept {
		s.jobs.Put(j)
	}
}

// badRequest is an error of the client's.
type badRequest struct {
	status int
	param  string
	text   string
}

func (e *badRequest) Error() string { return e.text }

func bad(param, format string, args ...any) error {
	return &badRequest{http.StatusBadRequest, param, fmt.Sprintf(format, args...)}
}

// complete answers a chat or a plain completion.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	j := s.job()
	defer s.free(j)
	j.chat = chat
	if err := s.understand(j, w, r); err != nil {
		answerBad(w, err)
		return
	}
	q, id, err := s.submit(j.request)
	switch {
	case errors.Is(err, emulate.ErrFull):
		w.Header().Set("Retry-After", "1")
		answerError(w, http.StatusServiceUnavailable, "ServiceUnavailable", "", "the emulated engine's queue is full")
		return
	case err != nil:
		answerError(w, http.StatusBadRequest, "BadRequestError", "messages", fmt.Sprintf("this model's context is %d tokens; the prompt has %d, and %d are asked for",
			s.cfg.Context, j.request.Prompt, j.request.Output))
		return
	}
	ended := false
	defer func() {
		if !ended {
			s.cancel(id)
		}
	}()
	if j.stream {
		ended = s.streamed(w, r, j, q, id)
	} else {
		ended = s.whole(w, r, j, q, id)
	}
}

// understand reads the request and renders its prompt.
func (s *Server) understand(j *job, w http.ResponseWriter, r *http.Request) error {
	if err := j.read(w, r); err != nil {
		return err
	}
	v, err := j.parser.ParseBytes(j.body)
	if err != nil || v.Type() != fastjson.TypeObject {
		return bad("", "the body is not a JSON object")
	}
	if model := string(v.GetStringBytes("model")); model != s.cfg.Model {
		return &badRequest{http.StatusNotFound, "model", fmt.Sprintf("the model %q does not exist here; there is %q", model, s.cfg.Model)}
	}
	j.stream, j.usage = v.GetBool("stream"), v.GetBool("stream_options", "include_usage")
	if j.choices = 1; v.Get("n") != nil && v.Get("n").Type() != fastjson.TypeNull {
		if j.choices = v.GetInt("n"); j.choices < 1 || j.choices > 16 {
			return bad("n", "n may be 1 to 16")
		}
	}
	j.rendered = j.rendered[:0]
	if j.chat {
		err = j.renderChat(v)
	} else {
		err = j.renderPrompt(v.Get("prompt"))
	}
	if err != nil {
		return err
	}
	return s.plan(j, v)
}

func (j *job) read(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > maxBody {
		return &badRequest{http.StatusRequestEntityTooLarge, "", "the body is too large"}
	}
	b := j.body[:0]
	if n := int(r.ContentLength); n > cap(b) {
		b = make([]byte, 0, n+1)
	}
	body := http.MaxBytesReader(w, r.Body, maxBody)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return &badRequest{http.StatusRequestEntityTooLarge, "", "the body is too large or broke off"}
		}
	}
	j.body = b
	return nil
}

// renderChat writes the messages as a chat template does: each follows the one before, so that the beginning of a
// conversation is rendered as the beginning of its rendering.
func (j *job) renderChat(v *fastjson.Value) error {
	messages := v.GetArray("messages")
	if len(messages) == 0 {
		return bad("messages", "messages is missing or empty")
	}
	if tools := v.Get("tools"); tools != nil && tools.Type() == fastjson.TypeArray {
		j.rendered = append(tools.MarshalTo(append(j.rendered, "<|tools|>"...)), "<|end|>"...)
	}
	for i, m := range messages {
		role := m.GetStringBytes("role")
		if role == nil {
			return bad(fmt.Sprintf("messages[%d].role", i), "a message has no role")
		}
		j.rendered = append(append(append(j.rendered, "<|"...), role...), "|>"...)
		switch c := m.Get("content"); {
		case c == nil || c.Type() == fastjson.TypeNull:
		case c.Type() == fastjson.TypeString:
			j.rendered = append(j.rendered, c.GetStringBytes()...)
		case c.Type() == fastjson.TypeArray:
			for _, part := range c.GetArray() {
				if text := part.GetStringBytes("text"); text != nil {
					j.rendered = append(j.rendered, text...)
				} else {
					j.rendered = part.MarshalTo(j.rendered)
				}
			}
		default:
			return bad(fmt.Sprintf("messages[%d].content", i), "content is neither a text nor a list of parts")
		}
		if calls := m.Get("tool_calls"); calls != nil {
			j.rendered = calls.MarshalTo(j.rendered)
		}
		j.rendered = append(j.rendered, "<|end|>"...)
	}
	j.rendered = append(j.rendered, "<|assistant|>"...)
	return nil
}

func (j *job) renderPrompt(v *fastjson.Value) error {
	switch {
	case v != nil && v.Type() == fastjson.TypeString:
		j.rendered = append(j.rendered, v.GetStringBytes()...)
	case v != nil && v.Type() == fastjson.TypeArray && len(v.GetArray()) == 1 && v.GetArray()[0].Type() == fastjson.TypeString:
		j.rendered = append(j.rendered, v.GetArray()[0].GetStringBytes()...)
	case v != nil && v.Type() == fastjson.TypeArray && len(v.GetArray()) > 0 && v.GetArray()[0].Type() == fastjson.TypeNumber:
		for _, id := range v.GetArray() {
			n, err := id.Int()
			if err != nil {
				return bad("prompt", "a token is no whole number")
			}
			j.rendered = append(j.rendered, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		}
	default:
		return bad("prompt", "prompt is missing, or neither one text nor a list of tokens; an emulated engine takes one prompt a request")
	}
	if len(j.rendered) == 0 {
		return bad("prompt", "prompt is empty")
	}
	return nil
}

// plan counts the tokens, makes the answer, and hashes both into the engine's blocks.
func (s *Server) plan(j *job, v *fastjson.Value) error {
	j.prompt = len(j.rendered)
	j.request.Prompt = max(j.prompt/s.cfg.TokenBytes, 1)
	j.request.Output, j.limited = s.cfg.Output, false
	for _, key := range []string{"max_completion_tokens", "max_tokens"} {
		if m := v.Get(key); m != nil && m.Type() != fastjson.TypeNull {
			n, err := m.Int()
			if err != nil || n < 1 {
				return bad(key, "%s must be a whole number of at least 1", key)
			}
			j.request.Output, j.limited = n, true
			break
		}
	}
	// As vLLM does: what is over the context is cut off in silence, as long as the prompt itself leaves room.
	if room := s.cfg.Context - j.request.Prompt; room > 0 {
		j.request.Output = min(j.request.Output, room)
	}
	j.root = prefix.Domain{Model: s.cfg.Model, Salt: string(v.GetStringBytes("cache_salt"))}.Root()
	if j.request.Prompt >= s.cfg.Context {
		return nil // refused when it is submitted
	}
	j.seed = seedOf(j.rendered)
	j.rendered = emulate.Text(j.rendered, j.seed, 0, j.request.Output*s.cfg.TokenBytes)
	blockBytes := s.cfg.BlockTokens * s.cfg.TokenBytes
	// The model keeps the chain, so that it is the request's own.
	j.request.Chain = emulate.Blocks(make([]prefix.Hash, 0, len(j.rendered)/blockBytes), j.root, j.rendered, blockBytes)
	return nil
}

// token is the text of the answer's token i.
func (j *job) token(i, tokenBytes int) []byte {
	at := j.prompt + i*tokenBytes
	return j.rendered[at : at+tokenBytes]
}

func (j *job) finish() string {
	if j.limited {
		return "length"
	}
	return "stop"
}

// appendUsage writes what OpenAI calls the usage. Choices beyond the first are copies, and counted.
func (j *job) appendUsage(b []byte, tokens, cached int) []byte {
	tokens *= j.choices
	b = append(b, `"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(j.request.Prompt), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(tokens), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(j.request.Prompt+tokens), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	return append(b, "}}"...)
}

// head begins an answer or a chunk, up to its choices.
func (s *Server) head(b []byte, j *job, id uint64, object string) []byte {
	if j.chat {
		b = append(b, `{"id":"chatcmpl-emulated-`...)
	} else {
		b = append(b, `{"id":"cmpl-emulated-`...)
	}
	b = strconv.AppendUint(b, id, 10)
	b = append(append(append(b, `","object":"`...), object...), `","created":`...)
	b = append(append(b, s.created...), `,"model":`...)
	b = quote(b, s.cfg.Model)
	return append(b, `,"system_fingerprint":"emulated","choices":[`...)
}

// whole sends an answer when all of it is there.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, j *job, q *sequence, id uint64) (ended bool) {
	tokens, cached := 0, 0
	for !ended {
		var err error
		if tokens, cached, ended, err = s.wait(r.Context(), q, tokens); err != nil {
			return false
		}
	}
	object, open, shut := "text_completion", `"text":"`, `"`
	if j.chat {
		object, open, shut = "chat.completion", `"message":{"role":"assistant","content":"`, `"}`
	}
	b := s.head(j.out[:0], j, id, object)
	for n := range j.choices {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, `{"index":`...), int64(n), 10), ',')
		b = append(append(append(b, open...), j.rendered[j.prompt:j.prompt+tokens*s.cfg.TokenBytes]...), shut...)
		b = append(append(append(b, `,"logprobs":null,"finish_reason":"`...), j.finish()...), `"}`...)
	}
	b = append(j.appendUsage(append(b, `],`...), tokens, cached), '}')
	j.out = b
	answerJSON(w, b)
	return true
}

// streamed sends an answer token by token, each flushed.
func (s *Server) streamed(w http.ResponseWriter, r *http.Request, j *job, q *sequence, id uint64) (ended bool) {
	object := "text_completion"
	if j.chat {
		object = "chat.completion.chunk"
	}
	j.head = s.head(append(j.head[:0], "data: "...), j, id, object)
	flush := w.(http.Flusher)
	var tokens, cached int
	for sent := 0; !ended || sent < tokens; {
		if sent == tokens {
			var err error
			if tokens, cached, ended, err = s.wait(r.Context(), q, sent); err != nil {
				return false
			}
			continue
		}
		if sent == 0 {
			w.Header()["Content-Type"] = eventStream
		}
		j.out = j.appendChunk(j.out[:0], sent, s.cfg.TokenBytes)
		if _, err := w.Write(j.out); err != nil {
			return false
		}
		flush.Flush()
		sent++
	}
	j.out = j.appendEnd(j.out[:0], tokens, cached)
	_, err := w.Write(j.out)
	return err == nil
}

// appendChunk writes one token of every choice.
func (j *job) appendChunk(b []byte, i, tokenBytes int) []byte {
	open, shut := `"text":"`, `"`
	if j.chat {
		open, shut = `"delta":{"content":"`, `"}`
		if i == 0 {
			open = `"delta":{"role":"assistant","content":"`
		}
	}
	for n := range j.choices {
		b = append(b, j.head...)
		b = append(strconv.AppendInt(append(b, `{"index":`...), int64(n), 10), ',')
		b = append(append(append(b, open...), j.token(i, tokenBytes)...), shut...)
		b = append(b, `,"finish_reason":null}]}`+"\n\n"...)
	}
	return b
}

// appendEnd writes what comes after the last token: why it ended, the usage, [DONE].
func (j *job) appendEnd(b []byte, tokens, cached int) []byte {
	nothing := `"text":""`
	if j.chat {
		nothing = `"delta":{}`
	}
	for n := range j.choices {
		b = append(b, j.head...)
		b = append(strconv.AppendInt(append(b, `{"index":`...), int64(n), 10), ',')
		b = append(append(append(b, nothing...), `,"finish_reason":"`...), j.finish()...)
		b = append(b, `"}]}`+"\n\n"...)
	}
	if j.usage {
		b = append(append(b, j.head...), `],`...)
	} else {
		b = append(b, ": {"...) // a comment, which clients pass over: the agent beside this engine learns its counts from it
	}
	b = append(j.appendUsage(b, tokens, cached), "}\n\n"...)
	return append(b, "data: [DONE]\n\n"...)
}

var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	jsonType    = []string{"application/json"}
)

func answerJSON(w http.ResponseWriter, b []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.Write(b)
}

func answerBad(w http.ResponseWriter, err error) {
	var b *badRequest
	if !errors.As(err, &b) {
		b = &badRequest{status: http.StatusInternalServerError, text: "failed"}
	}
	kind := "BadRequestError"
	if b.status == http.StatusNotFound {
		kind = "NotFoundError"
	}
	answerError(w, b.status, kind, b.param, b.text)
}

func answerError(w http.ResponseWriter, status int, kind, param, text string) {
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    int     `json:"code"`
		} `json:"error"`
	}
	e.Error.Message, e.Error.Type, e.Error.Code = text, kind, status
	if param != "" {
		e.Error.Param = &param
	}
	b, _ := json.Marshal(e) // plain strings always can be
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(status)
	w.Write(b)
}
