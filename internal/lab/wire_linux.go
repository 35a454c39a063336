package lab

import (
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lay makes a cable: a pair of interfaces with their addresses, each other's neighbour entry, segmentation off, shaped, up.
func (f *Fabric) lay(c *cable) error {
	a, b := f.at(c.a.node), f.at(c.b.node)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = c.a.dev, c.a.mac
	err := a.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: c.b.dev, PeerHardwareAddr: c.b.mac,
		PeerNamespace: netlink.NsFd(int(b.ns)), PeerTxQLen: -1})
	if err != nil {
		return fmt.Errorf("lab: cable %s to %s: %w", a.name, b.name, err)
	}
	for _, e := range []struct {
		own, other *end
		s          *space
	}{{&c.a, &c.b, a}, {&c.b, &c.a, b}} {
		if err := f.settle(e.s, e.own, e.other); err != nil {
			return fmt.Errorf("lab: %s: interface %s: %w", e.s.name, e.own.dev, err)
		}
	}
	return nil
}

// settle makes one end of a cable ready.
func (f *Fabric) settle(s *space, own, other *end) error {
	link, err := s.nl.LinkByName(own.dev)
	if err != nil {
		return err
	}
	index := link.Attrs().Index
	if err := s.do(func() error { return plain(own.dev) }); err != nil {
		return err
	}
	if err := s.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(own.addr)}); err != nil {
		return fmt.Errorf("address %v: %w", own.addr, err)
	}
	if err := s.nl.QdiscAdd(f.shaper(index)); err != nil {
		return fmt.Errorf("shaping (tbf): %w", err)
	}
	if err := s.nl.LinkSetUp(link); err != nil {
		return err
	}
	err = s.nl.NeighAdd(&netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
		IP: other.addr.Addr().AsSlice(), HardwareAddr: other.mac})
	if err != nil {
		return fmt.Errorf("neighbour %v: %w", other.addr, err)
	}
	return nil
}

// shaper lets Rate pass, from a small bucket.
func (f *Fabric) shaper(index int) *netlink.Tbf {
	rate := uint64(f.cfg.Rate) / 8
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: uint32(f.cfg.Queue), Buffer: netlink.Xmittime(rate, uint32(f.cfg.burst())),
	}
}

// install adds a node's routes.
func (f *Fabric) install(i int) error {
	s := f.at(i)
	for _, r := range f.plan.nodes[i].routes {
		route := &netlink.Route{Dst: ipNet(r.dst)}
		if f.plan.nodes[i].tier == hosts {
			route.Congctl = congestionControl()
		}
		hop := func(cable int) (index int, via *end) {
			own, other := f.plan.cables[cable].ends(i)
			return s.dev[own.dev], other
		}
		if len(r.cables) == 1 {
			index, via := hop(r.cables[0])
			route.LinkIndex = index
			if via.addr.Addr() == r.dst.Addr() {
				route.Scope = unix.RT_SCOPE_LINK
			} else {
				route.Gw = via.addr.Addr().AsSlice()
				route.Flags = int(netlink.FLAG_ONLINK) // a host's own address is a /32
			}
		} else {
			for _, c := range r.cables {
				index, via := hop(c)
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: index, Gw: via.addr.Addr().AsSlice()})
			}
		}
		if err := s.nl.RouteAdd(route); err != nil {
			return fmt.Errorf("lab: %s: route to %v: %w", s.name, r.dst, err)
		}
	}
	return nil
}

// bridge makes the management network's bridge.
func (f *Fabric) bridge() error {
	s := f.spaces[management]
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	snoop := false
	if err := s.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop}); err != nil {
		return fmt.Errorf("lab: the management network's bridge: %w", err)
	}
	link, err := s.nl.LinkByName(bridgeName)
	if err == nil {
		err = s.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(controlGateway(), 24))})
	}
	if err == nil {
		err = s.nl.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("lab: the management network's bridge: %w", err)
	}
	s.dev[bridgeName] = link.Attrs().Index
	return nil
}

const bridgeName = "br0"

// plug joins a host to the management network.
func (f *Fabric) plug(h Host) error {
	bridge, host := f.spaces[management], f.spaces[h.Name]
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = h.Name, bridge.dev[bridgeName]
	err := bridge.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: management, PeerNamespace: netlink.NsFd(int(host.ns)), PeerTxQLen: -1})
	if err != nil {
		return fmt.Errorf("lab: %s: management cable: %w", h.Name, err)
	}
	port, err := bridge.nl.LinkByName(h.Name)
	if err == nil {
		err = bridge.nl.LinkSetUp(port)
	}
	if err != nil {
		return fmt.Errorf("lab: %s: port of the management bridge: %w", h.Name, err)
	}
	link, err := host.nl.LinkByName(management)
	if err == nil {
		err = host.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(h.Control, 24))})
	}
	if err == nil {
		err = host.nl.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("lab: %s: management interface: %w", h.Name, err)
	}
	return nil
}

// plain turns off what makes several packets one on their way, so that the shapers and the hash see what the wire would:
// checksums stay as they are, since nothing here damages a packet. It runs inside the namespace.
func plain(dev string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, feature := range []struct {
		command uint32
		name    string
	}{{unix.ETHTOOL_STSO, "tso"}, {unix.ETHTOOL_SGSO, "gso"}, {unix.ETHTOOL_SGRO, "gro"}} {
		value := struct{ command, data uint32 }{feature.command, 0}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // the kernel copies a whole struct ifreq
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], dev)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return fmt.Errorf("turning %s off: %w", feature.name, errno)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
