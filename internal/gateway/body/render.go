package body

import "shoal/internal/prefix"

// Render writes the prompt's canonical rendering into c, which has been Reset with the root of the request's domain, and
// finishes it. It gives the bytes of the whole prompt: of several prompts in one request the first is rendered, since
// that is where they begin alike if they do, and the others count by their length.
//
// The order is that of chat templates: tools and what else stands before all messages, then the messages, and in each its
// content before its other members. A null member is no member. After Scan nothing can be wrong any more: what a template
// would not know is written as it is, and the engine judges it.
func (s *Scanner) Render(c *prefix.Chain) (bytes int) {
	bytes = -1
	switch {
	case s.kind == Chat, s.kind == Embedding && !s.given(input):
		s.renderChat(c)
	case s.kind == Completion:
		bytes = s.renderPrompts(c, s.at[prompt])
	case s.kind == Embedding:
		bytes = s.renderPrompts(c, s.at[input])
	}
	c.Finish()
	if bytes < 0 {
		bytes = c.Bytes()
	}
	return bytes
}

func (s *Scanner) renderChat(c *prefix.Chain) {
	if s.given(tools) {
		c.Tools()
		c.WriteJSON(s.raw(s.at[tools]))
	}
	for _, f := range [...]struct {
		is   field
		name string
	}{{functions, "functions"}, {documents, "documents"}, {chatTemplate, "chat_template"}, {chatTemplateArgs, "chat_template_kwargs"}} {
		if s.given(f.is) {
			c.Part(f.name)
			c.WriteJSON(s.raw(s.at[f.is]))
		}
	}
	for _, m := range s.msgs {
		s.renderMessage(c, m)
	}
	if s.kind == Embedding {
		c.WriteJSON(s.raw(s.at[messages]))
	}
}

func (s *Scanner) renderMessage(c *prefix.Chain, m message) {
	c.Message(string(s.textOf(s.parts[s.last(m, rolePart)].text)))
	if content := s.last(m, contentPart); content >= 0 {
		s.renderContent(c, content)
	}
	for i := m.from; i < m.to; i++ {
		if p := &s.parts[i]; p.is == otherPart && !s.null(p.value) {
			c.Part(string(s.decode(p.key)))
			c.WriteJSON(s.raw(p.value))
		}
	}
}

// renderContent writes a message's content: a string reads the same as one piece of type text.
func (s *Scanner) renderContent(c *prefix.Chain, content int) {
	m := &s.parts[content]
	switch s.w.b[m.value.from] {
	case '"':
		c.Part("text")
		c.Write(s.textOf(m.text))
	case '[':
		for i := range m.pieces {
			s.renderPiece(c, &s.parts[content+1+i])
		}
	case 'n': // null: a message of tool calls
	default:
		c.Part("")
		c.WriteJSON(s.raw(m.value))
	}
}

func (s *Scanner) renderPiece(c *prefix.Chain, p *member) {
	kind := string(s.decode(p.key))
	c.Part(kind)
	switch {
	case p.isText:
		c.Write(s.textOf(p.text))
	case kind == "image_url" || kind == "input_image" || kind == "input_audio" || kind == "audio_url" || kind == "video_url" || kind == "file":
		c.Digest(s.raw(p.value))
	default:
		c.WriteJSON(s.raw(p.value))
	}
}

// renderPrompts writes the prompt of a completion or the input of an embedding: a string, the ids of tokens, or an array
// of either.
func (s *Scanner) renderPrompts(c *prefix.Chain, v span) (bytes int) {
	if !v.there() {
		return 0
	}
	if s.w.b[v.from] == '[' {
		at, more := s.w.element(v.from, true)
		if !more {
			return 0
		}
		if first := s.w.b[at]; first == '"' || first == '[' {
			end := s.w.value(at, 0)
			s.renderPrompt(c, span{at, end})
			return int(int64(c.Bytes()) * int64(v.to-v.from) / int64(end-at))
		}
	}
	s.renderPrompt(c, v)
	return c.Bytes()
}

func (s *Scanner) renderPrompt(c *prefix.Chain, v span) {
	switch s.w.b[v.from] {
	case '"':
		c.Part("prompt")
		if s.prompt.to > 0 && v == s.at[prompt] {
			c.Write(s.textOf(s.prompt))
		} else {
			c.Write(s.decode(span{v.from + 1, v.to - 1}))
		}
	case '[':
		c.Part("tokens")
		i := v.from
		for first := true; ; first = false {
			at, more := s.w.element(i, first)
			if !more {
				return
			}
			i = s.w.value(at, 0)
			id := uint32(0)
			for _, d := range s.w.b[at:i] { // what is no number is hashed as something, and refused by the engine
				id = id*10 + uint32(d-'0')
			}
			c.WriteToken(id)
		}
	default:
		c.Part("")
		c.WriteJSON(s.raw(v))
	}
}

func (s *Scanner) raw(v span) []byte { return s.w.b[v.from:v.to] }

func (s *Scanner) textOf(t span) []byte { return s.text[t.from:t.to] }
