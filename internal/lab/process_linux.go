package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tokenVariable marks a lab's processes, and theirs in turn, whatever becomes of their parents.
const tokenVariable = "SHOAL_LAB"

// Start starts cmd inside the namespace of a host (or a switch, or "mgmt"). The caller waits for it, as for any command. It
// gets a process group of its own, so that Ctrl-C at a terminal reaches only who started it, and a mark in its environment
// by which Down finds it.
func (f *Fabric) Start(where string, cmd *exec.Cmd) error {
	s, err := f.node(where)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Environ(), tokenVariable+"="+f.token)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	if err := s.do(cmd.Start); err != nil {
		return fmt.Errorf("lab: starting %s in %s: %w", cmd.Path, where, err)
	}
	return nil
}

// Exec runs cmd inside a namespace, and waits for its end.
func (f *Fabric) Exec(where string, cmd *exec.Cmd) error {
	if err := f.Start(where, cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("lab: %s in %s: %w", cmd.Path, where, err)
	}
	return nil
}

// How long the lab's processes have from SIGTERM to SIGKILL, and the kernel from there to their end.
const (
	drain    = 5 * time.Second
	killing  = 5 * time.Second
	lookWait = 10 * time.Millisecond
)

// processes are those that carry this token, by their pids; the caller releases them. Zombies have ended: only their parents
// have to look.
func processes(token string) map[int]*os.Process {
	mark := []byte(tokenVariable + "=" + token)
	names, _ := os.ReadDir("/proc")
	found := map[int]*os.Process{}
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid) // before the look at its environment, so that a pid that is used anew is not hit
		if err != nil {
			continue
		}
		if environ, err := os.ReadFile("/proc/" + n.Name() + "/environ"); err == nil && slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return bytes.Equal(v, mark) }) {
			found[pid] = p
		} else {
			p.Release()
		}
	}
	return found
}

// endProcesses ends all that the lab started, and what they started.
func endProcesses(ctx context.Context, token string, say func(string)) error {
	signal := syscall.SIGTERM
	deadline := time.Now().Add(drain)
	told := map[int]bool{}
	for {
		left := processes(token)
		if len(left) == 0 {
			return nil
		}
		if now := time.Now(); now.After(deadline) || signal == syscall.SIGTERM && ctx.Err() != nil {
			if signal == syscall.SIGKILL {
				return fmt.Errorf("lab: processes do not end, even by SIGKILL: %s", list(left))
			}
			say("killing what did not end by SIGTERM: " + list(left))
			signal, deadline, told = syscall.SIGKILL, now.Add(killing), map[int]bool{}
		}
		var failed error
		for pid, p := range left {
			if !told[pid] {
				told[pid] = true
				if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
					failed = fmt.Errorf("lab: ending process %d: %w", pid, err)
				}
			}
			p.Release()
		}
		if failed != nil {
			return failed
		}
		time.Sleep(lookWait)
	}
}

func list(processes map[int]*os.Process) string {
	words := []string{}
	for _, pid := range slices.Sorted(maps.Keys(processes)) {
		words = append(words, strconv.Itoa(pid))
	}
	return strings.Join(words, ", ")
}
