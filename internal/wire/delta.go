package wire

import (
	"encoding/binary"
	"fmt"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
	"shoal/internal/reserve"
)

// Opaque is the content of a value section whose kind this program does not know, or whose record it cannot read: its
// encoding, relayed as it came.
type Opaque []byte

const (
	setReset = 1 << iota
	setPatch
	setRemoved // some operations are removals: a bitmap of which follows
)

// AppendDelta appends a delta. Removals lose their depth, which has no meaning.
func AppendDelta(dst []byte, d *replica.Delta) ([]byte, error) {
	start := len(dst)
	if err := d.Validate(); err != nil {
		return dst, fmt.Errorf("wire: delta: %w", err)
	}
	dst = appendStr(dst, string(d.Owner))
	dst = appendUint(dst, d.Incarnation)
	dst = appendUint(dst, d.From)
	dst = appendUint(dst, d.To)
	dst = appendWord(dst, d.Base)
	dst = appendWord(dst, d.Digest)
	dst = appendUint(dst, uint64(d.Part))
	dst = appendUint(dst, uint64(d.Parts))
	dst = appendUint(dst, uint64(len(d.Values)))
	var err error
	for i := range d.Values {
		if dst, err = appendValue(dst, &d.Values[i]); err != nil {
			return dst[:start], err
		}
	}
	dst = appendUint(dst, uint64(len(d.Sets)))
	for i := range d.Sets {
		dst = appendSet(dst, &d.Sets[i])
	}
	return dst, nil
}

// DecodeDelta reads a delta and checks it. Records that it cannot read stay Opaque: one of them spoils nothing else.
func DecodeDelta(b []byte) (*replica.Delta, error) {
	c := cursor{b: b}
	d := &replica.Delta{
		Owner: c.id("owner"), Incarnation: c.uint(), From: c.uint(), To: c.uint(), Base: c.word(), Digest: c.word(),
		Part: uint16(c.upTo("part", replica.MaxParts)), Parts: uint16(c.upTo("parts", replica.MaxParts)),
	}
	if n := c.count("values", replica.MaxValues, 4); n > 0 {
		d.Values = make([]replica.Value, n)
		for i := range d.Values {
			c.value(&d.Values[i])
		}
	}
	if n := c.count("sets", replica.MaxSections, 4); n > 0 {
		d.Sets = make([]replica.SetOps, n)
		for i := range d.Sets {
			c.set(&d.Sets[i])
		}
	}
	if err := c.end("delta"); err != nil {
		return nil, err
	}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("wire: delta: %w", err)
	}
	return d, nil
}

func appendSection(dst []byte, s replica.Section) []byte {
	dst = append(dst, byte(s.Kind))
	dst = appendUint(dst, uint64(s.BlockSize))
	return appendStr(appendStr(dst, s.Model), s.Tokeniser)
}

func (c *cursor) section() replica.Section {
	return replica.Section{
		Kind: replica.Kind(c.byte()), BlockSize: uint32(c.upTo("block size", 1<<32-1)), Model: c.str("model", replica.MaxName),
		Tokeniser: c.str("tokeniser", replica.MaxName),
	}
}

func appendValue(dst []byte, v *replica.Value) ([]byte, error) {
	dst, start := beginBlock(dst)
	dst = appendSection(dst, v.Section)
	dst = appendUint(dst, v.Version)
	if v.Content == nil {
		return endBlock(append(dst, 0), start), nil
	}
	dst = append(dst, 1)
	raw := v.Raw
	if raw == nil {
		switch x := v.Content.(type) {
		case *peer.Info:
			raw = AppendInfo(nil, x)
		case *peer.Load:
			raw = AppendLoad(nil, x)
		case *reserve.Section:
			var err error
			if raw, err = AppendReservations(nil, x); err != nil {
				return dst, err
			}
		case Opaque:
			raw = x
		default:
			return dst, fmt.Errorf("wire: delta: section %v holds a %T, for which there is no encoding", v.Section, x)
		}
	}
	if err := within("delta", "a value", len(raw), maxRecord(v.Section.Kind)); err != nil {
		return dst, err
	}
	return endBlock(appendBytes(dst, raw), start), nil
}

func (c *cursor) value(v *replica.Value) {
	b := cursor{b: c.block("value", maxReservations+1024)}
	*v = replica.Value{Section: b.section(), Version: b.uint()}
	if b.byte() != 0 {
		v.Raw = append([]byte{}, b.bytes("record", maxRecord(v.Section.Kind))...)
		v.Content = content(v.Section.Kind, v.Raw)
	}
	if b.err != nil {
		c.fail(b.err)
	}
}

// content decodes a record where it can.
func content(k replica.Kind, raw []byte) any {
	switch k {
	case replica.KindInfo:
		if i := new(peer.Info); DecodeInfo(raw, i) == nil {
			return i
		}
	case replica.KindReservations:
		if r := new(reserve.Section); DecodeReservations(raw, r) == nil {
			return r
		}
	case replica.KindLoad:
		if l := new(peer.Load); DecodeLoad(raw, l) == nil {
			return l
		}
	}
	return Opaque(raw)
}

// appendSet writes the hashes of all operations, then the depths of the additions, each as its difference from the depth
// before plus one: along a chain that is one byte 0.
func appendSet(dst []byte, s *replica.SetOps) []byte {
	dst, start := beginBlock(dst)
	dst = appendSection(dst, s.Section)
	var flags byte
	if s.Reset {
		flags |= setReset
	}
	if s.Patch != nil {
		flags |= setPatch
	}
	for i := range s.Ops {
		if s.Ops[i].Removed {
			flags |= setRemoved
			break
		}
	}
	dst = append(dst, flags)
	if s.Patch != nil {
		for _, w := range s.Patch {
			dst = appendWord(dst, w)
		}
	}
	dst = appendUint(dst, uint64(len(s.Ops)))
	if flags&setRemoved != 0 {
		at := len(dst)
		dst = append(dst, make([]byte, (len(s.Ops)+7)/8)...)
		for i := range s.Ops {
			if s.Ops[i].Removed {
				dst[at+i/8] |= 1 << (i % 8)
			}
		}
	}
	for i := range s.Ops {
		dst = appendWord(dst, uint64(s.Ops[i].Hash))
	}
	last := -1
	for i := range s.Ops {
		if c := &s.Ops[i]; !c.Removed {
			dst = appendInt(dst, int64(int(c.Depth)-last-1))
			last = int(c.Depth)
		}
	}
	return endBlock(dst, start)
}

func (c *cursor) set(s *replica.SetOps) {
	b := cursor{b: c.block("set", MaxFrame)}
	*s = replica.SetOps{Section: b.section()}
	flags := b.byte()
	s.Reset = flags&setReset != 0
	if flags&setPatch != 0 {
		s.Patch = new(replica.Marks)
		for i := range s.Patch {
			s.Patch[i] = b.word()
		}
	}
	n := b.count("operations", replica.MaxOps, 8)
	var removed []byte
	if flags&setRemoved != 0 {
		removed = b.raw((n + 7) / 8)
	}
	hashes := b.raw(8 * n)
	if b.err == nil && n > 0 {
		s.Ops = make([]prefix.Change, n)
	}
	last := -1
	for i := range s.Ops {
		op := &s.Ops[i]
		op.Hash = prefix.Hash(binary.LittleEndian.Uint64(hashes[8*i:]))
		if removed != nil && removed[i/8]>>(i%8)&1 != 0 {
			op.Removed = true
			continue
		}
		depth := b.int()
		if depth < -1<<16 || depth > 1<<16 || last+1+int(depth) < 0 || last+1+int(depth) > 1<<16-1 {
			b.limit("depth", depth)
			break
		}
		last += 1 + int(depth)
		op.Depth = uint16(last)
	}
	if b.err != nil {
		c.fail(b.err)
	}
}
