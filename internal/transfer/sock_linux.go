package transfer

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reuse lets the same source port lead to several peers, and be taken again while an old connection of it is in
// TIME_WAIT. Every socket of a port has to ask for it before it is bound.
func reuse(_, _ string, rc syscall.RawConn) error {
	var err error
	if e := rc.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); e != nil {
		return e
	}
	return err
}

// tune sets what holds for a connection's life: how long sent bytes may stay unacknowledged, and how many may wait in
// the kernel unsent.
func tune(tc *net.TCPConn, silence time.Duration, unsent int) {
	rc, err := tc.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
		if unsent > 0 {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		}
	})
}

// allocate makes room for a file, so that a disk that is too full says so before anything moves. Where a file system
// cannot, it finds out on the way.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EFBIG) {
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	return nil
}
