package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// python finds an interpreter that the packages can be used with, 3.10 or later, and returns what it calls itself, so
// that no wrapper has to be started again later.
func (s *setup) python(ctx context.Context) (string, error) {
	for attempt := range 2 {
		for _, name := range []string{"python3", "python", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"} {
			path, err := exec.LookPath(name)
			if err != nil {
				continue
			}
			out, err := s.run(ctx, nil, path, "-c", "import sys; print(sys.executable); sys.exit(sys.version_info < (3, 10))")
			if err == nil && filepath.IsAbs(out) {
				return out, nil
			}
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
		}
		if attempt == 0 {
			if err := s.apt(ctx, "python3", "python3-pip", "libgomp1"); err != nil {
				return "", fmt.Errorf("llama: there is no Python of 3.10 or later here; install one (Debian and Ubuntu: apt-get install python3 "+
					"python3-pip), or go without: shoal up --engine URL, shoal up --emulated 3: %w", err)
			}
		}
	}
	return "", errors.New("llama: the system's Python is older than 3.10; install a later one, or go without: shoal up --engine URL, shoal up --emulated 3")
}

// pip finds a pip: that of the interpreter, else one in a virtual environment, else the system's package.
func (s *setup) pip(ctx context.Context, python string) ([]string, error) {
	own := []string{python, "-m", "pip"}
	if _, err := s.run(ctx, nil, python, "-m", "pip", "--version"); err == nil {
		return own, nil
	}
	venv := filepath.Join(s.env.Dir, "pip")
	s.say("this Python has no pip; making one in %s", venv)
	if _, err := s.run(ctx, nil, python, "-m", "venv", "--clear", venv); err == nil {
		return []string{filepath.Join(venv, "bin", "python"), "-m", "pip"}, nil
	}
	os.RemoveAll(venv)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	err := s.apt(ctx, "python3-pip")
	if err == nil {
		var out string
		if out, err = s.run(ctx, nil, python, "-m", "pip", "--version"); err == nil {
			return own, nil
		}
		err = errors.New(out)
	}
	return nil, fmt.Errorf("llama: %s has neither pip nor venv; install one of them (Debian and Ubuntu: apt-get install python3-pip): %w", python, err)
}

// apt installs packages of the system, where this may be done.
func (s *setup) apt(ctx context.Context, packages ...string) error {
	names := strings.Join(packages, " ")
	if os.Geteuid() != 0 {
		return errors.New("not root, so that it cannot be installed from here")
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("this system has no apt-get to install it with")
	}
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	s.say("installing the system packages %s", names)
	if _, err = s.run(ctx, env, apt, install...); err == nil {
		return nil
	}
	if out, err := s.run(ctx, env, apt, "update"); err != nil {
		return fmt.Errorf("apt-get update: %w\n%s", err, out)
	}
	if out, err := s.run(ctx, env, apt, install...); err != nil {
		return fmt.Errorf("apt-get install %s: %w\n%s", names, err, out)
	}
	return nil
}
