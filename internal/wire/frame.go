package wire

import (
	"encoding/binary"
	"fmt"
)

// HeaderLen is the length of a frame's header: its payload's length (4 bytes, little-endian), and its type.
const HeaderLen = 5

// AppendFrame appends a whole frame. The payload must be at most MaxFrame long.
func AppendFrame(dst []byte, t Type, payload []byte) []byte {
	if len(payload) > MaxFrame {
		panic(fmt.Sprintf("wire: a %v frame of %d bytes; at most %d", t, len(payload), MaxFrame))
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, byte(t))
	return append(dst, payload...)
}

// BeginFrame appends the header of a frame whose payload is appended next. EndFrame, given the length that dst had before
// BeginFrame, fills in the payload's length; its error says that the payload is too long.
func BeginFrame(dst []byte, t Type) []byte { return append(dst, 0, 0, 0, 0, byte(t)) }

// EndFrame ends what BeginFrame has begun.
func EndFrame(dst []byte, start int) ([]byte, error) {
	n := len(dst) - start - HeaderLen
	if n < 0 {
		panic(fmt.Sprintf("wire: EndFrame at %d of %d bytes, where no frame begins", start, len(dst)))
	}
	if err := within("frame", "payload", n, longest(Type(dst[start+4]))); err != nil {
		return dst[:start], err
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(n))
	return dst, nil
}

// ParseHeader reads a frame's header: the type and the length of the payload that follows, at most MaxFrame (MaxHandshake
// for the handshake's frames). An unknown type that is not Ignorable is an error.
func ParseHeader(h []byte) (t Type, payload int, err error) {
	if len(h) < HeaderLen {
		return 0, 0, fmt.Errorf("wire: frame header: %w", ErrTruncated)
	}
	n := binary.LittleEndian.Uint32(h)
	t = Type(h[4])
	if !t.Known() && !t.Ignorable() {
		return 0, 0, fmt.Errorf("wire: frame header: %w: type is %d, which this version does not know", ErrLimit, uint8(t))
	}
	if most := longest(t); n > uint32(most) {
		return 0, 0, fmt.Errorf("wire: frame header: %w: a %v frame of %d bytes, at most %d", ErrLimit, t, n, most)
	}
	return t, int(n), nil
}

func longest(t Type) int {
	if t <= TypeRefuse {
		return MaxHandshake
	}
	return MaxFrame
}
