package up

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func testOutput(t *testing.T, quiet, verbose bool) (*output, *strings.Builder) {
	var shown strings.Builder
	s := spec{name: "a1", quiet: quiet, log: filepath.Join(t.TempDir(), "a1.log")}
	var settled atomic.Bool
	settled.Store(true)
	o, err := newOutput(s, verbose, &settled, func(name, line string) { shown.WriteString(name + ": " + line + "\n") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	return o, &shown
}

func TestLinesAreShownByLevel(t *testing.T) {
	const all = "time=x level=INFO msg=listening\ntime=x level=WARN msg=\"no engine\"\npanic: oh\nlevel=DEBUG msg=y\n"
	for _, c := range []struct {
		name           string
		quiet, verbose bool
		want           string
	}{
		{"an agent's important lines", false, false, "a1: time=x level=WARN msg=\"no engine\"\na1: panic: oh\n"},
		{"nothing of an engine", true, false, ""},
		{"all where asked for", true, true, "a1: " + strings.ReplaceAll(strings.TrimSuffix(all, "\n"), "\n", "\na1: ") + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, shown := testOutput(t, c.quiet, c.verbose)
			for _, b := range []byte(all) { // as badly cut as a pipe may
				o.Write([]byte{b})
			}
			if shown.String() != c.want {
				t.Errorf("shown:\n%s\nwant:\n%s", shown, c.want)
			}
			if log, _ := os.ReadFile(o.spec.log); string(log) != all {
				t.Errorf("the log holds:\n%s\nwant everything", log)
			}
		})
	}
}

func TestWarningsAreShownOnlyOnceAllWasReady(t *testing.T) {
	o, shown := testOutput(t, false, false)
	o.settled.Store(false)
	o.Write([]byte("level=WARN msg=\"no peer yet\"\nlevel=ERROR msg=bad\n"))
	o.settled.Store(true)
	o.Write([]byte("level=WARN msg=\"a peer is gone\"\n"))
	if want := "a1: level=ERROR msg=bad\na1: level=WARN msg=\"a peer is gone\"\n"; shown.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", shown, want)
	}
}

func TestLastLinesAreShownWhenTheChildEnds(t *testing.T) {
	o, shown := testOutput(t, true, false)
	for i := range 20 {
		o.Write([]byte("line " + string(rune('a'+i)) + "\n"))
	}
	o.Write([]byte("cut off"))
	o.showUnseen()
	o.showUnseen()
	want := "a1: line n\na1: line o\na1: line p\na1: line q\na1: line r\na1: line s\na1: line t\na1: cut off\n"
	if shown.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", shown, want)
	}
	if o.last() != "cut off" {
		t.Errorf("the last line is %q", o.last())
	}
}

func TestALineHasALimit(t *testing.T) {
	o, shown := testOutput(t, false, false)
	long := strings.Repeat("x", maxLine)
	o.Write([]byte(long + "\n" + long + "y\nz\n"))
	want := "a1: " + long + "\na1: " + long + "… (cut)\na1: z\n"
	if shown.String() != want {
		t.Errorf("lines of the limit, one above it, and a short one are not shown as they should: %d bytes, want %d", shown.Len(), len(want))
	}
}

func TestALogHasALimit(t *testing.T) {
	o, _ := testOutput(t, true, false)
	chunk := append(bytes.Repeat([]byte("x"), 1<<16-1), '\n')
	for range 3*maxLog/len(chunk) + 1 {
		o.Write(chunk)
	}
	o.Write([]byte("the last\n"))
	for _, name := range []string{o.spec.log, o.spec.log + ".1"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > maxLog {
			t.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxLog)
		}
	}
	if b, _ := os.ReadFile(o.spec.log); !bytes.HasSuffix(b, []byte("the last\n")) {
		t.Error("the newest line is not in the newest file")
	}
}
