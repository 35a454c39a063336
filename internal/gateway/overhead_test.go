package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the gateway costs, against the standard library's bare reverse proxy before the same engine. The engine and the
// client run in another process (this test's program again), so that what is measured is the CPU of the proxy alone.

const otherProcess = "GATEWAY_TEST_OTHER_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(otherProcess) != "" {
		beOther()
		return
	}
	os.Exit(m.Run())
}

// chunks is how many chunks a stream has.
const chunks = 50

// taken tells the engine that the client has its last chunk.
var taken = make(chan struct{}, 1)

// beOther is the engine, and the client that does what it is told on its standard input: "ADDRESS BYTES STREAM COUNT".
func beOther() {
	chunk := []byte(`data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	plain := []byte(`{"id":"chatcmpl-123","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 60) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":60,"total_tokens":160}}`)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Stream") == "" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(plain)))
			w.Write(plain)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for range chunks {
			w.Write(chunk)
			w.(http.Flusher).Flush()
			<-taken // one at a time, so that no two chunks share a read
		}
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	fmt.Println(srv.URL)
	in := bufio.NewScanner(os.Stdin)
	conns := map[string]net.Conn{}
	for in.Scan() {
		var addr string
		var size, stream, n int
		if _, err := fmt.Sscan(in.Text(), &addr, &size, &stream, &n); err != nil {
			panic(err)
		}
		conn := conns[addr]
		if conn == nil {
			var err error
			if conn, err = net.Dial("tcp", addr); err != nil {
				panic(err)
			}
			conns[addr] = conn
		}
		drive(conn, size, stream == 1, n)
		fmt.Println("done")
	}
}

func drive(conn net.Conn, size int, stream bool, n int) {
	body := []byte(fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":"%s"},{"role":"user","content":"What is it?"}],"stream":%v,"max_tokens":64}`,
		strings.Repeat("All the words of a long prompt that says nothing much.\\n", size/56+1)[:size/56*56], stream))
	extra := ""
	if stream {
		extra = "X-Stream: 1\r\n"
	}
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-123\r\nUser-Agent: test\r\nAccept: */*\r\n%sContent-Length: %d\r\n\r\n", extra, len(body))
	request := append([]byte(head), body...)
	br := bufio.NewReaderSize(conn, 64<<10)
	buf := make([]byte, 1)
	for range n {
		if _, err := conn.Write(request); err != nil {
			panic(err)
		}
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			panic(err)
		}
		for range chunks {
			if !stream {
				break
			}
			for end := byte(0); ; end = buf[0] {
				if _, err := io.ReadFull(res.Body, buf); err != nil {
					panic(err)
				}
				if end == '\n' && buf[0] == '\n' {
					break
				}
			}
			taken <- struct{}{}
		}
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 || stream && !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) {
			panic(fmt.Sprint(res.StatusCode, " ", err, " ", string(got)))
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type other struct {
	in  io.WriteCloser
	out *bufio.Scanner
	url string
}

func startOther(b *testing.B) *other {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), otherProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	o := &other{in: in, out: bufio.NewScanner(out)}
	o.url = o.line(b)
	return o
}

func (o *other) line(b *testing.B) string {
	if !o.out.Scan() {
		b.Fatal("the other process is gone")
	}
	return o.out.Text()
}

// BenchmarkAgainstReverseProxy reports the CPU of one request through either proxy, in turns of a few hundred requests, and
// their ratio.
func BenchmarkAgainstReverseProxy(b *testing.B) {
	o := startOther(b)
	s := newShoal("a", adapter(b, o.url))
	_, gateway := front(b, s)
	target, err := url.Parse(o.url)
	if err != nil {
		b.Fatal(err)
	}
	bare := httputil.NewSingleHostReverseProxy(target)
	bare.Transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	bare.FlushInterval = -1
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() // or some answers are cut short: pitfalls 32
		bare.ServeHTTP(w, r)
	}))
	b.Cleanup(proxy.Close)

	run := func(b *testing.B, url string, size, stream, n int) time.Duration {
		before := cpu()
		fmt.Fprintln(o.in, strings.TrimPrefix(url, "http://"), size, stream, n)
		o.line(b)
		return cpu() - before
	}
	for _, stream := range []int{0, 1} {
		for _, size := range []int{500, 10_000, 100_000} {
			b.Run(fmt.Sprintf("stream=%d/bytes=%d", stream, size), func(b *testing.B) {
				var ours, theirs time.Duration
				const batch = 100
				run(b, gateway, size, stream, batch)
				run(b, proxy.URL, size, stream, batch)
				n := 0
				for b.Loop() {
					ours += run(b, gateway, size, stream, batch)
					theirs += run(b, proxy.URL, size, stream, batch)
					n += batch
					s.mu.Lock()
					s.routed, s.admitted, s.ends = nil, nil, nil
					s.mu.Unlock()
				}
				b.ReportMetric(float64(ours.Microseconds())/float64(n), "gateway-us/req")
				b.ReportMetric(float64(theirs.Microseconds())/float64(n), "bare-us/req")
				b.ReportMetric(float64(ours)/float64(theirs), "ratio")
			})
		}
	}
}
