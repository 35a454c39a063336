package up

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"shoal/internal/agent"
	"shoal/internal/peer"
)

// The test program is also what it starts: a fake agent, a fake engine, or a whole `shoal up` of such.
const childEnv = "SHOAL_UP_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" || len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "agent":
		fakeAgent(os.Args[2:])
	case "engine":
		fakeEngine(os.Args[2])
	case "up":
		u, err := fakeUp(os.Args[2], os.Stdout, os.Stderr)
		if err == nil {
			err = u.Run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeAgent serves an admin API by which it sees all that it was told to join, and ends on SIGTERM. POST /die ends it
// with exit status 3.
func fakeAgent(args []string) {
	given := map[string]string{} // by flag; what the real agent does with the others is not asked here
	var joins []string
	for i, a := range args[:len(args)-1] {
		if a == "--join" {
			joins = append(joins, args[i+1])
		} else if name, ok := strings.CutPrefix(a, "--"); ok {
			given[name] = args[i+1]
		}
	}
	if given["policy"] == "bad" {
		fmt.Println("agent: policy bad is none of these")
		os.Exit(2)
	}
	if err := os.WriteFile(given["state"], nil, 0o600); err != nil {
		panic(err)
	}
	s := agent.Status{Self: peer.ID(given["id"])}
	for i := range len(joins) + 1 {
		other := agent.PeerStatus{ID: peer.ID(fmt.Sprintf("a%d", i+1)), Alive: true}
		other.Models, other.Load.Up = []string{"model-1"}, true
		s.Peers = append(s.Peers, other)
	}
	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	http.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(&s) })
	http.HandleFunc("POST /die", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	l, err := net.Listen("tcp", given["admin-listen"])
	if err != nil {
		panic(err)
	}
	fmt.Printf("level=INFO msg=\"%s listens\"\n", given["id"])
	go http.Serve(l, nil)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	fmt.Printf("level=WARN msg=\"%s has drained\"\n", given["id"])
}

// fakeEngine listens, and ends on SIGTERM.
func fakeEngine(addr string) {
	if _, err := net.Listen("tcp", addr); err != nil {
		panic(err)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	fmt.Println("level=WARN msg=\"an engine ended\"")
}

// fakeUp is a shoal of two fake agents with a fake engine each.
func fakeUp(under string, stdout, stderr io.Writer) (*Up, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg := Defaults()
	cfg.Exe, cfg.RunDir, cfg.Port, cfg.Agents, cfg.Ready = exe, under, 0, 2, 20*time.Second
	u, err := New(cfg, stdout, stderr)
	if err != nil {
		return nil, err
	}
	u.engines = func(_ context.Context, dir *runDir) (specs []spec, err error) {
		for _, q := range u.plan.peers {
			specs = append(specs, spec{name: q.engineName, path: exe, args: []string{"engine", q.engineAddr},
				log: filepath.Join(dir.logs(), q.engineName+".log"), drain: 5 * time.Second})
		}
		return specs, nil
	}
	return u, nil
}

// running is an Up whose output a test reads line by line.
type running struct {
	u      *Up
	runDir string
	lines  chan string
	end    chan error
	cancel context.CancelFunc
	all    []string
}

func startFake(t *testing.T) *running {
	t.Setenv(childEnv, "1")
	r := &running{runDir: filepath.Join(t.TempDir(), ".shoal"), lines: make(chan string, 1000), end: make(chan error, 1)}
	read, write := io.Pipe()
	u, err := fakeUp(r.runDir, write, write)
	if err != nil {
		t.Fatal(err)
	}
	r.u = u
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	t.Cleanup(func() { u.Kill(); cancel() })
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			r.lines <- s.Text()
		}
		close(r.lines)
	}()
	go func() { r.end <- u.Run(ctx); write.Close() }()
	return r
}

// until reads lines up to one that holds text.
func (r *running) until(t *testing.T, text string) string {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case l, ok := <-r.lines:
			if !ok {
				t.Fatalf("it ended without %q:\n%s", text, strings.Join(r.all, "\n"))
			}
			r.all = append(r.all, l)
			if strings.Contains(l, text) {
				return l
			}
		case <-limit:
			t.Fatalf("no %q within the limit:\n%s", text, strings.Join(r.all, "\n"))
		}
	}
}

// rest reads to the end.
func (r *running) rest() string {
	for l := range r.lines {
		r.all = append(r.all, l)
	}
	return strings.Join(r.all, "\n")
}

func TestUpStartsTellsAndEndsEverythingInOrder(t *testing.T) {
	r := startFake(t)
	r.until(t, "The shoal is ready")
	r.until(t, `"model":"model-1"`)
	r.until(t, "Ctrl-C ends all")
	r.cancel()
	text := r.rest()
	if err := <-r.end; err != nil {
		t.Errorf("ended on request, it returns %v", err)
	}
	agents := max(strings.Index(text, "a1 has drained"), strings.Index(text, "a2 has drained"))
	if engine := strings.Index(text, "an engine ended"); agents < 0 || engine < agents {
		t.Errorf("the engines did not end after the agents:\n%s", text)
	}
	if strings.Contains(text, "listens") {
		t.Errorf("a line of level INFO is shown:\n%s", text)
	}
	if err := r.u.plan.checkPorts(); err != nil {
		t.Errorf("something goes on: %v", err)
	}
	if exists(r.runDir) {
		t.Error("the run directory is left")
	}
}

func TestUpSaysThatAnAgentDiedAndBringsItBack(t *testing.T) {
	r := startFake(t)
	r.until(t, "Ctrl-C ends all")
	http.Post("http://"+r.u.plan.peers[1].admin+"/die", "", nil) // the answer is its end
	r.until(t, "ended with exit status 3")
	r.until(t, "a2 is ready again")
	r.cancel()
	r.rest()
	if err := <-r.end; err != nil {
		t.Error(err)
	}
}

func TestUpFailsWithTheReasonWhereAnAgentDoesNotStart(t *testing.T) {
	t.Setenv(childEnv, "1")
	u, err := fakeUp(filepath.Join(t.TempDir(), ".shoal"), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	u.plan.cfg.Policy = "bad"
	err = u.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "does not start") || !strings.Contains(err.Error(), "policy bad is none of these") {
		t.Errorf("got %v, want that an agent does not start, and its last line", err)
	}
	if err := u.plan.checkPorts(); err != nil {
		t.Errorf("something goes on: %v", err)
	}
}

// Nothing is left of a run that was killed outright: neither agents nor engines.
func TestChildrenDieWithAKilledUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child when its parent is killed")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "up", filepath.Join(t.TempDir(), ".shoal"))
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill() // where the test has failed before it did
		cmd.Wait()
	}()
	var admins []string
	for s := bufio.NewScanner(out); s.Scan() && !strings.Contains(s.Text(), "Ctrl-C ends all"); {
		if f := strings.Fields(s.Text()); len(f) > 3 && strings.HasPrefix(f[1], "http://127") {
			admins = append(admins, strings.TrimPrefix(f[2], "http://"), strings.TrimPrefix(f[3], "http://"))
		}
	}
	if len(admins) != 4 {
		t.Fatalf("the addresses of 2 agents and 2 engines are not printed: %q", admins)
	}
	var conns []net.Conn
	for _, a := range admins {
		c, err := net.Dial("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for i, c := range conns {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(c); err != nil && os.IsTimeout(err) {
			t.Errorf("what listens at %s outlives its parent", admins[i])
		}
	}
}
