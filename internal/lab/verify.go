package lab

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// Limits of Verify.
const (
	MaxProbes    = 100_000
	MaxMistakes  = 10 // that a Verification shows
	probeTries   = 3
	probeBatch   = 200
	probeID      = 0x5a0a  // the IP identification of the packets
	captureBytes = 8 << 20 // of a capturing socket's buffer
)

// Verification is how the kernel's choices compare with those that a fabric description predicts.
type Verification struct {
	Sent  int `json:"sent"`  // 5-tuples, half of them UDP, half TCP
	Right int `json:"right"` // seen on exactly the predicted links
	Lost  int `json:"lost"`  // not seen to the end, after three tries
	// Counted reports whether the links' own counters rose by exactly what was predicted. Other traffic spoils it.
	Counted  bool      `json:"counted"`
	Mistakes []Mistake `json:"mistakes,omitempty"` // the first MaxMistakes of the wrong and the lost
}

// Mistake is one 5-tuple that did not go where it was predicted to.
type Mistake struct {
	Tuple     string   `json:"tuple"`
	Predicted []string `json:"predicted"` // links, in order of their names
	Seen      []string `json:"seen"`
}

// OK reports whether every choice was predicted.
func (v *Verification) OK() bool { return v.Right == v.Sent }

// probe is one packet whose way is predicted.
type probe struct {
	tuple ecmp.Tuple
	src   string
	want  []string // directed links, sorted
	seen  []string
	sends int
}

// probes draws n different 5-tuples between hosts of different leaves, and predicts their ways.
func (p *plan) probes(c ecmp.Config, n int, seed uint64) ([]*probe, error) {
	if n < 1 || n > MaxProbes {
		return nil, fmt.Errorf("lab: verify: %d tuples; give 1 to %d", n, MaxProbes)
	}
	fabric, err := ecmp.New(c)
	if err != nil {
		return nil, fmt.Errorf("lab: verify: %w", err)
	}
	random := sim.Stream(seed, "verify")
	routes := map[[2]string]*ecmp.Route{}
	drawn := map[ecmp.Tuple]bool{}
	var out []*probe
	for len(out) < n {
		src, dst := &p.hosts[random.IntN(len(p.hosts))], &p.hosts[random.IntN(len(p.hosts))]
		if src.Leaf == dst.Leaf {
			continue
		}
		t := ecmp.Tuple{Src: src.Addr, Dst: dst.Addr, SrcPort: randomPort(random), DstPort: randomPort(random), Proto: ecmp.UDP}
		if len(out)%2 == 1 {
			t.Proto = ecmp.TCP
		}
		if drawn[t] {
			continue
		}
		drawn[t] = true
		key := [2]string{src.Name, dst.Name}
		r := routes[key]
		if r == nil {
			if r, err = fabric.Route(src.Name, dst.Name); err != nil {
				return nil, fmt.Errorf("lab: verify: %w", err)
			}
			routes[key] = r
		}
		out = append(out, &probe{tuple: t, src: src.Name, want: linkNames(fabric, r.Paths()[r.PathOf(t)])})
	}
	return out, nil
}

func randomPort(r *rand.Rand) uint16 { return uint16(1 + r.IntN(65535)) }

func tupleText(t ecmp.Tuple) string {
	name := "udp"
	if t.Proto == ecmp.TCP {
		name = "tcp"
	}
	return fmt.Sprintf("%s %v -> %v", name, netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort))
}
