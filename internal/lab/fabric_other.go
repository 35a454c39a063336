//go:build !linux

package lab

import (
	"context"
	"os/exec"

	"shoal/internal/ecmp"
)

// Fabric is a lab that is up: never on this system.
type Fabric struct{}

// Supported returns ErrUnsupported.
func Supported() error { return ErrUnsupported }

// Up returns ErrUnsupported.
func Up(context.Context, Config, func(string)) (*Fabric, error) { return nil, ErrUnsupported }

// Open returns ErrUnsupported.
func Open(_, _ string) (*Fabric, error) { return nil, ErrUnsupported }

// Down returns ErrUnsupported.
func Down(_ context.Context, _, _ string, _ func(string)) error { return ErrUnsupported }

// The methods are those of Linux, so that callers need no build tags; nobody ever has a Fabric to call them on.
func (f *Fabric) Close() error                             { return ErrUnsupported }
func (f *Fabric) Down(context.Context, func(string)) error { return ErrUnsupported }
func (f *Fabric) Config() Config                           { return Config{} }
func (f *Fabric) Dir() string                              { return "" }
func (f *Fabric) Hosts() []Host                            { return nil }
func (f *Fabric) Describe() ecmp.Config                    { return ecmp.Config{} }
func (f *Fabric) Seeds() map[string]uint32                 { return nil }
func (f *Fabric) SetSeed(string, uint32) error             { return ErrUnsupported }
func (f *Fabric) CutControl(bool) error                    { return ErrUnsupported }
func (f *Fabric) HostDir(string) (string, error)           { return "", ErrUnsupported }
func (f *Fabric) Do(string, func() error) error            { return ErrUnsupported }
func (f *Fabric) Start(string, *exec.Cmd) error            { return ErrUnsupported }
func (f *Fabric) Exec(string, *exec.Cmd) error             { return ErrUnsupported }
func (f *Fabric) Counters() ([]Count, error)               { return nil, ErrUnsupported }
func (f *Fabric) SwitchCounters() ([]Count, error)         { return nil, ErrUnsupported }
func (f *Fabric) Verify(context.Context, int, uint64) (*Verification, error) {
	return nil, ErrUnsupported
}

// PlainPolicy is the only policy of Plain.
const PlainPolicy = "ecmp"

// Plain is the Sender without agents: never on this system.
type Plain struct{}

// NewPlain returns ErrUnsupported.
func NewPlain(*Fabric) (*Plain, error) { return nil, ErrUnsupported }

func (p *Plain) Close() error                           { return ErrUnsupported }
func (p *Plain) Reset(context.Context, string) error    { return ErrUnsupported }
func (p *Plain) Counts(context.Context) (Counts, error) { return Counts{}, ErrUnsupported }
func (p *Plain) Send(context.Context, string, Flow, func(paths ...int)) (Sent, error) {
	return Sent{}, ErrUnsupported
}
