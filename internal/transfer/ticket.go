package transfer

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

const (
	ticketIDBytes = 8
	secretBytes   = 32
	sessionBytes  = 16
)

type (
	ticketID     [ticketIDBytes]byte
	ticketSecret [secretBytes]byte
	// session is chosen by the sender, anew for each transfer: the first one to come takes the ticket, and connections that
	// show the same one are of the same transfer. So a sender that does not know whether its first word has arrived may
	// say it again.
	session [sessionBytes]byte
)

// Ticket is the right to write one transfer. Whoever has it can use it: it is given only over authenticated, encrypted
// ways, and not logged; String shows the public part. The zero value is no ticket.
type Ticket struct {
	id     ticketID
	secret ticketSecret
}

var errShort = errors.New("too few")

// String names the ticket without giving it away.
func (t Ticket) String() string { return fmt.Sprintf("ticket %x", t.id) }

// MarshalText gives the whole ticket, as it is handed to the sender.
func (t Ticket) MarshalText() ([]byte, error) {
	b := append(t.id[:], t.secret[:]...)
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads what MarshalText wrote.
func (t *Ticket) UnmarshalText(text []byte) error {
	const n = ticketIDBytes + secretBytes
	var b [n]byte
	if len(text) != base64.RawURLEncoding.EncodedLen(n) {
		return fmt.Errorf("transfer: a ticket has %d characters, not %d", base64.RawURLEncoding.EncodedLen(n), len(text))
	}
	if got, err := base64.RawURLEncoding.Strict().Decode(b[:], text); err != nil || got != n { // it passes over line breaks
		return fmt.Errorf("transfer: no ticket: %d bytes, %w", got, cmp.Or(err, errShort))
	}
	copy(t.secret[:], b[copy(t.id[:], b[:]):])
	return nil
}

// proof shows that its maker has the secret, to the receiver of this nonce only.
func proof(secret *ticketSecret, nonce *[nonceBytes]byte, said []byte) (mac [macBytes]byte) {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte("shoal transfer join 1"))
	h.Write(nonce[:])
	h.Write(said)
	h.Sum(mac[:0])
	return mac
}
