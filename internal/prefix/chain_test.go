package prefix

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// naiveChain is the definition, over a rendering that is there as a whole.
func naiveChain(root Hash, rendering []byte) (blocks []Hash, tail Hash) {
	h := root
	next := func(b []byte) Hash {
		return Hash(xxh3.Hash(append(binary.LittleEndian.AppendUint64(nil, uint64(h)), b...)))
	}
	for len(rendering) >= BlockBytes && len(blocks) < MaxBlocks {
		h = next(rendering[:BlockBytes])
		blocks = append(blocks, h)
		rendering = rendering[BlockBytes:]
	}
	if len(blocks) == MaxBlocks {
		rendering = nil
	}
	return blocks, next(rendering)
}

func TestChainAgreesWithItsDefinition(t *testing.T) {
	var c Chain
	rapid.Check(t, func(t *rapid.T) {
		root := Hash(rapid.Uint64().Draw(t, "root"))
		c.Reset(root)
		var rendering []byte
		for _, p := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 700), 0, 8).Draw(t, "writes") {
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				c.WriteString(string(p))
			case 1:
				for _, b := range p {
					if err := c.WriteByte(b); err != nil {
						t.Fatal(err)
					}
				}
			default:
				if n, err := c.Write(p); n != len(p) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			rendering = append(rendering, bytes.ReplaceAll(p, []byte{0xFF}, []byte{0xFF, 0xFF})...)
		}
		c.Finish()
		blocks, tail := naiveChain(root, rendering)
		if !slices.Equal(c.Blocks(), blocks) || c.Tail() != tail || c.Bytes() != len(rendering) {
			t.Fatalf("%d blocks, tail %x, %d bytes; want %d, %x, %d", len(c.Blocks()), c.Tail(), c.Bytes(), len(blocks), tail, len(rendering))
		}
	})
}

func TestPromptBeyondTheLimitOfBlocks(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcde\xff"), (MaxBlocks+2)*BlockBytes/16)
	var whole, parts Chain
	whole.Reset(1)
	whole.Write(text)
	whole.Finish()
	parts.Reset(1)
	for p := range slices.Chunk(text, 1000) {
		parts.Write(p)
	}
	parts.Finish()
	blocks, tail := naiveChain(1, bytes.ReplaceAll(text, []byte{0xFF}, []byte{0xFF, 0xFF}))
	for _, c := range []*Chain{&whole, &parts} {
		if len(c.Blocks()) != MaxBlocks || !slices.Equal(c.Blocks(), blocks) || c.Tail() != tail || c.Bytes() < len(text) {
			t.Errorf("%d blocks, tail %x, %d bytes; want %d, %x, at least %d", len(c.Blocks()), c.Tail(), c.Bytes(), len(blocks), tail, len(text))
		}
	}
	whole.Reset(1)
	whole.Finish()
	if len(whole.Blocks()) != 0 || whole.Bytes() != 0 {
		t.Error("Reset leaves something behind")
	}
}

// prompt is a request in the form that the rendering stands for.
type prompt struct {
	Options, Tools string
	Messages       []message
}

type message struct {
	Role  string
	Parts []part
}

type part struct {
	Kind, Text, Digest string
}

func (p *prompt) write(c *Chain) {
	if p.Options != "" {
		c.Part("documents")
		c.WriteString(p.Options)
	}
	if p.Tools != "" {
		c.Tools()
		c.WriteString(p.Tools)
	}
	for _, m := range p.Messages {
		c.Message(m.Role)
		for _, part := range m.Parts {
			c.Part(part.Kind)
			if part.Digest != "" {
				c.Digest([]byte(part.Digest))
			} else {
				c.WriteString(part.Text)
			}
		}
	}
}

// renderings records what a chain is made of: the chain's own buffer, block by block.
func rendering(p *prompt) []byte {
	var c Chain
	c.Reset(0)
	p.write(&c)
	if len(c.blocks) > 0 {
		panic("a test's prompt is longer than a block")
	}
	return slices.Clone(c.buf[8 : 8+c.n])
}

// awkward is text made of what the marks are made of.
var awkward = rapid.StringOfN(rapid.SampledFrom([]rune{'T', 'M', 'P', ':', 'D', 'a'}), 0, 3, -1)

func awkwardText(t *rapid.T, label string) string {
	s := awkward.Draw(t, label)
	for range rapid.IntRange(0, 2).Draw(t, label+" marks") { // raw bytes that a JSON reader lets through
		i := rapid.IntRange(0, len(s)).Draw(t, label+" at")
		s = s[:i] + "\xff" + s[i:]
	}
	return s
}

func drawPrompt(t *rapid.T) *prompt {
	p := &prompt{Options: awkwardText(t, "options"), Tools: awkwardText(t, "tools")}
	for range rapid.IntRange(0, 2).Draw(t, "messages") {
		m := message{Role: awkwardText(t, "role")}
		for range rapid.IntRange(0, 2).Draw(t, "parts") {
			part := part{Kind: awkwardText(t, "kind"), Text: awkwardText(t, "text")}
			if rapid.IntRange(0, 4).Draw(t, "digest") == 0 {
				part.Text, part.Digest = "", "x"+awkwardText(t, "media")
			}
			m.Parts = append(m.Parts, part)
		}
		p.Messages = append(p.Messages, m)
	}
	return p
}

// pitfalls 21: no content can pass for another structure, whatever bytes it has.
func TestDifferentPromptsHaveDifferentRenderings(t *testing.T) {
	seen := map[string]string{}
	check(t, func(t *rapid.T) {
		p := drawPrompt(t)
		js, _ := json.Marshal(struct {
			P string
		}{fmt.Sprintf("%q", p)}) // %q keeps invalid bytes apart
		key := string(rendering(p))
		if other, ok := seen[key]; ok && other != string(js) {
			t.Fatalf("%s and %s have the rendering %q", other, js, key)
		}
		seen[key] = string(js)
	})
}

func TestConversationThatGrowsKeepsItsBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrompt(t)
		before := rendering(p)
		p.Messages = append(p.Messages, message{"user", []part{{Kind: "text", Text: awkwardText(t, "more")}}})
		if after := rendering(p); !bytes.HasPrefix(after, before) {
			t.Fatalf("%q does not begin with %q", after, before)
		}
	})
}

// pitfalls 5: prompts shorter than one block hash to zero blocks; what tells them apart is the tail.
func TestShortPromptsDoNotAllGoToOnePeer(t *testing.T) {
	root := Domain{Model: "m"}.Root()
	tails := map[Hash]bool{}
	var c Chain
	for i := range 1000 {
		c.Reset(root)
		c.Message("user")
		c.Part("text")
		c.WriteString(fmt.Sprint("question ", i))
		c.Finish()
		if len(c.Blocks()) != 0 {
			t.Fatalf("%d blocks of %d bytes", len(c.Blocks()), c.Bytes())
		}
		tails[c.Tail()] = true
	}
	if len(tails) != 1000 {
		t.Errorf("%d tails of 1000 prompts", len(tails))
	}
	var buckets [16]int
	for h := range tails {
		buckets[h%16]++
	}
	if slices.Max(buckets[:]) > 2*1000/16 {
		t.Errorf("tails are uneven: %v", buckets)
	}
	c.Reset(root)
	c.Finish()
	if c.Tail() == 0 || c.Tail() == root {
		t.Error("an empty prompt has no tail of its own")
	}
}

// pitfalls 21: model, LoRA, salt and tenant are in the key, and tagged: nothing moves from one field to the next.
func TestDomainsDoNotShareBlocks(t *testing.T) {
	roots := map[Hash]Domain{}
	for _, d := range []Domain{
		{}, {Model: "a"}, {LoRA: "a"}, {Salt: "a"}, {Tenant: "a"}, {Model: "ab"}, {Model: "a", LoRA: "b"}, {Model: "b", LoRA: "a"},
		{Model: "a", Salt: "b"}, {Model: "a", Tenant: "b"}, {Salt: "a", Tenant: "b"}, {Salt: "ab"}, {Tenant: "ab"},
		{Model: "a\x01b"}, {Model: "a\x00"}, {Model: "a", LoRA: "\x00"}, {Model: strings.Repeat("a", 1000)}, {Tenant: strings.Repeat("a", 1000)},
	} {
		if other, ok := roots[d.Root()]; ok {
			t.Errorf("%+v and %+v have one root", other, d)
		}
		roots[d.Root()] = d
	}
	text := strings.Repeat("the same prompt ", 64)
	var a, b Chain
	a.Reset(Domain{Model: "m", Salt: "one"}.Root())
	b.Reset(Domain{Model: "m", Salt: "two"}.Root())
	for _, c := range []*Chain{&a, &b} {
		c.WriteString(text)
		c.Finish()
	}
	for i, h := range a.Blocks() {
		if slices.Contains(b.Blocks(), h) {
			t.Errorf("block %d is shared between salts", i)
		}
	}
	if a.Tail() == b.Tail() {
		t.Error("the tail is shared between salts")
	}
}

func TestJSONIsWrittenWithoutWhiteSpaceBetweenTokens(t *testing.T) {
	for raw, want := range map[string]string{
		``: ``, ` `: ``, `1`: `1`, `{"a": [1, 2] }`: `{"a":[1,2]}`, "\t{\n  \"a b\" :\r\n null}": `{"a b":null}`,
		`"a \" b"  ,`: `"a \" b",`, `"a \\"  "b \\\" c" 1`: `"a \\""b \\\" c"1`, `"open  \`: `"open  \`, `"`: `"`, `"\"`: `"\"`, `\ "a  b" `: `\"a  b"`,
	} {
		var got, plain Chain
		got.Reset(0)
		got.WriteJSON([]byte(raw))
		got.Finish()
		plain.Reset(0)
		plain.WriteString(want)
		plain.Finish()
		if got.Tail() != plain.Tail() {
			t.Errorf("%q is written as %q, want %q", raw, got.buf[8:8+got.n], want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.MapOf(rapid.StringMatching(`[a "\\]{0,4}`), rapid.SliceOf(rapid.StringMatching(`[ "\\\n]{0,5}`))).Draw(t, "value")
		compact, _ := json.Marshal(v)
		indented, _ := json.MarshalIndent(v, " ", "\t")
		var a, b Chain
		a.Reset(0)
		a.Write(compact)
		a.Finish()
		b.Reset(0)
		b.WriteJSON(indented)
		b.Finish()
		if a.Tail() != b.Tail() || !slices.Equal(a.Blocks(), b.Blocks()) {
			t.Fatalf("%s and %s differ", compact, indented)
		}
	})
}

func TestWarmChainAllocatesNothing(t *testing.T) {
	text, role := []byte(strings.Repeat("x", 20_000)), "user"
	var c Chain
	write := func() {
		c.Reset(Domain{Model: "m", Tenant: "t"}.Root())
		c.Tools()
		c.WriteJSON([]byte(`{"a": 1}`))
		c.Message(role)
		c.Part("image_url")
		c.Digest(text)
		c.Part("text")
		c.Write(text)
		c.WriteByte('x')
		c.WriteToken(7)
		c.Finish()
	}
	write()
	if n := testing.AllocsPerRun(10, write); n != 0 {
		t.Errorf("%v allocations a prompt", n)
	}
}

// naiveTokenBlocks is the definition.
func naiveTokenBlocks(root Hash, tokens []uint32, size int) (out []Hash) {
	h := uint64(root)
	for block := range slices.Chunk(tokens, size) {
		if len(block) < size || len(out) == MaxBlocks {
			break
		}
		b, _ := binary.Append(nil, binary.LittleEndian, block)
		h = xxh3.Hash(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, h), xxh3.Hash(b)))
		out = append(out, Hash(h))
	}
	return out
}

func TestTokenBlocksAgreeWithTheirDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 300).Draw(t, "tokens")
		size := rapid.IntRange(1, 70).Draw(t, "size")
		root := Hash(rapid.Uint64().Draw(t, "root"))
		got := TokenBlocks([]Hash{1, 2}, root, tokens, size)
		if want := naiveTokenBlocks(root, tokens, size); got[0] != 1 || got[1] != 2 || !slices.Equal(got[2:], want) {
			t.Fatalf("%x, want %x", got[2:], want)
		}
	})
}

func TestTokenBlocksAtTheirLimits(t *testing.T) {
	tokens := make([]uint32, MaxBlocks+5)
	if n := len(TokenBlocks(nil, 0, tokens, 1)); n != MaxBlocks {
		t.Errorf("%d blocks, want %d", n, MaxBlocks)
	}
	if n := len(TokenBlocks(nil, 0, tokens, MaxBlockTokens)); n != len(tokens)/MaxBlockTokens {
		t.Errorf("%d blocks of the largest size", n)
	}
	for _, size := range []int{0, -1, MaxBlockTokens + 1} {
		if TokenBlocks(nil, 0, tokens, size) != nil {
			t.Errorf("blocks of %d tokens", size)
		}
	}
}

// pitfalls 22: blocks of another size than the engine's match nothing, instead of something else.
func TestTokenBlocksOfTwoSizesDoNotMatch(t *testing.T) {
	tokens := make([]uint32, 4096)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	small, large := TokenBlocks(nil, 1, tokens, 16), TokenBlocks(nil, 1, tokens, 32)
	for _, h := range large {
		if slices.Contains(small, h) {
			t.Errorf("block %x is in both", h)
		}
	}
}

// The format: other programs compute these hashes too. A change here is a change of the protocol.
func TestHashesOfTheProtocol(t *testing.T) {
	datadriven.RunTest(t, "testdata/hashes.txt", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		var domain Domain
		d.MaybeScanArgs(t, "model", &domain.Model)
		d.MaybeScanArgs(t, "lora", &domain.LoRA)
		d.MaybeScanArgs(t, "salt", &domain.Salt)
		d.MaybeScanArgs(t, "tenant", &domain.Tenant)
		root := domain.Root()
		fmt.Fprintf(&out, "root  %016x\n", uint64(root))
		if d.Cmd == "tokens" {
			var count, size int
			d.ScanArgs(t, "count", &count)
			d.ScanArgs(t, "size", &size)
			tokens := make([]uint32, count)
			for i := range tokens {
				tokens[i] = uint32(i * i)
			}
			for i, h := range TokenBlocks(nil, root, tokens, size) {
				fmt.Fprintf(&out, "h[%d]  %016x\n", i, uint64(h))
			}
			return out.String()
		}
		var c Chain
		c.Reset(root)
		for line := range strings.Lines(d.Input) {
			word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			switch word {
			case "tools":
				c.Tools()
				c.WriteJSON([]byte(rest))
			case "message":
				c.Message(rest)
			case "part":
				c.Part(rest)
			case "write":
				c.WriteString(rest)
			case "repeat":
				c.WriteString(strings.Repeat(rest, 100))
			case "digest":
				c.Digest([]byte(rest))
			case "token":
				var id uint32
				fmt.Sscan(rest, &id)
				c.WriteToken(id)
			default:
				d.Fatalf(t, "unknown line %q", line)
			}
		}
		c.Finish()
		if len(c.Blocks()) == 0 {
			fmt.Fprintf(&out, "bytes %q\n", c.buf[8:8+c.n])
		} else {
			fmt.Fprintf(&out, "bytes %d\n", c.Bytes())
		}
		for i, h := range c.Blocks() {
			fmt.Fprintf(&out, "h[%d]  %016x\n", i, uint64(h))
		}
		fmt.Fprintf(&out, "tail  %016x\n", uint64(c.Tail()))
		return out.String()
	})
}

func FuzzJSONIsWrittenAsTheStandardLibraryCompactsIt(f *testing.F) {
	for _, s := range []string{`{"a": [1, "b \" c"]}`, `"`, `"\`, ` `, "\"\xff\" "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c, want Chain
		c.WriteJSON(raw)
		c.Finish()
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil {
			return // it must not panic, nothing more
		}
		want.Write(compact.Bytes())
		want.Finish()
		if c.Tail() != want.Tail() || !slices.Equal(c.Blocks(), want.Blocks()) {
			t.Fatalf("%q is not written as %q", raw, compact.Bytes())
		}
	})
}
