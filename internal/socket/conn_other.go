//go:build !linux

package socket

import "net"

// Conn is never made here.
type Conn struct{ *net.TCPConn }

func wrap(tc *net.TCPConn) net.Conn { return tc }

func (c *Conn) gather(pieces [][]byte) error {
	v := net.Buffers(pieces)
	_, err := v.WriteTo(c.TCPConn)
	return err
}
