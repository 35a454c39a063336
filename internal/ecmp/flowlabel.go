package ecmp

// The low 14 bits of a 20-bit flow label, and where the other six begin.
const (
	labelLow   = 0x03FFF
	labelHigh  = 0xFC000
	labelShift = 14
)

// PortOfFlowLabel is the UDP source port that RoCE v2 sends with for a 20-bit flow label: the upper six bits are folded onto
// the lower fourteen, and the result moved into the dynamic ports. Bits above the twentieth do not count.
func PortOfFlowLabel(label uint32) uint16 {
	return uint16(label&labelLow^label&labelHigh>>labelShift) | RoCE.First
}

// FlowLabelOfPort is a flow label that gives this source port. It is false for a port that none gives, below 0xC000. The
// label is never 0, since drivers take that for "none is set" and make up one of their own.
func FlowLabelOfPort(port uint16) (label uint32, ok bool) {
	if port < RoCE.First {
		return 0, false
	}
	label = uint32(port) & labelLow
	if label == 0 {
		label = 1<<labelShift | 1 // folds to 0
	}
	return label, true
}
