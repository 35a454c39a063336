package up

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRunDirectoryIsRemovedWithWhatWeMade(t *testing.T) {
	parent := filepath.Join(t.TempDir(), ".shoal")
	d, err := openRunDir(filepath.Join(parent, "8080"), false)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(parent, ".gitignore")); string(b) != "*\n" {
		t.Errorf("it does not ignore itself in git: %q", b)
	}
	touch(t, filepath.Join(d.logs(), "a1.log"))
	touch(t, d.path("a1.state"))
	if logs := d.close(false); logs != "" || exists(parent) {
		t.Errorf("after a run that ended well %q is left", parent)
	}
}

func TestRunDirectoryKeepsWhatIsNotOurs(t *testing.T) {
	parent := t.TempDir()
	ignore := filepath.Join(parent, ".gitignore")
	if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openRunDir(filepath.Join(parent, "8080"), false)
	if err != nil {
		t.Fatal(err)
	}
	touch(t, d.path("notes.txt"))
	d.close(false)
	if !exists(ignore) || !exists(d.path("notes.txt")) {
		t.Error("a file that is not ours was removed")
	}
}

func TestRunDirectoryKeepsLogsOfAFailure(t *testing.T) {
	d, err := openRunDir(filepath.Join(t.TempDir(), ".shoal", "8080"), false)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(d.logs(), "a1.log")
	touch(t, log)
	if logs := d.close(true); logs != d.logs() || !exists(log) {
		t.Errorf("logs of a run that failed: %q, kept: %v", logs, exists(log))
	}
}

// Beside engines that go on, an agent adopts its own document on the next run; beside new ones there is nothing to adopt.
func TestStateIsKeptOnlyWhereEnginesGoOn(t *testing.T) {
	for _, keep := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), ".shoal", "8080")
		d, err := openRunDir(dir, keep)
		if err != nil {
			t.Fatal(err)
		}
		touch(t, d.path("a1.state"))
		d.close(false)
		if exists(d.path("a1.state")) != keep {
			t.Errorf("keep %v: the state file is there: %v", keep, !keep)
		}
		if keep {
			d, err = openRunDir(dir, false)
			if err != nil {
				t.Fatal(err)
			}
			if exists(d.path("a1.state")) {
				t.Error("new engines are started beside an old state file")
			}
			d.close(false)
		}
	}
}

func TestSecondRunInTheSameDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".shoal", "8080")
	d, err := openRunDir(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close(false)
	_, err = openRunDir(dir, false)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) || !strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v, want who runs there and what to do", err)
	}
}
