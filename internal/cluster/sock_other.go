//go:build !linux

package cluster

import (
	"net"
	"time"
)

// setUserTimeout does nothing where the system has no such option: keep-alive and the stall limit do the rest.
func setUserTimeout(net.Conn, time.Duration) {}
