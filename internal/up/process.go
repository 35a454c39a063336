package up

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// pipeWait bounds how long a dead child's output is still read, where a grandchild holds the pipe open.
const pipeWait = time.Second

// process is a running child. Its methods are safe for concurrent use, except that Wait is called once.
type process interface {
	PID() int
	Wait() error // until it has ended and its output has been read
	Terminate()  // asks it to end
	Kill()       // ends it, and what it started itself
}

// starter starts processes. It is the seam at which tests put processes that need no operating system.
type starter interface {
	Start(s spec, output io.Writer) (process, error)
}

// spawner starts real processes, from one operating-system thread that lives as long as the program: Linux ends a
// child that asked for it (see attributes) when the *thread* that started it ends, and Go ends threads at will.
type spawner struct {
	jobs chan func()
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// close ends the thread. Only for when no child is left.
func (s *spawner) close() { close(s.jobs) }

func (s *spawner) Start(sp spec, output io.Writer) (process, error) {
	cmd := exec.Command(sp.path, sp.args...)
	cmd.Env = append(os.Environ(), sp.env...)
	cmd.Dir = sp.dir
	cmd.Stdout, cmd.Stderr = output, output // the same value: one pipe, lines in order
	cmd.WaitDelay = pipeWait
	cmd.SysProcAttr = attributes()
	done := make(chan error, 1)
	s.jobs <- func() { done <- cmd.Start() }
	if err := <-done; err != nil {
		return nil, fmt.Errorf("up: %s: %w", sp.name, err)
	}
	return &osProcess{cmd: cmd}, nil
}

type osProcess struct{ cmd *exec.Cmd }

func (p *osProcess) PID() int { return p.cmd.Process.Pid }

func (p *osProcess) Wait() error {
	err := p.cmd.Wait()
	p.signalGroup(syscall.SIGKILL) // what it may have left behind
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

func (p *osProcess) Terminate() { p.signalGroup(syscall.SIGTERM) }
func (p *osProcess) Kill()      { p.signalGroup(syscall.SIGKILL) }

// signalGroup signals the child's process group. The child leads a group of its own, so that Ctrl-C in the terminal
// reaches this program alone, which then ends the children in order.
func (p *osProcess) signalGroup(sig syscall.Signal) {
	// An error means that none of the group is left, which is what is wanted.
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
}

// how describes the end of a process for people.
func how(err error) string {
	if err == nil {
		return "ended by itself (exit status 0)"
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return fmt.Sprintf("was ended by signal %d (%v)", int(ws.Signal()), ws.Signal())
		}
		return fmt.Sprintf("ended with exit status %d", exit.ExitCode())
	}
	return "ended: " + err.Error()
}
