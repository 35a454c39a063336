// Package shoal runs whole shoals as a user does, as processes of the real program on loopback, and breaks them: killed
// peers, restarted agents and engines, clients that leave. It holds no code.
package shoal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shoal/internal/agent"
	"shoal/internal/peer"
)

// program is the shoal under test, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "shoal-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "shoal")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "shoal/cmd/shoal").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// process is one running program.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  *buffer
	done chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run starts the program; it is ended with the test, and its log shown where the test has failed.
func run(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(program, args...), log: new(buffer), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			lines := strings.Split(p.log.String(), "\n")
			t.Logf("%s said:\n%s", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	return p
}

// kill is SIGKILL: no word to anybody.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// stop is SIGTERM, and the wait for the end.
func (p *process) stop() {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end after SIGTERM", p.name)
	}
}

// member is one agent with all that it was started with, so that it can be started again.
type member struct {
	*process
	id                   string
	api, admin, peerAddr string
	gossip               string
	args                 []string
}

// ports gives free addresses. Somebody else could take one before it is used; then the agent says so and the test fails.
func ports(t *testing.T, n int) []string {
	t.Helper()
	out := make([]string, n)
	for i := range out {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out[i] = l.Addr().String()
	}
	return out
}

// newShoal plans n agents with further arguments for each, and starts them.
func newShoal(t *testing.T, n int, args func(i int) []string) []*member {
	t.Helper()
	members := make([]*member, n)
	for i := range members {
		p := ports(t, 4)
		m := &member{id: fmt.Sprintf("a%d", i+1), api: p[0], admin: p[1], peerAddr: p[2], gossip: p[3]}
		m.args = []string{"agent", "--id", m.id, "--listen", m.api, "--admin-listen", m.admin, "--peer-listen", m.peerAddr,
			"--gossip-listen", m.gossip, "--preset", "local"}
		if i > 0 {
			m.args = append(m.args, "--join", members[0].gossip)
		}
		m.args = append(m.args, args(i)...)
		members[i] = m
	}
	members[0].args = append(members[0].args, "--join", members[n-1].gossip) // so that a1 finds the others when it is started again
	for _, m := range members {
		m.process = run(t, m.id, m.args...)
	}
	ready(t, members)
	return members
}

// again starts an agent anew with what it had.
func (m *member) again(t *testing.T, more ...string) {
	t.Helper()
	m.process = run(t, m.id, append(append([]string(nil), m.args...), more...)...)
}

// status asks an agent for its view; nil where it does not answer.
func (m *member) status() *agent.Status {
	c := http.Client{Timeout: 2 * time.Second}
	r, err := c.Get("http://" + m.admin + "/status")
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	s := new(agent.Status)
	if json.NewDecoder(r.Body).Decode(s) != nil {
		return nil
	}
	return s
}

// of is what an agent knows of a peer; nil: nothing.
func (m *member) of(id string) *agent.PeerStatus {
	s := m.status()
	if s == nil {
		return nil
	}
	for i := range s.Peers {
		if s.Peers[i].ID == peer.ID(id) {
			return &s.Peers[i]
		}
	}
	return nil
}

// eventually asks again and again until ok, and fails the test after its patience; it returns how long that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > patience {
			t.Fatalf("after %v not yet: %s", patience, what)
		}
		<-tick.C
	}
	return time.Since(began)
}

// ready waits until every one of these agents sees all of them, with their engines up.
func ready(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members {
		eventually(t, m.id+" sees everyone", func() bool {
			s := m.status()
			if s == nil {
				return false
			}
			up := 0
			for _, p := range s.Peers {
				if p.Alive && (p.Engine == "" && p.StaleMS >= 0 || p.Load.Up && len(p.Models) > 0) {
					up++
				}
			}
			return up >= len(members)
		})
	}
}

// answer is what a client got.
type answer struct {
	status      int
	header      http.Header
	body        string
	firstByte   bool   // of the body
	done        bool   // the stream ended with [DONE], or the plain answer came whole
	errorEvent  string // of a stream
	err         error
	cached, all int // the engine's own counts; -1 where there are none
}

type contextKey int

// whenBegun is a func(peer string) in a context: told of each answer when its first byte comes.
const whenBegun contextKey = 0

// ask sends one chat request and reads all of the answer.
func ask(ctx context.Context, api, prompt string, stream bool, tokens int) *answer {
	body, _ := json.Marshal(map[string]any{
		"model": "emulated", "max_tokens": tokens, "stream": stream, "stream_options": map[string]any{"include_usage": true},
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	return post(ctx, api, body, stream)
}

func post(ctx context.Context, api string, body []byte, stream bool) *answer {
	a := &answer{cached: -1, all: -1}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer r.Body.Close()
	a.status, a.header = r.StatusCode, r.Header
	if f, ok := ctx.Value(whenBegun).(func(string)); ok {
		f(r.Header.Get("X-Shoal-Peer"))
	}
	if !stream || r.StatusCode != http.StatusOK {
		b, err := io.ReadAll(r.Body)
		a.body, a.err, a.firstByte, a.done = string(b), err, len(b) > 0, err == nil
		a.usage(b)
		return a
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		a.firstByte = true
		switch {
		case data == "[DONE]":
			a.done = true
		case strings.HasPrefix(data, `{"error"`):
			a.errorEvent = data
		default:
			a.body += data
			a.usage([]byte(data))
		}
	}
	a.err = lines.Err()
	return a
}

func (a *answer) usage(b []byte) {
	var u struct {
		Usage *struct {
			Prompt  int `json:"prompt_tokens"`
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Timings *struct {
			Cached int `json:"cache_n"`
			Prompt int `json:"prompt_n"`
		} `json:"timings"`
	}
	if json.Unmarshal(b, &u) != nil {
		return
	}
	if u.Usage != nil && u.Usage.Details != nil {
		a.all, a.cached = u.Usage.Prompt, u.Usage.Details.Cached
	}
	if u.Timings != nil {
		a.all, a.cached = u.Timings.Cached+u.Timings.Prompt, u.Timings.Cached
	}
}

// idle waits until no agent counts anything in flight any more.
func idle(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members {
		eventually(t, m.id+"'s counts in flight return to zero", func() bool {
			s := m.status()
			if s == nil || s.Counters["in_flight"] != 0 || s.Counters["dispatched"] != 0 {
				return false
			}
			own := m.of(m.id)
			return own != nil && own.Load.InFlight == 0 && own.Load.QueuedTokens == 0 && own.Load.Running <= 0 && own.Load.Waiting <= 0
		})
		if s := m.status(); s.Counters["double_end"] != 0 || s.Counters["double_settle"] != 0 {
			t.Errorf("%s: something was ended twice: %v", m.id, s.Counters)
		}
	}
}

// words is a text of about n tokens (4 bytes each), of its own for each seed.
func words(seed, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < 4*n; i++ {
		fmt.Fprintf(&b, "w%d-%d ", seed, i*7919%9973)
	}
	return b.String()
}

var errLeft = errors.New("the client has left")
