package cluster

import (
	"net"
	"sync"
)

// corkBuf is the size of the read buffer under TLS, in bytes: two records. TLS itself reads a record's header and body
// apart; the buffer makes one system call of what has arrived.
const corkBuf = 32 << 10

// cork stands between TLS and TCP. TLS writes each record of 16 kB by itself; while the cork is in, records collect, and
// one write takes them all. Reading goes through a buffer for the same reason.
type cork struct {
	net.Conn
	mu   sync.Mutex // TLS may answer a key update while somebody else writes
	out  *[]byte    // the cork is in
	buf  []byte
	r, w int
}

func newCork(nc net.Conn) *cork { return &cork{Conn: nc, buf: make([]byte, corkBuf)} }

// corkOuts holds what records collect in, which is needed only while a message is written.
var corkOuts = sync.Pool{New: func() any { b := make([]byte, 0, keepBuf); return &b }}

// hold puts the cork in; flush takes it out and writes what has collected.
func (c *cork) hold() {
	c.mu.Lock()
	c.out = corkOuts.Get().(*[]byte)
	c.mu.Unlock()
}

func (c *cork) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if len(*c.out) > 0 {
		_, err = c.Conn.Write(*c.out)
	}
	*c.out = (*c.out)[:0]
	corkOuts.Put(c.out)
	c.out = nil
	return err
}

func (c *cork) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return c.Conn.Write(p)
	}
	out := *c.out
	if len(out)+len(p) > cap(out) && len(out) > 0 {
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
		out = out[:0]
	}
	*c.out = append(out, p...)
	return len(p), nil
}

func (c *cork) Read(p []byte) (int, error) {
	if c.r == c.w {
		if len(p) >= len(c.buf) {
			return c.Conn.Read(p)
		}
		n, err := c.Conn.Read(c.buf)
		c.r, c.w = 0, max(n, 0)
		if c.w == 0 {
			return 0, err
		}
	}
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	return n, nil
}
