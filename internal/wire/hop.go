package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// The messages of a hop are on every forwarded request's way, so they are plain fields: with 40 blocks and twelve header
// fields all of them together, both ways, take 1.5 us and 5 allocations; as a CBOR map the Forward alone takes 3.2 us and 33.

// Pair is one header field, repeated fields several times.
type Pair struct{ Name, Value string }

// Forward asks a peer to serve a request. Body frames with BodyLen bytes in all follow it.
type Forward struct {
	ID      string // of the request, for logs
	Method  string
	Path    string
	Query   string // without '?'
	Header  []Pair
	Model   string // the name that engines know
	Chain   []prefix.Hash
	Tail    prefix.Hash
	Bytes   int // of the canonical rendering
	BodyLen int64
	// MaxTokens is what the client asked for; peer.Unknown where it does not say.
	MaxTokens int
	Stream    bool
	Expect    node.Expect // what the origin expects of the peer; Hopped is always true once decoded
}

// Accept says that the peer serves the request; Alive follows every second until Head.
type Accept struct {
	Stamp replica.Stamp // version of the peer's document that will cover this request
}

// Decline says that the peer does not serve the request, before prefill, with its fresh state.
type Decline = node.Decline

// Head begins the response.
type Head struct {
	Status int
	Header []Pair
}

// End ends a response that is whole.
type End struct {
	Usage node.Usage // what the engine counted; peer.Unknown where it does not tell
}

// Fail ends a response that will not come, or not be whole.
type Fail struct {
	Code    string // for programs
	Message string // for people; names no inner address
}

const flagStream = 1

// AppendForward appends the payload of a Forward; its error says which field is too long.
func AppendForward(dst []byte, m *Forward) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, err
	}
	var flags byte
	if m.Stream {
		flags |= flagStream
	}
	dst = append(dst, flags)
	dst = appendUint(dst, uint64(m.Expect.MatchBlocks))
	dst = appendInt(dst, int64(m.Expect.ServeCost))
	dst = appendInt(dst, int64(m.Expect.Margin))
	dst = appendInt(dst, int64(m.MaxTokens))
	dst = appendUint(dst, uint64(m.Bytes))
	dst = appendUint(dst, uint64(m.BodyLen))
	dst = appendWord(dst, uint64(m.Tail))
	dst = appendUint(dst, uint64(len(m.Chain)))
	for _, h := range m.Chain {
		dst = appendWord(dst, uint64(h))
	}
	for _, s := range [...]string{m.ID, m.Method, m.Path, m.Query, m.Model} {
		dst = appendStr(dst, s)
	}
	return appendPairs(dst, m.Header), nil
}

func (m *Forward) check() error {
	for _, f := range [...]struct {
		name    string
		n, most int
	}{
		{"ID", len(m.ID), MaxID}, {"Method", len(m.Method), MaxMethod}, {"Path", len(m.Path), MaxPath}, {"Query", len(m.Query), MaxQuery},
		{"Model", len(m.Model), MaxModel}, {"Chain", len(m.Chain), MaxChain},
	} {
		if f.n > f.most {
			return within("forward", f.name, f.n, f.most)
		}
	}
	if m.Expect.MatchBlocks < 0 || m.Bytes < 0 || m.BodyLen < 0 {
		return fmt.Errorf("wire: forward: %w: a count is negative", ErrLimit)
	}
	return checkPairs("forward", m.Header)
}

// DecodeForward reads a Forward. Its strings are parts of one allocation, and its slices are new.
func DecodeForward(b []byte, m *Forward) error {
	c := cursor{b: b}
	*m = Forward{Stream: c.byte()&flagStream != 0}
	m.Expect = node.Expect{Hopped: true, MatchBlocks: c.upTo("matched blocks", MaxChain), ServeCost: time.Duration(c.int()), Margin: time.Duration(c.int())}
	m.MaxTokens = c.tokens("max tokens")
	m.Bytes = c.upTo("bytes", 1<<40)
	m.BodyLen = int64(c.upTo("body length", 1<<40))
	m.Tail = prefix.Hash(c.word())
	if n := c.count("blocks", MaxChain, 8); n > 0 {
		m.Chain = make([]prefix.Hash, n)
		for i, p := 0, c.raw(8*n); i < n; i++ {
			m.Chain[i] = prefix.Hash(binary.LittleEndian.Uint64(p[8*i:]))
		}
	}
	c.cutText()
	m.ID = c.str("ID", MaxID)
	m.Method = c.token("method", MaxMethod)
	m.Path = c.plain("path", MaxPath)
	m.Query = c.plain("query", MaxQuery)
	m.Model = c.str("model", MaxModel)
	m.Header = c.pairs()
	if c.err == nil && (len(m.Path) == 0 || m.Path[0] != '/') {
		c.limit("path", fmt.Sprintf("%.64q", m.Path))
	}
	return c.end("forward")
}

// tokens reads a count of tokens, or peer.Unknown.
func (c *cursor) tokens(field string) int {
	x := c.int()
	if x < peer.Unknown || x > 1<<40 {
		c.limit(field, x)
		return peer.Unknown
	}
	return int(x)
}

func appendPairs(dst []byte, h []Pair) []byte {
	dst = appendUint(dst, uint64(len(h)))
	for i := range h {
		dst = appendStr(dst, h[i].Name)
		dst = appendStr(dst, h[i].Value)
	}
	return dst
}

func checkPairs(message string, h []Pair) error {
	if len(h) > MaxPairs {
		return within(message, "header fields", len(h), MaxPairs)
	}
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return within(message, "header bytes", n, MaxHeader)
}

// pairs reads header fields; those that no HTTP message may have are refused, so that they cannot split one.
func (c *cursor) pairs() []Pair {
	n := c.count("header fields", MaxPairs, 2)
	if n == 0 {
		return nil
	}
	h := make([]Pair, n)
	left := MaxHeader
	for i := range h {
		h[i].Name = c.token("header name", left)
		left -= len(h[i].Name)
		h[i].Value = c.plain("header value", left)
		left -= len(h[i].Value)
	}
	if c.err != nil {
		return nil
	}
	return h
}

func appendStamp(dst []byte, s replica.Stamp) []byte {
	return appendUint(appendUint(dst, s.Incarnation), s.Version)
}

func (c *cursor) stamp() replica.Stamp {
	return replica.Stamp{Incarnation: c.uint(), Version: c.uint()}
}

// AppendAccept appends the payload of an Accept.
func AppendAccept(dst []byte, m *Accept) []byte { return appendStamp(dst, m.Stamp) }

// DecodeAccept reads an Accept.
func DecodeAccept(b []byte, m *Accept) error {
	c := cursor{b: b}
	m.Stamp = c.stamp()
	return c.end("accept")
}

// AppendDecline appends the payload of a Decline.
func AppendDecline(dst []byte, m *Decline) []byte {
	dst = append(dst, byte(m.Reason))
	dst = appendUint(dst, uint64(max(m.Match, 0)))
	dst = appendStamp(dst, m.Stamp)
	dst = appendInt(dst, int64(m.RetryAfter))
	return appendBytes(dst, AppendLoad(nil, &m.Load))
}

// DecodeDecline reads a Decline.
func DecodeDecline(b []byte, m *Decline) error {
	c := cursor{b: b}
	*m = Decline{Reason: node.DeclineReason(c.byte()), Match: c.upTo("matched blocks", MaxChain), Stamp: c.stamp()}
	m.RetryAfter = min(max(time.Duration(c.int()), 0), time.Hour)
	c.load(&m.Load)
	return c.end("decline")
}

// load reads a peer.Load with its length before it.
func (c *cursor) load(l *peer.Load) {
	b := c.bytes("load", MaxRecord)
	if c.err == nil {
		if err := DecodeLoad(b, l); err != nil {
			c.fail(err)
		}
	}
}

// AppendHead appends the payload of a Head; its error says which field is too long.
func AppendHead(dst []byte, m *Head) ([]byte, error) {
	if m.Status < 100 || m.Status > 999 {
		return dst, fmt.Errorf("wire: head: %w: status is %d", ErrLimit, m.Status)
	}
	if err := checkPairs("head", m.Header); err != nil {
		return dst, err
	}
	return appendPairs(appendUint(dst, uint64(m.Status)), m.Header), nil
}

// DecodeHead reads a Head. Its strings are parts of one allocation.
func DecodeHead(b []byte, m *Head) error {
	c := cursor{b: b}
	*m = Head{Status: c.upTo("status", 999)}
	if m.Status < 100 {
		c.limit("status", m.Status)
	}
	c.cutText()
	m.Header = c.pairs()
	return c.end("head")
}

// AppendEnd appends the payload of an End.
func AppendEnd(dst []byte, m *End) []byte {
	dst = appendInt(dst, int64(m.Usage.Prompt))
	dst = appendInt(dst, int64(m.Usage.Cached))
	return appendInt(dst, int64(m.Usage.Completion))
}

// DecodeEnd reads an End.
func DecodeEnd(b []byte, m *End) error {
	c := cursor{b: b}
	m.Usage = node.Usage{Prompt: c.tokens("prompt tokens"), Cached: c.tokens("cached tokens"), Completion: c.tokens("completion tokens")}
	return c.end("end")
}

// AppendFail appends the payload of a Fail; texts that are too long are cut off.
func AppendFail(dst []byte, m *Fail) []byte {
	return appendStr(appendStr(dst, clip(m.Code, MaxCode)), clip(m.Message, MaxMessage))
}

// DecodeFail reads a Fail.
func DecodeFail(b []byte, m *Fail) error {
	c := cursor{b: b}
	*m = Fail{Code: c.str("code", MaxCode), Message: c.str("message", MaxMessage)}
	return c.end("fail")
}
