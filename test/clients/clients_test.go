// Package clients runs the official OpenAI clients, unchanged, against a shoal that `shoal up --emulated 3` started. It
// holds no code. `make test-clients` installs the clients and tells where they are; without it these tests are skipped.
package clients

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit and endLimit bound the waits for the shoal, runLimit that for one client's checks.
	startLimit = time.Minute
	endLimit   = 30 * time.Second
	runLimit   = 2 * time.Minute
)

// setting is an environment variable that make test-clients sets.
func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: run make test-clients", name)
	}
	return v
}

// shoal is a running `shoal up`.
type shoal struct {
	apis, admins []string // host:port
}

// start starts a shoal of three agents, and ends it with the test.
func start(t *testing.T) *shoal {
	t.Helper()
	cmd := exec.Command(setting(t, "SHOAL_TEST_PROGRAM"), "up", "--emulated", "3", "--port", "0", "--run-dir", filepath.Join(t.TempDir(), "run"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = endLimit
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := time.AfterFunc(endLimit, func() { cmd.Process.Kill() })
		defer kill.Stop()
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("shoal up ended with %v:\n%s", err, &stderr)
		}
		if t.Failed() {
			t.Logf("what shoal up said:\n%s", &stderr)
		}
	})
	late := time.AfterFunc(startLimit, func() { cmd.Process.Kill() })
	defer late.Stop()
	s := &shoal{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[1], "http://") {
			s.apis = append(s.apis, strings.TrimSuffix(strings.TrimPrefix(f[1], "http://"), "/v1"))
			s.admins = append(s.admins, strings.TrimPrefix(f[2], "http://"))
		}
		if strings.HasPrefix(line, "Ctrl-C ends") {
			break
		}
	}
	if len(s.apis) != 3 {
		t.Fatalf("shoal up printed the addresses %q, not three, within %v", s.apis, startLimit)
	}
	return s
}

// check runs one client's checks; each line that it prints is a test.
func (s *shoal) check(t *testing.T, cmd *exec.Cmd, env ...string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Env = append(os.Environ(), append(env, "SHOAL_BASES="+strings.Join(s.apis, ","), "SHOAL_ADMINS="+strings.Join(s.admins, ","), "NO_PROXY=127.0.0.1")...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	late := time.AfterFunc(runLimit, func() { cmd.Process.Kill() })
	defer late.Stop()
	out, err := cmd.Output()
	checks := 0
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			checks++
			t.Run(name, func(*testing.T) {})
		} else if rest, ok := strings.CutPrefix(line, "FAIL "); ok {
			name, why, _ := strings.Cut(rest, ": ")
			checks++
			t.Run(name, func(t *testing.T) { t.Error(why) })
		} else if line != "" {
			t.Log(line)
		}
	}
	if checks == 0 || err != nil && !t.Failed() {
		t.Errorf("%d checks ran, and then: %v", checks, err)
	}
	if t.Failed() {
		t.Logf("%s", &stderr)
	}
}

func TestOfficialPythonClient(t *testing.T) {
	python := setting(t, "SHOAL_TEST_PYTHON")
	start(t).check(t, exec.Command(python, "client.py"), "PYTHONPATH="+setting(t, "SHOAL_TEST_PYTHONPATH"), "PYTHONDONTWRITEBYTECODE=1")
}

func TestOfficialNPMClient(t *testing.T) {
	node, dir := setting(t, "SHOAL_TEST_NODE"), setting(t, "SHOAL_TEST_NODE_DIR")
	script, err := os.ReadFile("client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// Beside the client, where an ordinary import finds it.
	if err := os.WriteFile(filepath.Join(dir, "client.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "client.mjs")
	cmd.Dir = dir
	start(t).check(t, cmd)
}
