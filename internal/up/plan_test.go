package up

import (
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/agent"
	"shoal/internal/peer"
)

func testConfig(change func(*Config)) Config {
	c := Defaults()
	c.Exe = "/bin/shoal"
	change(&c)
	return c
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // id engine, one each
	}{
		{"real engines by default", func(*Config) {},
			"a1 http://127.0.0.1:12080; a2 http://127.0.0.1:12081; a3 http://127.0.0.1:12082"},
		{"as many real engines as agents", func(c *Config) { c.Agents = 1; c.Port = 9000 },
			"a1 http://127.0.0.1:13000"},
		{"one's own engines, an agent each", func(c *Config) { c.Engines = []string{"http://h:1", "https://i"} },
			"a1 http://h:1; a2 https://i"},
		{"agents beyond the engines only route", func(c *Config) { c.Emulated = 1; c.Agents = 2 },
			"a1 emulated, inside the agent; a2 none: routes only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(c.change)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			p, err := newPlan(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range p.peers {
				got = append(got, p.peers[i].id+" "+p.peers[i].engine())
			}
			if s := strings.Join(got, "; "); s != c.want {
				t.Errorf("planned %s\nwant    %s", s, c.want)
			}
		})
	}
}

func TestAnAgentIsToldEverythingByFlags(t *testing.T) {
	p, err := newPlan(testConfig(func(c *Config) { c.Emulated = 3; c.AgentArgs = []string{"--log-level", "debug"} }))
	if err != nil {
		t.Fatal(err)
	}
	specs := p.agents(&runDir{dir: "/run/8080"})
	want := "agent --id a2 --listen 127.0.0.1:8081 --peer-listen 127.0.0.1:9081 --gossip-listen 127.0.0.1:10081 " +
		"--admin-listen 127.0.0.1:11081 --policy cost --preset local --state /run/8080/a2.state --log-level info --drain 10s " +
		"--emulated --join 127.0.0.1:10080 --join 127.0.0.1:10082 --log-level debug"
	if got := strings.Join(specs[1].args, " "); got != want {
		t.Errorf("a2's arguments are\n%s\nwant\n%s", got, want)
	}
}

// No two uses of a port meet, whatever the base, and none is beyond the last port.
func TestPortsAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, n := rapid.IntRange(1, maxBase).Draw(t, "base"), rapid.IntRange(1, MaxAgents).Draw(t, "agents")
		p := &plan{llama: true}
		p.lay(base, n)
		seen := map[string]bool{}
		for _, q := range p.peers {
			for _, addr := range []string{q.listen, q.peer, q.gossip, q.admin, q.engineAddr} {
				if seen[addr] {
					t.Fatalf("%s is used twice", addr)
				}
				seen[addr] = true
				if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestTakenPortIsNamedWithWhatToDo(t *testing.T) {
	p, err := newPlan(testConfig(func(c *Config) { c.Emulated = 2; c.Port = 0 }))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr, network, want string
	}{
		{p.peers[1].listen, "tcp", "the API of agent a2"},
		{p.peers[0].admin, "tcp", "the admin API of agent a1"},
		{p.peers[1].gossip, "udp", "the gossip of agent a2"},
	} {
		t.Run(c.want, func(t *testing.T) {
			defer listen(t, c.network, c.addr)()
			err := p.checkPorts()
			if err == nil {
				t.Fatal("it is not noticed")
			}
			for _, want := range []string{c.addr, c.want, fmt.Sprintf("--port %d", p.base+100)} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	if err := p.checkPorts(); err != nil {
		t.Errorf("all is free again, but %v", err)
	}
}

func listen(t *testing.T, network, addr string) (closed func()) {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		return func() { c.Close() }
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return func() { l.Close() }
}

func TestWrongConfigIsExplained(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"--agents 65 is outside 1 to 64", func(c *Config) { c.Agents = 65 }},
		{"--emulated -1", func(c *Config) { c.Emulated = -1 }},
		{"exclude each other", func(c *Config) { c.Emulated = 1; c.Engines = []string{"http://h:1"} }},
		{"--agents 1 is less than the 2 engines", func(c *Config) { c.Emulated = 2; c.Agents = 1 }},
		{`--engine "localhost:8000" is not the URL`, func(c *Config) { c.Engines = []string{"localhost:8000"} }},
		{"--port 61473 is outside 1 to 61472", func(c *Config) { c.Port = maxBase + 1 }},
		{"given 65 times", func(c *Config) { c.Engines = slices.Repeat([]string{"http://h:1"}, 65) }},
	} {
		cfg := testConfig(c.change)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want something with %q", err, c.want)
		}
	}
}

// The wait names what is missing, and ends only when every agent sees every other with its engine and models.
func TestWhatIsMissing(t *testing.T) {
	p, err := newPlan(testConfig(func(c *Config) { c.Engines = []string{"http://h:1", "http://h:2"}; c.Agents = 3 }))
	if err != nil {
		t.Fatal(err)
	}
	one := func(id peer.ID, alive, up bool, models ...string) agent.PeerStatus {
		return agent.PeerStatus{ID: id, Alive: alive, Models: models, Load: peer.Load{Up: up}}
	}
	all := []agent.PeerStatus{one("a1", true, true, "m"), one("a2", true, true, "m"), one("a3", true, false)}
	with := func(at int, s agent.PeerStatus) []agent.PeerStatus {
		c := slices.Clone(all)
		c[at] = s
		return c
	}
	for _, c := range []struct {
		name  string
		self  peer.ID
		peers []agent.PeerStatus
		want  string
	}{
		{"nothing", "a1", all, ""},
		{"own engine", "a1", with(0, one("a1", true, false)), "a1's engine (does http://h:1 answer?)"},
		{"own models", "a1", with(0, one("a1", true, true)), "a1's engine (does http://h:1 answer?)"},
		{"unseen", "a1", all[:2], "a1 to see a3"},
		{"seen dead", "a1", with(1, one("a2", false, true, "m")), "a1 to see a2"},
		{"engine of another", "a1", with(1, one("a2", true, false)), "a1 to hear of the engine of a2"},
		{"another agent in its place", "b7", all, "a1, but agent b7 answers at 127.0.0.1:11080: end it, or choose other ports with --port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.missing(&p.peers[0], &agent.Status{Self: c.self, Peers: c.peers}); got != c.want {
				t.Errorf("missing %q, want %q", got, c.want)
			}
		})
	}
}

// What is printed for pasting means the same to a shell.
func TestCurlSurvivesTheShell(t *testing.T) {
	line := curl("127.0.0.1:8080", `it's "a" $(model)`, true)
	out, err := exec.Command("sh", "-c", "curl() { for a; do printf '<%s>\\n' \"$a\"; done; }\n"+line).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "<-sN>\n<http://127.0.0.1:8080/v1/chat/completions>\n<-H>\n<Content-Type: application/json>\n<-d>\n" +
		`<{"model":"it's \"a\" $(model)","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France?"}],"max_tokens":64,"temperature":0,"stream":true}>` + "\n"
	if string(out) != want {
		t.Errorf("the shell reads\n%s\nwant\n%s", out, want)
	}
}
