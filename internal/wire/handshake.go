package wire

import (
	"fmt"

	"shoal/internal/peer"
)

// The handshake is what peers of any two versions must understand of each other, so its frames never change but for
// fields appended at their end.

// magic begins every Hello, so that whoever has the wrong port is told apart at once.
const magic = "shoal"

// Hello opens a connection.
type Hello struct {
	Min, Max    uint8 // versions that the sender speaks
	ID          peer.ID
	Incarnation uint64
	Shoal       string // name of the shoal; peers of different shoals refuse each other
}

// Welcome accepts a Hello.
type Welcome struct {
	Version     uint8 // that the connection uses
	ID          peer.ID
	Incarnation uint64
}

// Refuse turns a Hello away; the connection is closed after it.
type Refuse struct {
	Reason   string // for people to read
	Min, Max uint8  // versions that the sender speaks
}

// Negotiate gives the greatest version that both this program and a peer that speaks min to max know; false where there is
// none.
func Negotiate(min, max uint8) (version uint8, ok bool) {
	return negotiate(MinVersion, MaxVersion, min, max)
}

func negotiate(aMin, aMax, bMin, bMax uint8) (uint8, bool) {
	v := min(aMax, bMax)
	return v, aMin <= v && bMin <= v
}

// AppendHello appends the payload of a Hello.
func AppendHello(dst []byte, m *Hello) ([]byte, error) {
	if err := m.ID.Validate(); err != nil {
		return dst, fmt.Errorf("wire: hello: %w", err)
	}
	if err := within("hello", "shoal", len(m.Shoal), MaxShoal); err != nil {
		return dst, err
	}
	dst = append(dst, magic...)
	dst = append(dst, m.Min, m.Max)
	dst = appendStr(dst, string(m.ID))
	dst = appendUint(dst, m.Incarnation)
	return appendStr(dst, m.Shoal), nil
}

// DecodeHello reads a Hello.
func DecodeHello(b []byte, m *Hello) error {
	c := cursor{b: b}
	if string(c.raw(len(magic))) != magic {
		c.limit("the beginning", "not a Hello of this protocol")
	}
	*m = Hello{Min: c.byte(), Max: c.byte(), ID: c.id("peer"), Incarnation: c.uint(), Shoal: c.str("shoal", MaxShoal)}
	return c.end("hello")
}

// id reads a peer's ID.
func (c *cursor) id(field string) peer.ID {
	id := peer.ID(c.str(field, peer.MaxID))
	if c.err == nil {
		if err := id.Validate(); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrLimit, err))
			return ""
		}
	}
	return id
}

// AppendWelcome appends the payload of a Welcome.
func AppendWelcome(dst []byte, m *Welcome) []byte {
	dst = append(dst, m.Version)
	dst = appendStr(dst, string(m.ID))
	return appendUint(dst, m.Incarnation)
}

// DecodeWelcome reads a Welcome.
func DecodeWelcome(b []byte, m *Welcome) error {
	c := cursor{b: b}
	*m = Welcome{Version: c.byte(), ID: c.id("peer"), Incarnation: c.uint()}
	return c.end("welcome")
}

// AppendRefuse appends the payload of a Refuse; a Reason that is too long is cut off.
func AppendRefuse(dst []byte, m *Refuse) []byte {
	return append(appendStr(dst, clip(m.Reason, MaxReason)), m.Min, m.Max)
}

// DecodeRefuse reads a Refuse.
func DecodeRefuse(b []byte, m *Refuse) error {
	c := cursor{b: b}
	*m = Refuse{Reason: c.str("reason", MaxReason), Min: c.byte(), Max: c.byte()}
	return c.end("refuse")
}
