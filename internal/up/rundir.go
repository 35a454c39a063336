package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// runDir is where one run keeps its files: logs, the agents' state files, and a lock that says who runs here.
type runDir struct {
	dir       string
	keepState bool
	parent    bool // the parent directory is of this run's making too
	lock      *os.File
}

// marker is the file by which a directory is known as one of ours, so that nothing else is ever removed.
const marker = "shoal-up"

// openRunDir makes and locks dir. State files are kept from run to run where keepState is set, else start empty.
func openRunDir(dir string, keepState bool) (*runDir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("up: run directory: %w", err)
	}
	_, err = os.Stat(filepath.Dir(dir))
	parent := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("up: run directory: %w; name another one with --run-dir", err)
	}
	if parent { // it ignores itself in git, wherever it is
		_ = os.WriteFile(filepath.Join(filepath.Dir(dir), ".gitignore"), []byte("*\n"), 0o600)
	}
	lock, err := os.OpenFile(filepath.Join(dir, marker), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("up: run directory: %w", err)
	}
	// The system gives the lock back however the program ends, so that a crash leaves nothing to clean up by hand.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid := make([]byte, 20)
		n, _ := lock.ReadAt(pid, 0)
		lock.Close()
		return nil, fmt.Errorf("up: another `shoal up` (pid %s) runs in %s; end it, or choose other ports with --port", strings.TrimSpace(string(pid[:n])), dir)
	}
	_ = lock.Truncate(0)
	_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	d := &runDir{dir: dir, keepState: keepState, parent: parent, lock: lock}
	if !keepState {
		d.removeAll("*.state*")
	}
	return d, nil
}

func (d *runDir) path(name string) string { return filepath.Join(d.dir, name) }
func (d *runDir) logs() string            { return d.path("logs") }

// close removes what a later run has no use for: everything, except the logs of a run that failed, whose place it
// returns, and the state of agents whose engines go on.
func (d *runDir) close(failed bool) (logs string) {
	if failed {
		logs = d.logs()
	} else {
		d.removeAll("logs/*")
		os.Remove(d.logs())
	}
	if !d.keepState {
		d.removeAll("*.state*")
	}
	if logs == "" {
		os.Remove(d.path(marker)) // while locked: who opens it now waits for a file that is gone, and makes its own
		os.Remove(d.dir)          // stays where something is left in it
		if parent := filepath.Dir(d.dir); d.parent {
			if rest, err := os.ReadDir(parent); err == nil && len(rest) == 1 && rest[0].Name() == ".gitignore" {
				os.Remove(filepath.Join(parent, ".gitignore"))
				os.Remove(parent)
			}
		}
	}
	d.lock.Close()
	return logs
}

// removeAll removes the files that match pattern, below this directory only.
func (d *runDir) removeAll(pattern string) {
	names, _ := filepath.Glob(filepath.Join(d.dir, pattern))
	for _, n := range names {
		os.Remove(n)
	}
}
