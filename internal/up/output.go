package up

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// Limits of what is kept of a child's output. A log file is given back to its size 0 when it is full, after its content
// has moved to a second file: at most twice maxLog a child.
const (
	maxLine = 8 << 10 // bytes; what is longer is cut
	maxLog  = 4 << 20 // bytes of one file
	maxTail = 8       // lines remembered to be shown when the child ends
)

// output takes what one child writes: all of it into a bounded log file, and the lines that a person should see to show.
type output struct {
	spec    spec
	verbose bool
	show    func(name, line string)
	settled *atomic.Bool // of its group: whether warnings matter yet

	mu   sync.Mutex
	part []byte // of a line whose end has not come
	cut  bool   // the rest of this line is dropped
	tail []tailLine
	file *os.File
	size int64
}

type tailLine struct {
	text  string
	shown bool
}

func newOutput(s spec, verbose bool, settled *atomic.Bool, show func(name, line string)) (*output, error) {
	f, err := os.OpenFile(s.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("up: log of %s: %w", s.name, err)
	}
	return &output{spec: s, verbose: verbose, settled: settled, show: show, file: f}, nil
}

// Write never fails: a full disk must not stop a child, which would wait for its pipe.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(p)
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		if room := maxLine - len(o.part); len(line) > room {
			line, o.cut = line[:room], true
		}
		o.part = append(o.part, line...)
		if ended {
			o.line()
		}
	}
	return len(p), nil
}

// line ends the line in o.part.
func (o *output) line() {
	text := strings.TrimRight(string(o.part), "\r")
	if o.cut {
		text += "… (cut)"
	}
	o.part, o.cut = o.part[:0], false
	if text == "" {
		return
	}
	shown := o.wanted(text)
	if shown {
		o.show(o.spec.name, text)
	}
	if len(o.tail) == maxTail {
		o.tail = append(o.tail[:0], o.tail[1:]...)
	}
	o.tail = append(o.tail, tailLine{text, shown})
}

// wanted reports whether a person should see a line at once. A line that does not say its level (a panic, say) counts
// as important. Warnings do once the shoal has been ready: until then agents warn of peers that are still to start.
func (o *output) wanted(text string) bool {
	if o.verbose {
		return true
	}
	if o.spec.quiet {
		return false
	}
	level := func(name string) bool {
		return strings.Contains(text, "level="+name) || strings.Contains(text, `"level":"`+name+`"`)
	}
	return !level("INFO") && !level("DEBUG") && (!level("WARN") || o.settled.Load())
}

// record appends to the log file.
func (o *output) record(p []byte) {
	if o.file == nil {
		return
	}
	if o.size+int64(len(p)) > maxLog {
		o.file.Close()
		_ = os.Rename(o.spec.log, o.spec.log+".1")
		f, err := os.OpenFile(o.spec.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			o.file = nil
			o.show(o.spec.name, fmt.Sprintf("its log is not written any more: %v", err))
			return
		}
		o.file, o.size = f, 0
	}
	n, _ := o.file.Write(p)
	o.size += int64(n)
}

// showUnseen shows those of the child's last lines that have not been shown.
func (o *output) showUnseen() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.part) > 0 {
		o.line()
	}
	for i := range o.tail {
		if l := &o.tail[i]; !l.shown {
			l.shown = true
			o.show(o.spec.name, l.text)
		}
	}
}

// last is the child's last line.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == 0 {
		return ""
	}
	return o.tail[len(o.tail)-1].text
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
}
