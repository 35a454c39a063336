package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func keys(pairs ...string) (ks []Key) {
	for i := 0; i < len(pairs); i += 2 {
		ks = append(ks, Key{Key: pairs[i], Tenant: pairs[i+1]})
	}
	return ks
}

func TestOnlyKnownKeysAreServed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(" sk-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShoal("a", engineAt(t, answerJSON))
	_, url := front(t, s, func(c *Config) { c.Keys = append(keys("sk-1", "one", "sk-2", "two"), Key{File: file, Tenant: "three"}) })
	for header, status := range map[string]int{
		"Bearer sk-1": 200, "Bearer sk-2": 200, "bearer sk-file": 200, "": 401, "Bearer": 401, "Bearer ": 401, "Bearer sk-3": 401, "Bearer sk-": 401,
		"Bearer sk-11": 401, "Basic sk-1": 401, "sk-1": 401,
	} {
		for _, path := range []string{pathChat, "/v1/anything"} {
			res, b := post(t, url+path, hello, "Authorization", header)
			if res.StatusCode != status {
				t.Errorf("%s %q: %d %s", path, header, res.StatusCode, b)
			}
			if status == 401 && (*errorOf(t, b).Error.Code != "invalid_api_key" || res.Header.Get("WWW-Authenticate") == "") {
				t.Errorf("%q: %s", header, b)
			}
		}
	}
	if res, _ := do(t, http.MethodGet, url+pathModels, ""); res.StatusCode != 401 {
		t.Errorf("models without a key: %d", res.StatusCode)
	}
}

// Two tenants, the same prompt: neither the engine nor the keys that peers share have it in common. pitfalls 21
func TestTenantsAreKeptApart(t *testing.T) {
	var salt string
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var m struct {
			Salt string `json:"cache_salt"`
		}
		json.Unmarshal(b, &m)
		salt = m.Salt
		answerJSON(w, r)
	}))
	conf := func(c *Config) {
		c.Keys, c.Isolate, c.Secret = keys("k1", "one", "k1b", "one", "k2", "two"), true, "shared by the agents"
	}
	_, url := front(t, s, conf)
	_, again := front(t, s, conf) // another agent of the shoal
	salted := `{"model":"m","cache_salt":"mine","messages":[{"role":"user","content":"hello"}]}`
	type outcome struct{ salt, tail string }
	ask := func(url, key, body string) outcome {
		res, b := post(t, url+pathChat, body, "Authorization", "Bearer "+key)
		if res.StatusCode != 200 {
			t.Fatal(b)
		}
		if res.Header.Get(headerMatched) == "" {
			t.Error("a tenant on its own is not told of its match")
		}
		r := s.routed[len(s.routed)-1]
		return outcome{salt, fmt.Sprint(r.Tail, r.Chain)}
	}
	one, two := ask(url, "k1", hello), ask(url, "k2", hello)
	if one.salt == "" || one.salt == two.salt || one.tail == two.tail {
		t.Errorf("tenants share: %+v %+v", one, two)
	}
	if other := ask(again, "k1b", hello); other != one {
		t.Errorf("one tenant through another agent and with another key: %+v, not %+v", other, one)
	}
	own, theirs := ask(url, "k1", salted), ask(url, "k2", salted)
	if own == one || own == theirs || own.salt == "mine" {
		t.Errorf("with a salt of their own: %+v %+v, without %+v", own, theirs, one)
	}
	forged := `{"model":"m","cache_salt":"` + two.salt + `","messages":[{"role":"user","content":"hello"}]}`
	if f := ask(url, "k1", forged); f.salt == two.salt || f.tail == two.tail {
		t.Error("a tenant gets at another's blocks by its salt")
	}
}

// Where engines do not keep salts apart the cache is shared, and so are the keys; then nothing tells of it.
func TestNoHeaderTellsOneTenantOfAnothersBlocks(t *testing.T) {
	var body string
	s := newShoal("a", engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		answerJSON(w, r)
	}))
	s.models[0].Salts = false
	for name, c := range map[string]struct {
		conf  func(*Config)
		told  bool
		salts bool
	}{
		"isolated in vain": {func(c *Config) { c.Keys, c.Isolate, c.Secret = keys("k1", "one", "k2", "two"), true, "x" }, false, false},
		"not isolated":     {func(c *Config) { c.Keys = keys("k1", "one", "k2", "two") }, false, true},
		"one tenant":       {func(c *Config) { c.Keys = keys("k1", "one", "k2", "one") }, true, false},
		"no keys":          {func(c *Config) {}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s.models[0].Salts = c.salts
			_, url := front(t, s, c.conf)
			res, _ := post(t, url+pathChat, hello, "Authorization", "Bearer k1", headerExplain, "1")
			tail := s.routed[len(s.routed)-1].Tail
			h := res.Header
			if told := h.Get(headerMatched) != "" && h.Get(headerReason) != "" && h.Get(headerExplanation) != ""; told != c.told {
				t.Errorf("headers %v", h)
			}
			if quiet := h.Get(headerMatched) == "" && h.Get(headerReason) == "" && h.Get(headerExplanation) == ""; quiet == c.told {
				t.Errorf("headers %v", h)
			}
			if h.Get(headerPeer) != "a" || body != hello {
				t.Errorf("peer %q, the engine got %s", h.Get(headerPeer), body)
			}
			post(t, url+pathChat, hello, "Authorization", "Bearer k2")
			if s.routed[len(s.routed)-1].Tail != tail {
				t.Error("the keys are apart although the cache is shared")
			}
		})
	}
}

// pitfalls 21
func TestSaltAndAdapterAreInTheKey(t *testing.T) {
	s := newShoal("a", engineAt(t, answerJSON))
	s.models = append(s.models, ModelEntry{Name: "lora", Parent: "m"}, ModelEntry{Name: "lora2", Parent: "m"})
	_, url := front(t, s)
	seen := map[any]string{}
	for _, b := range []string{`"model":"m"`, `"model":"lora"`, `"model":"lora2"`, `"model":"m","cache_salt":"s"`, `"model":"m","cache_salt":"t"`} {
		post(t, url+pathChat, `{`+b+`,"messages":[{"role":"user","content":"hello"}]}`)
		tail := s.routed[len(s.routed)-1].Tail
		if old, ok := seen[tail]; ok {
			t.Errorf("%s and %s share keys", old, b)
		}
		seen[tail] = b
	}
}

func TestConfigsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"keys[1]":      func(c *Config) { c.Keys = []Key{{Key: "k"}, {}} },
		"keys[0]":      func(c *Config) { c.Keys = []Key{{Key: "k", File: "f"}} },
		"keys has":     func(c *Config) { c.Keys = make([]Key, MaxKeys+1) },
		"tenant":       func(c *Config) { c.Keys = []Key{{Key: "k", Tenant: strings.Repeat("x", 257)}} },
		"secret":       func(c *Config) { c.Isolate, c.Keys = true, keys("k", "t") },
		"needs keys":   func(c *Config) { c.Isolate, c.Secret = true, "s" },
		"max_body":     func(c *Config) { c.MaxBody = 0 },
		"max_header":   func(c *Config) { c.MaxHeader = 1 },
		"max_requests": func(c *Config) { c.MaxRequests = 0 },
		"max_plain":    func(c *Config) { c.MaxPlain = -1 },
		"header_time":  func(c *Config) { c.HeaderTime = 0 },
		"body_time":    func(c *Config) { c.BodyTime = 0 },
		"idle_time":    func(c *Config) { c.IdleTime = -1 },
		"stall_time":   func(c *Config) { c.StallTime = 0 },
		"key file":     func(c *Config) { c.Keys = []Key{{File: "/does/not/exist"}} },
	} {
		c := Defaults()
		change(&c)
		if _, err := New(c, newShoal("a", nil), nil); err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "gateway: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := Defaults()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
