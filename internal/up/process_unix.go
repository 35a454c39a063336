//go:build unix && !linux

package up

import "syscall"

// attributes: a process group of its own (see signalGroup). Where the kernel cannot end a child whose parent is gone, a
// child sees it by its standard input, which closes.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
