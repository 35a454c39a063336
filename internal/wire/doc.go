// Package wire turns messages between peers into bytes and back.
//
// There are three layers, all described in docs/protocol.md, which is the contract with other versions of this program:
// frames on the peer port (a length, a type, a payload), datagrams (a version, a type, a payload), and the payloads. A
// connection begins with Hello, answered by Welcome or Refuse; after that it carries rounds of anti-entropy (Exchange),
// forwarded requests (Forward and what follows it), or questions about transfers (Ask, Reply).
//
// A payload is its fields in a fixed order: integers as varints, strings and lists with their length before them, block
// hashes eight bytes each. What follows the last field that the reader knows is ignored, so a later version may append
// fields. Records that grow in other ways, peer.Info and peer.Load, are CBOR maps with integer keys: absent keys mean
// unknown, unknown keys are ignored, and records are relayed as they came.
//
// It opens no connection, keeps no state between messages, and interprets nothing. It is pure, and safe for concurrent
// use. Its invariants: whatever a decoder is given, it returns an error or a message within the limits below, never
// panics, and allocates no more than a small multiple of what it was given; what an encoder makes, the decoder of the
// same or a later version reads back; decoded messages share no memory with the payload, except where a field says so.
package wire

import (
	"fmt"

	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// The versions of the protocol that this program speaks. Both sides of a connection use the greatest that both speak.
const (
	MinVersion uint8 = 1
	MaxVersion uint8 = 1
)

// Limits of the protocol, in bytes where nothing else is said.
const (
	MaxFrame     = 1 << 20  // payload of one frame
	MaxHandshake = 512      // payload of Hello, Welcome and Refuse
	MaxDatagram  = 1200     // one datagram with its header: fits one packet on any network
	MaxExchange  = 32 << 20 // all frames of one Exchange message
	MaxMethod    = 16
	MaxPath      = 2048
	MaxQuery     = 8192
	MaxID        = 128   // request ID
	MaxPairs     = 128   // header pairs of one message
	MaxHeader    = 65536 // names and values of these together
	MaxModel     = replica.MaxName
	MaxChain     = prefix.MaxBlocks // blocks of one prompt that take part in routing
	MaxShoal     = 64               // name of a shoal
	MaxReason    = 256              // of Refuse
	MaxCode      = 64               // of Fail
	MaxMessage   = 1024             // of Fail
	MaxRecord    = 32 << 10         // one encoded value of a document
)

// Type is the type of a frame. Types from 128 on may be ignored by who does not know them; any other unknown type ends
// the connection.
type Type uint8

const (
	TypeHello    Type = 1
	TypeWelcome  Type = 2
	TypeRefuse   Type = 3
	TypeExchange Type = 8
	TypeForward  Type = 16
	TypeBody     Type = 17 // raw bytes of a request's body
	TypeAccept   Type = 18
	TypeDecline  Type = 19
	TypeAlive    Type = 20 // no payload
	TypeHead     Type = 21
	TypeData     Type = 22 // raw bytes of a response's body
	TypeEnd      Type = 23
	TypeFail     Type = 24
	TypeCancel   Type = 25 // no payload
	TypeAsk      Type = 32
	TypeReply    Type = 33
)

// Known reports whether this version knows the type.
func (t Type) Known() bool { return t.name() != "" }

// Ignorable reports whether a frame of this type may be skipped by who does not know it.
func (t Type) Ignorable() bool { return t >= 128 }

func (t Type) String() string {
	if n := t.name(); n != "" {
		return n
	}
	return fmt.Sprintf("type-%d", uint8(t))
}

func (t Type) name() string {
	switch t {
	case TypeHello:
		return "hello"
	case TypeWelcome:
		return "welcome"
	case TypeRefuse:
		return "refuse"
	case TypeExchange:
		return "exchange"
	case TypeForward:
		return "forward"
	case TypeBody:
		return "body"
	case TypeAccept:
		return "accept"
	case TypeDecline:
		return "decline"
	case TypeAlive:
		return "alive"
	case TypeHead:
		return "head"
	case TypeData:
		return "data"
	case TypeEnd:
		return "end"
	case TypeFail:
		return "fail"
	case TypeCancel:
		return "cancel"
	case TypeAsk:
		return "ask"
	case TypeReply:
		return "reply"
	}
	return ""
}
