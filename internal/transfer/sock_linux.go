package transfer

import (
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

// spare is how much a file system has left for us, in bytes; ok is false where it does not tell.
func spare(f *os.File) (bytes int64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, false
	}
	return int64(min(st.Bavail, 1<<62/uint64(max(st.Bsize, 1)))) * int64(st.Bsize), true
}
