package wire

import (
	"fmt"

	"shoal/internal/ecmp"
	"shoal/internal/replica"
	"shoal/internal/reserve"
)

// maxReservations is how long the encoded reservations of one owner can be, in bytes: MaxPerOwner entries with as many links
// as there can be. With the other values of a document's delta, and its elements, that still fits a frame.
const maxReservations = 192 << 10

// maxRecord is how long the encoding of a value of this kind may be.
func maxRecord(k replica.Kind) int {
	if k == replica.KindReservations {
		return maxReservations
	}
	return MaxRecord
}

// A reservation is plain fields, as the messages of a hop are: RESERVE has to leave at once, and fits a datagram with room
// to spare. An entry is a block, so that a later version may append fields to each.

func appendEntry(dst []byte, e *reserve.Entry) []byte {
	dst, start := beginBlock(dst)
	dst = appendUint(dst, e.ID)
	dst = appendUint(dst, e.Seq)
	dst = appendWord(dst, uint64(e.Stamp))
	dst = append(dst, byte(e.Phase))
	dst = appendStr(dst, string(e.Dst))
	dst = appendInt(dst, e.Bytes)
	dst = appendWord(dst, e.Group)
	dst = appendInt(dst, e.Ready)
	dst = appendInt(dst, e.End)
	dst = appendUint(dst, uint64(len(e.Links)))
	for _, l := range e.Links {
		dst = appendUint(dst, uint64(l))
	}
	return endBlock(dst, start)
}

func (c *cursor) entry(e *reserve.Entry) {
	b := cursor{b: c.block("reservation", 1024)}
	*e = reserve.Entry{ID: b.uint(), Seq: b.uint(), Stamp: reserve.Stamp(b.word()), Phase: reserve.Phase(b.byte()), Dst: b.id("destination"),
		Bytes: b.int(), Group: b.word(), Ready: b.int(), End: b.int()}
	if n := b.count("links", reserve.MaxLinks, 1); n > 0 {
		e.Links = make([]ecmp.LinkID, n)
		for i := range e.Links {
			e.Links[i] = ecmp.LinkID(b.upTo("link", 1<<32-1))
		}
	}
	if b.err == nil && (e.Bytes < 0 || e.Ready < 0 || e.End < 0) {
		b.limit("bytes or a time", "negative")
	}
	if b.err != nil {
		c.fail(b.err)
	}
}

// checkEntry reports why an entry cannot be written.
func checkEntry(e *reserve.Entry) error {
	if err := within("reservation", "links", len(e.Links), reserve.MaxLinks); err != nil {
		return err
	}
	if err := e.Dst.Validate(); err != nil {
		return fmt.Errorf("wire: reservation: %w", err)
	}
	if e.Bytes < 0 || e.Ready < 0 || e.End < 0 {
		return fmt.Errorf("wire: reservation: %w: bytes %d, ready %d, end %d", ErrLimit, e.Bytes, e.Ready, e.End)
	}
	return nil
}

// AppendReservations appends what an owner's document says of its paths.
func AppendReservations(dst []byte, s *reserve.Section) ([]byte, error) {
	if err := within("reservations", "entries", len(s.Entries), reserve.MaxPerOwner); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = appendUint(dst, s.Seq)
	dst = appendWord(dst, s.Fabric)
	dst = appendUint(dst, uint64(len(s.Entries)))
	for i := range s.Entries {
		if err := checkEntry(&s.Entries[i]); err != nil {
			return dst[:start], err
		}
		dst = appendEntry(dst, &s.Entries[i])
	}
	return dst, nil
}

// DecodeReservations reads them.
func DecodeReservations(b []byte, s *reserve.Section) error {
	c := cursor{b: b}
	*s = reserve.Section{Seq: c.uint(), Fabric: c.word()}
	if n := c.count("entries", reserve.MaxPerOwner, 4); n > 0 {
		s.Entries = make([]reserve.Entry, n)
		for i := range s.Entries {
			c.entry(&s.Entries[i])
		}
	}
	return c.end("reservations")
}

// AppendReserve makes a whole datagram of one message: RESERVE, INTENT and START are one type, told apart by the entry's
// phase, and RELEASE is another.
func AppendReserve(dst []byte, m *reserve.Message) ([]byte, error) {
	if err := m.Owner.Validate(); err != nil {
		return dst, fmt.Errorf("wire: reserve: %w", err)
	}
	t := DatagramReserve
	if m.Released {
		t = DatagramRelease
	} else if err := checkEntry(&m.Entry); err != nil {
		return dst, err
	}
	dst = append(dst, MaxVersion, byte(t))
	dst = appendStr(dst, string(m.Owner))
	dst = appendUint(dst, m.Incarnation)
	if m.Released {
		return appendUint(appendUint(dst, m.Entry.ID), m.Entry.Seq), nil
	}
	return appendEntry(dst, &m.Entry), nil
}

// DecodeReserve reads the payload of a datagram of type DatagramReserve or DatagramRelease.
func DecodeReserve(t DatagramType, payload []byte, m *reserve.Message) error {
	c := cursor{b: payload}
	*m = reserve.Message{Owner: c.id("owner"), Incarnation: c.uint(), Released: t == DatagramRelease}
	if m.Released {
		m.Entry.ID, m.Entry.Seq = c.uint(), c.uint()
	} else {
		c.entry(&m.Entry)
	}
	return c.end("reserve")
}
