package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"shoal/internal/reserve"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Defaults()
	if err := c.Load(path); err != nil {
		return c, err
	}
	return c, c.Validate()
}

func TestDefaultsAreValid(t *testing.T) {
	c := Defaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.ID == "" {
		t.Fatal("no ID was made")
	}
}

func TestUnknownFieldDoesNotStart(t *testing.T) {
	_, err := load(t, "listen: 127.0.0.1:1\nengine:\n  urll: http://x\n")
	if err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), "urll") || !strings.Contains(err.Error(), "agent.yaml") {
		t.Fatalf("the error does not name file, line and field: %v", err)
	}
}

func TestSecondDocumentDoesNotStart(t *testing.T) {
	if _, err := load(t, "id: a\n---\nid: b\n"); err == nil {
		t.Fatal("a second document passed")
	}
}

func TestEmptyFileIsTheDefault(t *testing.T) {
	if _, err := load(t, ""); err != nil {
		t.Fatal(err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	for _, x := range []struct{ text, field, says string }{
		{"id: 'a b'", "id", "only letters"},
		{"listen: 8080", "listen", "host:port"},
		{"listen: 0.0.0.0:8080", "listen", "insecure: true"},
		{"admin: 0.0.0.0:8083", "admin", "insecure: true"},
		{"cluster: {peer_listen: '0.0.0.0:1'}", "cluster.peer_listen", "shoal keygen"},
		{"cluster: {gossip_listen: '[::]:1'}", "cluster.gossip_listen", "shoal keygen"},
		{"cluster: {preset: moon}", "cluster.preset", "local, lan, wan"},
		{"cluster: {key: a, key_file: b}", "cluster.key", "either"},
		{"tls: {cert: a}", "tls", "both"},
		{"api_keys: [{tenant: a}]", "api_keys[0]", "either"},
		{"isolate: true", "isolate", "api_keys"},
		{"engine: {kind: steam}", "engine.kind", "llamacpp"},
		{"engine: {url: 'http://x', emulated: true}", "engine.url", "emulated"},
		{"engine: {limit: -1}", "engine.limit", "outside"},
		{"engine: {queue: 100000}", "engine.queue", "outside"},
		{"engine: {aliases: {a: ''}}", "engine.aliases", "empty"},
		{"route: {policy: best}", "route.policy", "cost"},
		{"route: {push_back_high: 1s}", "route.push_back_high", "push_back_low"},
		{"limits: {body: 1}", "limits.body", "outside"},
		{"limits: {silence: 1ms}", "limits.silence", "outside"},
		{"paths: {lease: 1ms}", "paths.lease", "100ms to 1m0s"},
		{"paths: {max_delay: 501ms}", "paths.max_delay", "0s to 500ms"},
		{"paths: {max_wait: 0s}", "paths.max_wait", "1ms to 10m0s"},
		{"paths: {max_wait: 16s}", "paths.max_wait", "paths.give_up (15s)"},
		{"paths: {give_up: 0s}", "paths.give_up", "10ms to 10m0s"},
		{"paths: {max_slowdown_permille: 1000}", "paths.max_slowdown_permille", "1001 to 1000000"},
		{"log_level: loud", "log_level", "debug"},
	} {
		_, err := load(t, x.text)
		if err == nil || !strings.Contains(err.Error(), x.field+":") || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: error %v; it should name %s and say %q", x.text, err, x.field, x.says)
		}
	}
}

// The numbers of the schedule are the table's, unless the file says others; the extremes that may be set make a table, too.
func TestTheTableGetsItsNumbers(t *testing.T) {
	for _, text := range []string{"", "paths: {lease: 100ms, max_delay: 0s, max_wait: 1ms, give_up: 10ms, max_slowdown_permille: 1001}",
		"paths: {lease: 1m, max_delay: 500ms, max_wait: 10m, give_up: 10m, max_slowdown_permille: 1000000}"} {
		c, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(c, "test", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got reserve.Config
		a.node.Table(0, func(t *reserve.Table, _, _ time.Duration) { got = t.Config() })
		want := reserve.Defaults()
		if text != "" {
			p := c.Paths
			want.Lease, want.MaxDelay, want.MaxWait, want.GiveUp, want.MaxSlowdown = p.Lease, p.MaxDelay, p.MaxWait, p.GiveUp, p.MaxSlowdownPermille
		}
		if got != want {
			t.Errorf("%q: the table has %+v, want %+v", text, got, want)
		}
	}
}

// Whatever is configured, a ticket is still good when the transfer that it is for has waited for as long as it may.
func TestTicketsOutliveTheLongestWait(t *testing.T) {
	for _, text := range []string{"", "paths: {give_up: 10m}", "paths: {lease: 1m, give_up: 5m}", "paths: {give_up: 10ms, max_wait: 10ms}"} {
		c, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if life := c.Paths.mover().TicketLife; life < maxAnnounced+c.Paths.GiveUp+c.Paths.Lease+time.Second {
			t.Errorf("%q: tickets live for %v; a transfer is announced for up to %v, waits for up to %v, and lapses after %v more", text, life, maxAnnounced, c.Paths.GiveUp, c.Paths.Lease)
		}
	}
}

func TestBeyondLoopbackNeedsKeysOrInsecure(t *testing.T) {
	open := "listen: 0.0.0.0:8080\nadmin: 0.0.0.0:8083\ncluster: {peer_listen: '0.0.0.0:1', gossip_listen: '0.0.0.0:2'}\n"
	if _, err := load(t, open+"insecure: true\n"); err != nil {
		t.Errorf("insecure: true should allow it: %v", err)
	}
	keyed := "listen: 0.0.0.0:8080\napi_keys: [{key: k}]\ncluster: {peer_listen: '0.0.0.0:1', gossip_listen: '0.0.0.0:2', key: x}\n"
	if _, err := load(t, keyed); err != nil {
		t.Errorf("keys should allow it: %v", err)
	}
}

// docs/configuration.md shows every field; a new one that is forgotten there fails here.
func TestConfigurationDocHasEveryField(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	example := doc[strings.Index(doc, "```yaml")+7:]
	example = example[:strings.Index(example, "```")]
	var shown map[string]any
	if err := yaml.Unmarshal([]byte(example), &shown); err != nil {
		t.Fatalf("the example is not YAML: %v", err)
	}
	var missing func(path string, t reflect.Type, in map[string]any) []string
	missing = func(path string, typ reflect.Type, in map[string]any) (out []string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := f.Tag.Get("yaml")
			v, ok := in[name]
			if name != "" && !ok {
				out = append(out, path+name)
			}
			if sub, isMap := v.(map[string]any); ok && isMap && f.Type.Kind() == reflect.Struct && name != "emulate" {
				out = append(out, missing(path+name+".", f.Type, sub)...)
			}
		}
		return out
	}
	if m := missing("", reflect.TypeOf(Config{}), shown); len(m) > 0 {
		t.Fatalf("docs/configuration.md lacks %v", m)
	}
	c := Defaults()
	if err := yaml.Unmarshal([]byte(example), &c); err != nil {
		t.Fatalf("the example cannot be loaded: %v", err)
	}
	if err := c.Validate(); err != nil {
		t.Fatalf("the example is not valid: %v", err)
	}
	if c.Drain != 30*time.Second {
		t.Fatalf("durations are misread: drain is %v", c.Drain)
	}
}
