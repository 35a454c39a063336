package ecmp

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPortMapIsAMapOfPorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.IntRange(0, 6).Draw(t, "paths")
		m := NewPortMap(paths)
		truth := map[uint16]int{}
		if rapid.Bool().Draw(t, "computed") { // what Route.Map gives, to be changed by what is learned
			first, n := rapid.Uint16Range(0, 65500).Draw(t, "first"), rapid.IntRange(0, 30).Draw(t, "n")
			m = &PortMap{buckets: make([][]uint16, max(paths, 1)), first: first, paths: make([]uint16, n)}
			paths = max(paths, 1)
			for i := range m.paths {
				m.paths[i] = uint16(rapid.IntRange(0, paths-1).Draw(t, "path"))
				truth[first+uint16(i)] = int(m.paths[i])
			}
			m.sort()
		}
		port := rapid.OneOf(rapid.Uint16Range(0, 20), rapid.Uint16())
		for range rapid.IntRange(0, 40).Draw(t, "adds") {
			p, k := port.Draw(t, "port"), rapid.IntRange(-1, paths).Draw(t, "path")
			before, known := truth[p]
			want := k >= 0 && k < paths && !(known && before == k)
			if got := m.Add(p, k); got != want {
				t.Fatalf("Add(%d, %d) is %v, want %v", p, k, got, want)
			}
			if want {
				truth[p] = k
			}
		}
		if m.Len() != len(truth) || m.Paths() != paths {
			t.Fatalf("%d ports on %d paths, want %d on %d", m.Len(), m.Paths(), len(truth), paths)
		}
		for p, k := range truth {
			if got, ok := m.PathOf(p); !ok || got != k || !slices.Contains(m.Ports(k), p) {
				t.Fatalf("port %d is on %d, %v; want %d", p, got, ok, k)
			}
		}
		checkMap(t, m)
		if m.Ports(-1) != nil || m.Ports(paths) != nil {
			t.Fatal("ports of no path")
		}
	})
}

func TestPortMapsHoldEveryPort(t *testing.T) {
	m := NewPortMap(MaxPaths)
	for p := 1<<16 - 1; p >= 0; p-- { // the slowest order
		m.Add(uint16(p), p%MaxPaths)
	}
	if m.Len() != 1<<16 || m.Add(3, 3) {
		t.Errorf("%d ports", m.Len())
	}
	checkMap(t, m)
	if b := m.Bytes(); b < 6<<16 || b > 12<<16 {
		t.Errorf("%d bytes", b)
	}
	for _, n := range []int{-1, MaxPaths + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a map of %d paths", n)
				}
			}()
			NewPortMap(n)
		}()
	}
}
