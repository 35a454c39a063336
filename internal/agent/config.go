package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"shoal/internal/emulate"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/reserve"
	"shoal/internal/route"
)

// Config is everything that an agent can be told. The zero value is not usable: start from Defaults. A field is set by
// flag, else by environment (SHOAL_ and the flag's name in capitals), else by the file, else by default.
type Config struct {
	// ID names this peer in its shoal; two peers must not share one. Default: the host's name and the gateway's port.
	ID string `yaml:"id"`
	// Listen is the address of the OpenAI API.
	Listen string `yaml:"listen"`
	// TLS, where both files are given, makes the gateway speak HTTPS.
	TLS TLSFiles `yaml:"tls"`
	// APIKeys, where there are any, are what clients must show as a bearer token. Needed beyond loopback.
	APIKeys []APIKey `yaml:"api_keys"`
	// Isolate gives each tenant a cache of its own, where every engine that serves the model honours cache_salt: safer
	// (no tenant can time another's prompts), at the price of what tenants could have shared.
	Isolate bool `yaml:"isolate"`
	// PassAuthorization sends the client's own Authorization header on to the engine.
	PassAuthorization bool `yaml:"pass_authorization"`

	Engine  Engine  `yaml:"engine"`
	Cluster Cluster `yaml:"cluster"`
	Route   Route   `yaml:"route"`
	Paths   Paths   `yaml:"paths"`
	Limits  Limits  `yaml:"limits"`

	// Admin is the address of the admin API and of /metrics, /healthz and /readyz. It must be on loopback unless
	// Insecure is set, since it has no authentication.
	Admin string `yaml:"admin"`
	// AdminSocket, where it is not empty, is a unix socket with the same API, for programs of this machine and this user.
	AdminSocket string `yaml:"admin_socket"`
	// State is the file that the agent keeps its view of the engine's cache in, so that a restart beside a warm engine
	// loses nothing; empty: none is kept, and the peers' copies serve instead.
	State string `yaml:"state"`
	// Insecure allows listening beyond loopback without keys. It is logged at every start.
	Insecure bool `yaml:"insecure"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
	// Drain bounds how long a stopping agent waits for its requests in flight. Longer: fewer cut streams.
	Drain time.Duration `yaml:"drain"`
}

// TLSFiles names PEM files.
type TLSFiles struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// APIKey is one key that clients may show, and whose it is.
type APIKey struct {
	Key     string `yaml:"key"`
	KeyFile string `yaml:"key_file"`
	Tenant  string `yaml:"tenant"`
}

// Engine is the engine beside this agent. Without URL and Emulated the agent has none and only routes.
type Engine struct {
	URL  string `yaml:"url"`
	Kind string `yaml:"kind"` // auto, llamacpp, openai or emulated
	// Key or KeyFile is what the engine wants as a bearer token.
	Key     string `yaml:"key"`
	KeyFile string `yaml:"key_file"`
	// CA is a PEM file of the authority that signed the engine's certificate; SkipVerify trusts any certificate.
	CA         string `yaml:"ca"`
	SkipVerify bool   `yaml:"skip_verify"`
	// Limit bounds the requests in flight at the engine; 0: no limit of ours. Lower: requests wait here, where they can
	// still be moved, rather than in the engine. Queue bounds how many wait here.
	Limit int `yaml:"limit"`
	Queue int `yaml:"queue"`
	// CacheTokens says how many prompt tokens the engine's prefix cache holds, where the engine itself does not tell.
	CacheTokens int64 `yaml:"cache_tokens"`
	// Aliases are further names for models, by alias.
	Aliases map[string]string `yaml:"aliases"`
	// Emulated, where true, starts an emulated engine inside the agent: it computes nothing, and says so everywhere.
	Emulated bool           `yaml:"emulated"`
	Emulate  emulate.Config `yaml:"emulate"`
}

// Cluster is how this peer finds the others and talks to them.
type Cluster struct {
	// Name is the shoal's; peers of another name are refused, so that two shoals on one network stay two.
	Name string `yaml:"name"`
	// Preset is local, lan or wan: how often peers talk, and how long one may be silent before it counts as dead.
	Preset string `yaml:"preset"`
	// PeerListen carries anti-entropy and forwarded requests (TCP); GossipListen membership (TCP and UDP).
	PeerListen   string `yaml:"peer_listen"`
	GossipListen string `yaml:"gossip_listen"`
	// Advertise is the IP that the others reach this peer at; empty: that of the listen addresses.
	Advertise string `yaml:"advertise"`
	// Join are addresses (host:port) of peers' gossip, or DNS names that resolve to them. Tried again for ever.
	Join []string `yaml:"join"`
	// Key or KeyFile is the shoal's key (shoal keygen). Needed beyond loopback. OldKeys are still accepted.
	Key     string   `yaml:"key"`
	KeyFile string   `yaml:"key_file"`
	OldKeys []string `yaml:"old_keys"`
	// Interval between anti-entropy rounds; 0: the preset's. Shorter: fresher replicas, more traffic.
	Interval time.Duration `yaml:"interval"`
}

// Route is how requests are routed.
type Route struct {
	Policy string `yaml:"policy"` // cost, longest-prefix, round-robin, random or local
	// GainPermille is how much better another peer must be before a request leaves home, and how much worse than expected a
	// peer may find itself before it declines, in thousandths of the prompt's whole prefill. Higher: less traffic between
	// peers, less reuse.
	GainPermille int `yaml:"gain_permille"`
	// PushBackHigh and PushBackLow are the watermarks, in queued work: above high the peer asks not to be sent more,
	// until it is below low.
	PushBackHigh time.Duration `yaml:"push_back_high"`
	PushBackLow  time.Duration `yaml:"push_back_low"`
}

// Limits bound what clients can make the agent hold.
type Limits struct {
	Body     int64         `yaml:"body"`     // bytes of a request body
	Requests int           `yaml:"requests"` // in the gateway at once
	Blocks   int           `yaml:"blocks"`   // text blocks remembered of the own engine
	Silence  time.Duration `yaml:"silence"`  // between two chunks of an engine's stream
}

// Defaults is the configuration of an agent that was told nothing.
func Defaults() Config {
	table := reserve.Defaults()
	return Config{
		Listen: "127.0.0.1:8080",
		Engine: Engine{Kind: "auto", Queue: 256, Emulate: emulate.Defaults()},
		Cluster: Cluster{Name: "shoal", Preset: "lan", PeerListen: "127.0.0.1:8081",
			GossipListen: "127.0.0.1:8082"},
		Route: Route{Policy: "cost", GainPermille: route.Defaults().GainPermille, PushBackHigh: 10 * time.Second,
			PushBackLow: 4 * time.Second},
		Paths: Paths{Policy: "least", Probe: "auto", Ports: "49152-65535", PortsPerPath: 16, Lease: table.Lease, MaxDelay: table.MaxDelay, MaxWait: table.MaxWait,
			GiveUp: table.GiveUp, MaxSlowdownPermille: table.MaxSlowdown, MaxBytes: 64 << 30},
		Limits: Limits{Body: 32 << 20, Requests: 4096, Blocks: node.Defaults().MaxBlocks,
			Silence: 60 * time.Second},
		Admin:    "127.0.0.1:8083",
		LogLevel: "info",
		Drain:    30 * time.Second,
	}
}

var unknownField = regexp.MustCompile(`line (\d+): field (\S+) not found in type \S+`)

// Load reads a YAML file over c. An unknown field, or a second document, is an error that names file, line and field.
func (c *Config) Load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("agent: config: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		msg := strings.TrimPrefix(err.Error(), "yaml: ")
		msg = strings.TrimPrefix(msg, "unmarshal errors:\n")
		msg = unknownField.ReplaceAllString(msg, "line $1: unknown field $2")
		return fmt.Errorf("agent: config %s: %s", path, strings.TrimSpace(msg))
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("agent: config %s: a second YAML document; one is enough", path)
	}
	return nil
}

// Validate completes what has no fixed default, and reports everything that is wrong, one line each.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field, format string, a ...any) {
		errs = append(errs, fmt.Errorf("agent: config: "+field+": "+format, a...))
	}
	c.validateAddresses(bad)
	if c.ID == "" {
		c.ID = defaultID(c.Listen)
	}
	if err := peer.ID(c.ID).Validate(); err != nil {
		bad("id", "%v", err)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		bad("tls", "give both cert and key, or neither")
	}
	for i, k := range c.APIKeys {
		if (k.Key == "") == (k.KeyFile == "") {
			bad(fmt.Sprintf("api_keys[%d]", i), "give either key or key_file")
		}
	}
	if c.Isolate && len(c.APIKeys) == 0 {
		bad("isolate", "tenants are told apart by their API keys; give api_keys")
	}
	c.validateEngine(bad)
	c.validatePaths(bad)
	switch c.Cluster.Preset {
	case "local", "lan", "wan":
	default:
		bad("cluster.preset", "%q is none of local, lan, wan", c.Cluster.Preset)
	}
	if c.Cluster.Key != "" && c.Cluster.KeyFile != "" {
		bad("cluster.key", "give either key or key_file")
	}
	if c.Cluster.Interval < 0 {
		bad("cluster.interval", "%v is negative", c.Cluster.Interval)
	}
	var policy route.Kind
	if err := policy.UnmarshalText([]byte(c.Route.Policy)); err != nil {
		bad("route.policy", "%v", err)
	}
	if c.Route.GainPermille < 0 || c.Route.GainPermille > 10_000 {
		bad("route.gain_permille", "%d is outside 0 to 10000", c.Route.GainPermille)
	}
	if c.Route.PushBackLow <= 0 || c.Route.PushBackHigh < c.Route.PushBackLow {
		bad("route.push_back_high", "%v must be at least push_back_low (%v), and that more than 0", c.Route.PushBackHigh, c.Route.PushBackLow)
	}
	for _, l := range []struct {
		name       string
		v, min, to int64
	}{
		{"limits.body", c.Limits.Body, 1 << 10, 1 << 30},
		{"limits.requests", int64(c.Limits.Requests), 1, 1 << 20},
		{"limits.blocks", int64(c.Limits.Blocks), 1 << 8, node.MaxBlocks},
		{"limits.silence", int64(c.Limits.Silence), int64(time.Second), int64(24 * time.Hour)},
		{"drain", int64(c.Drain), 0, int64(time.Hour)},
	} {
		if l.v < l.min || l.v > l.to {
			bad(l.name, "%d is outside %d to %d", l.v, l.min, l.to)
		}
	}
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		bad("log_level", "%q is none of debug, info, warn, error", c.LogLevel)
	}
	return errors.Join(errs...)
}

func (c *Config) validateAddresses(bad func(string, string, ...any)) {
	check := func(field, addr string) (loopback bool) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			bad(field, "%q is not host:port (%v)", addr, err)
			return true
		}
		return Loopback(host)
	}
	if !check("listen", c.Listen) && len(c.APIKeys) == 0 && !c.Insecure {
		bad("listen", "%s is reachable beyond this machine and no api_keys are given; give some, listen on 127.0.0.1, or set insecure: true", c.Listen)
	}
	if !check("admin", c.Admin) && !c.Insecure {
		bad("admin", "%s is reachable beyond this machine, and the admin API has no authentication; use 127.0.0.1, or set insecure: true", c.Admin)
	}
	keyless := c.Cluster.Key == "" && c.Cluster.KeyFile == "" && !c.Insecure
	for field, addr := range map[string]string{"cluster.peer_listen": c.Cluster.PeerListen, "cluster.gossip_listen": c.Cluster.GossipListen} {
		if !check(field, addr) && keyless {
			bad(field, "%s is reachable beyond this machine and the shoal has no key; make one with `shoal keygen`, or set insecure: true", addr)
		}
	}
}

func (c *Config) validateEngine(bad func(string, string, ...any)) {
	e := &c.Engine
	switch e.Kind {
	case "auto", "llamacpp", "openai", "emulated":
	default:
		bad("engine.kind", "%q is none of auto, llamacpp, openai, emulated", e.Kind)
	}
	if e.Emulated && e.URL != "" {
		bad("engine.url", "an emulated engine is inside the agent and has no url; give one of the two")
	}
	if e.Key != "" && e.KeyFile != "" {
		bad("engine.key", "give either key or key_file")
	}
	if e.Limit < 0 || e.Limit > 1<<16 {
		bad("engine.limit", "%d is outside 0 to 65536", e.Limit)
	}
	if e.Queue < 0 || e.Queue > 1<<16 {
		bad("engine.queue", "%d is outside 0 to 65536", e.Queue)
	}
	if e.CacheTokens < 0 {
		bad("engine.cache_tokens", "%d is negative", e.CacheTokens)
	}
	names := make([]string, 0, len(e.Aliases))
	for a := range e.Aliases {
		names = append(names, a)
	}
	sort.Strings(names)
	for _, a := range names {
		if a == "" || e.Aliases[a] == "" {
			bad("engine.aliases", "an alias or its model is empty (%q: %q)", a, e.Aliases[a])
		}
	}
	if e.Emulated {
		if err := e.Emulate.Validate(); err != nil {
			bad("engine.emulate", "%v", err)
		}
	}
}

// Loopback reports whether a host is this machine only.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func defaultID(listen string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "peer"
	}
	_, port, _ := net.SplitHostPort(listen)
	id := notInID.ReplaceAllString(host, "-")
	if len(id) > peer.MaxID-6 {
		id = id[:peer.MaxID-6]
	}
	return id + "-" + port
}

// secret returns what stands in value, or in the file that is named instead; both empty: nothing.
func secret(field, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	b, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return "", fmt.Errorf("agent: config: %s: %w", field, err)
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", fmt.Errorf("agent: config: %s: %s is empty", field, file)
	}
	return s, nil
}
