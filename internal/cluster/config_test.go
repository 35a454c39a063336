package cluster

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Default deny: what others can reach needs a key.
func TestNothingListensBeyondLoopbackWithoutAKey(t *testing.T) {
	for _, tc := range []struct {
		gossip, peer string
		key          bool
		insecure     bool
		want         string
	}{
		{"127.0.0.1:0", "127.0.0.1:0", false, false, ""},
		{"localhost:0", "[::1]:0", false, false, ""},
		{"127.9.9.9:1", "127.0.0.1:0", false, false, ""},
		{"0.0.0.0:0", "127.0.0.1:0", false, false, "gossip address 0.0.0.0:0 is reachable"},
		{"127.0.0.1:0", "0.0.0.0:0", false, false, "peer address 0.0.0.0:0 is reachable"},
		{"127.0.0.1:0", ":0", false, false, "peer address [::]:0 is reachable"},
		{"10.1.2.3:0", "127.0.0.1:0", false, false, "gossip address 10.1.2.3:0 is reachable"},
		{"[::ffff:10.1.2.3]:0", "127.0.0.1:0", false, false, "reachable"},
		{"[fe80::1]:0", "127.0.0.1:0", false, false, "reachable"},
		{"0.0.0.0:0", "0.0.0.0:0", true, false, ""},
		{"0.0.0.0:0", "0.0.0.0:0", false, true, ""},
	} {
		cfg := Defaults()
		cfg.GossipBind, cfg.PeerBind, cfg.Insecure = tc.gossip, tc.peer, tc.insecure
		if tc.key {
			cfg.Keys = []Key{{1}}
		}
		err := cfg.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v", tc, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "shoal keygen") || !strings.Contains(err.Error(), "insecure: true")) {
			t.Errorf("does not say what to do: %v", err)
		}
	}
}

func TestInsecureIsLogged(t *testing.T) {
	a := begin(t, "a", with(func(c *Config) {
		c.GossipBind, c.PeerBind, c.Advertise, c.Insecure = "0.0.0.0:0", "0.0.0.0:0", "127.0.0.1", true
	}))
	if a.log.count("level=WARN", "INSECURE") != 1 {
		t.Error("not logged")
	}
	if m := a.c.Self(); !strings.HasPrefix(m.PeerAddr, "127.0.0.1:") || !strings.HasPrefix(a.c.GossipAddr(), "127.0.0.1:") {
		t.Errorf("advertises %s and %s", m.PeerAddr, a.c.GossipAddr())
	}
}

func TestWrongConfigurationIsNamed(t *testing.T) {
	for want, f := range map[string]func(*Config){
		"preset":                     func(c *Config) { c.Preset = "fast" },
		"name has 0 bytes":           func(c *Config) { c.Shoal = "" },
		"name has 65 bytes":          func(c *Config) { c.Shoal = strings.Repeat("x", 65) },
		`gossip address "x"`:         func(c *Config) { c.GossipBind = "x" },
		"not \"host.example\"":       func(c *Config) { c.PeerBind = "host.example:1" },
		`"99999" is not a port`:      func(c *Config) { c.PeerBind = "127.0.0.1:99999" },
		`advertise "x"`:              func(c *Config) { c.Advertise = "x" },
		`advertise "0.0.0.0"`:        func(c *Config) { c.Advertise = "0.0.0.0" },
		`join address "y"`:           func(c *Config) { c.Join = []string{"127.0.0.1:1", "y"} },
		`"0" is not a port`:          func(c *Config) { c.Join = []string{"y:0"} },
		"key 2 of 2":                 func(c *Config) { c.Keys = []Key{{1}, {}} },
		"interval 1ms":               func(c *Config) { c.Interval = time.Millisecond },
		"fanout 0":                   func(c *Config) { c.Fanout = 0 },
		"silence 1s":                 func(c *Config) { c.Silence = time.Second },
		"limit hops is -1":           func(c *Config) { c.Limits.Hops = -1 },
		"limit stall is -1s":         func(c *Config) { c.Limits.Stall = -time.Second },
		"limit conns per peer is -5": func(c *Config) { c.Limits.ConnsPerPeer = -5 },
	} {
		cfg := Defaults()
		f(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	cfg := Defaults()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestListenErrorsNameThePort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for what, f := range map[string]func(*Config){
		"peer port":   func(c *Config) { c.PeerBind = ln.Addr().String() },
		"gossip port": func(c *Config) { c.GossipBind = ln.Addr().String() },
	} {
		if _, err := tryBegin(t, "a", with(f)); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := tryBegin(t, "a b"); err == nil || !strings.Contains(err.Error(), "ID") {
		t.Errorf("bad ID: %v", err)
	}
	if _, err := tryBegin(t, "a", func(_ *agent, m *Member, _ *hooks) { m.PeerAddr = "0.0.0.0:1" }); err == nil {
		t.Error("a peer address that nobody can dial")
	}
}

func TestPresetsAreWhole(t *testing.T) {
	for _, p := range []Preset{Local, LAN, WAN} {
		c, ok := timings(p)
		if !ok || c.probeTimeout >= c.probe || c.retryMin >= c.retryMax || c.dial == 0 || c.round == 0 || c.roundLimit <= c.round || c.stream == 0 {
			t.Errorf("%s: %+v", p, c)
		}
	}
}

func TestAdvertisedAddressIsOneThatOthersCanReach(t *testing.T) {
	ipnet := func(s string) net.Addr { return &net.IPNet{IP: net.ParseIP(s)} }
	addrs := []net.Addr{ipnet("127.0.0.1"), ipnet("fe80::1"), ipnet("2001:db8::1"), ipnet("203.0.113.7"), ipnet("fd00::1"), ipnet("192.168.1.5"), ipnet("10.0.0.1")}
	for _, tc := range []struct {
		addrs []net.Addr
		only4 bool
		want  string
	}{
		{addrs, false, "192.168.1.5"},
		{addrs[:5], false, "fd00::1"},
		{addrs[:5], true, "203.0.113.7"},
		{addrs[:3], false, "2001:db8::1"},
		{addrs[:3], true, ""},
		{addrs[:2], false, ""},
	} {
		got, err := firstPrivate(tc.addrs, tc.only4)
		if tc.want == "" && err == nil || tc.want != "" && got.String() != tc.want {
			t.Errorf("%v: %v, %v", tc, got, err)
		}
	}
	if got, err := advertised(netip.MustParseAddr("10.0.0.7"), netip.Addr{}); err != nil || got.String() != "10.0.0.7" {
		t.Errorf("%v, %v", got, err)
	}
}
