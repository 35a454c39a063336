package body

import (
	"strings"
	"testing"

	"shoal/internal/peer"
)

func TestScanFindsWhatTheGatewayNeeds(t *testing.T) {
	msgs := `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, body string
		kind       Kind
		model      string
		stream     bool
		max        int
		salt       string
	}{
		{"the least", `{"model":"m",` + msgs + `}`, Chat, "m", false, peer.Unknown, ""},
		{"everything", `{"model":"m","stream":true,"max_tokens":7,"cache_salt":"s",` + msgs + `}`, Chat, "m", true, 7, "s"},
		{"white space", " {\n\t\"model\" : \"m\" ,\r\n" + msgs + " }\n", Chat, "m", false, peer.Unknown, ""},
		{"model after the prompt", `{` + msgs + `,"model":"late"}`, Chat, "late", false, peer.Unknown, ""},
		{"max_completion_tokens counts more", `{"model":"m","max_completion_tokens":5,"max_tokens":9,` + msgs + `}`, Chat, "m", false, 5, ""},
		{"nulls are absent", `{"model":"m","stream":null,"max_tokens":null,"cache_salt":null,` + msgs + `}`, Chat, "m", false, peer.Unknown, ""},
		{"odd token counts are the engine's business", `{"model":"m","max_tokens":-1,"max_completion_tokens":1e3,` + msgs + `}`, Chat, "m", false, peer.Unknown, ""},
		{"escaped keys and values", `{"mod\u0065l":"a\/b\n","cache\u005fsalt":"\ud83d\ude00",` + msgs + `}`, Chat, "a/b\n", false, peer.Unknown, "😀"},
		{"the last duplicate wins", `{"model":"a","stream":true,"model":"b","stream":false,` + msgs + `}`, Chat, "b", false, peer.Unknown, ""},
		{"completion", `{"model":"m","prompt":"p"}`, Completion, "m", false, peer.Unknown, ""},
		{"completion of embeddings", `{"model":"m","prompt_embeds":"AAAA"}`, Completion, "m", false, peer.Unknown, ""},
		{"empty prompt", `{"model":"m","prompt":""}`, Completion, "m", false, peer.Unknown, ""},
		{"embedding", `{"model":"m","input":["a","b"]}`, Embedding, "m", false, peer.Unknown, ""},
		{"embedding of messages", `{"model":"m",` + msgs + `}`, Embedding, "m", false, peer.Unknown, ""},
		{"other", `{"model":"m","input":1}`, Other, "m", false, peer.Unknown, ""},
		{"other without a model", `{}`, Other, "", false, peer.Unknown, ""},
		{"other that is no JSON", "--boundary\r\nContent-Disposition: form-data", Other, "", false, peer.Unknown, ""},
		{"other that is cut off", `{"model":"m","x":`, Other, "", false, peer.Unknown, ""},
		{"other without a body", "", Other, "", false, peer.Unknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Scanner
			if err := s.Scan(c.kind, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			if s.Model != c.model || s.Stream != c.stream || s.MaxTokens != c.max || s.CacheSalt != c.salt {
				t.Errorf("got model %q stream %v max %d salt %q", s.Model, s.Stream, s.MaxTokens, s.CacheSalt)
			}
		})
	}
}

func TestFaultsNameTheFieldAndThePosition(t *testing.T) {
	ok := `[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, body, field string
		kind              Kind
		offset            int // -1: not looked at
		syntax            bool
	}{
		{"empty body", ``, "", Chat, 0, true},
		{"only space", " \n", "", Chat, 2, true},
		{"no object", `[1]`, "", Chat, 0, true},
		{"cut off", `{"model":"m","messages":[{"role":"user"`, "messages", Chat, 39, true},
		{"cut off in a string", `{"model":"m","messages":[{"role":"user","content":"abc`, "messages", Chat, 54, true},
		{"trailing comma", `{"model":"m",}`, "", Chat, 13, true},
		{"trailing comma in an array", `{"messages":[1,]}`, "messages", Chat, 15, true},
		{"no colon", `{"model" "m"}`, "", Chat, 9, true},
		{"key without quotes", `{model:"m"}`, "", Chat, 1, true},
		{"single quotes", `{"model":'m'}`, "model", Chat, 9, true},
		{"something behind", `{"model":"m"} x`, "", Chat, 14, true},
		{"two objects", `{"model":"m"}{}`, "", Chat, 13, true},
		{"raw newline in a string", "{\"model\":\"a\nb\"}", "model", Chat, 11, true},
		{"raw newline in a message", "{\"messages\":[{\"role\":\"a\nb\"}]}", "messages", Chat, 23, true},
		{"bad escape", `{"model":"\x41"}`, "model", Chat, 10, true},
		{"bad escape in a message", `{"messages":[{"role":"\u12g4"}]}`, "messages", Chat, 22, true},
		{"half an escape", `{"model":"\`, "model", Chat, 10, true},
		{"leading zero", `{"n":01}`, "", Chat, 6, true},
		{"bare minus", `{"n":-}`, "n", Chat, 5, true},
		{"no fraction", `{"n":1.}`, "n", Chat, 5, true},
		{"no exponent", `{"n":1e+}`, "n", Chat, 5, true},
		{"NaN", `{"temperature":NaN}`, "temperature", Chat, 15, true},
		{"half a literal", `{"stream":tru}`, "stream", Chat, 10, true},
		{"Python's literal", `{"stream":True}`, "stream", Chat, 10, true},

		{"no model", `{"messages":` + ok + `}`, "model", Chat, -1, false},
		{"empty model", `{"model":"","messages":` + ok + `}`, "model", Chat, -1, false},
		{"null model", `{"model":null,"messages":` + ok + `}`, "model", Chat, -1, false},
		{"model is a number", `{"model":1,"messages":` + ok + `}`, "model", Chat, -1, false},
		{"stream is a string", `{"model":"m","stream":"yes","messages":` + ok + `}`, "stream", Chat, -1, false},
		{"salt is a number", `{"model":"m","cache_salt":1,"messages":` + ok + `}`, "cache_salt", Chat, -1, false},
		{"no messages", `{"model":"m"}`, "messages", Chat, -1, false},
		{"null messages", `{"model":"m","messages":null}`, "messages", Chat, -1, false},
		{"empty messages", `{"model":"m","messages":[]}`, "messages", Chat, -1, false},
		{"messages emptied by a duplicate", `{"model":"m","messages":` + ok + `,"messages":[ ]}`, "messages", Chat, -1, false},
		{"messages is a string", `{"model":"m","messages":"hi"}`, "messages", Chat, -1, false},
		{"messages replaced by a number", `{"model":"m","messages":` + ok + `,"messages":1}`, "messages", Chat, -1, false},
		{"a message is a string", `{"model":"m","messages":["hi"]}`, "messages[0].role", Chat, -1, false},
		{"a message without a role", `{"model":"m","messages":[{"role":"user"},{"content":"hi"}]}`, "messages[1].role", Chat, -1, false},
		{"a role that is a number", `{"model":"m","messages":[{"role":1}]}`, "messages[0].role", Chat, -1, false},
		{"a role replaced by null", `{"model":"m","messages":[{"role":"user","role":null}]}`, "messages[0].role", Chat, -1, false},
		{"no prompt", `{"model":"m"}`, "prompt", Completion, -1, false},
		{"no input", `{"model":"m"}`, "input", Embedding, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Scanner
			err := s.Scan(c.kind, []byte(c.body))
			if err == nil {
				t.Fatal("no fault found")
			}
			if err.Field != c.field || err.Syntax != c.syntax || c.offset >= 0 && err.Offset != c.offset {
				t.Errorf("field %q offset %d syntax %v: %v", err.Field, err.Offset, err.Syntax, err)
			}
			if c.field != "" && !strings.Contains(err.Error(), c.field) {
				t.Errorf("the message does not name %q: %v", c.field, err)
			}
		})
	}
}

func TestDepthHasALimit(t *testing.T) {
	deep := func(levels int) []byte {
		return []byte(`{"model":"m","prompt":"p","x":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`)
	}
	var s Scanner
	if err := s.Scan(Completion, deep(MaxDepth-1)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := s.Scan(Completion, deep(MaxDepth)); err == nil || err.Field != "x" {
		t.Errorf("above the limit: %v", err)
	}
	if err := s.Scan(Completion, []byte(strings.Repeat(`{"a":`, 1<<20))); err == nil {
		t.Error("a body of a million levels passes")
	}
}

func TestMembersHaveALimit(t *testing.T) {
	many := func(n int) []byte {
		return []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"u"},`, n-1) + `{"role":"u"}]}`)
	}
	var s Scanner
	if err := s.Scan(Chat, many(MaxMembers)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := s.Scan(Chat, many(MaxMembers+1)); err == nil || err.Field != "messages" || err.Syntax {
		t.Errorf("above the limit: %v", err)
	}
	s.Forget()
	if cap(s.parts) > keepMembers {
		t.Errorf("the memory of %d members is kept", cap(s.parts))
	}
}

func TestDuplicatesHaveALimit(t *testing.T) {
	many := func(n int) []byte {
		return []byte(`{"messages":[{"role":"u"}]` + strings.Repeat(`,"model":"m"`, n) + `}`)
	}
	var s Scanner
	if err := s.Scan(Chat, many(MaxDuplicates)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := s.Scan(Chat, many(MaxDuplicates+1)); err == nil || err.Field != "model" {
		t.Errorf("above the limit: %v", err)
	}
}

// A warm scanner keeps its memory, and nothing of the body before.
func TestScannersCarryNothingOver(t *testing.T) {
	var s Scanner
	full := `{"model":"m","stream":true,"max_tokens":7,"cache_salt":"s","tools":[1],"messages":[{"role":"user","content":"hi"}]}`
	if err := s.Scan(Chat, []byte(full)); err != nil {
		t.Fatal(err)
	}
	if err := s.Scan(Completion, []byte(`{"model":"n","prompt":[]}`)); err != nil {
		t.Fatal(err)
	}
	if s.Model != "n" || s.Stream || s.MaxTokens != peer.Unknown || s.CacheSalt != "" || s.given(tools) || len(s.msgs) != 0 {
		t.Errorf("something is left of the body before: %+v", s)
	}
}
