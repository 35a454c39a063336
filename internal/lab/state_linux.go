package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// state is what a lab has made, or was about to make: what Down goes by, and what Open reads.
type state struct {
	Format     int               `json:"format"`
	Config     Config            `json:"config"`
	Started    time.Time         `json:"started"`
	PID        int               `json:"pid"`        // of the program that made it
	Token      string            `json:"token"`      // in the environment of every process of the lab's: see processes
	Namespaces []string          `json:"namespaces"` // names in /run/netns
	Dirs       []string          `json:"dirs"`       // below the run directory
	MadeDir    bool              `json:"made_dir"`   // the run directory itself
	MadeParent bool              `json:"made_parent"`
	Seeds      map[string]uint32 `json:"seeds"` // the switches' hash seeds as they are now
	Up         bool              `json:"up"`    // everything was made
}

const (
	stateFormat  = 1
	stateName    = "state.json"
	lockName     = "lock"
	maxStateFile = 1 << 20
)

// runDir is a lab's run directory while this process has it locked.
type runDir struct {
	dir        string
	lock       *os.File
	made       bool // by this call
	madeParent bool
}

// lockRunDir locks dir, which it makes where make is set. Without make, a directory that is not there is fs.ErrNotExist.
// The system gives the lock back however the program ends.
func lockRunDir(dir string, make bool) (*runDir, error) {
	d := &runDir{dir: dir}
	if make {
		if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
			d.madeParent = true
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return nil, fmt.Errorf("lab: run directory: %w", err)
		}
		switch err := os.Mkdir(dir, 0o700); {
		case err == nil:
			d.made = true
		case !errors.Is(err, fs.ErrExist):
			return nil, fmt.Errorf("lab: run directory: %w", err)
		}
	}
	path := filepath.Join(dir, lockName)
	for range 100 {
		flags := os.O_RDWR
		if make {
			flags |= os.O_CREATE
		}
		lock, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lab: run directory: %w", err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			lock.Close()
			return nil, fmt.Errorf("lab: another program is at work on the lab in %s; wait until it has ended", dir)
		}
		own, err := lock.Stat()
		now, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(own, now) {
			d.lock = lock
			return d, nil
		}
		lock.Close() // whoever had it has removed it
	}
	return nil, fmt.Errorf("lab: the lock in %s does not stay", dir)
}

func (d *runDir) unlock() { d.lock.Close() }

// abandon undoes lockRunDir where nothing has been made.
func (d *runDir) abandon() {
	os.Remove(filepath.Join(d.dir, lockName))
	if d.made {
		os.Remove(d.dir)
	}
	if d.madeParent {
		os.Remove(filepath.Dir(d.dir))
	}
	d.unlock()
}

// read returns the state; fs.ErrNotExist where there is none.
func (d *runDir) read() (*state, error) { return readState(d.dir) }

func readState(dir string) (*state, error) {
	path := filepath.Join(dir, stateName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if info.Size() > maxStateFile {
		return nil, fmt.Errorf("lab: %s has %d bytes; it is no state file of a lab", path, info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	s := new(state)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("lab: %s: %w", path, err)
	}
	if s.Format != stateFormat {
		return nil, fmt.Errorf("lab: %s is of format %d, this program reads %d; use the program that made it", path, s.Format, stateFormat)
	}
	if err := s.Config.Validate(); err != nil {
		return nil, fmt.Errorf("lab: %s: %w", path, err)
	}
	return s, nil
}

// write puts the state into place whole, or not at all.
func (d *runDir) write(s *state) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("lab: state: %w", err)
	}
	path := filepath.Join(d.dir, stateName)
	err = os.WriteFile(path+".new", append(b, '\n'), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("lab: state: %w", err)
	}
	return nil
}

// update changes the state of a lab that is up.
func updateState(dir, token string, change func(*state)) error {
	d, err := lockRunDir(dir, false)
	if err != nil {
		return err
	}
	defer d.unlock()
	s, err := d.read()
	if err != nil {
		return err
	}
	if s.Token != token {
		return fmt.Errorf("lab: the lab in %s is another one by now", dir)
	}
	change(s)
	return d.write(s)
}

// addDir notes a directory below the run directory, so that Down removes it with all that is in it.
func (s *state) addDir(name string) {
	if !slices.Contains(s.Dirs, name) {
		s.Dirs = append(s.Dirs, name)
	}
}

// remove takes away what the state says was made in the run directory, and the directory where it is empty then.
func (d *runDir) remove(s *state) error {
	for _, name := range s.Dirs {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("lab: the state file names the directory %q, which is not below %s", name, d.dir)
		}
		if err := os.RemoveAll(filepath.Join(d.dir, name)); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	for _, name := range []string{stateName + ".new", stateName, lockName} {
		if err := os.Remove(filepath.Join(d.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lab: %w", err)
		}
	}
	if s.MadeDir {
		os.Remove(d.dir) // stays where something is left in it
		if s.MadeParent {
			os.Remove(filepath.Dir(d.dir))
		}
	}
	return nil
}
