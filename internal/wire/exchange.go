package wire

import (
	"encoding/binary"
	"fmt"

	"shoal/internal/replica"
)

// Exchange is one message of a round of anti-entropy; see replica.Exchange for the rules of a round.
type Exchange = replica.Exchange

// An Exchange travels as one or more frames. A frame's payload is flags and a list of items, each with a type and its
// length, so that a later version can add types, which this one skips.
const (
	frameBegin = 1 << iota // the message begins a round
	frameMore              // another frame belongs to the same message
)

const (
	itemSummaries byte = 1
	itemOffers    byte = 2
	itemDelta     byte = 3
	itemWant      byte = 4
)

// maxDeltas bounds the deltas of one message.
const maxDeltas = 1 << 14

const rowDead = 1

// framer fills frames with items.
type framer struct {
	buf   []byte
	start int // of the item being made
	flags byte
	yield func([]byte) error
}

// ExchangeFrames gives the payloads of the Exchange frames that carry x, at least one, each at most MaxFrame long and
// valid only during the call; buf is scratch space. An error of yield ends it and is returned.
func ExchangeFrames(x *Exchange, buf []byte, yield func(payload []byte) error) error {
	f := &framer{buf: append(buf[:0], 0), yield: yield}
	if x.Begin {
		f.flags = frameBegin
	}
	if err := f.rows(itemSummaries, x.Summaries); err != nil {
		return err
	}
	if err := f.rows(itemOffers, x.Offers); err != nil {
		return err
	}
	for i := range x.Wants {
		f.begin(itemWant)
		f.buf = appendWant(f.buf, &x.Wants[i])
		if err := f.end(); err != nil {
			return err
		}
	}
	for _, d := range x.Deltas {
		f.begin(itemDelta)
		var err error
		if f.buf, err = AppendDelta(f.buf, d); err != nil {
			return err
		}
		if err := f.end(); err != nil {
			return err
		}
	}
	f.buf[0] = f.flags
	return yield(f.buf)
}

func (f *framer) begin(item byte) {
	f.start = len(f.buf)
	f.buf = append(f.buf, item, 0, 0, 0, 0)
}

// end ends an item; where it does not fit the frame, the frame goes without it, and it begins the next.
func (f *framer) end() error {
	f.buf = endBlock(f.buf, f.start+1)
	if len(f.buf) <= MaxFrame {
		return nil
	}
	item := f.buf[f.start:]
	if len(item)+1 > MaxFrame || f.start == 1 {
		return fmt.Errorf("wire: exchange: %w: an item of %d bytes does not fit a frame", ErrLimit, len(item))
	}
	f.buf[0] = f.flags | frameMore
	if err := f.yield(f.buf[:f.start]); err != nil {
		return err
	}
	f.buf = append(f.buf[:1], item...)
	return nil
}

// rowsPerItem keeps items of rows well below a frame: a row has at most 110 bytes.
const rowsPerItem = 1024

func (f *framer) rows(item byte, rows []replica.Summary) error {
	for len(rows) > 0 {
		n := min(len(rows), rowsPerItem)
		f.begin(item)
		f.buf = appendUint(f.buf, uint64(n))
		for i := range rows[:n] {
			f.buf = appendRow(f.buf, &rows[i])
		}
		if err := f.end(); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func appendRow(dst []byte, s *replica.Summary) []byte {
	start := len(dst)
	dst = append(dst, 0) // length of the row, below 128
	dst = appendStr(dst, string(s.Owner))
	dst = appendStamp(dst, s.Stamp)
	dst = appendWord(dst, s.Digest)
	var flags byte
	if s.Dead {
		flags |= rowDead
	}
	dst = append(dst, flags)
	dst[start] = byte(len(dst) - start - 1)
	return dst
}

func (c *cursor) row() replica.Summary {
	b := cursor{b: c.bytes("row", 1<<10)}
	s := replica.Summary{Owner: b.id("owner"), Stamp: b.stamp(), Digest: b.word()}
	s.Dead = b.byte()&rowDead != 0
	if b.err != nil {
		c.fail(b.err)
	}
	return s
}

func appendWant(dst []byte, w *replica.Want) []byte {
	dst = appendStr(dst, string(w.Owner))
	dst = appendStamp(dst, w.Have)
	dst = appendWord(dst, w.Digest)
	dst = appendUint(dst, uint64(len(w.Trees)))
	for i := range w.Trees {
		dst = appendSection(dst, w.Trees[i].Section)
		for _, s := range w.Trees[i].Sums {
			dst = appendWord(dst, s)
		}
	}
	return dst
}

func decodeWant(b []byte) (replica.Want, error) {
	c := cursor{b: b}
	w := replica.Want{Owner: c.id("owner"), Have: c.stamp(), Digest: c.word()}
	if n := c.count("trees", replica.MaxTrees, 8*replica.Buckets); n > 0 {
		w.Trees = make([]replica.Tree, n)
		for i := range w.Trees {
			w.Trees[i].Section = c.section()
			w.Trees[i].Sums = new([replica.Buckets]uint64)
			p := c.raw(8 * replica.Buckets)
			if c.err != nil {
				break
			}
			for j := range w.Trees[i].Sums {
				w.Trees[i].Sums[j] = binary.LittleEndian.Uint64(p[8*j:])
			}
		}
	}
	return w, c.end("want")
}

// DecodeExchange decodes one frame's payload and adds it to x, which is zero for the first. more says that another frame
// belongs to the same message; all frames together are at most MaxExchange long, which the caller watches. A delta that
// cannot be read is nil in the list, so that it spoils no other and Docs counts it.
func DecodeExchange(b []byte, x *Exchange) (more bool, err error) {
	c := cursor{b: b}
	flags := c.byte()
	x.Begin = x.Begin || flags&frameBegin != 0
	for len(c.b) > 0 {
		item := c.byte()
		p := cursor{b: c.block("item", MaxFrame)}
		if c.err != nil {
			break
		}
		switch item {
		case itemSummaries:
			x.Summaries = p.rows(x.Summaries)
		case itemOffers:
			x.Offers = p.rows(x.Offers)
		case itemWant:
			w, err := decodeWant(p.b)
			if err != nil || len(x.Wants) >= replica.MaxRows || countTrees(x.Wants)+len(w.Trees) > replica.MaxTrees {
				c.fail(fmt.Errorf("%w: a want, or the number of wants", ErrLimit))
				break
			}
			x.Wants = append(x.Wants, w)
		case itemDelta:
			if len(x.Deltas) >= maxDeltas {
				c.limit("number of deltas", len(x.Deltas)+1)
				break
			}
			d, _ := DecodeDelta(p.b)
			x.Deltas = append(x.Deltas, d)
		}
		if p.err != nil {
			c.fail(p.err)
		}
	}
	return flags&frameMore != 0, c.end("exchange")
}

func (c *cursor) rows(dst []replica.Summary) []replica.Summary {
	n := c.count("rows", replica.MaxRows-len(dst), 12)
	for range n {
		if s := c.row(); c.err == nil {
			dst = append(dst, s)
		}
	}
	return dst
}

func countTrees(w []replica.Want) int {
	n := 0
	for i := range w {
		n += len(w[i].Trees)
	}
	return n
}
