package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// The state file keeps what the agent believes of its engine's cache over a restart of the agent: the engine's epoch, and
// the blocks from the least to the most recently used. It is written whole to a new file that then takes the old one's
// name, so that a crash leaves either. A file that is damaged, of another peer or of another version is ignored: it costs
// cache hits, and nothing else.
//
//	magic "SHOALST1" | peer ID: u16 length, bytes | epoch: start i64, counter i64 | blocks: u32 count, count x (hash u64,
//	depth u16) | CRC-32C of all before it; integers little-endian

const stateMagic = "SHOALST1"

// maxState bounds the blocks of a state file; 10 bytes each.
const maxState = 1 << 24

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNoState says that there is no state file: the first start, or somebody has cleaned up.
var errNoState = errors.New("agent: no state file")

func encodeState(id peer.ID, e peer.Epoch, blocks []prefix.Element) []byte {
	b := make([]byte, 0, len(stateMagic)+2+len(id)+16+4+10*len(blocks)+4)
	b = append(b, stateMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)))
	b = append(b, id...)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Start))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Counter))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(blocks)))
	for _, x := range blocks {
		b = binary.LittleEndian.AppendUint64(b, uint64(x.Hash))
		b = binary.LittleEndian.AppendUint16(b, x.Depth)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeState(b []byte) (id peer.ID, e peer.Epoch, blocks []prefix.Element, err error) {
	bad := func(what string) (peer.ID, peer.Epoch, []prefix.Element, error) {
		return "", peer.Epoch{}, nil, fmt.Errorf("agent: state file: %s", what)
	}
	const fixed = len(stateMagic) + 2 + 16 + 4 + 4
	if len(b) < fixed || string(b[:len(stateMagic)]) != stateMagic {
		return bad("not one of this version")
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return bad("damaged (its checksum is wrong)")
	}
	body = body[len(stateMagic):]
	n := int(binary.LittleEndian.Uint16(body))
	if n > peer.MaxID || len(body) < 2+n+20 {
		return bad("the peer's ID is cut short or too long")
	}
	id, body = peer.ID(body[2:2+n]), body[2+n:]
	e.Start, e.Counter = int64(binary.LittleEndian.Uint64(body)), int64(binary.LittleEndian.Uint64(body[8:]))
	count := int64(binary.LittleEndian.Uint32(body[16:]))
	body = body[20:]
	if count > maxState || int64(len(body)) != 10*count {
		return bad("its length is not what its count says")
	}
	blocks = make([]prefix.Element, count)
	for i := range blocks {
		blocks[i] = prefix.Element{Hash: prefix.Hash(binary.LittleEndian.Uint64(body)), Depth: binary.LittleEndian.Uint16(body[8:])}
		body = body[10:]
	}
	return id, e, blocks, nil
}

func readState(path string, self peer.ID) (peer.Epoch, []prefix.Element, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return peer.Epoch{}, nil, errNoState
	}
	if err != nil {
		return peer.Epoch{}, nil, fmt.Errorf("agent: state file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 10*maxState+256))
	if err != nil {
		return peer.Epoch{}, nil, fmt.Errorf("agent: state file: %w", err)
	}
	id, e, blocks, err := decodeState(b)
	if err == nil && id != self {
		err = fmt.Errorf("agent: state file %s is peer %s's, not %s's", path, id, self)
	}
	return e, blocks, err
}

func writeState(path string, self peer.ID, e peer.Epoch, blocks []prefix.Element) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return fmt.Errorf("agent: state file: %w", err)
	}
	_, err = f.Write(encodeState(self, e, blocks))
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("agent: state file: %w", err)
	}
	return nil
}
