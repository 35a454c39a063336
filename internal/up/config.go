package up

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// MaxAgents bounds the agents of one run: they share one machine, and their ports must not run into each other.
const MaxAgents = 64

// Config says what to start. Start from Defaults. Exactly one kind of engine is used: the user's own where Engines has
// any, emulated ones where Emulated is more than 0, else real llama.cpp engines that are installed where needed.
type Config struct {
	// Agents is how many agents to start; 0: one an engine (3 with llama.cpp). More agents than engines: the rest have
	// none and only route. With llama.cpp every agent gets an engine, of about 0.6 GB of memory.
	Agents int
	// Engines are URLs of engines that run already; agent i is given the i-th.
	Engines []string
	// Emulated is how many agents get an emulated engine inside: it computes nothing, and says so everywhere.
	Emulated int
	// LlamaDir is where llama.cpp and its model are installed and kept.
	LlamaDir string
	// Policy is the routing policy of every agent.
	Policy string
	// Port is the first agent's API port; the next ones follow, and the other ports are at fixed distances above it
	// (see plan.go). 0: the first base from 18080 up whose ports are all free, for tests and demonstrations.
	Port int
	// RunDir holds a directory for each run, named by its port: logs, and the agents' state files.
	RunDir string
	// LogLevel is the agents'. Lines below warn go to their log files only, unless Verbose.
	LogLevel string
	Verbose  bool
	// Exe is the program that agents are started from: this one.
	Exe string
	// AgentArgs go to every agent as they are, after what is planned here.
	AgentArgs []string
	// Drain bounds how long agents may take to end their requests in flight. Longer: fewer cut streams on Ctrl-C.
	Drain time.Duration
	// OnReady, where set, is told the agents' API addresses once all is ready, from Run's goroutine; for programs that
	// drive what was started.
	OnReady func(urls []string)
	// Ready bounds the wait until all is ready; 0: for ever. Longer where one's own engines load large models.
	Ready time.Duration
}

// Defaults is 3 llama.cpp engines and 3 agents from port 8080 on.
func Defaults() Config {
	return Config{LlamaDir: ".engines", Policy: "cost", Port: 8080, RunDir: ".shoal", LogLevel: "info",
		Drain: 10 * time.Second, Ready: 5 * time.Minute}
}

// Validate reports everything that is wrong, one line each.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("up: "+format, a...)) }
	if c.Agents < 0 || c.Agents > MaxAgents {
		bad("--agents %d is outside 1 to %d", c.Agents, MaxAgents)
	}
	if c.Emulated < 0 || c.Emulated > MaxAgents {
		bad("--emulated %d is outside 1 to %d", c.Emulated, MaxAgents)
	}
	if len(c.Engines) > MaxAgents {
		bad("--engine is given %d times; at most %d", len(c.Engines), MaxAgents)
	}
	if len(c.Engines) > 0 && c.Emulated > 0 {
		bad("--engine and --emulated exclude each other: give one of the two")
	}
	if n := max(len(c.Engines), c.Emulated); c.Agents != 0 && c.Agents < n {
		bad("--agents %d is less than the %d engines: each engine needs an agent; raise it or leave it out", c.Agents, n)
	}
	for _, e := range c.Engines {
		if u, err := url.Parse(e); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			bad("--engine %q is not the URL of an engine; give for instance http://127.0.0.1:8000", e)
		}
	}
	if c.Port < 0 || c.Port > maxBase {
		bad("--port %d is outside 1 to %d (the other ports lie up to %d above it); 0 chooses", c.Port, maxBase, portSpan)
	}
	if c.Drain < 0 || c.Drain > time.Hour {
		bad("--drain %v is outside 0 to 1h", c.Drain)
	}
	if c.Ready < 0 {
		bad("--ready-timeout %v is negative; 0 waits for ever", c.Ready)
	}
	if c.RunDir == "" || c.Exe == "" {
		bad("the run directory and the program to start agents from must be given")
	}
	return errors.Join(errs...)
}
