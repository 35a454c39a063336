package main

import (
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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// way is one of the ways to the engine.
type way int

const (
	direct way = iota
	floor
	agent
	hop
	ways
)

var wayNames = [ways]string{"direct", "Go ReverseProxy", "one agent", "one hop"}

// setup is everything that runs: the processes, and how each way is entered.
type setup struct {
	dir    string
	commit string
	model  string
	entry  [ways]string // host:port
	pids   [ways][]int  // whose CPU time a way costs
	serves [ways]string // the X-Shoal-Peer that every answer has to carry
	paced  *setup       // the same before an engine that paces its chunks; nil where not asked for
	kids   []*exec.Cmd  // in the order of starting
	logs   []*os.File   // of the kids
	client *http.Client // for readiness
}

const (
	readyTime = 20 * time.Second
	stopTime  = 5 * time.Second
)

// start builds the program where needed and starts one engine, the floor and two agents.
func start(ctx context.Context, opts options, paced bool) (s *setup, err error) {
	s = &setup{client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "shoal-overhead-"); err != nil {
		return s, err
	}
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return s, err
	}
	if s.commit, err = command(ctx, root, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"); err != nil {
		s.commit = "unknown"
	}
	if opts.shoal == "" {
		opts.shoal = filepath.Join(s.dir, "shoal")
		if _, err = command(ctx, root, "go", "build", "-buildvcs=false", "-o", opts.shoal, "./cmd/shoal"); err != nil {
			return s, err
		}
	}
	if err = s.run(ctx, opts, "fast", "--zero"); err != nil {
		return s, err
	}
	if paced {
		p := &setup{dir: s.dir, client: s.client}
		s.paced = p
		if err = p.run(ctx, opts, "paced", "--overhead", "0", "--prefill", "0", "--decode-each", "0", "--decode", opts.pace.String()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// run starts one engine and the ways to it. name keeps the logs and the peers of two shoals apart.
func (s *setup) run(ctx context.Context, opts options, name string, engineFlags ...string) error {
	port, err := freePorts(10)
	if err != nil {
		return err
	}
	engine := port[0]
	if _, err := s.spawn(name+"-engine", opts.shoal, append([]string{"engine", "--listen", engine}, engineFlags...)...); err != nil {
		return err
	}
	if err := s.wait(ctx, "the engine", "http://"+engine+"/health", nil); err != nil {
		return err
	}
	if err := s.findModel(engine); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	floorPID, err := s.spawn(name+"-floor", self, "-floor-listen", port[1], "-floor-engine", "http://"+engine)
	if err != nil {
		return err
	}
	common := []string{"--policy", "cost", "--preset", "local", "--shoal", "overhead-" + name, "--log-level", "error"}
	first, err := s.spawn(name+"-a1", opts.shoal, append([]string{"agent", "--id", "a1", "--engine", "http://" + engine, "--engine-kind", "emulated",
		"--listen", port[2], "--peer-listen", port[3], "--gossip-listen", port[4], "--admin-listen", port[5]}, common...)...)
	if err != nil {
		return err
	}
	if err := s.wait(ctx, "agent a1", "http://"+port[5]+"/readyz", nil); err != nil {
		return err
	}
	second, err := s.spawn(name+"-a2", opts.shoal, append([]string{"agent", "--id", "a2", "--join", port[4],
		"--listen", port[6], "--peer-listen", port[7], "--gossip-listen", port[8], "--admin-listen", port[9]}, common...)...)
	if err != nil {
		return err
	}
	s.entry = [ways]string{engine, port[1], port[2], port[6]}
	s.pids = [ways][]int{nil, {floorPID}, {first}, {first, second}}
	s.serves = [ways]string{"", "", "a1", "a1"}
	if err := s.wait(ctx, "agent a2", "http://"+port[9]+"/readyz", nil); err != nil {
		return err
	}
	for w := range ways {
		body := []byte(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}],"max_tokens":2}`, s.model))
		if err := s.wait(ctx, "an answer by "+wayNames[w], "http://"+s.entry[w]+chatPath, body); err != nil {
			return err
		}
	}
	return nil
}

// spawn starts a process whose output goes to a log in the setup's directory.
func (s *setup) spawn(name, path string, args ...string) (pid int, err error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return 0, err
	}
	s.logs = append(s.logs, log)
	c := exec.Command(path, args...)
	c.Dir, c.Stdout, c.Stderr = s.dir, log, log
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SHOAL_") { // settings of whoever runs this
			c.Env = append(c.Env, v)
		}
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is for us; we end them in order
	if err := c.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", name, err)
	}
	s.kids = append(s.kids, c)
	return c.Process.Pid, nil
}

// wait polls a URL until it answers 200; with a body it posts that.
func (s *setup) wait(ctx context.Context, what, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var last error // what this try came to
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if body != nil {
			req, err = http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		}
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := s.client.Do(req); err != nil {
			last = err
		} else {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(b))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not come: %w\n%s", what, last, s.said())
		}
	}
}

func (s *setup) findModel(engine string) error {
	resp, err := s.client.Get("http://" + engine + "/v1/models")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&list); err != nil || len(list.Data) == 0 {
		return fmt.Errorf("the engine lists no model (%v)", err)
	}
	s.model = list.Data[0].ID
	return nil
}

// said is the end of every log, for an error that somebody has to understand.
func (s *setup) said() string {
	var b strings.Builder
	for _, l := range s.logs {
		text, err := os.ReadFile(l.Name())
		if err != nil || len(text) == 0 {
			continue
		}
		if len(text) > 500 {
			text = text[len(text)-500:]
		}
		fmt.Fprintf(&b, "%s: %s\n", filepath.Base(l.Name()), bytes.TrimSpace(text))
	}
	return b.String()
}

// stop ends the processes, the last started first, and removes their directory.
func (s *setup) stop() {
	if s.paced != nil {
		s.paced.dir = ""
		s.paced.stop()
	}
	for i := len(s.kids) - 1; i >= 0; i-- {
		c := s.kids[i]
		c.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(stopTime, func() { c.Process.Kill() })
		c.Wait()
		kill.Stop()
	}
	for _, l := range s.logs {
		l.Close()
	}
	s.kids, s.logs = nil, nil
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// freePorts returns addresses on loopback that nobody listens on at this moment.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all of them at the end, or two could be the same
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// ticksPerSecond is the unit of CPU times in /proc on every Linux of today.
const ticksPerSecond = 100

// cpuTime is the user and system time that the processes have used.
func cpuTime(pids []int) (time.Duration, error) {
	var ticks int64
	for _, p := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/stat")
		if err != nil {
			return 0, fmt.Errorf("CPU time needs Linux's /proc, and the process alive: %w", err)
		}
		t, err := parseStat(b)
		if err != nil {
			return 0, err
		}
		ticks += t
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// parseStat returns utime + stime of a /proc/PID/stat line. The name before them may hold spaces and brackets.
func parseStat(b []byte) (int64, error) {
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 13 {
		return 0, fmt.Errorf("a process's stat is not what proc(5) says: %q", b)
	}
	user, err := strconv.ParseInt(string(f[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	return user + system, errors.Join(err, err2)
}
