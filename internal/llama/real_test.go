package llama

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInstallForReal runs only where it is asked for, since it downloads 127 MB.
func TestInstallForReal(t *testing.T) {
	dir := os.Getenv("SHOAL_LLAMA_DIR")
	if dir == "" {
		t.Skip("set SHOAL_LLAMA_DIR to a directory to install llama.cpp into it")
	}
	if _, err := Setup(t.Context(), dir, os.Stderr); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := Setup(t.Context(), dir, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the second setup took %v", took)
	} else {
		t.Logf("the second setup took %v", took)
	}
}

// TestEngineEndsWithItsParent kills, with SIGKILL, a process that has started an engine: this test's own program, told to
// be that process by the environment.
func TestEngineEndsWithItsParent(t *testing.T) {
	dir, err := filepath.Abs("../../.engines")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "installed.json")); err != nil {
		t.Skip("llama.cpp is not installed in .engines; `make up` or `shoal up` installs it")
	}
	if os.Getenv("SHOAL_TEST_PARENT") != "" {
		beParent(t, dir)
		return
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestEngineEndsWithItsParent$")
	parent.Env = append(os.Environ(), "SHOAL_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		parent.Process.Kill()
		parent.Wait()
	}()
	var url string
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		url, _ = strings.CutPrefix(lines.Text(), "ready ")
		if !strings.HasPrefix(url, "http") {
			url = ""
		}
	}
	if !healthy(url) {
		t.Fatalf("the engine at %q does not answer", url)
	}
	parent.Process.Kill()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; healthy(url); <-tick.C {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the engine still answers 10 s after its parent was killed")
		}
	}
	t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
}

// beParent starts an engine, says where, and waits for its end.
func beParent(t *testing.T, dir string) {
	env, err := Setup(t.Context(), dir, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	c := env.Command(context.Background(), Options{Context: 512, Slots: 1})
	c.Stdout = os.Stdout
	fmt.Println("starting")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}

func healthy(url string) bool {
	r, err := http.Get(url + "/health")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}
