// Package term writes for people: colours, tables, and one progress line. Where the output is no terminal (a file, a
// pipe, a CI log) there are no colours and no progress line, and where NO_COLOR is set (no-color.org) or TERM is "dumb"
// there are no colours either.
//
// It is not a logger and not a user interface: whoever calls it decides what to say. Main type: Output. Invariant: what
// is printed never holds a control character that the caller was given by somebody else; a peer's name or an engine's
// error cannot move the cursor.
package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	xterm "golang.org/x/term"
)

// DefaultWidth is the width in columns where nothing tells another.
const DefaultWidth = 80

// Output is one place where text for people goes. It is safe for concurrent use. The zero value is not usable; see New.
type Output struct {
	mu       sync.Mutex
	w        io.Writer
	fd       int // of the terminal; -1 without one
	colour   bool
	progress string // what the progress line shows now; empty: nothing
}

// New looks at w and at the environment. It never closes w.
func New(w io.Writer) *Output {
	o := &Output{w: w, fd: -1}
	if f, ok := w.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		o.fd = int(f.Fd())
		o.colour = coloured(os.Getenv)
	}
	return o
}

// coloured is the rule of no-color.org: any non-empty value of NO_COLOR turns colours off.
func coloured(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Terminal reports whether a person is looking.
func (o *Output) Terminal() bool { return o.fd >= 0 }

// Width is the terminal's width in columns at this moment, DefaultWidth where there is none.
func (o *Output) Width() int {
	if o.fd >= 0 {
		if w, _, err := xterm.GetSize(o.fd); err == nil && w > 0 {
			return w
		}
	}
	return DefaultWidth
}

// Bold, Dim, Red, Green and Yellow return s in that style, or s itself where there are no colours.
func (o *Output) Bold(s string) string   { return o.sgr("1", s) }
func (o *Output) Dim(s string) string    { return o.sgr("2", s) }
func (o *Output) Red(s string) string    { return o.sgr("31", s) }
func (o *Output) Green(s string) string  { return o.sgr("32", s) }
func (o *Output) Yellow(s string) string { return o.sgr("33", s) }

func (o *Output) sgr(code, s string) string {
	if !o.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Println writes one line that stays. A progress line is moved out of its way and drawn again below it.
func (o *Output) Println(a ...any) { o.print(fmt.Sprintln(a...)) }

// Printf writes text that stays; a newline is added where it is missing.
func (o *Output) Printf(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	o.print(s)
}

func (o *Output) print(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.erase()
	io.WriteString(o.w, Clean(s))
	o.draw()
}

// Progress shows s in the one line that is overwritten by the next call, cut to the terminal's width; an empty s removes
// the line. Without a terminal it does nothing. Callers limit their rate: ten a second is plenty.
func (o *Output) Progress(s string) {
	if o.fd < 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.erase()
	o.progress = cut(strings.ReplaceAll(Clean(s), "\n", " "), o.Width()-1)
	o.draw()
}

func (o *Output) erase() {
	if o.progress != "" {
		io.WriteString(o.w, "\r\x1b[K")
	}
}

func (o *Output) draw() {
	if o.progress != "" {
		io.WriteString(o.w, o.progress)
	}
}

// Clean replaces control characters by '?', except newlines, tabs, and the style sequences that Output itself makes.
func Clean(s string) string {
	bad := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError }
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		if n := styleLen(s); n > 0 {
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if bad(r) {
			r = '?'
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// styleLen is the length of the style sequence that s starts with (ESC [ digits and semicolons m), 0 without one.
func styleLen(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s) && i < 12; i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}

// visible counts the columns that s takes: characters, without style sequences.
func visible(s string) int {
	n := 0
	for len(s) > 0 {
		if k := styleLen(s); k > 0 {
			s = s[k:]
			continue
		}
		_, k := utf8.DecodeRuneInString(s)
		s = s[k:]
		n++
	}
	return n
}

// cut shortens s to width columns; style sequences stay whole.
func cut(s string, width int) string {
	if visible(s) <= width {
		return s
	}
	var b strings.Builder
	styled := false
	for n := 0; len(s) > 0; {
		k := styleLen(s)
		if styled = styled || k > 0; k == 0 {
			if n++; n >= width {
				break
			}
			_, k = utf8.DecodeRuneInString(s)
		}
		b.WriteString(s[:k])
		s = s[k:]
	}
	b.WriteString("…")
	if styled {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
