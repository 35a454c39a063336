package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// cores are the packages that decide: what they return follows from their arguments alone.
var cores = []string{"internal/peer", "internal/prefix", "internal/ecmp", "internal/route", "internal/reserve", "internal/replica", "internal/node", "internal/wire", "internal/emulate",
	"internal/sim/fabric", "internal/sim/fluid", "internal/sim/control"}

// coreImports are the only packages from outside that a core may import, by prefix: computations without an outside.
var coreImports = []string{
	"bytes", "cmp", "container/", "encoding/", "errors", "fmt", "hash", "io", "iter", "maps", "math", "net/netip", "slices", "sort", "strconv",
	"strings", "time", "unicode", "unsafe",
	"github.com/fxamacker/cbor/v2", // the encoding of wire
	"github.com/zeebo/xxh3",        // the hash of prefix
}

// clocks are the names of package time that look at a clock or start a timer.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// sources are the names of math/rand/v2 that do not draw from the program's own generator.
var sources = []string{"Rand", "New", "NewPCG", "PCG", "NewChaCha8", "ChaCha8", "Source", "NewZipf", "Zipf"}

// outputs and inputs of package fmt.
var standardStreams = []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}

func TestCoresArePure(t *testing.T) {
	for _, f := range load(t) {
		if !f.test && slices.ContainsFunc(cores, func(c string) bool { return f.dir == c || strings.HasPrefix(f.dir, c+"/") }) {
			for _, what := range impurities(f) {
				t.Error(what)
			}
		}
	}
}

// impurities are what a file has that a core must not have, each with its place and what to do instead.
func impurities(f *file) (found []string) {
	add := func(n ast.Node, what string) { found = append(found, f.pos(n)+": "+what) }
	for _, i := range f.ast.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		if strings.HasPrefix(p, module+"/") {
			continue // TestImportsPointDownwards
		}
		allowed := slices.ContainsFunc(coreImports, func(a string) bool {
			return p == a || strings.HasPrefix(p, strings.TrimSuffix(a, "/")+"/")
		})
		switch {
		case p == "math/rand" || p == "hash/maphash":
			add(i, p+" is random by itself: take a *rand.Rand of math/rand/v2 as an argument")
		case !allowed:
			add(i, "import of "+p+": a core has no sockets, files, locks, logs or metrics; take what it gives as an argument")
		}
	}
	forbid := func(importPath string, forbidden func(string) bool, instead string) {
		f.selections(importPath, func(n ast.Node, name string) {
			if forbidden(name) {
				add(n, importPath+"."+name+": "+instead)
			}
		})
	}
	forbid("time", func(s string) bool { return slices.Contains(clocks, s) }, "take now as an argument")
	forbid("math/rand/v2", func(s string) bool { return !slices.Contains(sources, s) }, "take a *rand.Rand as an argument")
	forbid("fmt", func(s string) bool { return slices.Contains(standardStreams, s) }, "return what is to be said")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, "a goroutine in a core")
		case *ast.ChanType:
			add(n, "a channel in a core")
		case *ast.SelectStmt:
			add(n, "a select in a core")
		case *ast.SendStmt:
			add(n, "a send in a core")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				add(n, "a receive in a core")
			}
		}
		return true
	})
	return found
}

func TestImpuritiesAreFound(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`import "net/http"; var _ http.Header`, "import of net/http"},
		{`import "sync/atomic"; var _ atomic.Bool`, "import of sync/atomic"},
		{`import "log/slog"; var _ slog.Level`, "import of log/slog"},
		{`import "github.com/prometheus/client_golang/prometheus"; var _ prometheus.Opts`, "import of github.com/prometheus"},
		{`import "hash/maphash"; var _ maphash.Seed`, "hash/maphash is random"},
		{`import clock "time"; var t = clock.Now()`, "time.Now"},
		{`import "math/rand/v2"; var n = rand.IntN(3)`, "math/rand/v2.IntN"},
		{`import "fmt"; func f() { fmt.Println() }`, "fmt.Println"},
		{`func f() { go f() }`, "a goroutine"},
		{`func f(c <-chan int) { }`, "a channel"},
		{`import ("time"; "math/rand/v2"; "fmt"; "math/bits"); func f(now time.Duration, r *rand.Rand) string { time := now; _ = time.Seconds(); _ = bits.Len(1); return fmt.Sprint(r.IntN(3)) }`, ""},
	} {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "x.go", "package x; "+c.src, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(impurities(&file{path: "x.go", fset: fset, ast: parsed}), "\n")
		if (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
			t.Errorf("in %q found %q, want %q", c.src, found, c.want)
		}
	}
}

// No package keeps state of its own: a variable at package level is set where it is declared, and never again. Tests may
// (what TestMain has built, say).
func TestNoPackageKeepsState(t *testing.T) {
	files := load(t)
	declared := map[string]map[string]*ast.ValueSpec{} // by directory and package name, by name
	key := func(f *file) string { return f.dir + " " + f.ast.Name.Name }
	for _, f := range files {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, s := range d.Specs {
					for _, n := range s.(*ast.ValueSpec).Names {
						if declared[key(f)] == nil {
							declared[key(f)] = map[string]*ast.ValueSpec{}
						}
						declared[key(f)][n.Name] = s.(*ast.ValueSpec)
					}
				}
			case *ast.FuncDecl:
				if d.Name.Name == "init" && d.Recv == nil {
					t.Errorf("%s: func init: set things up where main can be seen to do it", f.pos(d))
				}
			}
		}
	}
	for _, f := range files {
		ofPackage := func(e ast.Expr) string {
			id := rootIdent(e)
			if id == nil {
				return ""
			}
			spec := declared[key(f)][id.Name]
			if spec == nil || (id.Obj != nil && id.Obj.Decl != any(spec)) {
				return "" // a local of the same name
			}
			return id.Name
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					targets = n.Lhs
				}
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			}
			for _, e := range targets {
				if name := ofPackage(e); name != "" && name != "_" && !f.test {
					t.Errorf("%s: the package-level variable %s is changed; put it into a struct that has an owner", f.pos(n), name)
				}
			}
			return true
		})
	}
}

// rootIdent is x of x.y[z].w; nil where the expression has no such root, or goes through a pointer that a call returns.
func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
