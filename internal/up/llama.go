package up

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"shoal/internal/llama"
)

// engineDrain is how long an engine may take to end: its agents have drained before.
const engineDrain = 5 * time.Second

// llama puts llama.cpp and its model in place, and returns the specs of one server for each agent.
func (u *Up) llama(ctx context.Context, dir *runDir) ([]spec, error) {
	env, err := llama.Setup(ctx, u.cfg.LlamaDir, &progress{line: u.say})
	if err != nil {
		return nil, fmt.Errorf("up: the engines cannot be installed (shoal up --emulated 3 needs none): %w", err)
	}
	var specs []spec
	for i := range u.plan.peers {
		q := &u.plan.peers[i]
		path, args, vars := env.Start(llama.Options{Port: q.enginePort})
		specs = append(specs, spec{name: q.engineName, path: path, args: args, env: vars,
			log: filepath.Join(dir.logs(), q.engineName+".log"), quiet: true, drain: engineDrain})
	}
	return specs, nil
}

// progress passes on what is written to it line by line. Calls of Write must not overlap.
type progress struct {
	line func(format string, a ...any)
	part []byte
}

func (p *progress) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		p.part = append(p.part, line...)
		if ended || len(p.part) > maxLine {
			p.line("%s", p.part)
			p.part = p.part[:0]
		}
	}
	return len(b), nil
}
