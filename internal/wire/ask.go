package wire

import "fmt"

// Ask is a question to a peer about a transfer, and Reply its answer: one frame each, on a connection of the peer port.
type Ask struct {
	What  AskKind
	Bytes int64  // of the object
	Name  string // of the object, below the receiver's or the sender's directory; empty: bytes that nobody keeps
	To    string // Pull: the name that the receiver gives it
	// Policy, Pull: how the sender chooses the paths; empty: as it is configured.
	Policy string
}

// AskKind is what is asked.
type AskKind uint8

const (
	AskTicket AskKind = 1 // may I write this to you? The sender of the bytes asks
	AskPull   AskKind = 2 // send me this. The receiver of the bytes asks; whose port counts is the sender, who reserves
	AskThere  AskKind = 3 // are you there? An empty Reply
)

// Reply answers an Ask.
type Reply struct {
	Refused string // why not, for people; empty: granted
	Ticket  []byte // AskTicket: to be shown once
	Addr    string // AskTicket: where the bytes go, host:port
	Bytes   int64  // AskPull: that were sent
	TookNS  int64  // AskPull: for that
}

// Limits of an Ask and a Reply, in bytes.
const (
	MaxName   = 512
	MaxTicket = 1024
)

// AppendAsk appends the payload of an Ask.
func AppendAsk(dst []byte, m *Ask) ([]byte, error) {
	for _, s := range []string{m.Name, m.To, m.Policy} {
		if err := within("ask", "a name", len(s), MaxName); err != nil {
			return dst, err
		}
	}
	if m.Bytes < 0 {
		return dst, fmt.Errorf("wire: ask: %w: bytes is %d", ErrLimit, m.Bytes)
	}
	dst = append(dst, byte(m.What))
	dst = appendInt(dst, m.Bytes)
	return appendStr(appendStr(appendStr(dst, m.Name), m.To), m.Policy), nil
}

// DecodeAsk reads an Ask.
func DecodeAsk(b []byte, m *Ask) error {
	c := cursor{b: b}
	*m = Ask{What: AskKind(c.byte()), Bytes: c.int(), Name: c.str("name", MaxName), To: c.str("to", MaxName), Policy: c.str("policy", MaxName)}
	if c.err == nil && m.Bytes < 0 {
		c.limit("bytes", m.Bytes)
	}
	return c.end("ask")
}

// AppendReply appends the payload of a Reply.
func AppendReply(dst []byte, m *Reply) ([]byte, error) {
	if err := within("reply", "ticket", len(m.Ticket), MaxTicket); err != nil {
		return dst, err
	}
	if err := within("reply", "address", len(m.Addr), MaxName); err != nil {
		return dst, err
	}
	dst = appendStr(dst, clip(m.Refused, MaxMessage))
	dst = appendBytes(dst, m.Ticket)
	dst = appendStr(dst, m.Addr)
	return appendInt(appendInt(dst, m.Bytes), m.TookNS), nil
}

// DecodeReply reads a Reply. It shares no memory with the payload.
func DecodeReply(b []byte, m *Reply) error {
	c := cursor{b: b}
	*m = Reply{Refused: c.str("refused", MaxMessage)}
	if t := c.bytes("ticket", MaxTicket); len(t) > 0 {
		m.Ticket = append([]byte(nil), t...)
	}
	m.Addr, m.Bytes, m.TookNS = c.str("address", MaxName), c.int(), c.int()
	return c.end("reply")
}
