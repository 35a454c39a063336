package probe

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"shoal/internal/ecmp"
)

// Probe is one packet to send.
type Probe struct {
	Tuple ecmp.Tuple // IPv4, TCP or UDP
	TTL   uint8
	ID    uint16 // of the IP header; not 0, which the kernel would replace
	// Cookie is what only who has seen the probe can know: TCP's sequence number, or the lower 16 bits as UDP's checksum.
	Cookie uint32
}

// Answer is an ICMP error about a packet, as far as its quotation goes.
type Answer struct {
	From   netip.Addr
	Kind   Kind
	Tuple  ecmp.Tuple // of the packet that is quoted
	ID     uint16
	Cookie uint32
}

// Kind is what an ICMP error says.
type Kind uint8

const (
	Expired     Kind = iota + 1 // the TTL is used up: the sender is a router on the way
	Unreachable                 // no way leads on from the sender
	Refused                     // of any other sort: from the target itself it means that the packet has arrived
)

const (
	ipHeader   = 20
	tcpHeader  = 20
	udpHeader  = 8
	icmpHeader = 8
	udpPayload = 8

	// MaxPacket bounds a probe, and maxAnswer an answer, in bytes. Routers quote from 28 to 576 bytes of a packet.
	MaxPacket = ipHeader + tcpHeader
	maxAnswer = 2048
)

// What an answer can be that is none. They are counted apart from errors of the socket.
var (
	errShort   = errors.New("probe: message cut off")
	errOther   = errors.New("probe: message about something else")
	errDamaged = errors.New("probe: message with a wrong checksum")
)

// appendProbe appends the packet, IP header and all.
func appendProbe(b []byte, p Probe) []byte {
	src, dst := p.Tuple.Src.As4(), p.Tuple.Dst.As4()
	size := ipHeader + tcpHeader
	if p.Tuple.Proto == ecmp.UDP {
		size = ipHeader + udpHeader + udpPayload
	}
	at := len(b)
	b = append(b, make([]byte, size)...)
	ip, l4 := b[at:at+ipHeader], b[at+ipHeader:]
	ip[0] = 4<<4 | ipHeader/4
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	binary.BigEndian.PutUint16(ip[4:], p.ID)
	ip[6] = 0x40 // don't fragment
	ip[8], ip[9] = p.TTL, p.Tuple.Proto
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip))

	binary.BigEndian.PutUint16(l4, p.Tuple.SrcPort)
	binary.BigEndian.PutUint16(l4[2:], p.Tuple.DstPort)
	pseudo := sum(sum(uint16(p.Tuple.Proto), ip[12:20]), []byte{0, byte(len(l4))})
	if p.Tuple.Proto == ecmp.UDP {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		binary.BigEndian.PutUint16(l4[6:], udpCookie(p.Cookie))
		// The checksum is the cookie, and the payload is what makes it right.
		binary.BigEndian.PutUint16(l4[udpHeader:], ^sum(pseudo, l4))
		return b
	}
	binary.BigEndian.PutUint32(l4[4:], p.Cookie)
	l4[12], l4[13] = tcpHeader/4<<4, 0x10 // ACK, and nothing else: no stack answers it with more than RST
	binary.BigEndian.PutUint16(l4[16:], ^sum(pseudo, l4))
	return b
}

// udpCookie is the checksum that stands for a cookie: not 0, which means that there is none, nor its double.
func udpCookie(c uint32) uint16 {
	if s := uint16(c); s != 0 && s != 0xFFFF {
		return s
	}
	return 1
}

// sum adds b, of an even length, to a sum in ones' complement.
func sum(s uint16, b []byte) uint16 {
	n := uint32(s)
	for ; len(b) > 1; b = b[2:] {
		n += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		n += uint32(b[0]) << 8
	}
	for n > 0xFFFF {
		n = n>>16 + n&0xFFFF
	}
	return uint16(n)
}

// parseAnswer reads an ICMP message without its IP header. Whatever it says, it was sent by anybody.
func parseAnswer(from netip.Addr, b []byte) (Answer, error) {
	if len(b) < icmpHeader {
		return Answer{}, errShort
	}
	if len(b) > maxAnswer {
		return Answer{}, errOther
	}
	a := Answer{From: from.Unmap()}
	switch {
	case b[0] == 11 && b[1] == 0:
		a.Kind = Expired
	case b[0] == 3 && b[1] <= 1: // network, host
		a.Kind = Unreachable
	case b[0] == 3 && b[1] != 4: // 4 is about the packet's size
		a.Kind = Refused
	default:
		return Answer{}, errOther
	}
	if sum(0, b) != 0xFFFF {
		return Answer{}, errDamaged // raw sockets get messages before the kernel has looked at them
	}
	ip := b[icmpHeader:]
	if len(ip) < ipHeader {
		return Answer{}, errShort
	}
	header := int(ip[0]&15) * 4
	switch {
	case ip[0]>>4 != 4 || header < ipHeader:
		return Answer{}, errOther
	case len(ip) < header+8:
		return Answer{}, errShort
	case binary.BigEndian.Uint16(ip[6:])&0x1FFF != 0: // not the packet's beginning
		return Answer{}, errOther
	}
	l4 := ip[header:]
	a.ID = binary.BigEndian.Uint16(ip[4:])
	a.Tuple = ecmp.Tuple{
		Src: netip.AddrFrom4([4]byte(ip[12:16])), Dst: netip.AddrFrom4([4]byte(ip[16:20])), Proto: ip[9],
		SrcPort: binary.BigEndian.Uint16(l4), DstPort: binary.BigEndian.Uint16(l4[2:]),
	}
	switch a.Tuple.Proto {
	case ecmp.TCP:
		a.Cookie = binary.BigEndian.Uint32(l4[4:])
	case ecmp.UDP:
		a.Cookie = uint32(binary.BigEndian.Uint16(l4[6:]))
	default:
		return Answer{}, errOther
	}
	return a, nil
}

// answers says whether the quotation is of this probe.
func (a *Answer) answers(p *Probe) bool {
	cookie := p.Cookie
	if p.Tuple.Proto == ecmp.UDP {
		cookie = uint32(udpCookie(p.Cookie))
	}
	return a.Tuple == p.Tuple && a.ID == p.ID && a.Cookie == cookie
}
