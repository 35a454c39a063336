package up

import "syscall"

// attributes: a process group of its own (see signalGroup), and an end by the kernel where this program is gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
