package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"shoal/internal/peer"
)

// freeAddr is a loopback address that nobody listens on, for now.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// dns is a name server that tests can change.
type dns struct {
	mu    sync.Mutex
	names map[string][]netip.Addr
	asked map[string]int
}

func (d *dns) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked == nil {
		d.asked = map[string]int{}
	}
	d.asked[host]++
	if ips, ok := d.names[host]; ok {
		return ips, nil
	}
	return nil, fmt.Errorf("no such host: %s", host)
}

func (d *dns) set(host string, ips ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = map[string][]netip.Addr{}
	for _, ip := range ips {
		d.names[host] = append(d.names[host], netip.MustParseAddr(ip))
	}
}

func (d *dns) times(host string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[host]
}

func TestJoiningIsTriedUntilTheOtherIsThere(t *testing.T) {
	addr := freeAddr(t)
	b := begin(t, "b", with(func(c *Config) { c.Join = []string{addr} }))
	eventually(t, "several tries", func() bool { return b.c.Stats().JoinErrors >= 3 })
	if n := b.log.count("level=WARN", "do not answer"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	a := begin(t, "a", with(func(c *Config) { c.GossipBind = addr }))
	b.up(t, "a")
	a.up(t, "b")
}

func TestJoinNamesAreResolvedForEachTry(t *testing.T) {
	a := begin(t, "a")
	names := &dns{}
	name := fmt.Sprintf("seed.test:%d", port(a.c.GossipAddr()))
	b := begin(t, "b", with(func(c *Config) { c.Join = []string{name} }), hooked(func(h *hooks) { h.resolve = names }))
	eventually(t, "tries without an answer", func() bool { return names.times("seed.test") >= 2 })
	names.set("seed.test", "127.0.0.9", "::ffff:127.0.0.8") // where nobody is
	eventually(t, "tries of wrong addresses", func() bool { return b.c.Stats().JoinErrors >= 2 })
	names.set("seed.test", "127.0.0.9", "127.0.0.1")
	b.up(t, "a")
	before := names.times("seed.test")
	eventually(t, "further looks while one address is missing", func() bool { return names.times("seed.test") >= before+2 })
}

// What is a member is left alone: no traffic to the join list once everybody on it is there.
func TestJoiningStopsWhereAllAreMembers(t *testing.T) {
	a, b := pair(t, mortal)
	eventually(t, "a look that finds nobody missing", func() bool {
		missing, err := b.c.joinMissing()
		return missing == 0 && err == nil
	})
	before := b.c.Stats().JoinTries
	for range 3 {
		if missing, _ := b.c.joinMissing(); missing != 0 {
			t.Errorf("%d missing", missing)
		}
	}
	if n := b.c.Stats().JoinTries; n != before {
		t.Errorf("%d tries more", n-before)
	}
	a.c.Close()
	b.down(t, "a")
	eventually(t, "tries again", func() bool { return b.c.Stats().JoinTries > before })
}

// Agents that start together, and miss all packets of the gossip about each other, meet within seconds all the same.
func TestNewAgentsMeetWithoutPackets(t *testing.T) {
	deaf := hooked(func(h *hooks) {
		h.tune = func(t *timing) { fast(t); t.pushPull = time.Hour }
		h.lose = func(string) bool { return true }
	})
	seed := begin(t, "seed", deaf)
	var all []*agent
	for _, id := range []peer.ID{"b", "c", "d", "e"} {
		all = append(all, begin(t, id, deaf, joining(seed)))
	}
	for _, a := range all {
		eventually(t, "everybody to know everybody", func() bool { return len(a.c.Members()) == len(all) })
	}
}

// partition cuts the network between groups of agents, gossip and peer ports.
type partition struct {
	mu    sync.Mutex
	group map[string]int // by address
	cut   bool
}

// of are the hooks of an agent in a group.
func (p *partition) of(group int) option {
	return func(_ *agent, _ *Member, h *hooks) {
		unreachable := func(addr string) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			g, known := p.group[addr]
			return p.cut && known && g != group
		}
		h.cut = unreachable
		h.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if unreachable(addr) {
				return nil, errors.New("unreachable")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
}

func (p *partition) add(group int, a *agent) *agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == nil {
		p.group = map[string]int{}
	}
	p.group[a.c.GossipAddr()], p.group[a.c.Self().PeerAddr] = group, group
	return a
}

func (p *partition) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// A partition that is so long that the gossip has forgotten the other side heals by the join list.
func TestLongPartitionHeals(t *testing.T) {
	p := &partition{}
	short := hooked(func(h *hooks) { h.tune = func(t *timing) { fast(t); t.suspicionMult, t.dead = 2, 50*time.Millisecond } })
	a := p.add(0, begin(t, "a", short, p.of(0)))
	b := p.add(0, begin(t, "b", short, p.of(0), joining(a)))
	c := p.add(1, begin(t, "c", short, p.of(1), joining(a)))
	all := []*agent{a, b, c}
	for _, x := range all {
		for _, y := range all {
			if x != y {
				x.up(t, y.c.self.ID)
			}
		}
	}
	p.set(true)
	a.down(t, "c")
	b.down(t, "c")
	c.down(t, "a")
	c.down(t, "b")
	tries := c.c.Stats().JoinTries
	eventually(t, "tries in vain", func() bool { return c.c.Stats().JoinTries > tries+5 })
	p.set(false)
	a.up(t, "c")
	b.up(t, "c")
	c.up(t, "a")
	c.up(t, "b")
}

// Two peers whose only common address is no more find each other all the same.
func TestPartitionHealsWithoutTheSeed(t *testing.T) {
	p := &partition{}
	seed := begin(t, "seed", mortal)
	b := p.add(0, begin(t, "b", mortal, p.of(0), joining(seed)))
	c := p.add(1, begin(t, "c", mortal, p.of(1), joining(seed)))
	b.up(t, "c")
	c.up(t, "b")
	seed.c.Close()
	b.down(t, "seed")
	c.down(t, "seed")
	p.set(true)
	b.down(t, "c")
	c.down(t, "b")
	p.set(false)
	b.up(t, "c")
	c.up(t, "b")
}

func TestLostPeersAreBounded(t *testing.T) {
	var l lost
	for i := range maxLost + 10 {
		l.add(fmt.Sprintf("10.0.0.1:%d", i+1))
	}
	l.add("10.0.0.1:20")
	got := l.missing(map[string]bool{"10.0.0.1:21": true})
	if len(got) != maxLost-1 || slices.Contains(got, "10.0.0.1:10") || slices.Contains(got, "10.0.0.1:21") || got[len(got)-1] != "10.0.0.1:20" {
		t.Errorf("%d: %v", len(got), got)
	}
	if again := l.missing(nil); len(again) != len(got) {
		t.Errorf("%d, then %d", len(got), len(again))
	}
}
