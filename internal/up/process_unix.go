//go:build unix && !linux

package up

import "syscall"

// attributes: a process group of its own (see signalGroup). Where the kernel cannot end a child whose parent is gone, the
// engines' launcher looks for its parent itself; agents of a killed run stay, and are ended by hand.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
