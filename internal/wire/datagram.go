package wire

import (
	"fmt"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

// DatagramType is the type of a datagram. One that the receiver does not know is ignored.
type DatagramType uint8

const (
	DatagramPushBack DatagramType = 1
	DatagramReserve  DatagramType = 2
	DatagramRelease  DatagramType = 3
)

// PushBack is a datagram: a peer's load, at once, where it has changed so that others should stop or may begin again.
type PushBack struct {
	Owner peer.ID
	Stamp replica.Stamp // of the version of its document that says the same
	Load  peer.Load
}

// ParseDatagram splits a datagram. A version that this program does not speak is an error.
func ParseDatagram(b []byte) (t DatagramType, payload []byte, err error) {
	switch {
	case len(b) < 2:
		return 0, nil, fmt.Errorf("wire: datagram: %w", ErrTruncated)
	case len(b) > MaxDatagram:
		return 0, nil, within("datagram", "bytes", len(b), MaxDatagram)
	case b[0] < MinVersion || b[0] > MaxVersion:
		return 0, nil, fmt.Errorf("wire: datagram: %w: version %d; this program speaks %d to %d", ErrLimit, b[0], MinVersion, MaxVersion)
	}
	return DatagramType(b[1]), b[2:], nil
}

// AppendPushBack makes a whole datagram.
func AppendPushBack(dst []byte, m *PushBack) []byte {
	dst = append(dst, MaxVersion, byte(DatagramPushBack))
	dst = appendStr(dst, string(m.Owner))
	dst = appendStamp(dst, m.Stamp)
	return appendBytes(dst, AppendLoad(nil, &m.Load))
}

// DecodePushBack reads the payload of a PushBack.
func DecodePushBack(payload []byte, m *PushBack) error {
	c := cursor{b: payload}
	*m = PushBack{Owner: c.id("owner"), Stamp: c.stamp()}
	c.load(&m.Load)
	return c.end("push-back")
}
