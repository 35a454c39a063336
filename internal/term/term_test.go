package term

import (
	"bytes"
	"strings"
	"testing"
)

// terminal is an Output that believes itself to be one, with or without colours.
func terminal(b *bytes.Buffer, colour bool) *Output {
	return &Output{w: b, fd: 1 << 20, colour: colour} // no such descriptor: the width falls back to DefaultWidth
}

func TestNoColourAndNoProgressWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	o := New(&b)
	o.Progress("17 of 200")
	o.Println(o.Red("down"), o.Bold("a1"))
	o.Progress("")
	if got := b.String(); got != "down a1\n" {
		t.Fatalf("got %q", got)
	}
	if o.Terminal() || o.Width() != DefaultWidth {
		t.Fatalf("terminal %v, width %d", o.Terminal(), o.Width())
	}
}

func TestNoColorTurnsColoursOff(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"NO_COLOR": "1"}, false},
		{map[string]string{"NO_COLOR": ""}, true},
		{map[string]string{"TERM": "dumb"}, false},
	} {
		if got := coloured(func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

func TestLinesStayAboveTheProgressLine(t *testing.T) {
	var b bytes.Buffer
	o := terminal(&b, false)
	o.Progress("1 of 3")
	o.Println("a1 is ready")
	o.Progress("")
	if got, want := b.String(), "1 of 3\r\x1b[Ka1 is ready\n1 of 3\r\x1b[K"; got != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func TestProgressIsCutToTheWidth(t *testing.T) {
	var b bytes.Buffer
	terminal(&b, false).Progress(strings.Repeat("é", 200))
	if got := b.String(); visible(got) != DefaultWidth-1 || !strings.HasSuffix(got, "…") {
		t.Fatalf("%d columns: %q", visible(got), got)
	}
	b.Reset()
	o := terminal(&b, true)
	o.Progress(o.Red(strings.Repeat("x", 200)))
	if got := b.String(); visible(got) != DefaultWidth-1 || !strings.HasSuffix(got, "\x1b[0m") {
		t.Fatalf("%d columns: %q", visible(got), got)
	}
}

func TestForeignControlCharactersDoNotReachTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"\x1b[31mred\x1b[0m":  "\x1b[31mred\x1b[0m",
		"\x1b[2Jgone":         "?[2Jgone",
		"\x1b]0;title\x07x":   "?]0;title?x",
		"bell\x07 \u009b31m":  "bell? ?31m",
		"two\nlines\tand tab": "two\nlines\tand tab",
		"bad \xff byte":       "bad ? byte",
		"\x1b[1;2;3;4;5;6;7m": "?[1;2;3;4;5;6;7m",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTableAlignsByWhatIsVisible(t *testing.T) {
	var b bytes.Buffer
	o := terminal(&b, true)
	tab := NewTable(Left("peer"), Right("share"), Left("state"))
	tab.Row("a1", "47 %", o.Green("up"))
	tab.Row("übung-2", "100 %", "down\nnow")
	plain := "" +
		"peer     share  state\n" +
		"a1        47 %  \x1b[32mup\x1b[0m\n" +
		"übung-2  100 %  down now\n"
	if got := tab.String(); got != plain {
		t.Fatalf("got\n%q\nwant\n%q", got, plain)
	}
	o.Table(tab)
	if !strings.HasPrefix(b.String(), "\x1b[1mpeer\x1b[0m     \x1b[1mshare\x1b[0m") {
		t.Fatalf("headings: %q", b.String())
	}
}

func TestMarkdown(t *testing.T) {
	tab := NewTable(Left("set-up"), Right("p50"))
	tab.Row("a|b", "12")
	if got, want := tab.Markdown(), "| set-up | p50 |\n| --- | ---: |\n| a\\|b | 12 |\n"; got != want {
		t.Fatalf("got %q", got)
	}
}

func TestARowOfAnotherLengthPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	NewTable(Left("one")).Row("a", "b")
}
