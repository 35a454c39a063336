package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/net/ipv4"
)

// sockBuffer holds the answers that arrive while the reader is busy, in bytes: some 3,000 of them.
const sockBuffer = 2 << 20

// sockets are the raw sockets of the network namespace that they were opened in.
type sockets struct {
	out *net.IPConn // IPPROTO_RAW: the packet brings its own IP header
	in  *net.IPConn // ICMP; it hears what the whole host is told
}

// OpenWire opens raw sockets. The caller closes them.
func OpenWire() (Wire, error) {
	out, err := net.ListenIP("ip4:255", nil)
	if err != nil {
		return nil, denied(err)
	}
	in, err := net.ListenIP("ip4:icmp", nil)
	if err != nil {
		out.Close()
		return nil, denied(err)
	}
	var f ipv4.ICMPFilter
	f.SetAll(true)
	f.Accept(ipv4.ICMPTypeTimeExceeded)
	f.Accept(ipv4.ICMPTypeDestinationUnreachable)
	err = ipv4.NewPacketConn(in).SetICMPFilter(&f)
	if err == nil {
		err = in.SetReadBuffer(sockBuffer)
	}
	if err != nil {
		out.Close()
		in.Close()
		return nil, fmt.Errorf("probe: raw socket: %w", err)
	}
	return &sockets{out, in}, nil
}

func denied(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (%w)", ErrPermission, err)
	}
	return fmt.Errorf("probe: raw socket: %w", err)
}

func (s *sockets) Send(packet []byte, dst netip.Addr) error {
	_, err := s.out.WriteToIP(packet, &net.IPAddr{IP: dst.AsSlice()})
	return err
}

func (s *sockets) Receive(b []byte) (int, netip.Addr, error) {
	n, from, err := s.in.ReadFromIP(b)
	if err != nil {
		return 0, netip.Addr{}, err
	}
	addr, _ := netip.AddrFromSlice(from.IP)
	return n, addr.Unmap(), nil
}

func (s *sockets) Close() error { return errors.Join(s.out.Close(), s.in.Close()) }
