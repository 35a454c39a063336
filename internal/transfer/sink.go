package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// Sink takes the bytes of one transfer. WriteAt is called with verified bytes only, each of them once, by several
// goroutines at once for places that do not overlap. After the last one either Commit is called, once, or Abort, after
// which nothing may be left. A sink may have these methods too:
//
//	Open(size int64) error  // called before the first write; an unused ticket never opens its sink
//	Key() string            // what is written: a newer ticket for the same key goes on with what an older one brought
type Sink interface {
	io.WriterAt
	Commit() error
	Abort() error
}

type opener interface{ Open(size int64) error }

type keyed interface{ Key() string }

const (
	partPrefix = "."
	partSuffix = ".shoal-part"
	maxName    = 200
)

// FileSink writes a file of this name in the directory. It grows under another name and gets its own, replacing what was
// there, when all of it has arrived. Nothing is forced to disk: a KV cache can be computed again, so a directory of
// them is to be emptied after a power cut.
func FileSink(dir, name string) (Sink, error) {
	switch {
	case name == "" || len(name) > maxName:
		return nil, fmt.Errorf("transfer: a file's name has %d bytes; give 1 to %d", len(name), maxName)
	case strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") || !filepath.IsLocal(name):
		return nil, fmt.Errorf("transfer: %q is no plain file name: no path, and no dot in front", name)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	return &fileSink{dir: abs, name: name}, nil
}

type fileSink struct {
	dir, name string
	root      *os.Root // nothing outside it can be touched, by no link either
	f         *os.File
}

func (s *fileSink) Key() string  { return filepath.Join(s.dir, s.name) }
func (s *fileSink) part() string { return partPrefix + s.name + partSuffix }

func (s *fileSink) Open(size int64) (err error) {
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return err
	}
	if s.f, err = s.root.OpenFile(s.part(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		s.root.Close()
		s.root = nil
		return err
	}
	// A disk that is too full says so before anything moves. To reserve the room would take seconds for large files, and
	// the sender waits.
	if room, ok := spare(s.f); ok && room < size {
		err = fmt.Errorf("%s has %d bytes left of the %d that are needed", s.dir, room, size)
	} else {
		err = s.f.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, s.Abort())
	}
	return nil
}

func (s *fileSink) WriteAt(p []byte, off int64) (int, error) { return s.f.WriteAt(p, off) }

func (s *fileSink) Commit() error {
	err := s.f.Close()
	if err == nil {
		err = s.root.Rename(s.part(), s.name)
	}
	if err != nil {
		return errors.Join(err, s.Abort())
	}
	return s.root.Close()
}

func (s *fileSink) Abort() error {
	if s.root == nil {
		return nil // never opened, or aborted
	}
	s.f.Close()
	err := s.root.Remove(s.part())
	s.root.Close()
	s.root = nil
	return err
}

// sweep removes what an earlier life of this agent has not finished: which chunks of it are there died with it.
func sweep(dir string) (removed int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("transfer: %w", err)
	}
	defer root.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("transfer: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), partPrefix) && strings.HasSuffix(e.Name(), partSuffix) {
			if err := root.Remove(e.Name()); err != nil {
				return removed, fmt.Errorf("transfer: %w", err)
			}
			removed++
		}
	}
	return removed, nil
}

// MemorySink writes into a buffer, which has to be as long as the transfer. Abort clears it.
func MemorySink(b []byte) Sink { return memorySink(b) }

type memorySink []byte

func (s memorySink) Open(size int64) error {
	if int64(len(s)) != size {
		return fmt.Errorf("a buffer of %d bytes for a transfer of %d", len(s), size)
	}
	return nil
}

func (s memorySink) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(s)) || len(p) > len(s)-int(off) {
		return 0, io.ErrShortBuffer
	}
	return copy(s[off:], p), nil
}

func (s memorySink) Commit() error { return nil }
func (s memorySink) Abort() error  { clear(s); return nil }

// Discarded counts bytes and keeps none: for load.
type Discarded struct {
	bytes atomic.Int64
	once  sync.Once
	done  chan struct{}
}

// Discard makes a sink that keeps nothing.
func Discard() *Discarded { return &Discarded{done: make(chan struct{})} }

// Bytes is how many have arrived, 0 after an Abort.
func (d *Discarded) Bytes() int64 { return d.bytes.Load() }

// Ended is closed at Commit or Abort.
func (d *Discarded) Ended() <-chan struct{} { return d.done }

func (d *Discarded) WriteAt(p []byte, _ int64) (int, error) {
	d.bytes.Add(int64(len(p)))
	return len(p), nil
}

func (d *Discarded) Commit() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

func (d *Discarded) Abort() error {
	d.bytes.Store(0)
	return d.Commit()
}
