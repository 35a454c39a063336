package socket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Conn is a TCP connection whose reads and writes keep their processor.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
	in  half
	out half
}

// half is one direction of a connection: the call that is being made.
type half struct {
	mu    sync.Mutex
	try   func(fd uintptr) bool // made once, so that a call costs no memory
	p     []byte
	vec   [maxPieces]syscall.Iovec
	parts int // of vec; 0: p is what is written
	n     int
	errno syscall.Errno
}

// maxPieces is how many pieces one system call gathers; what has more is written in several.
const maxPieces = 4

// maxCall is the most that one system call moves, in bytes: how long others may have to wait for the processor.
const maxCall = 1 << 20

func wrap(tc *net.TCPConn) net.Conn {
	raw, err := tc.SyscallConn()
	if err != nil {
		return tc
	}
	c := &Conn{TCPConn: tc, raw: raw}
	c.in.try = func(fd uintptr) bool { return c.in.call(syscall.SYS_READ, fd) }
	c.out.try = func(fd uintptr) bool {
		if c.out.parts > 0 {
			return c.out.callVec(fd)
		}
		return c.out.call(syscall.SYS_WRITE, fd)
	}
	return c
}

// call makes one system call over p; false where the socket is not ready.
func (h *half) call(trap, fd uintptr) bool {
	n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(h.p))), uintptr(min(len(h.p), maxCall)))
	if errno == 0 {
		acquire(fd)
	}
	return h.result(n, errno)
}

func (h *half) callVec(fd uintptr) bool {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&h.vec)), uintptr(h.parts))
	return h.result(n, errno)
}

func (h *half) result(n uintptr, errno syscall.Errno) (done bool) {
	switch errno {
	case 0:
		h.n, h.errno = int(n), 0
	case syscall.EAGAIN:
		return false
	default:
		h.n, h.errno = 0, errno
	}
	return true
}

// Read is net.Conn's.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p = p
	defer h.forget()
	for {
		if err := c.raw.Read(h.try); err != nil {
			return 0, err
		}
		switch {
		case h.errno == syscall.EINTR:
		case h.errno != 0:
			return 0, c.failed("read", h.errno)
		case h.n == 0:
			return 0, io.EOF
		default:
			return h.n, nil
		}
	}
}

// Write is net.Conn's.
func (c *Conn) Write(p []byte) (int, error) {
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.write(p)
}

// write writes p. h.mu is held.
func (c *Conn) write(p []byte) (int, error) {
	h := &c.out
	defer h.forget()
	done := 0
	for done < len(p) {
		h.p = p[done:]
		n, err := c.push()
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// push makes one call of the writing half.
func (c *Conn) push() (int, error) {
	h := &c.out
	release()
	if err := c.raw.Write(h.try); err != nil {
		return 0, err
	}
	switch h.errno {
	case 0:
		return h.n, nil
	case syscall.EINTR:
		return 0, nil
	}
	return 0, c.failed("write", h.errno)
}

// gather writes pieces with as few calls as there can be. h.mu is held only here, so that nothing comes in between.
func (c *Conn) gather(pieces [][]byte) error {
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.forget()
	at, off := 0, 0 // pieces[at][off:] is what comes next
	for {
		h.parts = 0
		room := maxCall
		for i, o := at, off; i < len(pieces) && h.parts < maxPieces && room > 0; i, o = i+1, 0 {
			p := pieces[i][o:]
			if len(p) == 0 {
				continue
			}
			n := min(len(p), room)
			v := &h.vec[h.parts]
			v.Base = unsafe.SliceData(p)
			v.SetLen(n)
			h.parts++
			room -= n
		}
		if h.parts == 0 {
			return nil
		}
		n, err := c.push()
		if err != nil {
			return err
		}
		for at < len(pieces) && n >= len(pieces[at])-off {
			n -= len(pieces[at]) - off
			at, off = at+1, 0
		}
		off += n
	}
}

// forget lets go of the caller's memory.
func (h *half) forget() {
	h.p, h.parts = nil, 0
	h.vec = [maxPieces]syscall.Iovec{}
}

func (c *Conn) failed(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
}
