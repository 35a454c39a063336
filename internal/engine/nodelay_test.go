//go:build unix

package engine

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
)

// pitfalls 28
func TestSmallWritesToTheEngineAreNotDelayed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	defer s.Close()
	e := plainEngine(t, s.URL, nil)
	do(t, e)
	raw, err := e.(*openai).cl.idle[0].nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set int
	raw.Control(func(fd uintptr) { set, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY) })
	if set == 0 || err != nil {
		t.Errorf("TCP_NODELAY %d, %v", set, err)
	}
}
