package probe

import (
	"errors"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRawSocketsNeedAPermission(t *testing.T) {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&h, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_NET_RAW
			err = unix.Capset(&h, &caps[0])
		}
		if err == nil {
			var w Wire
			if w, err = OpenWire(); err == nil {
				w.Close()
			}
		}
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, ErrPermission) {
		t.Fatal(err)
	}
}

func TestAClosedWireSaysSo(t *testing.T) {
	w, err := OpenWire()
	if errors.Is(err, ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		for {
			if _, _, err := w.Receive(make([]byte, maxAnswer)); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := w.Send(make([]byte, MaxPacket), there); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
