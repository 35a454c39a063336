package house

import (
	"strings"
	"testing"
)

// layers give every package its height. A package imports only lower ones; those of one height do not know each other.
var layers = []struct {
	dir    string
	height int
}{
	{"internal/peer", 0},
	{"internal/term", 0},   // text for people: knows nothing of shoals
	{"internal/socket", 0}, // TCP connections: knows nothing of shoals
	{"internal/prefix", 1},
	{"internal/ecmp", 1},
	{"internal/route", 2},
	{"internal/reserve", 2},
	{"internal/replica", 2},
	{"internal/emulate", 2},
	{"internal/node", 3},
	{"internal/wire", 4},
	{"internal/llama", 4}, // installs an engine: knows nothing of shoals
	{"internal/cluster", 5},
	{"internal/transfer", 5},
	{"internal/probe", 5},
	{"internal/engine", 5},
	{"internal/gateway/body", 5},
	{"internal/gateway", 6}, // asks the engine beside it
	{"internal/load", 7},
	{"internal/agent", 7},
	{"internal/sim", 3},
	{"internal/sim/fabric", 4},
	{"internal/sim/fluid", 5},
	{"internal/sim/control", 6},
	{"internal/sim/study", 9}, // compares with what a lab measured
	{"internal/up", 8},        // starts agents, and reads their status
	{"internal/demo", 9},      // runs shoals, one policy after the other
	{"internal/lab", 8},       // a network to run them on
	{"internal/fleet", 9},     // runs agents on a lab
	{"cmd", 10},
	{"bench", 10},
	{"test", 10},
	{"internal/house", 10},
}

// height is that of the longest entry that the directory lies in; ok is false where there is none.
func height(dir string) (h int, ok bool) {
	best := ""
	for _, l := range layers {
		if (dir == l.dir || strings.HasPrefix(dir, l.dir+"/")) && len(l.dir) > len(best) {
			best, h, ok = l.dir, l.height, true
		}
	}
	return h, ok
}

func TestImportsPointDownwards(t *testing.T) {
	for _, f := range load(t) {
		own, ok := height(f.dir)
		if !ok {
			t.Errorf("%s: %s has no place among the layers; give it one in internal/house/layers_test.go", f.path, f.dir)
			continue
		}
		for _, p := range f.imports() {
			dir, ours := strings.CutPrefix(p, module+"/")
			if !ours || (f.test && dir == f.dir) {
				continue
			}
			of, known := height(dir)
			// A test may also use what is beside it: the emulated engine, say, to try the gateway.
			if known && (of < own || f.test && of <= own) {
				continue
			}
			t.Errorf("%s imports %s, which is not below %s", f.path, p, f.dir)
		}
	}
}
