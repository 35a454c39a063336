package fabric

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/sim"
)

// reference is the network of the reference runs: 16 hosts, 2 leaves, 4 spines, 100 Gb/s, 1 us.
func reference(t testing.TB, cfg Config) *Packets {
	t.Helper()
	top, err := NewTopology(LeafSpine(2, 8, 4, 100e9), 100e9, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewPackets(top, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checked are the defaults, with the checkers on.
func checked(transport Transport) Config {
	c := Defaults()
	c.Transport, c.Checks = transport, true
	return c
}

func readTransfers(t testing.TB, file string) (list []Transfer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var f Transfer
		var at int64
		if _, err := fmt.Sscan(string(line), &f.Src, &f.Dst, &f.Port, &f.Bytes, &at); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		f.Start = sim.Time(at) * sim.Nanosecond
		list = append(list, f)
	}
	return list
}

func print(done []Completion) []byte {
	var b bytes.Buffer
	for _, c := range done {
		fmt.Fprintf(&b, "FCT %d %d %d %d %d %d %d\n", c.Src, c.Dst, c.Port, DstPort, c.Bytes, int64(c.Start/sim.Nanosecond), int64(c.FCT/sim.Nanosecond))
	}
	return b.Bytes()
}

// data is where the reference files are; they are not part of this project.
func referenceData(t testing.TB) string {
	dir := os.Getenv("SHOAL_FABRIC_DATA")
	if dir == "" {
		t.Skip("SHOAL_FABRIC_DATA is not set: it names the directory of the reference runs (NAME.flows, cc12.NAME.out, dcqcn.NAME.out)")
	}
	return dir
}

// sameAsReference compares a run with what the reference printed, byte for byte.
func sameAsReference(t *testing.T, dir, transport, name string, cfg Config) {
	t.Helper()
	n := reference(t, cfg)
	done, err := Replay(n, readTransfers(t, filepath.Join(dir, name+".flows")))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, transport+"."+name+".out"))
	if err != nil {
		t.Fatal(err)
	}
	got := print(done)
	if bytes.Equal(got, want) {
		return
	}
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	wrong := 0
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			if wrong++; wrong <= 3 {
				t.Errorf("line %d: %s, want %s", i+1, g[i], w[i])
			}
		}
	}
	t.Errorf("%d of %d lines differ, %d lines are there", wrong, len(w), len(g))
}

func TestWindowEqualsReference(t *testing.T) {
	dir := referenceData(t)
	for _, name := range []string{"2x20MB_samehost", "8x20MB", "18on1", "incast8", "mix12", "poisson100_s1"} {
		t.Run(name, func(t *testing.T) { sameAsReference(t, dir, "cc12", name, checked(Window)) })
	}
}

func TestAReplaySaysWhereAFlowHasTooManyPackets(t *testing.T) {
	cfg := Defaults()
	cfg.Payload = minPayload
	topo, err := NewTopology(LeafSpine(2, 8, 4, 100_000_000_000), 100_000_000_000, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewPackets(topo, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Replay(n, []Transfer{{Src: 0, Dst: 8, Port: 1, Bytes: maxPackets * minPayload}}); err == nil || !strings.Contains(err.Error(), "transfer 0: a flow of") {
		t.Error(err)
	}
}
