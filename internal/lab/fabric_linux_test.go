package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// labs numbers the labs of this process, so that tests may run at once.
var labs atomic.Int32

// small is two leaves with two hosts each, and two spines; its name is like no other.
func small(t *testing.T) Config {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	c := Defaults()
	c.Name = fmt.Sprintf("t%d-%d", os.Getpid(), labs.Add(1))
	c.RunDir = filepath.Join(t.TempDir(), "run")
	c.Spines, c.HostsPerLeaf = 2, 2
	return c
}

// up brings a lab up, and down at the test's end; nothing of it may be left then.
func up(t *testing.T, c Config) *Fabric {
	t.Helper()
	f, err := Up(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(context.Background(), nil); err != nil {
			t.Error(err)
		}
		nothingLeft(t, c)
	})
	return f
}

// namespaces are the named namespaces of a lab that exist now.
func namespaces(t *testing.T, c Config) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.Name+"-") {
			names = append(names, e.Name())
		}
	}
	return names
}

func nothingLeft(t *testing.T, c Config) {
	t.Helper()
	if left := namespaces(t, c); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(c.RunDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory is there: %v", err)
	}
}

func verified(t *testing.T, f *Fabric, n int) {
	t.Helper()
	v, err := f.Verify(t.Context(), n, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || !v.Counted || v.Sent != n {
		t.Errorf("%d of %d predicted, %d lost, counters agree: %v; %v", v.Right, v.Sent, v.Lost, v.Counted, v.Mistakes)
	}
}

func TestKernelIsPredictedOnASmallFabric(t *testing.T) {
	t.Parallel()
	verified(t, up(t, small(t)), 200)
}

func TestKernelIsPredictedOnThePapersFabric(t *testing.T) {
	t.Parallel()
	c := small(t)
	c.Spines, c.HostsPerLeaf = 4, 8
	verified(t, up(t, c), 1000)
}

// Three spines: ranges that no power of two divides.
func TestKernelIsPredictedWithThreeTiers(t *testing.T) {
	t.Parallel()
	c := small(t)
	c.Pods, c.Leaves, c.Spines, c.Cores, c.HostsPerLeaf = 2, 2, 3, 6, 1
	verified(t, up(t, c), 400)
}

func TestASeedIsChangedUnderTheDescription(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	before := f.Describe()
	for _, leaf := range []string{"leaf0", "leaf1"} {
		if err := f.SetSeed(leaf, f.Seeds()[leaf]+12345); err != nil {
			t.Fatal(err)
		}
	}
	v, err := f.verify(t.Context(), before, 200, 2)
	if err != nil {
		t.Fatal(err)
	}
	if v.Right < 50 || v.Right > 150 || v.Lost > 0 || v.Counted || len(v.Mistakes) != MaxMistakes {
		t.Errorf("the old description predicts %d of %d, %d lost, counters agree: %v", v.Right, v.Sent, v.Lost, v.Counted)
	}
	verified(t, f, 200)
	again, err := Open(f.cfg.Name, f.dir) // another program sees the new seeds too
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if fmt.Sprint(again.Describe()) != fmt.Sprint(f.Describe()) {
		t.Error("another program sees another fabric")
	}
	for _, c := range []struct {
		name string
		seed uint32
	}{{"leaf9", 1}, {"h0", 1}, {"leaf0", 0}} {
		if err := f.SetSeed(c.name, c.seed); err == nil {
			t.Errorf("seed %d of %s is set", c.seed, c.name)
		}
	}
}

func TestASecondLabOfTheNameIsRefused(t *testing.T) {
	t.Parallel()
	c := small(t)
	f := up(t, c)
	_, err := Up(t.Context(), c, nil)
	if err == nil || !strings.Contains(err.Error(), "`shoal lab down --name "+c.Name+" --run-dir "+c.RunDir+"`") {
		t.Errorf("got %v", err)
	}
	other := c
	other.RunDir = filepath.Join(t.TempDir(), "other") // the same name elsewhere: the namespaces are in the way
	_, err = Up(t.Context(), other, nil)
	if err == nil || !strings.Contains(err.Error(), "no state file") {
		t.Errorf("got %v", err)
	}
	if err := Down(t.Context(), other.Name, other.RunDir, nil); err != nil {
		t.Error(err)
	}
	if err := Down(t.Context(), "another", c.RunDir, nil); err == nil {
		t.Error("the lab is taken down by a wrong name")
	}
	if n := len(namespaces(t, c)); n != 9 {
		t.Errorf("%d namespaces are left of 9", n)
	}
	verified(t, f, 20)
}

func TestDownRemovesWhatTheLabMadeAndNothingElse(t *testing.T) {
	t.Parallel()
	c := small(t)
	if err := os.MkdirAll(c.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(c.RunDir, "mine.txt")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Up(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := f.HostDir("h0")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	neighbour, err := makeSpace(c.Name+"-h99", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer neighbour.close()
	defer removeSpace(neighbour.name)
	if err := f.Down(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), c.Name, c.RunDir, nil); err != nil { // again
		t.Error(err)
	}
	if left := namespaces(t, c); !slices.Equal(left, []string{neighbour.name}) {
		t.Errorf("namespaces left: %v", left)
	}
	entries, err := os.ReadDir(c.RunDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "mine.txt" {
		t.Errorf("files left: %v, %v", entries, err)
	}
}

func TestAnInterruptedUpLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"namespaces", "cables", "routing"} {
		c := small(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Up(ctx, c, func(s string) {
			if strings.Contains(s, at) {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", at, err)
		}
		nothingLeft(t, c)
	}
}

// killedEnv makes the test's own program bring up a lab, start a process in it, and wait to be killed.
const killedEnv = "SHOAL_TEST_LAB_CRASH"

func TestMain(m *testing.M) {
	if arg := os.Getenv(killedEnv); arg != "" {
		crash(arg)
	}
	os.Exit(m.Run())
}

func crash(arg string) {
	name, dir, _ := strings.Cut(arg, " ")
	c := Defaults()
	c.Name, c.RunDir, c.Spines, c.HostsPerLeaf = name, dir, 2, 2
	f, err := Up(context.Background(), c, func(s string) { fmt.Println(s) })
	if err == nil {
		cmd := exec.Command("sleep", "600")
		err = f.Start("h0", cmd)
		fmt.Println("started", err)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// Killed by SIGKILL: while namespaces are made, while cables are, and with everything up and a process running.
func TestDownCleansUpAfterACrash(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"namespaces", "cables", "started"} {
		c := small(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killedEnv+"="+c.Name+" "+c.RunDir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said []byte
		for b := make([]byte, 1); !bytes.Contains(said, []byte(at)); {
			if _, err := io.ReadFull(out, b); err != nil {
				t.Fatalf("%s: %v", said, err)
			}
			said = append(said, b...)
		}
		cmd.Process.Kill()
		cmd.Wait()
		s, err := readState(c.RunDir)
		if err != nil {
			t.Fatalf("%s: no state: %v", at, err)
		}
		if n := len(processes(s.Token)); at == "started" && n != 1 {
			t.Errorf("%d processes live on, want 1", n)
		}
		if at == "started" {
			f, err := Open(c.Name, c.RunDir)
			if err != nil {
				t.Fatal(err)
			}
			verified(t, f, 20)
			f.Close()
		} else if _, err := Open(c.Name, c.RunDir); err == nil || !strings.Contains(err.Error(), "half made") {
			t.Errorf("%s: opened: %v", at, err)
		}
		if err := Down(t.Context(), c.Name, c.RunDir, nil); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		if n := len(processes(s.Token)); n != 0 {
			t.Errorf("%d processes live on", n)
		}
		nothingLeft(t, c)
	}
}

func TestAProcessThatIgnoresSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start("h1", cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no patience
	if err := endProcesses(ctx, f.token, func(string) {}); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
}
