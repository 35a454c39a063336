package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// assemble reads a whole event stream and makes of it the plain answer that the same request without "stream" gets. An
// answer that breaks off is an error, never a shorter answer: nothing of it has been seen by the client.
func (l *llamacpp) assemble(a *answer, chat bool) (*Response, error) {
	defer a.Close()
	s := assembly{chat: chat, room: l.cl.cfg.MaxAnswer, choices: map[int]*choice{}}
	ev := events{r: a, max: min(maxEvent, l.cl.cfg.MaxAnswer)}
	for {
		event, end := ev.next()
		if d := data(event); len(d) > 0 && string(d) != "[DONE]" && (end == nil || end == io.EOF) {
			if err := s.add(d); err != nil {
				return nil, err
			}
		}
		if s.failure != nil {
			return plainResponse(s.code, a, s.failure, UnknownUsage()), nil
		}
		if end == io.EOF {
			break
		}
		if end != nil {
			return nil, brokenOff(a.ctx, end)
		}
	}
	body := s.append(nil)
	return plainResponse(http.StatusOK, a, body, findUsage(body)), nil
}

// brokenOff leaves the end of ctx as it is: it is nobody's failure.
func brokenOff(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// plainResponse is a whole answer in memory, with the head of the stream that it was made of.
func plainResponse(status int, a *answer, body []byte, u Usage) *Response {
	h := a.res.Header
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Del("X-Accel-Buffering")
	return &Response{Status: status, Header: h, Body: io.NopCloser(bytes.NewReader(body)), Usage: func() Usage { return u }}
}

const (
	maxChoices = 128 // choices of an answer, and tool calls of a choice
	maxFields  = 64  // members of any object that is put together; no real answer has that many
)

// assembly collects the chunks of an answer. JSON values go over as they are, and the pieces of strings are put together
// without being decoded.
type assembly struct {
	chat    bool
	room    int // bytes that may still come
	top     fields
	choices map[int]*choice
	usage   owned
	timings owned
	failure []byte // the engine's own error, which came in the stream
	code    int
}

// owned is a value that every choice may bring; that of the least index stands.
type owned struct {
	value []byte
	index int
}

func (o *owned) take(index int, v []byte) {
	if isObject(v) && (o.value == nil || index < o.index) {
		o.value, o.index = bytes.Clone(v), index
	}
}

// add takes in one chunk.
func (s *assembly) add(chunk []byte) error {
	if s.room -= len(chunk); s.room < 0 {
		return failed(ErrTooLong, errors.New("the chunks of a plain answer exceed max_answer"))
	}
	if chunk = bytes.TrimSpace(chunk); !json.Valid(chunk) || chunk[0] != '{' {
		return failed(ErrProtocol, fmt.Errorf("a chunk of the stream is no JSON object: %.80q", chunk))
	}
	if e := member(chunk, "error"); e != nil {
		s.failure = bytes.Clone(chunk)
		if s.code = whole(member(e, "code"), 0); s.code < 400 || s.code > 599 {
			s.code = http.StatusInternalServerError
		}
		return nil
	}
	if member(chunk, "prompt_progress") != nil {
		return nil
	}
	index, err := 0, error(nil)
	eachElement(member(chunk, "choices"), func(v []byte) {
		index = whole(member(v, "index"), 0)
		err = errors.Join(err, s.choice(index, v))
	})
	eachMember(chunk, func(key string, v []byte) {
		switch key {
		case "choices", "object":
		case "usage":
			s.usage.take(index, v)
		case "timings":
			s.timings.take(index, v)
		default:
			s.top.replace(key, v)
		}
	})
	return err
}

// choice takes in one choice of a chunk.
func (s *assembly) choice(index int, v []byte) error {
	c := s.choices[index]
	if c == nil {
		if len(s.choices) >= maxChoices || index < 0 {
			return failed(ErrTooLong, fmt.Errorf("more than %d choices", maxChoices))
		}
		c = &choice{calls: map[int]*call{}}
		c.replace("finish_reason", []byte("null"))
		c.replace("index", strconv.AppendInt(nil, int64(index), 10))
		c.message.replace("role", []byte(`"assistant"`))
		s.choices[index] = c
	}
	var err error
	eachMember(v, func(key string, v []byte) {
		switch {
		case key == "index":
		case key == "delta":
			err = errors.Join(err, c.delta(v))
		case key == "text" && isString(v):
			c.join(key, v)
		case key == "logprobs" && isObject(v):
			eachMember(v, c.logs.extend)
		default:
			c.replace(key, v)
		}
	})
	return err
}

// choice is one of the answers asked for.
type choice struct {
	fields
	message fields
	calls   map[int]*call
	logs    fields // the insides of the arrays of logprobs
}

// call is a tool call, whose arguments come in pieces.
type call struct {
	fields
	function fields
}

// delta takes in a piece of a message: pieces of strings are joined, tool calls put together by their index.
func (c *choice) delta(v []byte) (err error) {
	eachMember(v, func(key string, v []byte) {
		switch {
		case key == "tool_calls":
			n := 0
			eachElement(v, func(v []byte) {
				err = errors.Join(err, c.toolCall(whole(member(v, "index"), n), v))
				n++
			})
		case key != "role" && isString(v):
			c.message.join(key, v)
		default:
			c.message.replace(key, v)
		}
	})
	return err
}

func (c *choice) toolCall(index int, v []byte) error {
	t := c.calls[index]
	if t == nil {
		if len(c.calls) >= maxChoices || index < 0 {
			return failed(ErrTooLong, fmt.Errorf("more than %d tool calls", maxChoices))
		}
		t = &call{}
		c.calls[index] = t
	}
	eachMember(v, func(key string, v []byte) {
		switch {
		case key == "index":
		case key == "function":
			t.replace(key, []byte("{}")) // filled in when all is there
			eachMember(v, func(key string, v []byte) {
				if isString(v) {
					t.function.join(key, v)
				} else {
					t.function.replace(key, v)
				}
			})
		default:
			t.replace(key, v)
		}
	})
	return nil
}

// append writes the whole answer.
func (s *assembly) append(b []byte) []byte {
	b = append(b, `{"choices":[`...)
	for n, i := range slices.Sorted(maps.Keys(s.choices)) {
		if n > 0 {
			b = append(b, ',')
		}
		b = s.choices[i].append(b, s.chat)
	}
	if s.chat {
		b = append(b, `],"object":"chat.completion"`...)
	} else {
		b = append(b, `],"object":"text_completion"`...)
	}
	if len(s.top.keys) > 0 {
		b = s.top.append(append(b, ','))
	}
	if s.usage.value != nil {
		b = append(append(b, `,"usage":`...), s.usage.value...)
	}
	if s.timings.value != nil {
		b = append(append(b, `,"timings":`...), s.timings.value...)
	}
	return append(b, '}')
}

func (c *choice) append(b []byte, chat bool) []byte {
	if len(c.logs.keys) > 0 {
		c.replace("logprobs", append(c.logs.append([]byte{'{'}), '}'))
	}
	b = c.fields.append(append(b, '{'))
	if chat {
		b = c.appendMessage(append(b, `,"message":{`...))
		b = append(b, '}')
	}
	return append(b, '}')
}

func (c *choice) appendMessage(b []byte) []byte {
	if i := c.message.at("content"); i >= 0 && c.message.kind[i] == raw {
		word := `""` // an answer without a word is an empty one, not none
		if len(c.calls) > 0 {
			word = "null"
		}
		c.message.values[i] = []byte(word)
	}
	b = c.message.append(b)
	if len(c.calls) == 0 {
		return b
	}
	b = append(b, `,"tool_calls":[`...)
	for n, i := range slices.Sorted(maps.Keys(c.calls)) {
		if n > 0 {
			b = append(b, ',')
		}
		t := c.calls[i]
		if len(t.function.keys) > 0 {
			t.replace("function", append(t.function.append([]byte{'{'}), '}'))
		}
		b = append(t.fields.append(append(b, '{')), '}')
	}
	return append(b, ']')
}

// fields are the members of an object that is put together, in the order in which they first came.
type fields struct {
	keys   []string
	values [][]byte
	kind   []kind
}

// kind says what of a member is kept.
type kind uint8

const (
	raw   kind = iota // the value
	text              // the inside of a string
	array             // the inside of an array
)

// at finds or makes a member; -1 beyond maxFields.
func (f *fields) at(key string) int {
	if i := slices.Index(f.keys, key); i >= 0 {
		return i
	}
	if len(f.keys) >= maxFields {
		return -1
	}
	f.keys, f.values, f.kind = append(f.keys, key), append(f.values, nil), append(f.kind, raw)
	return len(f.keys) - 1
}

// replace sets a member to the newest value that is not null.
func (f *fields) replace(key string, v []byte) {
	if i := f.at(key); i >= 0 && (!isNull(v) || f.values[i] == nil) {
		f.values[i], f.kind[i] = append(f.values[i][:0], v...), raw
	}
}

// join appends a piece of a string to what there is of it.
func (f *fields) join(key string, v []byte) { f.more(key, text, nil, v[1:len(v)-1]) }

// extend appends the elements of an array to those that there are.
func (f *fields) extend(key string, v []byte) {
	if v[0] != '[' {
		return
	}
	if v = bytes.Trim(v[1:len(v)-1], jsonSpace); len(v) == 0 {
		f.more(key, array, nil, nil)
	} else {
		f.more(key, array, []byte{','}, v)
	}
}

func (f *fields) more(key string, k kind, between, piece []byte) {
	i := f.at(key)
	if i < 0 {
		return
	}
	if f.kind[i] != k {
		f.values[i], f.kind[i] = nil, k
	}
	if len(f.values[i]) > 0 {
		f.values[i] = append(f.values[i], between...)
	}
	f.values[i] = append(f.values[i], piece...)
}

// append writes the members, without braces.
func (f *fields) append(b []byte) []byte {
	for i, key := range f.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(quote(b, key), ':')
		switch v := f.values[i]; f.kind[i] {
		case text:
			b = append(append(append(b, '"'), v...), '"')
		case array:
			b = append(append(append(b, '['), v...), ']')
		default:
			if v == nil {
				v = []byte("null")
			}
			b = append(b, v...)
		}
	}
	return b
}
