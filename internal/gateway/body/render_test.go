package body

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/prefix"
)

// rendered is a chain's whole outcome.
type rendered struct {
	blocks []prefix.Hash
	tail   prefix.Hash
	bytes  int
}

func render(tb interface{ Fatalf(string, ...any) }, s *Scanner, kind Kind, body []byte) rendered {
	if err := s.Scan(kind, body); err != nil {
		tb.Fatalf("%s: %v", body, err)
	}
	var c prefix.Chain
	c.Reset(prefix.Domain{Model: "m"}.Root())
	n := s.Render(&c)
	return rendered{slices.Clone(c.Blocks()), c.Tail(), n}
}

func (r rendered) same(o rendered) bool {
	return slices.Equal(r.blocks, o.blocks) && r.tail == o.tail && r.bytes == o.bytes
}

// naive renders a chat with the standard library, member by member.
func naive(body []byte) rendered {
	top := map[string]json.RawMessage{}
	for _, m := range members(body) {
		top[m.key] = m.value
	}
	var c prefix.Chain
	c.Reset(prefix.Domain{Model: "m"}.Root())
	if v, ok := top["tools"]; ok && string(v) != "null" {
		c.Tools()
		c.Write(compact(v))
	}
	for _, name := range []string{"functions", "documents", "chat_template", "chat_template_kwargs"} {
		if v, ok := top[name]; ok && string(v) != "null" {
			c.Part(name)
			c.Write(compact(v))
		}
	}
	var msgs []json.RawMessage
	must(json.Unmarshal(top["messages"], &msgs))
	for _, raw := range msgs {
		var role, content json.RawMessage
		for _, m := range members(raw) {
			switch m.key {
			case "role":
				role = m.value
			case "content":
				content = m.value
			}
		}
		c.Message(text(role))
		naiveContent(&c, content)
		for _, m := range members(raw) {
			if m.key != "role" && m.key != "content" && string(m.value) != "null" {
				c.Part(m.key)
				c.Write(compact(m.value))
			}
		}
	}
	c.Finish()
	return rendered{c.Blocks(), c.Tail(), c.Bytes()}
}

func naiveContent(c *prefix.Chain, content json.RawMessage) {
	switch {
	case len(content) == 0 || string(content) == "null":
	case content[0] == '"':
		c.Part("text")
		c.WriteString(text(content))
	case content[0] == '[':
		var pieces []json.RawMessage
		must(json.Unmarshal(content, &pieces))
		for _, raw := range pieces {
			kind, words, isText := "", "", false
			if raw[0] == '{' {
				for _, m := range members(raw) {
					switch {
					case m.key == "type" && m.value[0] == '"':
						kind = text(m.value)
					case m.key == "text" && m.value[0] == '"':
						words, isText = text(m.value), true
					}
				}
			}
			c.Part(kind)
			switch {
			case isText:
				c.WriteString(words)
			case slices.Contains([]string{"image_url", "input_image", "input_audio", "audio_url", "video_url", "file"}, kind):
				c.Digest(raw)
			default:
				c.Write(compact(raw))
			}
		}
	default:
		c.Part("")
		c.Write(compact(content))
	}
}

type keyValue struct {
	key   string
	value json.RawMessage
}

func members(raw []byte) (out []keyValue) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.Token()
	for d.More() {
		key, err := d.Token()
		must(err)
		var v json.RawMessage
		must(d.Decode(&v))
		out = append(out, keyValue{key.(string), v})
	}
	return out
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	must(json.Compact(&b, raw))
	return b.Bytes()
}

func text(raw []byte) (s string) {
	must(json.Unmarshal(raw, &s))
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// spaced and str draw JSON as text, with white space and escapes where they may stand.
func spaced(t *rapid.T, s string) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "space") + s
}

func str(t *rapid.T) string {
	out := `"`
	for range rapid.IntRange(0, 12).Draw(t, "pieces") {
		out += rapid.SampledFrom([]string{"a", "plain words of some length, ", "é", "漢字", "😀", `\n`, `\"`, `\\`, `\/`, `\t`, `\b\f\r`, `\u0041`, `\u00e9`,
			`\ud83d\ude00`, `\ud83d`, `\ude00x`, `\ud83d\u0041`, `\uD83D\ud83d\ude00`, "\x7f", `\u0000`, "0123456789abcdef"}).Draw(t, "piece")
	}
	return out + `"`
}

func value(t *rapid.T, depth int) string {
	n := 7
	if depth == 0 {
		n = 5
	}
	switch rapid.IntRange(0, n).Draw(t, "value") {
	case 0:
		return "null"
	case 1:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	case 2, 3:
		return rapid.SampledFrom([]string{"0", "-1", "12.5e-3", "1E9", "123456"}).Draw(t, "number")
	case 4, 5:
		return str(t)
	case 6:
		return list(t, '[', ']', rapid.IntRange(0, 4).Draw(t, "n"), func() string { return value(t, depth-1) })
	}
	return list(t, '{', '}', rapid.IntRange(0, 4).Draw(t, "n"), func() string { return str(t) + spaced(t, ":") + spaced(t, value(t, depth-1)) })
}

func list(t *rapid.T, open, shut byte, n int, one func() string) string {
	out := string(open)
	for i := range n {
		if i > 0 {
			out += spaced(t, ",")
		}
		out += spaced(t, one())
	}
	return out + spaced(t, string(shut))
}

func named(t *rapid.T, names ...string) string {
	return `"` + rapid.SampledFrom(names).Draw(t, "name") + `"` + spaced(t, ":")
}

func TestRenderAgreesWithTheNaiveOne(t *testing.T) {
	var s Scanner // one for all: it carries nothing over
	rapid.Check(t, func(t *rapid.T) {
		role := func() string { return named(t, "role") + spaced(t, str(t)) }
		msgs := list(t, '[', ']', rapid.IntRange(1, 4).Draw(t, "messages"), func() string {
			n := rapid.IntRange(1, 5).Draw(t, "members")
			at := rapid.IntRange(0, n-1).Draw(t, "role at")
			i := -1
			return list(t, '{', '}', n, func() string {
				if i++; i == at {
					return role()
				}
				return memberOf(t)
			})
		})
		n := rapid.IntRange(2, 6).Draw(t, "top")
		i := -1
		body := list(t, '{', '}', n, func() string {
			switch i++; i {
			case 0:
				return `"model":"m"`
			case n - 1:
				return named(t, "messages", `m\u0065ssages`) + spaced(t, msgs)
			}
			return named(t, "tools", "functions", "documents", "chat_template", "chat_template_kwargs", "temperature", "messages") + spaced(t, value(t, 2))
		})
		got := render(t, &s, Chat, []byte(body))
		if want := naive([]byte(body)); !got.same(want) {
			t.Fatalf("%s\ngot  %v\nwant %v", body, got, want)
		}
	})
}

func memberOf(t *rapid.T) string {
	if rapid.Bool().Draw(t, "content") {
		return named(t, "content", `con\u0074ent`) + spaced(t, contentOf(t))
	}
	return named(t, "name", "tool_calls", "tool_call_id") + spaced(t, value(t, 2))
}

func contentOf(t *rapid.T) string {
	if rapid.Bool().Draw(t, "plain") {
		return value(t, 1)
	}
	return list(t, '[', ']', rapid.IntRange(0, 3).Draw(t, "n"), func() string {
		if rapid.IntRange(0, 5).Draw(t, "odd") == 0 {
			return value(t, 1)
		}
		return list(t, '{', '}', rapid.IntRange(0, 4).Draw(t, "n"), func() string {
			if rapid.Bool().Draw(t, "type") {
				return named(t, "type", `t\u0079pe`) + rapid.SampledFrom([]string{`"text"`, `"image_url"`, `"input_audio"`, `"new"`, `null`}).Draw(t, "type")
			}
			return named(t, "text", "image_url", "other") + spaced(t, value(t, 1))
		})
	})
}

func TestBodiesThatSayTheSameRenderTheSame(t *testing.T) {
	const head = `{"model":"m","messages":[{"role":"user","content":`
	for _, c := range []struct{ name, a, b string }{
		{"white space", head + `"hi"}]}`, ` { "model" : "m", "messages":[ {"role" :"user", "content":"hi"} ] } `},
		{"order of the body's members", head + `"hi"}],"tools":[{"a":1}]}`, `{"tools":[{"a":1}],"stream":true,"messages":[{"role":"user","content":"hi"}],"model":"m"}`},
		{"order of a message's members", head + `"hi"}]}`, `{"model":"m","messages":[{"content":"hi","role":"user"}]}`},
		{"escapes", head + `"a\u0062\u00e9\/"}]}`, head + `"abé/"}]}`},
		{"a string and one text part", head + `"hi"}]}`, head + `[{"type":"text","text":"hi"}]}]}`},
		{"a part's cache_control", head + `[{"type":"text","text":"hi"}]}]}`, head + `[{"cache_control":{"type":"ephemeral"},"text":"hi","type":"text"}]}]}`},
		{"null members", head + `"hi"}]}`, head + `"hi","tool_calls":null,"refusal":null}],"tools":null}`},
		{"a duplicate that loses", head + `"hi"}]}`, head + `"no","content":"hi"}]}`},
		{"what is sampled", head + `"hi"}]}`, head + `"hi"}],"temperature":0.1,"max_tokens":5,"user":"u"}`},
	} {
		var s Scanner
		if a, b := render(t, &s, Chat, []byte(c.a)), render(t, &s, Chat, []byte(c.b)); !a.same(b) {
			t.Errorf("%s: %s and %s render differently", c.name, c.a, c.b)
		}
	}
}

func TestBodiesThatSayOtherThingsRenderDifferently(t *testing.T) {
	chats := []string{
		`[{"role":"user","content":"ab"}]`,
		`[{"role":"user","content":"a"},{"role":"user","content":"b"}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
		`[{"role":"system","content":"ab"}]`,
		`[{"role":"user","content":"ab","name":"n"}]`,
		`[{"role":"user","content":"abn"}]`,
		`[{"role":"user","content":null}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,1"}}]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,2"}}]}]`,
		`[{"role":"assistant","tool_calls":[{"id":"1"}]}]`,
		`[{"role":"assistant","tool_calls":[{"id":"2"}]}]`,
	}
	seen := map[prefix.Hash]string{}
	var s Scanner
	for _, msgs := range chats {
		for _, tools := range []string{"", `,"tools":[{"a":1}]`, `,"tools":[{"a":2}]`} {
			body := `{"model":"m","messages":` + msgs + tools + `}`
			r := render(t, &s, Chat, []byte(body))
			if old, ok := seen[r.tail]; ok && len(r.blocks) == 0 {
				t.Errorf("%s and %s render alike", old, body)
			}
			seen[r.tail] = body
		}
	}
}

// A conversation that goes on keeps the blocks of its beginning.
func TestConversationsGrowAtTheirEnd(t *testing.T) {
	long := string(bytes.Repeat([]byte("some words of a long message. "), 40))
	first := `{"role":"system","content":"` + long + `"},{"role":"user","content":"` + long + `"}`
	var s Scanner
	a := render(t, &s, Chat, []byte(`{"model":"m","messages":[`+first+`]}`))
	b := render(t, &s, Chat, []byte(`{"model":"m","stream":true,"messages":[`+first+`,{"role":"assistant","content":"x"},{"role":"user","content":"more"}]}`))
	if n := len(a.blocks); n < 8 || !slices.Equal(a.blocks, b.blocks[:n]) {
		t.Errorf("%d blocks, then %d, that do not begin alike", len(a.blocks), len(b.blocks))
	}
}

func TestPromptsInEveryFormAreRendered(t *testing.T) {
	var s Scanner
	of := func(prompt string) rendered {
		return render(t, &s, Completion, []byte(`{"model":"m","prompt":`+prompt+`}`))
	}
	if a, b := of(`"a\nb"`), of(`["a\nb"]`); a.tail != b.tail {
		t.Error("a prompt and a batch of it alone render differently")
	}
	if a, b := of(`[1,2,300]`), of(`[ [1, 2,300 ] ]`); a.tail != b.tail {
		t.Error("tokens and a batch of them alone render differently")
	}
	if a, b := of(`[1,2,3]`), of(`[1,2,4]`); a.tail == b.tail {
		t.Error("other tokens render alike")
	}
	if a, b := of(`["abcdefgh","abcdefgh","abcdefgh"]`), of(`"abcdefgh"`); a.tail != b.tail || a.bytes < 3*b.bytes {
		t.Errorf("a batch counts %d bytes, one prompt of it %d", a.bytes, b.bytes)
	}
	in := render(t, &s, Embedding, []byte(`{"model":"m","input":"abc"}`))
	if a := of(`"abc"`); a.tail != in.tail {
		t.Error("an input renders differently from a prompt")
	}
	for _, odd := range []string{`[]`, `{}`, `1`, `[null]`, `[[]]`, `[-1.5e3]`, `true`} {
		of(odd) // the engine's business; no panic
	}
}

// Runs of plain text that are long enough to be taken in one piece, and whatever ends them at every place.
func TestLongRunsEndWhereTheyEnd(t *testing.T) {
	ends := []struct{ raw, text string }{{`\n`, "\n"}, {`\"`, `"`}, {`\u00e4`, "ä"}, {"ä", "ä"}, {"\x7f", "\x7f"}, {"", ""}}
	for n := longRun - 9; n < 2*longRun+80; n++ {
		run := strings.Repeat("plain ", n)[:n]
		for _, end := range ends {
			want := "x\n" + run + end.text + run + end.text
			var s Scanner
			if err := s.Scan(Completion, []byte(`{"model":"m","prompt":"x\n`+run+end.raw+run+end.raw+`","n":1}`)); err != nil {
				t.Fatalf("%d, %q: %v", n, end.raw, err)
			}
			if got := string(s.text[s.prompt.from:s.prompt.to]); got != want {
				t.Fatalf("%d, %q:\n%q, want\n%q", n, end.raw, got, want)
			}
		}
		for _, bad := range []string{"\n", "\x00", "\x1f", `\q`} {
			var s Scanner
			head := `{"model":"m","prompt":"` + run
			err := s.Scan(Completion, []byte(head+bad+run+`"}`))
			if err == nil || err.Offset != len(head) {
				t.Fatalf("%d, %q: %v, want it at %d", n, bad, err, len(head))
			}
		}
	}
}

func TestSpliceReplacesEveryOccurrence(t *testing.T) {
	const msgs = `"messages":[{"role":"user","content":"model cache_salt"}]`
	for _, c := range []struct{ name, body, model, salt, want string }{
		{"nothing", `{"model":"m", ` + msgs + `}`, "", "", `{"model":"m", ` + msgs + `}`},
		{"alias", `{"model" : "m", ` + msgs + `}`, "real/n\"ame", "", `{"model" : "real/n\"ame", ` + msgs + `}`},
		{"salt given", `{"model":"m","cache_salt":"mine",` + msgs + ` }`, "", "S", `{"model":"m","cache_salt":"S",` + msgs + ` }`},
		{"salt added", `{"model":"m",` + msgs + ` } `, "", "S", `{"model":"m",` + msgs + ` ,"cache_salt":"S"} `},
		{"duplicates", `{"cache_salt":"a","model":"x",` + msgs + `,"cache\u005fsalt":null,"model":"m"}`, "n", "S",
			`{"cache_salt":"S","model":"n",` + msgs + `,"cache\u005fsalt":"S","model":"n"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Scanner
			if err := s.Scan(Chat, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			if got := string(s.Splice(nil, c.model, c.salt)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	f.Add(chatBody(300))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d\u0041"},1]}],"messages":2}`))
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"cache_salt":"a","input":["\u00e9"]}`))
	f.Add([]byte(" {\"a\":[0,-1.5e+7,true,false,null,{}]}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Scanner
		object := json.Valid(b) && bytes.TrimLeft(b, " \t\r\n")[0] == '{'
		for _, kind := range []Kind{Chat, Completion, Embedding, Other} {
			err := s.Scan(kind, b)
			if kind != Other && object && err != nil && err.Syntax && err.What != "the body nests too deep" {
				t.Fatalf("valid JSON is refused: %v", err)
			}
			if err != nil {
				if err.Error() == "" || err.Offset < 0 || err.Offset > len(b) {
					t.Fatalf("fault %+v", err)
				}
				continue
			}
			if kind != Other && !object {
				t.Fatal("what is no JSON object passes")
			}
			var c prefix.Chain
			c.Reset(1)
			if s.Render(&c) < 0 {
				t.Fatal("a negative length")
			}
			if out := s.Splice(nil, "name", "salt"); kind != Other && !json.Valid(out) {
				t.Fatalf("a splice is no JSON: %s", out)
			}
		}
	})
}
