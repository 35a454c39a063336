// Package load sends a workload to OpenAI endpoints and reports how they did: TTFT, TPOT, hit rate by the engine's own
// count of reused tokens, share of each peer, and errors by kind. `shoal bench` is a thin command around it, and the demo
// runs the same workload against several set-ups and compares the reports.
//
// It is not a benchmark of the gateway's overhead (bench/overhead is), and it knows nothing of how a shoal decides: it
// reads what the answers say. Main function: Run, of a Config, which returns a Report. Invariants: a workload is a pure
// function of its seed; a run is bounded in requests and in time; what an engine does not report is unknown, never zero;
// nothing is sent beyond this machine unless the caller says so. The shape of the few-shot workload follows
// arXiv 2606.17059 (MMLU, 5-shot, Zipf over subjects); traces follow Mooncake's format (FAST '25).
package load

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config describes one run.
type Config struct {
	// Name labels the report, such as the policy under test; empty is fine.
	Name string
	// Targets are base URLs of OpenAI endpoints: with or without scheme and /v1. Requests are spread over them.
	Targets []string
	// Assign says how. It matters where each target is an entry of one shoal: Rotate shares evenly, Random is what
	// independent clients do.
	Assign Assign
	// Remote allows targets that are not this machine. A load generator in the wrong place is an attack; so ask for it.
	Remote bool
	// APIKey goes to every target as a bearer token; empty: none.
	APIKey string
	// Model is asked for; empty: the first that the first target lists.
	Model string

	Workload Workload
	// Requests and Duration bound the run; whichever is reached first ends it. Both are at least 1.
	Requests int
	Duration time.Duration
	// Rate makes an open loop of Poisson arrivals, in requests a second; Clients a closed loop of that many clients that
	// each wait for their answer. At most one of them is set; with neither, a timed workload comes at its own times and
	// any other in a closed loop of DefaultClients. An open loop shows what a queue does to people who do not wait for
	// each other; a closed one never overloads.
	Rate    float64
	Clients int
	// InFlight bounds the requests of an open loop that are under way. Beyond it a request waits, and its waiting counts.
	InFlight int
	// Stream asks for the answer chunk by chunk. Without it TTFT and TPOT cannot be seen.
	Stream bool
	// MaxTokens bounds the output of a request; 0 leaves it to the workload and the engine.
	MaxTokens int
	// Timeout bounds one request.
	Timeout time.Duration
	// Seed decides arrivals and the random assignment; the workload has its own.
	Seed uint64

	// Progress is called a few times a second from a goroutine of Run's, and once at the end; nil: not at all.
	Progress func(Snapshot)
	// Transport replaces the HTTP transport; nil: one of its own, without a proxy unless Remote.
	Transport http.RoundTripper
}

// Assign says which target a request goes to.
type Assign uint8

const (
	Rotate Assign = iota // the zero value: one after the other
	Random               // drawn by the run's seed
)

// Defaults and limits of a run.
const (
	DefaultRequests = 200
	DefaultDuration = 5 * time.Minute
	DefaultClients  = 4
	DefaultInFlight = 256
	DefaultTimeout  = 2 * time.Minute
	MaxTargets      = 1024
	MaxRequests     = 1_000_000 // results are kept until the report
	MaxClients      = 4096
	MaxInFlight     = 4096
)

// DefaultConfig is a run as `shoal bench` makes it, but for targets and workload.
func DefaultConfig() Config {
	return Config{Requests: DefaultRequests, Duration: DefaultDuration, InFlight: DefaultInFlight, Stream: true,
		MaxTokens: 32, Timeout: DefaultTimeout, Seed: 1}
}

// Snapshot is how a run stands.
type Snapshot struct {
	Elapsed              time.Duration
	Planned, Sent        int
	InFlight, OK, Failed int
	// Prompt and Cached are the engines' own counts so far, over the requests that had both.
	Prompt, Cached int64
}

// Validate reports the first field that is wrong. It changes nothing and asks nobody.
func (c *Config) Validate() error {
	switch {
	case len(c.Targets) == 0:
		return fmt.Errorf("load: no target; give the base URL of an OpenAI endpoint, such as http://127.0.0.1:8001")
	case len(c.Targets) > MaxTargets:
		return fmt.Errorf("load: %d targets; at most %d", len(c.Targets), MaxTargets)
	case c.Workload == nil:
		return fmt.Errorf("load: no workload")
	case c.Requests < 1 || c.Requests > MaxRequests:
		return fmt.Errorf("load: %d requests; give 1 to %d", c.Requests, MaxRequests)
	case c.Duration <= 0:
		return fmt.Errorf("load: a duration of %v; give more than 0", c.Duration)
	case math.IsNaN(c.Rate) || c.Rate < 0 || c.Rate > 1e6:
		return fmt.Errorf("load: a rate of %g requests/s; give 0 (none) to 1000000", c.Rate)
	case c.Clients < 0 || c.Clients > MaxClients:
		return fmt.Errorf("load: %d clients; give 0 (none) to %d", c.Clients, MaxClients)
	case c.Rate > 0 && c.Clients > 0:
		return fmt.Errorf("load: both a rate and a number of clients; an open loop has the one, a closed loop the other")
	case c.InFlight < 1 || c.InFlight > MaxInFlight:
		return fmt.Errorf("load: %d requests in flight; give 1 to %d", c.InFlight, MaxInFlight)
	case c.MaxTokens < 0:
		return fmt.Errorf("load: %d tokens of output; give 0 (as the workload says) or more", c.MaxTokens)
	case c.Timeout <= 0:
		return fmt.Errorf("load: a timeout of %v; give more than 0", c.Timeout)
	case c.Assign > Random:
		return fmt.Errorf("load: assignment %d is unknown", c.Assign)
	}
	for _, t := range c.Targets {
		if _, err := target(t, c.Remote); err != nil {
			return err
		}
	}
	return nil
}

// target turns what a person writes into a base URL without a path's end: "127.0.0.1:8001", "http://host/v1/".
func target(s string, remote bool) (*url.URL, error) {
	full := s
	if !strings.Contains(s, "://") {
		full = "http://" + s
	}
	u, err := url.Parse(full)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("load: target %q is not a base URL; give one such as http://127.0.0.1:8001", s)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("load: target %q has the scheme %q; http and https are known", s, u.Scheme)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("load: target %q holds a user, a query or a fragment; give the base URL only, and the key as an API key", u.Redacted())
	}
	if !remote && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("load: target %s is not this machine; this is a load generator: add --remote if that is meant, and only for engines that are yours", u)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawPath = ""
	return u, nil
}

// loopback is true for what cannot leave this machine. Other names are not looked up: what they resolve to may change.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Run sends the workload and reports. Where ctx ends first, the report covers what was done until then and the error is
// nil. An error means that nothing was measured: a wrong configuration, or a target that cannot be reached.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	report, _, err := RunResults(ctx, cfg)
	return report, err
}

// RunResults is Run with every request's own measurement, in the order of the workload.
func RunResults(ctx context.Context, cfg Config) (*Report, []Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	c, err := newClient(&cfg)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	if err := c.preflight(ctx); err != nil {
		return nil, nil, err
	}
	planned := cfg.Requests
	if n := cfg.Workload.Len(); n >= 0 {
		planned = min(planned, n)
	}
	r := newRun(&cfg, c, planned)
	r.drive(ctx)
	return r.report(), r.results, nil
}
