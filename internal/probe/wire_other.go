//go:build !linux

package probe

// OpenWire fails: see ErrUnsupported.
func OpenWire() (Wire, error) { return nil, ErrUnsupported }
