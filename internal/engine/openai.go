package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"shoal/internal/peer"
)

// Products that Detect and a probe tell apart behind the API.
const (
	productVLLM     = "vllm"
	productSGLang   = "sglang"
	productTRT      = "trtllm"
	productLlama    = "llamacpp"
	productOllama   = "ollama"
	productEmulated = "shoal-emulated"
)

const (
	// modelsEvery: the list of models is read again after so many probes, and whenever the engine was down or restarted.
	modelsEvery = 30
	// absentFor: a page that the engine does not have is not asked for again for so many probes.
	absentFor = 60

	maxPage   = 4 << 20 // bytes of a metrics page or a list of models
	maxModels = 1024
	maxName   = 512 // bytes of a model's name
)

// openai is the adapter for anything that speaks the API. Requests and answers go through untouched.
type openai struct {
	cl     *client
	name   string // as which adapter it was made
	traits atomic.Pointer[Traits]

	mu        sync.Mutex // one probe at a time
	models    []peer.Model
	age       int // probes since models was read
	noHealth  int // probes until /health is asked for again
	noMetrics int
	epoch     peer.Epoch
}

func newOpenAI(c Config, name, product string) (*openai, error) {
	cl, err := newClient(c)
	if err != nil {
		return nil, err
	}
	e := &openai{cl: cl, name: name}
	e.learn(product)
	return e, nil
}

// learn declares what is known of a product.
func (e *openai) learn(product string) {
	t := Traits{Adapter: e.name, Product: product,
		Cache: peer.Cache{Kind: peer.Paged, Usable: peer.AfterPrefill, Tokens: peer.Unknown, BlockTokens: 16}}
	switch product {
	case productVLLM, productSGLang, productTRT:
		t.Salts = true
	case productLlama, productOllama:
		t.Cache.Kind, t.Cache.Usable, t.Cache.BlockTokens = peer.Slots, peer.AfterEnd, 1
	case productEmulated:
		t.Salts, t.Emulated = true, true
	}
	e.traits.Store(&t)
}

func (e *openai) Traits() Traits { return *e.traits.Load() }

func (e *openai) Close() error {
	e.cl.close()
	return nil
}

// Do sends the request as it is.
func (e *openai) Do(ctx context.Context, r *Request) (*Response, error) {
	a, err := e.cl.do(ctx, &exchange{method: r.Method, path: r.Path, query: r.Query, header: r.Header, body: r.Body})
	if err != nil {
		return nil, err
	}
	return a.response(), nil
}

// Probe asks for /health, the metrics, and now and then for the models.
func (e *openai) Probe(ctx context.Context) (Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.health(ctx); err != nil {
		e.age = modelsEvery
		return Report{}, err
	}
	m, err := e.scrape(ctx)
	if err != nil {
		return Report{}, err
	}
	if e.models == nil || e.age >= modelsEvery || e.epoch != (peer.Epoch{}) && !e.epoch.Same(m.epoch) {
		if err := e.readModels(ctx); err != nil {
			return Report{}, err
		}
	}
	e.age++
	e.epoch = m.epoch
	if t := e.Traits(); t.Product == "" && m.product != "" {
		e.learn(m.product)
	}
	return e.report(m), nil
}

func (e *openai) report(m metrics) Report {
	t := e.Traits()
	r := Report{Models: e.models, Running: m.running, Waiting: m.waiting, KVPermille: m.kvPermille, CachePermille: m.cachePermille,
		Slots: m.slots, CacheTokens: peer.Unknown, BlockTokens: t.Cache.BlockTokens, Epoch: m.epoch, Cache: t.Cache, Salts: t.Salts}
	if m.cacheTokens > 0 {
		r.CacheTokens = m.cacheTokens
	}
	if m.blockTokens > 0 {
		r.BlockTokens = m.blockTokens
	}
	r.Cache.Tokens, r.Cache.BlockTokens = r.CacheTokens, r.BlockTokens
	return r
}

// health asks whether the engine serves. An engine without such a page is asked for its models instead.
func (e *openai) health(ctx context.Context) error {
	if e.noHealth > 0 {
		e.noHealth--
		return e.readModels(ctx)
	}
	status, _, _, err := e.cl.get(ctx, "/health", maxPage)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		e.noHealth = absentFor
		return e.readModels(ctx)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil // guarded by another key; the models will tell
	case status > 299:
		return failed(ErrDown, fmt.Errorf("%s/health says %d", e.cl.addr, status))
	}
	return nil
}

func (e *openai) scrape(ctx context.Context) (metrics, error) {
	if e.noMetrics > 0 {
		e.noMetrics--
		return readMetrics(nil), nil
	}
	status, h, page, err := e.cl.get(ctx, "/metrics", maxPage)
	if err != nil && !errors.Is(err, ErrTooLong) {
		return metrics{}, err
	}
	if err != nil || status != http.StatusOK {
		e.noMetrics = absentFor
		return readMetrics(nil), nil
	}
	m := readMetrics(page)
	if m.epoch.Start == 0 {
		m.epoch.Start = startOf(h)
	}
	return m, nil
}

// readModels reads /v1/models, and recognises the product by who owns them.
func (e *openai) readModels(ctx context.Context) error {
	status, _, body, err := e.cl.get(ctx, "/v1/models", maxPage)
	switch {
	case err != nil:
		return err
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return failed(ErrKey, fmt.Errorf("%s/v1/models says %d; set the engine's api_key", e.cl.addr, status))
	case status != http.StatusOK:
		return failed(ErrDown, fmt.Errorf("%s/v1/models says %d", e.cl.addr, status))
	}
	models, owner, err := parseModels(body)
	if err != nil {
		return failed(ErrProtocol, fmt.Errorf("%s/v1/models: %w", e.cl.addr, err))
	}
	if owner == gatewayOwner {
		return failed(ErrProtocol, fmt.Errorf("%s is the gateway of a shoal agent; give the engine's own address", e.cl.addr))
	}
	e.models, e.age = models, 0
	if product := productOf(owner); product != "" && product != e.Traits().Product {
		e.learn(product)
	}
	return nil
}

// gatewayOwner is the owner of models in a shoal agent's own list: an agent must not take another for its engine.
const gatewayOwner = "shoal"

func productOf(owner string) string {
	switch owner {
	case productVLLM, productSGLang, productEmulated:
		return owner
	case "llamacpp", "llama.cpp":
		return productLlama
	case "tensorrt_llm", "tensorrt-llm", "trtllm":
		return productTRT
	case "library":
		return productOllama
	}
	return ""
}

// parseModels reads a list of models in the forms of OpenAI, vLLM, SGLang and llama.cpp. What it does not understand of
// one model is left out; owner is that of the first.
func parseModels(body []byte) (models []peer.Model, owner string, err error) {
	var list struct {
		Data []struct {
			ID      string          `json:"id"`
			OwnedBy string          `json:"owned_by"`
			Parent  json.RawMessage `json:"parent"`
			Aliases json.RawMessage `json:"aliases"`
			Max     json.RawMessage `json:"max_model_len"`
			Meta    json.RawMessage `json:"meta"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, "", err
	}
	models = []peer.Model{}
	for _, d := range list.Data {
		if d.ID == "" || len(d.ID) > maxName || len(models) >= maxModels {
			continue
		}
		if owner == "" {
			owner = d.OwnedBy
		}
		m := peer.Model{Name: d.ID, Context: peer.Unknown}
		var parent string
		if json.Unmarshal(d.Parent, &parent) == nil && parent != d.ID && len(parent) <= maxName {
			m.Parent = parent
		}
		var aliases []string
		if json.Unmarshal(d.Aliases, &aliases) == nil {
			for _, a := range aliases[:min(len(aliases), 16)] {
				if a != "" && a != d.ID && len(a) <= maxName {
					m.Aliases = append(m.Aliases, a)
				}
			}
		}
		var meta struct {
			Ctx   float64 `json:"n_ctx"`
			Train float64 `json:"n_ctx_train"`
		}
		var most float64
		if json.Unmarshal(d.Max, &most) != nil && json.Unmarshal(d.Meta, &meta) == nil {
			most = meta.Ctx
			if most == 0 {
				most = meta.Train
			}
		}
		if most >= 1 && most < maxTokens {
			m.Context = int(most)
		}
		models = append(models, m)
	}
	return models, owner, nil
}
