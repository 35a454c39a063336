package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// root is the repository, as seen from this package's directory.
const root = "../.."

// module is the import path of the repository.
const module = "shoal"

// file is one Go file of the repository.
type file struct {
	path  string // from the root, with slashes
	dir   string // the same of its directory; "." for the root
	test  bool
	lines int
	fset  *token.FileSet
	ast   *ast.File
}

func (f *file) pos(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// imports are the file's import paths.
func (f *file) imports() []string {
	var paths []string
	for _, i := range f.ast.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue // the parser has accepted it
		}
		paths = append(paths, p)
	}
	return paths
}

// localName is what the file calls the package with this import path; empty where it does not import it.
func (f *file) localName(importPath string) string {
	for _, i := range f.ast.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == importPath {
			if i.Name != nil {
				return i.Name.Name
			}
			base := path.Base(importPath)
			if strings.HasPrefix(base, "v") && len(base) == 2 {
				base = path.Base(path.Dir(importPath))
			}
			return base
		}
	}
	return ""
}

// selections calls yield for every use of a name of the package with this import path.
func (f *file) selections(importPath string, yield func(n ast.Node, name string)) {
	local := f.localName(importPath)
	if local == "" {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil {
				yield(n, s.Sel.Name)
			}
		}
		return true
	})
}

// load parses every Go file of the repository, sorted by path.
func load(t *testing.T) []*file {
	t.Helper()
	var files []*file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, p, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, &file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"),
			lines: bytes.Count(src, []byte("\n")), fset: fset, ast: parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files were found from %s: the rules would hold of nothing", len(files), root)
	}
	sort.Slice(files, func(i, j int) bool { return files[i].path < files[j].path })
	return files
}

// byDir groups the files that are no tests by their directory, and returns the directories sorted.
func byDir(files []*file) (dirs []string, in map[string][]*file) {
	in = map[string][]*file{}
	for _, f := range files {
		if f.test {
			continue
		}
		if in[f.dir] == nil {
			dirs = append(dirs, f.dir)
		}
		in[f.dir] = append(in[f.dir], f)
	}
	sort.Strings(dirs)
	return dirs, in
}
