package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"shoal/internal/load"
)

const (
	chatPath    = "/v1/chat/completions"
	groups      = 64 // of prompts that share their first half
	dialTime    = 5 * time.Second
	requestTime = 30 * time.Second
)

// prompts writes chat bodies of a given size: the first half common to one of 64 groups, the rest unique, as chats over one
// instruction are.
type prompts struct {
	model  string
	text   string
	unique uint64
	random *rand.Rand
}

// poolBytes is more than the largest prompt and a place for every group to begin at.
const poolBytes = 1 << 19

func newPool(seed uint64) (string, error) {
	shots := load.DefaultFewShot()
	shots.Seed = seed
	w, err := load.NewFewShot(shots)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := 0; b.Len() < poolBytes; i++ {
		b.WriteString(strings.ReplaceAll(w.Request(i).User, "\n", " ")) // nothing that JSON has to escape
	}
	return b.String(), nil
}

// body appends a request to b.
func (p *prompts) body(b []byte, size int, stream bool, maxTokens int) []byte {
	b = append(b, `{"model":"`...)
	b = append(b, p.model...)
	b = append(b, `","messages":[{"role":"user","content":"`...)
	start := len(b)
	group := p.random.IntN(groups)
	b = append(b, "group "...)
	b = strconv.AppendInt(b, int64(group), 10)
	b = append(b, ' ')
	from := group * (poolBytes / 4 / groups)
	b = append(b, p.text[from:from+max(0, size/2-(len(b)-start))]...)
	p.unique++
	b = fmt.Appendf(b, " %016x%016x ", p.random.Uint64(), p.unique)
	from = p.random.IntN(poolBytes / 4)
	b = append(b, p.text[from:from+max(0, size-(len(b)-start))]...)
	b = append(b, `"}],"max_tokens":`...)
	b = strconv.AppendInt(b, int64(maxTokens), 10)
	if stream {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}')
}

// answer is what one request showed.
type answer struct {
	ttft   time.Duration // of a stream its first content, of a plain answer its end
	chunks int
}

// conn is one kept-alive connection, HTTP/1.1 written by hand: a client library would cost more than what is measured.
type conn struct {
	addr   string
	serves string // the peer that has to serve; empty: any
	nc     net.Conn
	r      *bufio.Reader
	events *bufio.Reader
	out    []byte
	body   []byte
}

func dial(addr, serves string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, dialTime)
	if err != nil {
		return nil, err
	}
	return &conn{addr: addr, serves: serves, nc: nc, r: bufio.NewReaderSize(nc, 32<<10), events: bufio.NewReaderSize(nil, 32<<10)}, nil
}

func (c *conn) close() { c.nc.Close() }

// ask sends one chat and checks its answer to the end.
func (c *conn) ask(p *prompts, size int, stream bool, maxTokens int) (answer, error) {
	c.body = p.body(c.body[:0], size, stream, maxTokens)
	c.out = fmt.Appendf(c.out[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chatPath, c.addr, len(c.body))
	c.out = append(c.out, c.body...)
	start := time.Now()
	c.nc.SetDeadline(start.Add(requestTime))
	if _, err := c.nc.Write(c.out); err != nil {
		return answer{}, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return answer{}, fmt.Errorf("before the headers: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(b))
	}
	if got := resp.Header.Get("X-Shoal-Peer"); c.serves != "" && got != c.serves {
		return answer{}, fmt.Errorf("peer %q served, and not %q: this is not the way that it is taken for", got, c.serves)
	}
	if stream {
		return c.stream(resp.Body, start, maxTokens)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("in the answer: %w", err)
	}
	if !hasContent(b) {
		return answer{}, fmt.Errorf("an answer without content: %.200s", b)
	}
	return answer{ttft: time.Since(start), chunks: 1}, nil
}

func (c *conn) stream(body io.Reader, start time.Time, maxTokens int) (a answer, err error) {
	done := false
	c.events.Reset(body)
	for {
		line, err := c.events.ReadSlice('\n')
		switch {
		case bytes.HasPrefix(line, []byte("data: [DONE]")):
			done = true
		case bytes.HasPrefix(line, []byte(`data: {"error"`)):
			return a, fmt.Errorf("an error event: %.200s", line)
		case bytes.HasPrefix(line, []byte("data:")) && hasContent(line):
			if a.chunks++; a.chunks == 1 {
				a.ttft = time.Since(start)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, fmt.Errorf("after %d chunks: %w", a.chunks, err)
		}
	}
	if !done || a.chunks == 0 || a.chunks > maxTokens {
		return a, fmt.Errorf("a stream of %d chunks for %d tokens, complete: %v", a.chunks, maxTokens, done)
	}
	return a, nil
}

// hasContent finds a content that is neither null nor empty, without parsing: the engine is ours.
func hasContent(b []byte) bool {
	const key = `"content":`
	for {
		i := bytes.Index(b, []byte(key))
		if i < 0 {
			return false
		}
		b = bytes.TrimLeft(b[i+len(key):], " ")
		if len(b) > 1 && b[0] == '"' && b[1] != '"' {
			return true
		}
	}
}

// crowd is a closed loop of clients on one way.
type crowd struct {
	clients   int
	size      int
	stream    bool
	maxTokens int
	during    time.Duration // new requests begin for this long
}

// total is what a crowd has done.
type total struct {
	requests, chunks int
	took             time.Duration
	cpu              time.Duration // of the way's processes
}

// run lets the crowd loose on one way; the clients' connections are warm before time and CPU are counted.
func (w *crowd) run(ctx context.Context, s *setup, to way, text string, seed uint64) (total, error) {
	var t total
	var mu sync.Mutex
	var errs []error
	var ready, gone sync.WaitGroup
	begin := make(chan time.Time) // closed after deadline is set
	var deadline time.Time
	ready.Add(w.clients)
	for i := range w.clients {
		gone.Go(func() {
			p := &prompts{model: s.model, text: text, random: rand.New(rand.NewPCG(seed, uint64(i))), unique: uint64(i) << 32}
			c, err := dial(s.entry[to], s.serves[to])
			if err == nil {
				defer c.close()
				_, err = c.ask(p, w.size, w.stream, min(w.maxTokens, 16))
			}
			ready.Done()
			<-begin
			requests, chunks := 0, 0
			for err == nil && ctx.Err() == nil && time.Now().Before(deadline) {
				var a answer
				if a, err = c.ask(p, w.size, w.stream, w.maxTokens); err == nil {
					requests++
					chunks += a.chunks
				}
			}
			mu.Lock()
			defer mu.Unlock()
			t.requests += requests
			t.chunks += chunks
			if err != nil && len(errs) < 3 {
				errs = append(errs, fmt.Errorf("%s: %w", wayNames[to], err))
			}
		})
	}
	ready.Wait()
	before, err := cpuTime(s.pids[to])
	start := time.Now()
	deadline = start.Add(w.during)
	close(begin)
	gone.Wait()
	t.took = time.Since(start)
	after, err2 := cpuTime(s.pids[to])
	t.cpu = after - before
	return t, errors.Join(append(errs, err, err2, ctx.Err())...)
}
