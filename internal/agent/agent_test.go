package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/cluster"
	"shoal/internal/emulate"
)

const patience = 20 * time.Second

// start runs an agent in this process until the test ends.
func start(t *testing.T, change func(*Config)) *Agent {
	t.Helper()
	a, _ := run(t, change)
	return a
}

// run is start, and gives what ends it.
func run(t *testing.T, change func(*Config)) (_ *Agent, stop func()) {
	t.Helper()
	c := Defaults()
	c.Listen, c.Admin, c.Cluster.PeerListen, c.Cluster.GossipListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.Cluster.Preset, c.Drain = "local", time.Second
	change(&c)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := New(c, "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-a.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return a, stop
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !ok(); <-tick.C {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kb, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pc := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, b := range map[string][]byte{cert: pc, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kb})} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pc)
	return cert, key, roots
}

// Everything that is needed beyond loopback at once: the shoal's key, TLS and API keys at the gateway, and a hop through them.
func TestAShoalWithKeysAndTLS(t *testing.T) {
	cert, key, roots := certificate(t)
	shoalKey := cluster.NewKey().Text()
	engine := start(t, func(c *Config) {
		c.ID, c.Cluster.Key, c.Engine.Emulated, c.Engine.Emulate = "engine", shoalKey, true, emulate.Instant()
	})
	front := start(t, func(c *Config) {
		c.ID, c.Cluster.Key, c.TLS = "front", shoalKey, TLSFiles{Cert: cert, Key: key}
		c.APIKeys = []APIKey{{Key: "sk-a", Tenant: "a"}, {Key: "sk-b", Tenant: "b"}}
		c.Cluster.Join = []string{engine.Addrs().Gossip}
	})
	stranger := start(t, func(c *Config) {
		c.ID, c.Cluster.Key, c.Cluster.Join = "stranger", cluster.NewKey().Text(), []string{engine.Addrs().Gossip}
	})

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	ask := func(key string) (*http.Response, string) {
		req, _ := http.NewRequest(http.MethodPost, "https://"+front.Addrs().Gateway+"/v1/chat/completions",
			strings.NewReader(`{"model":"emulated","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}`))
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r, string(b)
	}
	until(t, "the front hears of the engine", func() bool { return len(front.Models()) == 1 })
	r, body := ask("sk-a")
	if r.StatusCode != http.StatusOK || r.Header.Get("X-Shoal-Peer") != "engine" || r.Header.Get("X-Shoal-Emulated") == "" {
		t.Fatalf("%d %v %s", r.StatusCode, r.Header, body)
	}
	if r.Header.Get("X-Shoal-Matched-Tokens") != "" {
		t.Error("with two tenants and one cache, a header tells one of the other's prompts") // pitfalls 21
	}
	for _, wrong := range []string{"", "sk-c"} {
		if r, body := ask(wrong); r.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "invalid_api_key") {
			t.Errorf("key %q: %d %s", wrong, r.StatusCode, body)
		}
	}
	until(t, "the stranger has tried to join", func() bool { return stranger.cluster.Load().Stats().JoinErrors > 0 })
	if len(stranger.Models()) != 0 || len(engine.Status().Peers) != 2 {
		t.Errorf("a peer with another key is in: it knows %v", stranger.Models())
	}
}

func TestAdminAPI(t *testing.T) {
	a := start(t, func(c *Config) { c.ID, c.Engine.Emulated, c.Engine.Emulate = "a", true, emulate.Instant() })
	get := func(path string) (int, string) {
		r, err := http.Get("http://" + a.Addrs().Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(b)
	}
	until(t, "ready", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	r, err := http.Post("http://"+a.Addrs().Gateway+"/v1/chat/completions", "application/json",
		bytes.NewBufferString(`{"model":"emulated","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(err, r)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	var s Status
	if _, body := get("/status"); json.Unmarshal([]byte(body), &s) != nil || s.Self != "a" || len(s.Peers) != 1 || !s.Peers[0].Emulated || s.Counters["decisions"] != 1 {
		t.Errorf("status: %s", body)
	}
	var d []DecisionRecord
	if _, body := get("/decisions"); json.Unmarshal([]byte(body), &d) != nil || len(d) != 1 || d[0].Peer != "a" {
		t.Errorf("decisions: %s", body)
	}
	_, metrics := get("/metrics")
	for _, want := range []string{"shoal_decisions_total 1", `shoal_peer_up{peer="a"} 1`, "shoal_serving_in_flight 0", `shoal_decisions_by_reason_total{reason="home"} 1`, "shoal_cluster_members 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

func TestTwoAgentsInOneProcessDoNotMeet(t *testing.T) {
	a := start(t, func(c *Config) { c.ID, c.Engine.Emulated = "a", true })
	b := start(t, func(c *Config) { c.ID, c.Engine.Emulated = "b", true })
	until(t, "both see themselves", func() bool { return len(a.Models()) == 1 && len(b.Models()) == 1 })
	if len(a.Status().Peers) != 1 || len(b.Status().Peers) != 1 {
		t.Error("two agents that were not told of each other have met")
	}
}

func TestASecondAgentOfOneIDIsToldAndStops(t *testing.T) {
	first := start(t, func(c *Config) { c.ID, c.Engine.Emulated = "twin", true })
	other := start(t, func(c *Config) { c.ID, c.Cluster.Join = "other", []string{first.Addrs().Gossip} })
	until(t, "the two know each other", func() bool { return len(other.Status().Peers) == 2 })
	c := Defaults()
	c.ID, c.Listen, c.Admin, c.Cluster.PeerListen, c.Cluster.GossipListen = "twin", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.Cluster.Preset, c.Cluster.Join = "local", []string{other.Addrs().Gossip}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := New(c, "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Run(ctx); err == nil || !strings.Contains(err.Error(), "twin") {
		t.Fatalf("the second agent of one ID ended with %v", err)
	}
}
