// Package socket makes TCP connections cheap for a process that has few processors and many small exchanges.
//
// Go hands the processor of a goroutine that is in a system call to another thread as soon as the call has lasted for
// 20 us, which writing 100 kB to a socket always does. For a call that cannot block, as those on a non-blocking socket,
// this gains nothing and costs two switches between threads, and a monitor that looks every 20 us: a tenth of an agent's
// time, by profile. So [Conn] makes the calls itself and keeps the processor; where the socket is not ready the
// goroutine waits in the runtime's poller as always.
//
// It is not a transport of its own: deadlines, closing and everything else are net.TCPConn's.
package socket

import (
	"net"
)

// Wrap gives a connection whose reads and writes keep their processor. What is not a TCP connection, or not on Linux,
// is given back as it is.
func Wrap(nc net.Conn) net.Conn {
	if tc, ok := nc.(*net.TCPConn); ok {
		return wrap(tc)
	}
	return nc
}

// Listener wraps what a listener accepts.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Wrap(nc), nil
}

// Gather writes the pieces one after another, with one system call where the connection is TCP and takes them at once.
// It does not change pieces, and fails as Write does.
func Gather(nc net.Conn, pieces ...[]byte) error {
	if c, ok := nc.(*Conn); ok {
		return c.gather(pieces)
	}
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if _, err := nc.Write(p); err != nil {
			return err
		}
	}
	return nil
}
