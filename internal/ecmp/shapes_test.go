package ecmp

import (
	"fmt"
	"net/netip"
	"testing"
)

// leafSpine is leaves with hosts h<leaf>.<n>, and spines; every leaf has a cable to every spine. Switches are numbered from
// 0: leaves, then spines.
func leafSpine(leaves, spines, hosts int, model func(i int) Model, s Selection) Config {
	var c Config
	for l := range leaves {
		c.Switches = append(c.Switches, Switch{Name: fmt.Sprintf("leaf%d", l+1), Model: model(l), Selection: s})
	}
	for p := range spines {
		c.Switches = append(c.Switches, Switch{Name: fmt.Sprintf("spine%d", p+1), Model: model(leaves + p)})
		for l := range leaves {
			c.Links = append(c.Links, LinkConfig{From: fmt.Sprintf("leaf%d", l+1), To: fmt.Sprintf("spine%d", p+1), Capacity: 100e9})
		}
	}
	for l := range leaves {
		for h := range hosts {
			c.Hosts = append(c.Hosts, Host{Name: fmt.Sprintf("h%d.%d", l+1, h+1), Leaf: fmt.Sprintf("leaf%d", l+1),
				Addr: netip.AddrFrom4([4]byte{10, byte((l + 1) >> 8), byte(l + 1), byte(h + 1)}), Capacity: 100e9})
		}
	}
	return c
}

// fatTree is k pods of k/2 leaves and k/2 aggregation switches, (k/2)^2 cores, and a host h<pod>.<leaf> on every leaf.
// Aggregation switch a of a pod has cables to the cores a*k/2 to a*k/2 + k/2-1.
func fatTree(k int, model func(i int) Model, s Selection) Config {
	var c Config
	half := k / 2
	add := func(name string) string {
		c.Switches = append(c.Switches, Switch{Name: name, Model: model(len(c.Switches)), Selection: s})
		return name
	}
	for i := range half * half {
		add(fmt.Sprintf("core%d", i+1))
	}
	for p := range k {
		for l := range half {
			leaf := add(fmt.Sprintf("leaf%d.%d", p+1, l+1))
			c.Hosts = append(c.Hosts, Host{Name: fmt.Sprintf("h%d.%d", p+1, l+1), Leaf: leaf, Addr: netip.AddrFrom4([4]byte{10, byte(p), byte(l), 1})})
		}
		for a := range half {
			agg := add(fmt.Sprintf("agg%d.%d", p+1, a+1))
			for l := range half {
				c.Links = append(c.Links, LinkConfig{From: fmt.Sprintf("leaf%d.%d", p+1, l+1), To: agg})
			}
			for i := range half {
				c.Links = append(c.Links, LinkConfig{From: agg, To: fmt.Sprintf("core%d", a*half+i+1)})
			}
		}
	}
	return c
}

func mustNew(tb testing.TB, c Config) *Fabric {
	tb.Helper()
	f, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func mustRoute(tb testing.TB, f *Fabric, src, dst string) *Route {
	tb.Helper()
	r, err := f.Route(src, dst)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// flow is a RoCE flow between two hosts.
func flow(f *Fabric, src, dst string) Tuple {
	s, _ := f.Host(src)
	d, _ := f.Host(dst)
	return Tuple{Src: s.Addr, Dst: d.Addr, DstPort: 4791, Proto: UDP}
}
