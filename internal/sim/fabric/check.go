package fabric

import "fmt"

// lookEvery is how many events are between two looks of Config.Checks.
const lookEvery = 1 << 20

// fail remembers the first thing that is wrong.
func (n *Packets) fail(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf("fabric: at %v: %s", n.now, fmt.Sprintf(format, args...))
	}
}

// lookAround is Check, now and then.
func (n *Packets) lookAround() {
	n.nextLook = n.stats.Events + lookEvery
	if n.cfg.Checks {
		_ = n.Check()
	}
}

// Check says what is wrong.
func (n *Packets) Check() error { return n.err }
