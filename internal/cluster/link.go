package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"shoal/internal/peer"
	"shoal/internal/socket"
	"shoal/internal/wire"
)

const (
	// linkBuf is the size of a link's read buffer, in bytes. A request with its body below it takes one read. Every kept
	// connection holds one on either side, so it is what connections cost.
	linkBuf = 16 << 10
	// keepBuf is the largest buffer that is kept when it is not needed, in bytes.
	keepBuf = 64 << 10
	// copyBelow is the body length, in bytes, up to which a copy into the frame's buffer is cheaper than a second element
	// of a vectored write.
	copyBelow = 16 << 10
)

// errProtocol marks errors of a peer that does not keep to the protocol.
var errProtocol = errors.New("cluster: the peer broke the protocol")

// link is one connection to the peer port, after TLS, from either end: frames out of bytes and back. One goroutine may
// read while another one writes.
type link struct {
	nc   net.Conn
	cork *cork // under TLS; nil in the clear

	id          peer.ID // of the other side, as the handshake says and the certificate confirms
	incarnation uint64
	version     uint8
	reused      bool          // it has carried something before
	tick        atomic.Uint32 // when it was last used (Cluster.tick)

	buf   []byte // buf[r:w] has been read and not yet given out
	r, w  int
	spill []byte // a frame that is larger than buf
	out   []byte // for encoding what is written; of the one that writes

	deadline time.Time // of reads and writes, as last set; zero: none
}

// newLink makes a link of a TCP connection or, where conf is not nil, of TLS over it.
func newLink(nc net.Conn, conf *tls.Config, server bool) *link {
	nc = socket.Wrap(nc)
	l := &link{nc: nc, buf: make([]byte, linkBuf)}
	if conf != nil {
		l.cork = newCork(nc)
		if server {
			l.nc = tls.Server(l.cork, conf)
		} else {
			l.nc = tls.Client(l.cork, conf)
		}
	}
	return l
}

// secure does the TLS handshake, where there is one: before the cork is used, since its messages have to go out.
func (l *link) secure() error {
	if conn, ok := l.nc.(*tls.Conn); ok {
		return conn.Handshake()
	}
	return nil
}

// close drops the connection without a word: over TLS nothing is sent, so that it never waits.
func (l *link) close() {
	if l.cork != nil {
		l.cork.Conn.Close()
		return
	}
	l.nc.Close()
}

// watch sets the deadline of reads and writes to limit from now, but not more often than it must: setting it costs a
// timer, and a hop has many frames. So it is limit to limit+slack until the deadline strikes.
func (l *link) watch(limit, slack time.Duration) {
	now := time.Now()
	if l.deadline.Sub(now) >= limit {
		return
	}
	l.deadline = now.Add(limit + slack)
	l.nc.SetDeadline(l.deadline)
}

// frame reads one frame. The payload is valid until the next call. An io.EOF means that the other side closed between
// two frames.
func (l *link) frame() (wire.Type, []byte, error) {
	t, n, err := l.header()
	if err != nil {
		return 0, nil, err
	}
	if n > len(l.buf) {
		p, err := l.grow(l.spill[:0], n)
		if l.spill = p; cap(p) > keepBuf {
			l.spill = nil
		}
		return t, p, err
	}
	if err := l.fill(n); err != nil {
		return 0, nil, unexpected(err)
	}
	p := l.buf[l.r : l.r+n]
	l.r += n
	return t, p, nil
}

// header reads the header of a frame, and nothing of its payload: the caller takes that with full.
func (l *link) header() (wire.Type, int, error) {
	if err := l.fill(wire.HeaderLen); err != nil {
		if l.r != l.w {
			err = unexpected(err)
		}
		return 0, 0, err
	}
	t, n, err := wire.ParseHeader(l.buf[l.r : l.r+wire.HeaderLen])
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errProtocol, err)
	}
	l.r += wire.HeaderLen
	return t, n, nil
}

// fill reads until n bytes are in the buffer; n is at most its length.
func (l *link) fill(n int) error {
	if l.r == l.w {
		l.r, l.w = 0, 0
	}
	if l.r+n > len(l.buf) {
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
	}
	for l.w-l.r < n {
		m, err := l.nc.Read(l.buf[l.w:])
		l.w += m
		if err != nil && l.w-l.r < n {
			return err
		}
	}
	return nil
}

// full fills p with what comes next: from the buffer, then past it, without another copy.
func (l *link) full(p []byte) error {
	n := copy(p, l.buf[l.r:l.w])
	l.r += n
	if n == len(p) {
		return nil
	}
	_, err := io.ReadFull(l.nc, p[n:])
	return unexpected(err)
}

// growStep is how much memory the announcement of a large frame or body gets at once, in bytes; the rest it gets as it
// arrives, so that announcing costs as much as sending.
const growStep = 256 << 10

// grow appends the next n bytes to p.
func (l *link) grow(p []byte, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, growStep)
		p = slices.Grow(p, step)
		have := len(p)
		p = p[:have+step]
		if err := l.full(p[have:]); err != nil {
			return p[:have], err
		}
		n -= step
	}
	return p, nil
}

// socketBuf is what the kernel may hold of a peer link in each direction, in bytes. It begins with 16 kB and learns slowly:
// a prompt of 100 kB would stop the sender, wake the receiver and wait, several times over.
const socketBuf = 1 << 20

// widen gives a link that much at once, but over a wide-area network, where the kernel knows better how much is on the way.
func (c *Cluster) widen(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok && c.cfg.Preset != WAN {
		tc.SetWriteBuffer(socketBuf) // the kernel gives less where it must
		tc.SetReadBuffer(socketBuf)
	}
}

// unexpected says that an end of the stream is one within a frame.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// write writes head, and then body where there is any, with as few system calls as there can be.
func (l *link) write(head, body []byte) error {
	if l.cork == nil {
		if len(body) == 0 {
			_, err := l.nc.Write(head)
			return err
		}
		return socket.Gather(l.nc, head, body)
	}
	l.cork.hold()
	_, err := l.nc.Write(head)
	if err == nil && len(body) > 0 {
		_, err = l.nc.Write(body)
	}
	if ferr := l.cork.flush(); err == nil {
		err = ferr
	}
	return err
}

// writeFrame writes one frame whose payload is at most wire.MaxFrame long.
func (l *link) writeFrame(t wire.Type, payload []byte) error {
	head := make([]byte, 0, 64)
	if len(payload) <= copyBelow {
		return l.write(wire.AppendFrame(head, t, payload), nil)
	}
	return l.write(frameHeader(head, t, len(payload)), payload)
}

// frameHeader appends the header of a frame of n bytes that follow apart.
func frameHeader(dst []byte, t wire.Type, n int) []byte {
	return append(dst, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(t))
}

// isTimeout reports whether a deadline struck.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
