package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Down ends the lab of this name: first the processes that it started, then its namespaces with everything in them, then its
// files. It goes by the state file alone, and so works after a crash, removes nothing that the lab did not make, and does
// nothing where no lab is up. dir is the run directory; empty: the default. Where ctx ends, processes are killed at once.
func Down(ctx context.Context, name, dir string, say func(string)) error {
	return down(ctx, name, dir, "", say)
}

// down is Down of the lab with this token, whichever it is where that is empty: a lab that has been taken down and brought up
// again by others is theirs.
func down(ctx context.Context, name, dir, token string, say func(string)) error {
	if say == nil {
		say = func(string) {}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: run it as root", ErrUnsupported)
	}
	dir = runDirOf(name, dir)
	d, err := lockRunDir(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		say("no lab is up in " + dir)
		return nil
	}
	if err != nil {
		return err
	}
	defer d.unlock()
	s, err := d.read()
	if errors.Is(err, fs.ErrNotExist) {
		say("no lab is up in " + dir)
		return nil
	}
	if err != nil {
		return err
	}
	if s.Config.Name != name {
		return fmt.Errorf("lab: the lab in %s is %s, not %s", dir, s.Config.Name, name)
	}
	if token != "" && s.Token != token {
		say("the lab in " + dir + " is another one by now")
		return nil
	}
	return takeDown(ctx, d, s, say)
}

// takeDown removes what the state tells of. It goes on after an error, and keeps the state where something is left.
func takeDown(ctx context.Context, d *runDir, s *state, say func(string)) error {
	errs := []error{endProcesses(ctx, s.Token, say)}
	for _, name := range s.Namespaces {
		if !strings.HasPrefix(name, s.Config.Name+"-") || strings.Contains(name, "/") {
			errs = append(errs, fmt.Errorf("lab: the state file names the namespace %q, which is none of %s", name, s.Config.Name))
			continue
		}
		errs = append(errs, removeSpace(name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := d.remove(s); err != nil {
		return err
	}
	say(s.Config.Name + " is down")
	return nil
}
