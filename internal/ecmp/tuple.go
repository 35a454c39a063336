package ecmp

import (
	"fmt"
	"net/netip"
)

// Protocols of a Tuple.
const (
	TCP = 6
	UDP = 17
)

// Tuple is a flow's 5-tuple, as its packets carry it. The hash models know IPv4 only; IPv4 addresses in IPv6 form are the
// same addresses.
type Tuple struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
}

// Validate says whether the models can hash it. They take an address that they cannot hash for 0.0.0.0: a wrong prediction
// costs a shared link, and no more.
func (t Tuple) Validate() error {
	for _, a := range []struct {
		field string
		addr  netip.Addr
	}{{"source", t.Src}, {"destination", t.Dst}} {
		if wrong := wrongAddr(a.addr); wrong != "" {
			return fmt.Errorf("ecmp: %s address: %s", a.field, wrong)
		}
	}
	return nil
}

// wrongAddr says what is wrong with an address; empty where nothing is.
func wrongAddr(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "missing; give an IPv4 address"
	case !a.Unmap().Is4():
		return fmt.Sprintf("%v is not IPv4, and the hash models know no other", a)
	}
	return ""
}

// v4 is an IPv4 address as a number, its first byte the highest.
func v4(a netip.Addr) uint32 {
	if a = a.Unmap(); !a.Is4() {
		return 0
	}
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Range is source ports from First to Last, both included. It is empty where Last is less than First.
type Range struct {
	First uint16 `yaml:"first" json:"first"`
	Last  uint16 `yaml:"last" json:"last"`
}

// RoCE are the source ports that RoCE v2 can have: a flow label becomes one of 2^14 (see PortOfFlowLabel).
var RoCE = Range{0xC000, 0xFFFF}

// Len is how many ports the range has.
func (r Range) Len() int { return max(0, int(r.Last)-int(r.First)+1) }
