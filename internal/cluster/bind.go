package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// parseBind reads an address to listen on. what names it in errors.
func parseBind(what, s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cluster: %s address %q is not host:port", what, s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cluster: %s address %q: %q is not a port (0 to 65535)", what, s, port)
	}
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "":
		host = "::"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cluster: %s address %q: give an IP address or localhost, not %q", what, s, host)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}

// binds are the checked listen addresses of a configuration.
type binds struct {
	gossip, peer netip.AddrPort
	control      netip.AddrPort // zero: none
	advertise    netip.Addr     // zero: that of the listen addresses
	open         bool           // beyond loopback without a key, because Insecure says so
}

// checkBinds parses the listen addresses and denies what nobody protects.
func (c *Config) checkBinds() (binds, error) {
	var b binds
	var err error
	if b.gossip, err = parseBind("gossip", c.GossipBind); err != nil {
		return b, err
	}
	if b.peer, err = parseBind("peer", c.PeerBind); err != nil {
		return b, err
	}
	if c.ControlBind != "" {
		if b.control, err = netip.ParseAddrPort(c.ControlBind); err != nil || b.control.Addr().IsUnspecified() {
			return b, fmt.Errorf("cluster: control address %q; give the IP:port of this machine on the control network", c.ControlBind)
		}
	}
	if c.Advertise != "" {
		if b.advertise, err = netip.ParseAddr(c.Advertise); err != nil {
			return b, fmt.Errorf("cluster: advertise %q is not an IP address", c.Advertise)
		}
		b.advertise = b.advertise.Unmap()
		if b.advertise.IsUnspecified() || b.advertise.IsMulticast() {
			return b, fmt.Errorf("cluster: advertise %q is no address of one machine", c.Advertise)
		}
	}
	if len(c.Keys) > 0 {
		return b, nil
	}
	for _, l := range []struct {
		what string
		addr netip.AddrPort
	}{{"gossip", b.gossip}, {"peer", b.peer}, {"control", b.control}} {
		if !l.addr.IsValid() || l.addr.Addr().IsLoopback() {
			continue
		}
		if !c.Insecure {
			return b, fmt.Errorf("cluster: the %s address %s is reachable from other machines and there is no key: make one with "+
				"\"shoal keygen\" and give it to every agent, or listen on 127.0.0.1, or set insecure: true to let everybody in",
				l.what, l.addr)
		}
		b.open = true
	}
	return b, nil
}

// advertised is the IP that others reach a listener at.
func advertised(listen, advertise netip.Addr) (netip.Addr, error) {
	if advertise.IsValid() {
		return advertise, nil
	}
	if !listen.IsUnspecified() {
		return listen, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cluster: no address to advertise: %w; set advertise", err)
	}
	return firstPrivate(addrs, listen.Is4())
}

// firstPrivate chooses among the addresses of the machine: a private one before a public one, IPv4 before IPv6, then the
// first. Link-local addresses do not do: they need a zone.
func firstPrivate(addrs []net.Addr, only4 bool) (netip.Addr, error) {
	var best netip.Addr
	rank := func(a netip.Addr) (r int) {
		if !a.IsPrivate() {
			r += 2
		}
		if !a.Is4() {
			r++
		}
		return r
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		ip = ip.Unmap()
		if !ok || !ip.IsGlobalUnicast() || only4 && !ip.Is4() {
			continue
		}
		if !best.IsValid() || rank(ip) < rank(best) {
			best = ip
		}
	}
	if !best.IsValid() {
		return best, errors.New("cluster: this machine has no address that others could reach; set advertise")
	}
	return best, nil
}
