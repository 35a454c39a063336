package house

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	dirs, in := byDir(load(t))
	for _, dir := range dirs {
		var docs []string
		for _, f := range in[dir] {
			if f.ast.Doc != nil {
				docs = append(docs, f.ast.Doc.Text())
			}
		}
		name := in[dir][0].ast.Name.Name
		if len(docs) != 1 {
			t.Errorf("%s has %d package comments; write one, in one file", dir, len(docs))
			continue
		}
		if start := "Package " + name + " "; name != "main" && !strings.HasPrefix(docs[0], start) {
			t.Errorf("%s: its package comment starts with %.40q, not with %q", dir, docs[0], start)
		}
		if len(docs[0]) < 100 {
			t.Errorf("%s: its package comment has %d characters: what is it for, what not, what holds always?", dir, len(docs[0]))
		}
	}
}

func TestPackagesHaveNamesOfTheDomain(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "base", "misc", "shared", "lib", "core"}
	dirs, _ := byDir(load(t))
	for _, dir := range dirs {
		if slices.Contains(vague, path.Base(dir)) {
			t.Errorf("%s says nothing of what it holds", dir)
		}
	}
}

// A test that sleeps is slow where it is right and wrong where the machine is slow: testing/synctest, or now as an
// argument.
func TestNoTestSleeps(t *testing.T) {
	for _, f := range load(t) {
		if !f.test {
			continue
		}
		f.selections("time", func(n ast.Node, name string) {
			if name == "Sleep" {
				t.Errorf("%s: time.Sleep in a test", f.pos(n))
			}
		})
	}
}

// maxLines is how long a file may be.
const maxLines = 500

// long are the files that may be longer, each with its reason.
var long = map[string]string{}

func TestFilesAreOfReadableLength(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range load(t) {
		seen[f.path] = true
		_, allowed := long[f.path]
		switch {
		case f.lines > maxLines && !allowed:
			t.Errorf("%s has %d lines, more than %d: split it by concern, or state a reason in internal/house/habits_test.go", f.path, f.lines, maxLines)
		case f.lines <= maxLines && allowed:
			t.Errorf("%s has %d lines and needs no exception any more", f.path, f.lines)
		}
	}
	for p := range long {
		if !seen[p] {
			t.Errorf("%s has an exception and is not there", p)
		}
	}
}

// Every module that our code imports, or that the go command runs as a tool, has its reason in CONTRIBUTING.md, in a line
// that starts with "- `module`: "; and no other module has one.
func TestEveryDependencyHasAReason(t *testing.T) {
	gomod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9.-]+\.[a-z]+/\S+) v\S+`).FindAllStringSubmatch(string(gomod), -1) {
		modules = append(modules, m[1])
	}
	used := map[string]string{} // module, and where
	use := func(importPath, where string) {
		best := ""
		for _, m := range modules {
			if (importPath == m || strings.HasPrefix(importPath, m+"/")) && len(m) > len(best) {
				best = m
			}
		}
		if best == "" {
			t.Errorf("%s uses %s, which no module of go.mod holds", where, importPath)
		} else if used[best] == "" {
			used[best] = where
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^tool (\S+)$`).FindAllStringSubmatch(string(gomod), -1) {
		use(m[1], "go.mod")
	}
	for _, f := range load(t) {
		for _, p := range f.imports() {
			if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
				use(p, f.path)
			}
		}
	}
	reasons := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: \\S").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], ".") && strings.Contains(m[1], "/") {
			reasons[m[1]] = true
		}
	}
	var names []string
	for m := range used {
		names = append(names, m)
	}
	for m := range reasons {
		if used[m] == "" {
			names = append(names, m)
		}
	}
	sort.Strings(names)
	for _, m := range names {
		switch {
		case !reasons[m]:
			t.Errorf("%s is used by %s and has no line in CONTRIBUTING.md", m, used[m])
		case used[m] == "":
			t.Errorf("%s has a line in CONTRIBUTING.md and nothing uses it", m)
		}
	}
}
