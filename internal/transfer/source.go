package transfer

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// Source is what is sent. ReadAt is called by several goroutines at once, and again for what has to be sent again; the
// bytes may not change meanwhile. A source whose bytes are in memory may have this method too, and is then not copied:
//
//	Slice(off int64, n int) []byte  // the bytes at off, valid until Send returns; nil: ReadAt has to be asked
type Source interface {
	io.ReaderAt
	Size() int64
}

type slicer interface {
	Slice(off int64, n int) []byte
}

// File is a file to send.
type File struct {
	f    *os.File
	size int64
}

// FileSource opens a file to send it as long as it is now. Close it after Send.
func FileSource(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	return regular(f)
}

// regular takes an open file over, where it is one that can be sent.
func regular(f *os.File) (*File, error) {
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.Name())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("transfer: %w", err)
	}
	return &File{f: f, size: fi.Size()}, nil
}

func (s *File) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(p, off) }

// Size is the file's when it was opened.
func (s *File) Size() int64 { return s.size }

// Close closes the file.
func (s *File) Close() error { return s.f.Close() }

// MemorySource sends a buffer.
func MemorySource(b []byte) Source { return memorySource(b) }

type memorySource []byte

func (s memorySource) Size() int64                   { return int64(len(s)) }
func (s memorySource) Slice(off int64, n int) []byte { return s[off : off+int64(n)] }
func (s memorySource) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(s)) {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, s[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Zeros sends n zero bytes: load that costs no memory.
func Zeros(n int64) Source { return zeros{n, make([]byte, min(n, 1<<20))} }

type zeros struct {
	n int64
	b []byte
}

func (z zeros) Size() int64 { return z.n }

func (z zeros) Slice(_ int64, n int) []byte {
	if n > len(z.b) {
		return nil
	}
	return z.b[:n]
}

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	n := int(max(0, min(int64(len(p)), z.n-off)))
	clear(p[:n])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Pattern sends n bytes that follow from the seed, each place another: load whose arrival can be checked.
func Pattern(seed uint64, n int64) Source { return pattern{seed, n} }

type pattern struct {
	seed uint64
	n    int64
}

func (s pattern) Size() int64 { return s.n }

func (s pattern) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := int(max(0, min(int64(len(p)), s.n-off)))
	at := p[:n]
	if k := int(off % 8); k != 0 && len(at) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], s.word(uint64(off/8)))
		c := copy(at, w[k:])
		at, off = at[c:], off+int64(c)
	}
	i := uint64(off / 8)
	for len(at) >= 8 {
		binary.LittleEndian.PutUint64(at, s.word(i))
		at, i = at[8:], i+1
	}
	if len(at) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], s.word(i))
		copy(at, w[:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// word is the i-th eight bytes: splitmix64.
func (s pattern) word(i uint64) uint64 {
	z := s.seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
