//go:build linux && !race

package socket

func acquire(uintptr) {}
func release()        {}
