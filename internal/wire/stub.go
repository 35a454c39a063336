package wire

import (
	"shoal/internal/peer"
	"shoal/internal/replica"
)

const todo = "wire: to come"

// HeaderLen is the length of a frame's header: its payload's length (4 bytes, little-endian), and its type.
const HeaderLen = 5

// AppendFrame appends a whole frame.
func AppendFrame(dst []byte, t Type, payload []byte) []byte { panic(todo) }

// BeginFrame appends the header of a frame whose payload is appended next; EndFrame, given the length of dst before
// BeginFrame, fills in the length.
func BeginFrame(dst []byte, t Type) []byte           { panic(todo) }
func EndFrame(dst []byte, start int) ([]byte, error) { panic(todo) }

// ParseHeader reads a frame's header: the type and the length of the payload that follows, at most MaxFrame (MaxHandshake
// for the handshake's frames). An unknown type that is not Ignorable is an error.
func ParseHeader(h []byte) (t Type, payload int, err error) { panic(todo) }

// Negotiate gives the greatest version that both sides speak; false where there is none.
func Negotiate(min, max uint8) (version uint8, ok bool) { panic(todo) }

func AppendHello(dst []byte, m *Hello) ([]byte, error) { panic(todo) }
func DecodeHello(b []byte, m *Hello) error             { panic(todo) }
func AppendWelcome(dst []byte, m *Welcome) []byte      { panic(todo) }
func DecodeWelcome(b []byte, m *Welcome) error         { panic(todo) }
func AppendRefuse(dst []byte, m *Refuse) []byte        { panic(todo) }
func DecodeRefuse(b []byte, m *Refuse) error           { panic(todo) }

// ExchangeFrames gives the payloads of the Exchange frames that carry x, at least one, each at most MaxFrame long and
// valid only during the call; buf is scratch space. An error of yield ends it and is returned.
func ExchangeFrames(x *Exchange, buf []byte, yield func(payload []byte) error) error { panic(todo) }

// DecodeExchange decodes one frame's payload and adds it to x, which is zero for the first. more says that another frame
// belongs to the same message; all frames together are at most MaxExchange long, which the caller watches.
func DecodeExchange(b []byte, x *Exchange) (more bool, err error) { panic(todo) }

func AppendDelta(dst []byte, d *replica.Delta) ([]byte, error) { panic(todo) }
func DecodeDelta(b []byte) (*replica.Delta, error)             { panic(todo) }

func AppendForward(dst []byte, m *Forward) ([]byte, error) { panic(todo) }
func DecodeForward(b []byte, m *Forward) error             { panic(todo) }
func AppendAccept(dst []byte, m *Accept) []byte            { panic(todo) }
func DecodeAccept(b []byte, m *Accept) error               { panic(todo) }
func AppendDecline(dst []byte, m *Decline) []byte          { panic(todo) }
func DecodeDecline(b []byte, m *Decline) error             { panic(todo) }
func AppendHead(dst []byte, m *Head) ([]byte, error)       { panic(todo) }
func DecodeHead(b []byte, m *Head) error                   { panic(todo) }
func AppendEnd(dst []byte, m *End) []byte                  { panic(todo) }
func DecodeEnd(b []byte, m *End) error                     { panic(todo) }
func AppendFail(dst []byte, m *Fail) []byte                { panic(todo) }
func DecodeFail(b []byte, m *Fail) error                   { panic(todo) }

func AppendInfo(dst []byte, i *peer.Info) ([]byte, error) { panic(todo) }
func DecodeInfo(b []byte, i *peer.Info) error             { panic(todo) }
func AppendLoad(dst []byte, l *peer.Load) []byte          { panic(todo) }
func DecodeLoad(b []byte, l *peer.Load) error             { panic(todo) }

// DatagramType is the type of a datagram; unknown ones are ignored.
type DatagramType uint8

const (
	DatagramPushBack DatagramType = 1
	DatagramReserve  DatagramType = 2 // foreseen
	DatagramRelease  DatagramType = 3 // foreseen
)

// ParseDatagram splits a datagram. A version that this program does not speak is an error.
func ParseDatagram(b []byte) (t DatagramType, payload []byte, err error) { panic(todo) }

// AppendPushBack makes a whole datagram; DecodePushBack reads its payload.
func AppendPushBack(dst []byte, m *PushBack) []byte    { panic(todo) }
func DecodePushBack(payload []byte, m *PushBack) error { panic(todo) }
