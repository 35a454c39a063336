package body

import (
	"fmt"
	"strconv"

	"shoal/internal/peer"
)

// Kind is which API a body belongs to.
type Kind uint8

const (
	Other      Kind = iota // a path that the gateway only passes through: the model is looked for, nothing is required
	Chat                   // /v1/chat/completions
	Completion             // /v1/completions
	Embedding              // /v1/embeddings
)

// Limits of what one body may hold. They bound the scanner's own memory, beside the text itself: 80 bytes a member of a
// message.
const (
	MaxMembers    = 1 << 18 // members of all messages together
	MaxDuplicates = 8       // repetitions of model or cache_salt, all of which a Splice replaces
)

// How much memory a scanner keeps from one body to the next.
const (
	keepMembers = 1 << 12
	keepText    = 1 << 20
)

// Error says what is wrong with a body, and where.
type Error struct {
	Offset int    // in bytes
	Field  string // the field that the client has to change, for example "messages[2].role"; empty where none is known
	What   string // "':' is expected after a key"
	Syntax bool   // the body is not JSON
}

func (e *Error) Error() string {
	switch {
	case !e.Syntax:
		return fmt.Sprintf("%s: %s", e.Field, e.What)
	case e.Field != "":
		return fmt.Sprintf("the body is not valid JSON: %s at byte %d, in %s", e.What, e.Offset, e.Field)
	}
	return fmt.Sprintf("the body is not valid JSON: %s at byte %d", e.What, e.Offset)
}

// Scanner reads bodies, one after another. The zero value is ready. It keeps the body given to Scan until the next Scan
// or Forget, and does not change it.
type Scanner struct {
	Model     string // as the client wrote it
	Stream    bool
	MaxTokens int    // max_completion_tokens, else max_tokens; peer.Unknown where neither is a plain number
	CacheSalt string // the client's own

	kind   Kind
	w      walker
	at     [fields]span // where the value of each known member is: of its last occurrence, which wins as in Python
	models []span       // each occurrence of model, and of cache_salt
	salts  []span
	end    int  // of the body's object: where its closing brace is
	empty  bool // it has no member
	msgs   []message
	parts  []member
	prompt span   // of s.text: a completion's prompt, where it is a string
	text   []byte // text of strings, decoded: text[:used]
	used   int
	name   []byte // of a key with escapes
}

// field is a top-level member that means something here.
type field uint8

const (
	unknown field = iota
	model
	stream
	maxTokens
	maxCompletionTokens
	cacheSalt
	messages
	prompt
	promptEmbeds
	input
	tools
	functions
	documents
	chatTemplate
	chatTemplateArgs
	fields
)

func fieldOf(key []byte) field {
	switch string(key) {
	case "model":
		return model
	case "stream":
		return stream
	case "max_tokens":
		return maxTokens
	case "max_completion_tokens":
		return maxCompletionTokens
	case "cache_salt":
		return cacheSalt
	case "messages":
		return messages
	case "prompt":
		return prompt
	case "prompt_embeds":
		return promptEmbeds
	case "input":
		return input
	case "tools":
		return tools
	case "functions":
		return functions
	case "documents":
		return documents
	case "chat_template":
		return chatTemplate
	case "chat_template_kwargs":
		return chatTemplateArgs
	}
	return unknown
}

// message is one element of messages: parts[from:to] are its members, in their order, and the pieces of its content.
type message struct{ from, to int }

// member is one member of a message, or one piece of a content that is an array.
type member struct {
	key    span // of a piece: its type
	value  span
	text   span // of s.text, where the value is a string, or the piece has one for a text
	is     part
	isText bool
	pieces int // of a content: how many pieces follow it
}

type part uint8

const (
	otherPart part = iota
	rolePart
	contentPart
	piece
)

// Scan reads b: it checks that b is JSON and holds what kind requires, and fills the exported fields. Of an Other body
// that is no JSON object it takes nothing, and finds no fault.
func (s *Scanner) Scan(kind Kind, b []byte) *Error {
	s.Forget()
	s.kind, s.w.b = kind, b
	err := s.top()
	if err == nil {
		err = s.check()
	}
	if err != nil && kind == Other {
		s.Forget()
		return nil
	}
	return err
}

// Forget lets go of the body. The memory behind the scanner stays for the next one, where it is not unusually much.
func (s *Scanner) Forget() {
	n := Scanner{MaxTokens: peer.Unknown, models: s.models[:0], salts: s.salts[:0]}
	if cap(s.parts) <= keepMembers && cap(s.msgs) <= keepMembers {
		n.msgs, n.parts = s.msgs[:0], s.parts[:0]
	}
	if len(s.text) <= keepText {
		n.text = s.text
	}
	*s = n
}

// top walks the members of the body's object.
func (s *Scanner) top() *Error {
	w := &s.w
	i := w.space(0)
	if i >= len(w.b) {
		return &Error{Offset: i, What: "the body is empty", Syntax: true}
	}
	if w.b[i] != '{' {
		return &Error{Offset: i, What: "a JSON object is expected", Syntax: true}
	}
	for first := true; ; first = false {
		key, at, more := w.member(i, first)
		if !more {
			i, s.empty = at, first
			break
		}
		is := fieldOf(s.decode(key))
		if is == messages && s.kind == Chat && at < len(w.b) && w.b[at] == '[' {
			i = s.readMessages(at)
		} else if is == prompt && s.kind == Completion && at < len(w.b) && w.b[at] == '"' {
			i, s.prompt = s.read(at)
		} else {
			i = w.value(at, 1)
		}
		if i < 0 {
			w.fault.Field = string(s.decode(key))
			break
		}
		if err := s.note(is, span{at, i}); err != nil {
			return err
		}
	}
	if i >= 0 {
		s.end = i - 1
		if i = w.space(i); i < len(w.b) {
			w.fail(i, "something follows the object")
		}
	}
	return w.fault
}

func (s *Scanner) note(is field, v span) *Error {
	s.at[is] = v
	switch is {
	case model:
		s.models = append(s.models, v)
	case cacheSalt:
		s.salts = append(s.salts, v)
	}
	if len(s.models) > MaxDuplicates || len(s.salts) > MaxDuplicates {
		return &Error{Offset: v.from, Field: map[field]string{model: "model", cacheSalt: "cache_salt"}[is], What: "is given too many times"}
	}
	return nil
}

// readMessages walks the array of messages that starts at i and notes each message's members. A later "messages" member
// replaces an earlier one.
func (s *Scanner) readMessages(i int) int {
	s.msgs, s.parts, s.used = s.msgs[:0], s.parts[:0], 0
	w := &s.w
	for first := true; ; first = false {
		at, more := w.element(i, first)
		if !more {
			return at
		}
		m := message{from: len(s.parts)}
		if at < len(w.b) && w.b[at] == '{' {
			i = s.readMessage(at)
		} else {
			i = w.value(at, 2) // check finds that it has no role
		}
		if i < 0 {
			return -1
		}
		m.to = len(s.parts)
		s.msgs = append(s.msgs, m)
	}
}

func (s *Scanner) readMessage(i int) int {
	w := &s.w
	for first := true; ; first = false {
		key, at, more := w.member(i, first)
		if !more {
			return at
		}
		m := member{key: key}
		switch string(s.decode(key)) {
		case "role":
			m.is = rolePart
		case "content":
			m.is = contentPart
		}
		n := len(s.parts)
		if !s.add(m, at) {
			return -1
		}
		var t span
		switch {
		case at < len(w.b) && w.b[at] == '"':
			i, t = s.read(at)
			s.parts[n].text, s.parts[n].isText = t, true
		case at < len(w.b) && w.b[at] == '[' && m.is == contentPart:
			i = s.readPieces(at)
			s.parts[n].pieces = len(s.parts) - n - 1
		default:
			i = w.value(at, 3)
		}
		if i < 0 {
			return -1
		}
		s.parts[n].value = span{at, i}
	}
}

// readPieces walks the content array that starts at i.
func (s *Scanner) readPieces(i int) int {
	w := &s.w
	for first := true; ; first = false {
		at, more := w.element(i, first)
		if !more {
			return at
		}
		n := len(s.parts)
		if !s.add(member{is: piece}, at) {
			return -1
		}
		if at < len(w.b) && w.b[at] == '{' {
			i = s.readPiece(at, &s.parts[n])
		} else {
			i = w.value(at, 4)
		}
		if i < 0 {
			return -1
		}
		s.parts[n].value = span{at, i}
	}
}

func (s *Scanner) readPiece(i int, p *member) int {
	w := &s.w
	for first := true; ; first = false {
		key, at, more := w.member(i, first)
		if !more {
			return at
		}
		if at >= len(w.b) || w.b[at] != '"' {
			i = w.value(at, 5)
		} else {
			switch string(s.decode(key)) {
			case "text":
				i, p.text = s.read(at)
				p.isText = true
			case "type":
				i = w.str(at)
				p.key = span{at + 1, i - 1}
			default:
				i = w.str(at)
			}
		}
		if i < 0 {
			return -1
		}
	}
}

func (s *Scanner) add(m member, at int) bool {
	if len(s.parts) >= MaxMembers {
		s.w.fault = &Error{Offset: at, What: "has too many members"} // top names the field
		return false
	}
	s.parts = append(s.parts, m)
	return true
}

// check takes the values that the gateway uses, and refuses a body that no engine could serve.
func (s *Scanner) check() *Error {
	if v := s.at[model]; v.there() && !s.null(v) {
		if s.w.b[v.from] != '"' {
			return s.wrong(model, "model", "must be a string")
		}
		s.Model = string(s.decode(span{v.from + 1, v.to - 1}))
	}
	if s.Model == "" && s.kind != Other {
		return s.wrong(model, "model", "is missing: name the model")
	}
	if v := s.at[stream]; v.there() && !s.null(v) {
		switch s.w.b[v.from] {
		case 't':
			s.Stream = true
		case 'f':
		default:
			return s.wrong(stream, "stream", "must be true or false")
		}
	}
	if v := s.at[cacheSalt]; v.there() && !s.null(v) {
		if s.w.b[v.from] != '"' {
			return s.wrong(cacheSalt, "cache_salt", "must be a string")
		}
		s.CacheSalt = string(s.decode(span{v.from + 1, v.to - 1}))
	}
	s.MaxTokens = s.count(s.at[maxTokens])
	if n := s.count(s.at[maxCompletionTokens]); n != peer.Unknown {
		s.MaxTokens = n
	}
	switch s.kind {
	case Chat:
		return s.checkMessages()
	case Completion:
		if !s.given(prompt) && !s.given(promptEmbeds) {
			return s.wrong(prompt, "prompt", "is missing")
		}
	case Embedding:
		if !s.given(input) && !s.given(messages) {
			return s.wrong(input, "input", "is missing")
		}
	}
	return nil
}

func (s *Scanner) checkMessages() *Error {
	v := s.at[messages]
	switch {
	case !s.given(messages):
		return s.wrong(messages, "messages", "is missing: give at least one message")
	case s.w.b[v.from] != '[':
		return s.wrong(messages, "messages", "must be an array of messages")
	case len(s.msgs) == 0:
		return s.wrong(messages, "messages", "is empty: give at least one message")
	}
	for n, m := range s.msgs {
		if role := s.last(m, rolePart); role < 0 || !s.parts[role].isText {
			return s.wrong(messages, "messages["+strconv.Itoa(n)+"].role", "must be there, and be a string")
		}
	}
	return nil
}

// last gives a message's last member of a kind, the one that wins; -1 where there is none.
func (s *Scanner) last(m message, is part) int {
	for i := m.to - 1; i >= m.from; i-- {
		if s.parts[i].is == is {
			return i
		}
	}
	return -1
}

func (s *Scanner) given(is field) bool { return s.at[is].there() && !s.null(s.at[is]) }

func (s *Scanner) null(v span) bool { return s.w.b[v.from] == 'n' }

func (s *Scanner) wrong(is field, name, what string) *Error {
	return &Error{Offset: s.at[is].from, Field: name, What: what}
}

// count reads a number of tokens; peer.Unknown where it is none: the engine may know better.
func (s *Scanner) count(v span) int {
	n, digits := 0, v.to-v.from
	if digits == 0 || digits > 9 {
		return peer.Unknown
	}
	for _, c := range s.w.b[v.from:v.to] {
		if c < '0' || c > '9' {
			return peer.Unknown
		}
		n = n*10 + int(c-'0')
	}
	return n
}
