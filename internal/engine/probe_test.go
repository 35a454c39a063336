package engine

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"shoal/internal/emulate"
	"shoal/internal/peer"
)

// pages serves fixed pages and counts how often each was asked for.
type pages struct {
	of    map[string]string
	asked map[string]int
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked[r.URL.Path]++
	body, ok := p.of[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if body == "503" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if body == "401" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	io.WriteString(w, body)
}

func servePages(t testing.TB, of map[string]string) (*pages, string) {
	p := &pages{of: of, asked: map[string]int{}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s.URL
}

const vllmModels = `{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"vllm","root":"model","parent":null,"max_model_len":1024},
	{"id":"lora","owned_by":"vllm","parent":"tiny","max_model_len":null}]}`

func TestProbeReadsRecordedVLLM(t *testing.T) {
	page, err := os.ReadFile("testdata/vllm-0.32.metrics")
	if err != nil {
		t.Fatal(err)
	}
	p, url := servePages(t, map[string]string{"/health": "", "/metrics": string(page), "/v1/models": vllmModels})
	e := plainEngine(t, url, nil)
	r, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Report{
		Models:  []peer.Model{{Name: "tiny", Context: 1024}, {Name: "lora", Parent: "tiny", Context: peer.Unknown}},
		Running: 0, Waiting: 0, KVPermille: 0, CachePermille: peer.Unknown, Slots: peer.Unknown, CacheTokens: 65536, BlockTokens: 32,
		Epoch: peer.Epoch{Start: 1795956204560, Counter: 4389},
		Cache: peer.Cache{Kind: peer.Paged, Usable: peer.AfterPrefill, Tokens: 65536, BlockTokens: 32}, Salts: true,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v\nwant %+v", r, want)
	}
	if tr := e.Traits(); tr.Product != "vllm" || tr.Adapter != OpenAI || tr.Emulated {
		t.Errorf("%+v", tr)
	}
	for range 9 {
		if _, err := e.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.asked["/metrics"] != 10 || p.asked["/v1/models"] != 1 {
		t.Errorf("ten probes asked for %v", p.asked)
	}
	// Restarted with another model: seen with the next probe.
	p.of["/metrics"] = strings.Replace(string(page), "1.79595620456e+09", "1.79595620556e+09", 1)
	p.of["/v1/models"] = strings.ReplaceAll(vllmModels, "tiny", "large")
	if r, err := e.Probe(t.Context()); err != nil || r.Models[0].Name != "large" || r.Epoch.Same(want.Epoch) {
		t.Errorf("after a restart: %+v, %v", r, err)
	}
}

func TestMetricsOfEveryEngine(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       metrics
	}{
		{"vLLM, old names, two ranks", `
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:num_requests_waiting{engine="0",model_name="with } and \" in it"} 1.0
vllm:gpu_cache_usage_perc{engine="0"} 0.25
vllm:gpu_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="16",effective_attention_block_size="32",num_gpu_blocks="100",num_gpu_blocks_override="None",engine="0"} 1.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="1"} 1.0
vllm:prompt_tokens_total{engine="0"} 10
`, metrics{product: "vllm", running: 7, waiting: 1, slots: -1, kvPermille: 500, cachePermille: -1, blockTokens: 16, cacheTokens: 3200, epoch: peer.Epoch{Counter: 10}}},
		{"vLLM, both names", "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n",
			metrics{product: "vllm", running: -1, waiting: -1, slots: -1, kvPermille: 500, cachePermille: -1, blockTokens: -1, cacheTokens: -1}},
		{"SGLang", `
sglang:num_running_reqs{model_name="m"} 2
sglang:num_queue_reqs{model_name="m"} 5
sglang:token_usage{model_name="m"} 0.125
sglang:cache_config_info{page_size="1",num_pages="9000"} 1
sglang:prompt_tokens_total{model_name="m"} 77 1700000000000
`, metrics{product: "sglang", running: 2, waiting: 5, slots: -1, kvPermille: 125, cachePermille: -1, blockTokens: 1, cacheTokens: 9000, epoch: peer.Epoch{Counter: 77}}},
		{"TensorRT-LLM", `
trtllm_num_requests_running 1
trtllm_num_requests_waiting 2
trtllm_kv_cache_utilization 0.9
trtllm_kv_cache_tokens_per_block 32
trtllm_kv_cache_max_blocks 100
trtllm_request_success_total 9
process_start_time_seconds 1700000000.25
`, metrics{product: "trtllm", running: 1, waiting: 2, slots: -1, kvPermille: 900, cachePermille: -1, blockTokens: 32, cacheTokens: 3200, epoch: peer.Epoch{Start: 1700000000250, Counter: 9}}},
		{"garbage", "\x00\n{\n}{\nvllm:num_requests_running{a=\"\n vllm:num_requests_waiting NaN\nvllm:num_requests_running -3\nvllm:num_requests_running 1e300\nx\n",
			metrics{running: -1, waiting: -1, slots: -1, kvPermille: -1, cachePermille: -1, blockTokens: -1, cacheTokens: -1}},
		{"nothing", "", metrics{running: -1, waiting: -1, slots: -1, kvPermille: -1, cachePermille: -1, blockTokens: -1, cacheTokens: -1}},
	} {
		if got := readMetrics([]byte(c.page)); got != c.want {
			t.Errorf("%s:\n%+v\nwant\n%+v", c.name, got, c.want)
		}
	}
}

func TestProbeOfEnginesThatHaveFewPages(t *testing.T) {
	p, url := servePages(t, map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"library"}]}`})
	e := plainEngine(t, url, nil)
	for range 5 {
		r, err := e.Probe(t.Context())
		if err != nil || len(r.Models) != 1 || r.Running != peer.Unknown || r.Cache.Kind != peer.Slots || r.Epoch != (peer.Epoch{}) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if p.asked["/health"] != 1 || p.asked["/metrics"] != 1 {
		t.Errorf("pages that are missing were asked for again: %v", p.asked)
	}
}

func TestProbeSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		of   map[string]string
		want error
	}{
		{"starting", map[string]string{"/health": "503"}, ErrDown},
		{"models not there yet", map[string]string{"/health": "", "/v1/models": "503"}, ErrDown},
		{"wrong key", map[string]string{"/health": "401", "/v1/models": "401"}, ErrKey},
		{"no JSON", map[string]string{"/health": "", "/v1/models": "<html>"}, ErrProtocol},
		{"a shoal's gateway", map[string]string{"/health": "", "/v1/models": `{"data":[{"id":"m","owned_by":"shoal"}]}`}, ErrProtocol},
	} {
		for _, adapter := range []string{OpenAI, Auto} {
			_, url := servePages(t, c.of)
			e := plainEngine(t, url, func(cfg *Config) { cfg.Adapter = adapter })
			_, err := e.Probe(t.Context())
			if !errors.Is(err, c.want) && !(adapter == Auto && c.name == "no JSON" && err != nil) {
				t.Errorf("%s with adapter %q: %v", c.name, adapter, err)
			}
		}
	}
}

func TestDetect(t *testing.T) {
	_, emulated := emulatedEngine(t, emulate.Instant())
	llamaServer := httptest.NewServer(&fakeLlama{})
	t.Cleanup(llamaServer.Close)
	url := func(of map[string]string) string { _, u := servePages(t, of); return u }
	unknown := `{"data":[{"id":"m","owned_by":"me"}]}`
	for _, c := range []struct{ name, url, adapter, product string }{
		{"emulated", "http://" + emulated.(*openai).cl.addr, Emulated, "shoal-emulated"},
		{"llama.cpp by its Server field", llamaServer.URL, LlamaCpp, "llamacpp"},
		{"llama.cpp by /props", url(map[string]string{"/v1/models": unknown, "/props": `{"total_slots":1}`}), LlamaCpp, "llamacpp"},
		{"vLLM", url(map[string]string{"/v1/models": vllmModels}), OpenAI, "vllm"},
		{"vLLM by /version", url(map[string]string{"/v1/models": unknown, "/version": `{"version":"0.32.0"}`}), OpenAI, "vllm"},
		{"Ollama", url(map[string]string{"/v1/models": `{"data":null}`, "/api/version": `{"version":"0.9"}`}), OpenAI, "ollama"},
		{"SGLang", url(map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"sglang"}]}`}), OpenAI, "sglang"},
		{"anything", url(map[string]string{"/v1/models": unknown}), OpenAI, ""},
	} {
		cfg := Defaults()
		cfg.URL = c.url
		adapter, product, err := Detect(t.Context(), cfg)
		if err != nil || adapter != c.adapter || product != c.product {
			t.Errorf("%s: %q %q %v", c.name, adapter, product, err)
		}
		e := plainEngine(t, c.url, func(cfg *Config) { cfg.Adapter = Auto })
		if _, err := e.Do(t.Context(), &Request{Path: "/v1/models", Method: "GET"}); !errors.Is(err, ErrDown) {
			t.Errorf("%s: before the first probe: %v", c.name, err)
		}
		if c.name == "Ollama" || strings.Contains(c.name, "props") || strings.Contains(c.name, "version") || c.name == "anything" || c.name == "SGLang" || c.name == "vLLM" {
			if _, err := e.Probe(t.Context()); err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else if e.Traits().Adapter != c.adapter {
				t.Errorf("%s: %+v", c.name, e.Traits())
			}
		}
	}
	cfg := Defaults()
	cfg.URL = "http://127.0.0.1:1"
	if _, _, err := Detect(t.Context(), cfg); !errors.Is(err, ErrDown) {
		t.Errorf("nothing there: %v", err)
	}
}

// pitfalls 23, 34: nothing is tokenised on the way, here or by asking an engine
func TestRequestIsTheOnlyThingThatIsSent(t *testing.T) {
	for _, adapter := range []string{OpenAI, LlamaCpp, Emulated} {
		p, url := servePages(t, map[string]string{"/v1/chat/completions": "{}"})
		e := plainEngine(t, url, func(cfg *Config) { cfg.Adapter = adapter })
		ask(t, e, chat("a prompt", ""), false)
		if len(p.asked) != 1 || p.asked["/v1/chat/completions"] != 1 {
			t.Errorf("%s: one request asked for %v", adapter, p.asked)
		}
	}
}

func TestUsageIsFoundAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name, tail string
		want       Usage
	}{
		{"vLLM", `..."usage":{"prompt_tokens":96,"total_tokens":98,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":64,"created_cache_tokens":null}},"kv_transfer_params":null}`, Usage{96, 64, 2}},
		{"vLLM without details", `"usage":{"prompt_tokens":96,"completion_tokens":2,"prompt_tokens_details":null}`, Usage{96, -1, 2}},
		{"null in every chunk but one", `data: {"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n\n" + `data: {"usage":null}`, Usage{5, -1, 1}},
		{"the last one counts", `"usage":{"completion_tokens":1} "usage": { "completion_tokens" : 2 }`, Usage{-1, -1, -1}},
		{"spaces", `"usage": {"prompt_tokens": 5, "completion_tokens":  7}`, Usage{5, -1, 7}},
		{"responses API", `"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":3},"output_tokens":4}`, Usage{7, 3, 4}},
		{"llama.cpp's timings", `"timings":{"cache_n":26,"prompt_n":1,"predicted_n":6}`, Usage{27, 26, 6}},
		{"in a text", `{"content":"\"usage\":{\"prompt_tokens\":1}"}`, Usage{-1, -1, -1}},
		{"broken off", `"usage":{"prompt_tokens":5,"completion`, Usage{5, -1, -1}},
		{"absurd", `"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":-1,"cached_tokens":"x"}`, Usage{-1, -1, -1}},
		{"none", `{}`, Usage{-1, -1, -1}},
	} {
		if got := findUsage([]byte(c.tail)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"adapter": func(c *Config) { c.Adapter = "x" }, "url": func(c *Config) { c.URL = "ftp://x" }, "user": func(c *Config) { c.URL = "http://u:p@x" },
		"dial_timeout": func(c *Config) { c.DialTimeout = 0 }, "first_byte": func(c *Config) { c.FirstByte = -1 }, "silence": func(c *Config) { c.Silence = 0 },
		"idle_conns": func(c *Config) { c.IdleConns = -1 }, "insecure": func(c *Config) { c.TLS = TLS{CAFile: "x", Insecure: true} },
		"query": func(c *Config) { c.URL = "http://x/?a" }, "idle_timeout": func(c *Config) { c.IdleTimeout = 0 },
	} {
		c := Defaults()
		c.URL = "http://x"
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestURLsMayHaveAPrefix(t *testing.T) {
	for url, want := range map[string]string{"http://x": "", "http://x/": "", "http://x/v1": "", "http://x/v1/": "", "http://x/a/b": "/a/b", "http://x/a/v1": "/a"} {
		c := Defaults()
		c.URL = url
		cl, err := newClient(c)
		if err != nil || cl.prefix != want {
			t.Errorf("%s: %q %v", url, cl.prefix, err)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	page, err := os.ReadFile("testdata/vllm-0.32.metrics")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page)
	f.Add([]byte(`a{b="c\"}",d="e"} 1 2`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := readMetrics(b)
		if m.running < -1 || m.waiting < -1 || m.kvPermille < -1 || m.kvPermille > 1000 || m.cacheTokens < -1 || m.epoch.Start < 0 || m.epoch.Counter < 0 {
			t.Errorf("%+v", m)
		}
	})
}

func FuzzModels(f *testing.F) {
	f.Add([]byte(vllmModels))
	f.Add([]byte(`{"data":[{"id":"m","aliases":["a"],"meta":{"n_ctx":2048}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		models, _, err := parseModels(b)
		for _, m := range models {
			if m.Name == "" || len(m.Name) > maxName || m.Context < -1 {
				t.Errorf("%+v", m)
			}
		}
		if err == nil && len(models) > maxModels {
			t.Errorf("%d models", len(models))
		}
	})
}

func FuzzUsage(f *testing.F) {
	f.Add([]byte(`"usage":{"prompt_tokens":96,"prompt_tokens_details":{"cached_tokens":64}},"timings":{"cache_n":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u := findUsage(b)
		if u.Prompt < -1 || u.Cached < -1 || u.Completion < -1 || u.Prompt > 2*maxTokens {
			t.Errorf("%+v", u)
		}
		finished(b)
	})
}
