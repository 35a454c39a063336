package probe

import (
	"errors"
	"net/netip"
)

// Wire is the network as a Prober sees it.
type Wire interface {
	// Send puts a packet on the network: IPv4 with its header, at most MaxPacket bytes. It may be lost, and nobody says so.
	// It does not wait for an answer. The packet is the caller's again when it returns. Concurrent calls are allowed.
	Send(packet []byte, dst netip.Addr) error
	// Receive waits for one ICMP message and copies it into b, without its IP header; what does not fit is cut off.
	// Messages may be lost, doubled, late and about anything at all. One goroutine calls it. After Close it returns
	// net.ErrClosed.
	Receive(b []byte) (n int, from netip.Addr, err error)
	// Close ends a Receive that waits.
	Close() error
}

// ErrUnsupported says that this system has no raw sockets that probes could use.
var ErrUnsupported = errors.New("probe: learning paths needs Linux; configure the fabric (paths.fabric) or use plain ECMP")

// ErrPermission says that the program may not open raw sockets.
var ErrPermission = errors.New("probe: raw sockets need CAP_NET_RAW: run as root, or: setcap cap_net_raw+ep on the program")
