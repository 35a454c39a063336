package load

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a transport that answers after a delay of virtual time, by host.
type fake struct {
	delay  func(host string) time.Duration
	status int

	mu       sync.Mutex
	now, max int            // chats under way
	hosts    map[string]int // chats by host
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, kind, body string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
	}
	if r.Method == http.MethodGet {
		return answer(200, "application/json", `{"data":[{"id":"m"}]}`), nil
	}
	f.mu.Lock()
	if f.hosts == nil {
		f.hosts = map[string]int{}
	}
	f.hosts[r.URL.Host]++
	f.now++
	f.max = max(f.max, f.now)
	f.mu.Unlock()
	ok := wait(r.Context(), f.delay(r.URL.Host))
	f.mu.Lock()
	f.now--
	f.mu.Unlock()
	if !ok {
		return nil, r.Context().Err()
	}
	if f.status != 0 {
		return answer(f.status, "application/json", refusal), nil
	}
	return answer(200, "text/event-stream", "data: "+one+"\n\ndata: "+usage+"\n\ndata: [DONE]\n\n"), nil
}

func takes(d time.Duration) func(string) time.Duration {
	return func(string) time.Duration { return d }
}

// virtual runs a configuration in virtual time.
func virtual(t *testing.T, f *fake, change func(*Config)) (p *Report, results []Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Targets, cfg.Workload, cfg.Transport = []string{"http://127.0.0.1:1"}, fewShot(t, nil), f
		change(&cfg)
		var err error
		if p, results, err = RunResults(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	})
	return p, results
}

func TestAClosedLoopHasItsNumberOfClients(t *testing.T) {
	f := &fake{delay: takes(time.Second)}
	p, results := virtual(t, f, func(c *Config) { c.Clients, c.Requests = 5, 50 })
	if f.max != 5 || p.OK != 50 || p.Ended != Done || p.Seconds != 10 || p.PerSecond != 5 {
		t.Errorf("%d at once: %+v", f.max, p)
	}
	for i, r := range results {
		if r.Index != i || r.Total != time.Second || r.TTFT != time.Second {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
}

func TestAnOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	f := &fake{delay: takes(time.Minute)}
	p, results := virtual(t, f, func(c *Config) { c.Rate, c.Requests = 100, 200 })
	if f.max != 200 || p.OK != 200 || p.Seconds < 60 || p.Seconds > 66 {
		t.Errorf("%d at once in %.1f s: %+v", f.max, p.Seconds, p)
	}
	last := results[len(results)-1].Due.Seconds() // 200 at 100/s: 2 s, four standard deviations are 0.57
	if last < 1.43 || last > 2.57 {
		t.Errorf("the last of 200 at 100/s was due after %.2f s", last)
	}
	again, _ := virtual(t, f, func(c *Config) { c.Rate, c.Requests, c.Seed = 100, 200, 1 })
	if again.Seconds != p.Seconds {
		t.Errorf("seed 1: %.4f s, then %.4f s", p.Seconds, again.Seconds)
	}
}

// A generator that falls behind must not hide it: times count from when a request was due.
func TestWaitingForARequestInFlightCounts(t *testing.T) {
	f := &fake{delay: takes(time.Second)}
	p, results := virtual(t, f, func(c *Config) { c.Rate, c.Requests, c.InFlight = 1000, 40, 4 })
	if f.max != 4 || p.OK != 40 || p.Seconds < 10 {
		t.Errorf("%d at once in %.1f s", f.max, p.Seconds)
	}
	if last := results[39]; last.TTFT < 9*time.Second {
		t.Errorf("the last one waited nine rounds, and shows %v", last.TTFT)
	}
}

func TestATraceComesAtItsOwnTimesUnlessTold(t *testing.T) {
	f := &fake{delay: takes(time.Second)}
	p, results := virtual(t, f, func(c *Config) { c.Workload = trace(t, nil) })
	if p.Sent != 4 || p.Planned != 4 || results[3].Due != 2500*time.Millisecond || p.Seconds != 3.5 || p.Arrivals != "as recorded" {
		t.Errorf("%+v, last %+v", p, results[3])
	}
	p, results = virtual(t, f, func(c *Config) { c.Workload, c.Clients = trace(t, nil), 1 })
	if results[3].Due != 3*time.Second || p.Arrivals != "closed loop, 1 clients" {
		t.Errorf("%+v, last %+v", p, results[3])
	}
}

func TestTheTimeLimitEndsARun(t *testing.T) {
	for name, loop := range map[string]func(*Config){
		"closed": func(c *Config) { c.Clients = 4 },
		"open":   func(c *Config) { c.Rate = 1 },
	} {
		f := &fake{delay: takes(3 * time.Second)}
		p, _ := virtual(t, f, func(c *Config) { loop(c); c.Requests, c.Duration = 1000, 10*time.Second })
		if p.Ended != TimeLimit || p.Seconds != 10 || p.Failed != 0 || p.Unfinished == 0 || p.OK == 0 || p.Sent != p.OK+p.Unfinished {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestAnInterruptEndsARunAndReportsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Targets, cfg.Workload, cfg.Transport = []string{"http://127.0.0.1:1"}, fewShot(t, nil), &fake{delay: takes(time.Second)}
		ctx, cancel := context.WithCancel(t.Context())
		cfg.Progress = func(s Snapshot) {
			if s.OK >= 12 {
				cancel()
			}
		}
		p, err := Run(ctx, cfg)
		if err != nil || p.Ended != Interrupted || p.OK != 12 || p.Unfinished != 4 || p.Failed != 0 {
			t.Errorf("%v, %+v", err, p)
		}
	})
}

func TestRequestsAreSpreadOverTheTargets(t *testing.T) {
	targets := []string{"http://127.0.0.1:1", "127.0.0.1:2", "http://[::1]:3/v1/"}
	f := &fake{delay: takes(0)}
	p, _ := virtual(t, f, func(c *Config) { c.Targets, c.Requests = targets, 300 })
	for _, h := range []string{"127.0.0.1:1", "127.0.0.1:2", "[::1]:3"} {
		if f.hosts[h] != 100 {
			t.Errorf("rotating: %v", f.hosts)
		}
	}
	if p.Targets[1] != "http://127.0.0.1:2" || p.Targets[2] != "http://[::1]:3" {
		t.Errorf("targets %v", p.Targets)
	}
	f = &fake{delay: takes(0)}
	_, first := virtual(t, f, func(c *Config) { c.Targets, c.Requests, c.Assign = targets, 300, Random })
	for h, n := range f.hosts {
		if n < 67 || n > 133 || n == 100 { // four standard deviations are 33
			t.Errorf("random: %s got %d", h, n)
		}
	}
	_, second := virtual(t, f, func(c *Config) { c.Targets, c.Requests, c.Assign = targets, 300, Random })
	for i := range first {
		if first[i].Target != second[i].Target {
			t.Fatalf("one seed sends request %d to %s, then to %s", i, first[i].Target, second[i].Target)
		}
	}
}

// Without a pause, clients in a closed loop would use up all requests within an endpoint's restart.
func TestAClosedLoopPausesAfterAnError(t *testing.T) {
	f := &fake{delay: takes(0), status: 503}
	p, _ := virtual(t, f, func(c *Config) { c.Clients, c.Requests = 1, 20 })
	if p.Failed != 20 || p.Seconds != 1 || len(p.Errors) != 1 || p.Errors[0] != (ErrorCount{"status-503", 20, 0, "every peer pushes back"}) {
		t.Errorf("%+v", p)
	}
}

func TestProgressIsToldUntilTheEnd(t *testing.T) {
	var seen []Snapshot
	f := &fake{delay: takes(100 * time.Millisecond)}
	virtual(t, f, func(c *Config) {
		c.Clients, c.Requests = 2, 20
		c.Progress = func(s Snapshot) { seen = append(seen, s) }
	})
	if len(seen) < 4 {
		t.Fatalf("%d reports in a second", len(seen))
	}
	last := seen[len(seen)-1]
	if last.Sent != 20 || last.OK != 20 || last.InFlight != 0 || last.Planned != 20 || last.Prompt != 20*540 || last.Cached != 20*500 {
		t.Errorf("%+v", last)
	}
}

func TestOnlyThisMachineUnlessRemoteIsMeant(t *testing.T) {
	for _, s := range []string{"http://127.0.0.1:8001", "127.0.0.1:8001", "localhost:1", "http://[::1]:2/v1", "https://127.9.9.9", "http://LOCALHOST/"} {
		if _, err := target(s, false); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"http://192.0.2.1:8001", "example.com", "http://0.0.0.0:1", "http://localhost.example.com", "http://[2001:db8::1]:80", "https://127.0.0.1.example.com"} {
		if _, err := target(s, false); err == nil || !strings.Contains(err.Error(), "--remote") {
			t.Errorf("%s: %v", s, err)
		}
		if _, err := target(s, true); err != nil {
			t.Errorf("%s, remote: %v", s, err)
		}
	}
	for _, s := range []string{"", "http://", "ftp://127.0.0.1", "http://user:pass@127.0.0.1", "http://127.0.0.1?x=1", "http://127.0.0.1:x"} {
		if _, err := target(s, true); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestAConfigurationOutOfRangeIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"no target":               func(c *Config) { c.Targets = nil },
		"1025 targets":            func(c *Config) { c.Targets = make([]string, MaxTargets+1) },
		"no workload":             func(c *Config) { c.Workload = nil },
		"0 requests":              func(c *Config) { c.Requests = 0 },
		"1000001 requests":        func(c *Config) { c.Requests = MaxRequests + 1 },
		"a duration of 0s":        func(c *Config) { c.Duration = 0 },
		"a rate of -1":            func(c *Config) { c.Rate = -1 },
		"-1 clients":              func(c *Config) { c.Clients = -1 },
		"4097 clients":            func(c *Config) { c.Clients = MaxClients + 1 },
		"both a rate":             func(c *Config) { c.Rate, c.Clients = 1, 1 },
		"0 requests in flight":    func(c *Config) { c.InFlight = 0 },
		"4097 requests in flight": func(c *Config) { c.InFlight = MaxInFlight + 1 },
		"-1 tokens of output":     func(c *Config) { c.MaxTokens = -1 },
		"a timeout of 0s":         func(c *Config) { c.Timeout = 0 },
		"assignment 9":            func(c *Config) { c.Assign = 9 },
		"is not this machine":     func(c *Config) { c.Targets = []string{"http://192.0.2.1"} },
	} {
		cfg := DefaultConfig()
		cfg.Targets, cfg.Workload = []string{"http://127.0.0.1:1"}, fewShot(t, nil)
		change(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil || !strings.HasPrefix(err.Error(), "load: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestATargetThatCannotServeIsOneClearError(t *testing.T) {
	models := func(status int, body string) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
	}
	for want, rt := range map[string]http.RoundTripper{
		"cannot be reached; is it running? dial tcp":       nil,
		"wants an API key (status 401)":                    models(401, "{}"),
		"answers its list of models with status 500: boom": models(500, `{"error":{"message":"boom"}}`),
		"is no OpenAI endpoint":                            models(200, "<html>"),
		"serves no model yet":                              models(200, `{"data":[]}`),
		"lists no models; name one with --model":           models(404, ""),
	} {
		cfg := DefaultConfig()
		cfg.Targets, cfg.Workload, cfg.Transport = []string{"http://127.0.0.1:1"}, fewShot(t, nil), rt
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "target http://127.0.0.1:1 "+want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
