package engine

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"shoal/internal/socket"
)

// client is one engine's HTTP/1.1 client: a pool of connections, each used by the caller's own goroutine from the first
// byte written to the last byte read. net/http's Transport hands every request to two goroutines a connection; without
// them a request costs about half the CPU and thousands of streams cost no goroutine. The protocol itself, head and body
// framing, is read by net/http.
type client struct {
	cfg    Config
	scheme string
	addr   string // host:port to dial
	host   string // the Host field
	prefix string // path before /v1, without a trailing slash
	auth   string // Authorization field, or empty
	tls    *tls.Config
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   []*conn // the last one was used last
	sweep  *time.Timer
	closed bool
}

func newClient(c Config) (*client, error) {
	u, err := c.base()
	if err != nil {
		return nil, err
	}
	cl := &client{cfg: c, scheme: u.Scheme, host: u.Host, dial: c.Dial}
	cl.prefix = pathPrefix(u)
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	cl.addr = net.JoinHostPort(u.Hostname(), port)
	if c.APIKey != "" {
		cl.auth = "Bearer " + c.APIKey
	}
	if cl.dial == nil {
		// Go sets TCP_NODELAY on what it dials. pitfalls 28
		d := &net.Dialer{Timeout: c.DialTimeout, KeepAlive: 15 * time.Second}
		cl.dial = d.DialContext
	}
	if u.Scheme == "https" {
		if cl.tls, err = clientTLS(c.TLS, u.Hostname()); err != nil {
			return nil, err
		}
	}
	return cl, nil
}

// pathPrefix is what a URL's path puts before "/v1".
func pathPrefix(u *url.URL) string {
	p := strings.TrimRight(u.EscapedPath(), "/")
	return strings.TrimRight(strings.TrimSuffix(p, "/v1"), "/")
}

func clientTLS(c TLS, host string) (*tls.Config, error) {
	t := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if c.ServerName != "" {
		t.ServerName = c.ServerName
	}
	t.InsecureSkipVerify = c.Insecure
	if c.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("engine: tls ca_file: %w", err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("engine: tls ca_file %s holds no PEM certificate", c.CAFile)
	}
	return t, nil
}

// errHead is a response head over MaxHeader bytes.
var errHead = errors.New("the head of the response is too long")

// do sends one exchange and reads the response's head. A kept connection that turns out to be gone before any byte of the
// response came is replaced by a fresh one, once: the engine has closed it between two requests, or has restarted.
func (cl *client) do(ctx context.Context, x *exchange) (*answer, error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	c, err := cl.kept()
	if err != nil {
		return nil, err
	}
	if c != nil {
		a, err := cl.on(ctx, c, x)
		if err == nil || !c.untouched || ctx.Err() != nil || errors.Is(err, ErrSilent) {
			return a, err
		}
	}
	if c, err = cl.fresh(ctx); err != nil {
		return nil, err
	}
	return cl.on(ctx, c, x)
}

// on runs the exchange on one connection up to the response's head.
func (cl *client) on(ctx context.Context, c *conn, x *exchange) (*answer, error) {
	c.untouched = true
	c.headLeft = cl.cfg.MaxHeader
	c.limit = 0 // the first-byte deadline stands until the head is there
	c.nc.SetDeadline(time.Now().Add(cl.cfg.FirstByte))
	c.tail = c.tail[:0]
	a := &answer{cl: cl, c: c, ctx: ctx, usage: UnknownUsage()}
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, c.cut)
	}
	wrote := x.write(cl, c)
	if wrote != nil && !c.untouched {
		return nil, a.abort(wrote)
	}
	if wrote != nil {
		// The engine may have answered before it had read everything, and hung up.
		c.nc.SetReadDeadline(time.Now().Add(time.Second))
	}
	if err := a.readHead(x); err != nil {
		if wrote != nil {
			err = wrote
		}
		return nil, a.abort(err)
	}
	if wrote != nil {
		a.res.Close = true
	}
	c.headLeft = -1
	c.limit = cl.cfg.Silence
	c.armed = time.Time{}
	return a, nil
}

// kept takes the connection that was used last, nil where none is fit for use.
func (cl *client) kept() (*conn, error) {
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed {
		return nil, failed(ErrClosed, nil)
	}
	for n := len(cl.idle); n > 0; n = len(cl.idle) {
		c := cl.idle[n-1]
		cl.idle[n-1] = nil
		cl.idle = cl.idle[:n-1]
		if age := now.Sub(c.since); age < cl.cfg.IdleTimeout && (age < peekAfter || c.alive()) {
			return c, nil
		}
		c.nc.Close()
	}
	return nil, nil
}

// keep gives a connection back after an answer that was read to its end.
func (cl *client) keep(c *conn) {
	c.since = time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed || len(cl.idle) >= cl.cfg.IdleConns {
		c.nc.Close()
		return
	}
	cl.idle = append(cl.idle, c)
	if cl.sweep == nil {
		cl.sweep = time.AfterFunc(cl.cfg.IdleTimeout, cl.expire)
	}
}

// expire closes what has been idle for too long, and comes again while anything is idle.
func (cl *client) expire() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now, old := time.Now(), 0
	for old < len(cl.idle) && now.Sub(cl.idle[old].since) >= cl.cfg.IdleTimeout {
		cl.idle[old].nc.Close()
		old++
	}
	cl.idle = append(cl.idle[:0], cl.idle[old:]...)
	clear(cl.idle[len(cl.idle) : len(cl.idle)+old])
	cl.sweep = nil
	if len(cl.idle) > 0 {
		cl.sweep = time.AfterFunc(cl.idle[0].since.Add(cl.cfg.IdleTimeout).Sub(now), cl.expire)
	}
}

func (cl *client) close() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.closed = true
	for _, c := range cl.idle {
		c.nc.Close()
	}
	cl.idle = nil
	if cl.sweep != nil {
		cl.sweep.Stop()
	}
}

func (cl *client) fresh(ctx context.Context) (*conn, error) {
	dctx, cancel := context.WithTimeout(ctx, cl.cfg.DialTimeout)
	defer cancel()
	nc, err := cl.dial(dctx, "tcp", cl.addr)
	if err == nil {
		nc = socket.Wrap(nc)
	}
	if err == nil && cl.tls != nil {
		t := tls.Client(nc, cl.tls)
		if err = t.HandshakeContext(dctx); err != nil {
			nc.Close()
			err = fmt.Errorf("TLS with %s: %w", cl.addr, err)
		}
		nc = t
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, failed(ErrDown, err)
	}
	return newConn(nc), nil
}

// get fetches a small document, for probes.
func (cl *client) get(ctx context.Context, path string, limit int) (status int, h http.Header, body []byte, err error) {
	a, err := cl.do(ctx, &exchange{method: http.MethodGet, path: path})
	if err != nil {
		return 0, nil, nil, err
	}
	defer a.Close()
	body, err = io.ReadAll(io.LimitReader(a, int64(limit)+1))
	if err == nil && len(body) > limit {
		err = failed(ErrTooLong, fmt.Errorf("%s has more than %d bytes", path, limit))
	}
	return a.res.StatusCode, a.res.Header, body, err
}

// peekAfter is how long a connection may be idle without being looked at before it is used again.
const peekAfter = 100 * time.Millisecond

// conn is one connection, used by one request at a time.
type conn struct {
	nc        net.Conn
	br        *bufio.Reader
	since     time.Time     // idle since
	untouched bool          // no byte of the current response has come
	lost      bool          // reading has failed
	headLeft  int           // bytes that the head may still have; -1 after it
	limit     time.Duration // of silence; 0: the deadline set stands
	armed     time.Time     // when the silence deadline was last set
	peek      func() bool   // nil where the connection cannot be looked into
	tail      []byte        // the last bytes of the answer, up to twice tailBytes
	head      []byte        // scratch for the request's head
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc, peek: peeker(nc)}
	c.br = bufio.NewReaderSize(c, 4<<10)
	return c
}

// cut ends the connection at once, from any goroutine.
func (c *conn) cut() { c.nc.Close() }

// alive reports whether the peer has neither closed nor sent anything since the last answer.
func (c *conn) alive() bool { return c.peek == nil || c.peek() }

// Read reads from the connection under the limits of the moment. The silence deadline is moved at most once in an
// eighth of its length, and set that much later, since moving it costs as much as a small read.
func (c *conn) Read(p []byte) (int, error) {
	if c.limit > 0 {
		if now := time.Now(); now.Sub(c.armed) > c.limit/8 {
			c.nc.SetReadDeadline(now.Add(c.limit + c.limit/8))
			c.armed = now
		}
	}
	n, err := c.nc.Read(p)
	c.lost = err != nil
	if n > 0 {
		c.untouched = false
		if c.headLeft >= 0 {
			if c.headLeft -= n; c.headLeft < 0 {
				return 0, errHead
			}
		}
	}
	return n, err
}
