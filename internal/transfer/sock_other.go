//go:build !linux

package transfer

import (
	"net"
	"os"
	"syscall"
	"time"
)

func reuse(_, _ string, rc syscall.RawConn) error {
	var err error
	if e := rc.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}); e != nil {
		return e
	}
	return err
}

func tune(*net.TCPConn, time.Duration, int) {}

func spare(*os.File) (int64, bool) { return 0, false }
