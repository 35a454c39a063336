//go:build unix

package engine

import (
	"crypto/tls"
	"net"
	"syscall"
)

// peeker returns a function that looks, without waiting, whether an idle connection is still open and quiet. A
// connection that has something to say before it was asked has been closed, or is out of step.
func peeker(nc net.Conn) func() bool {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	var quiet bool
	var one [1]byte
	look := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	}
	return func() bool { return raw.Control(look) == nil && quiet }
}
