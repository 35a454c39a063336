package engine

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"shoal/internal/peer"
)

// Detect asks the engine at c.URL what it is, and returns the adapter that fits and the product that it recognised, ""
// where nothing told. It is an error where nothing answers, where the key is refused, and where a shoal agent answers.
func Detect(ctx context.Context, c Config) (adapter, product string, err error) {
	cl, err := newClient(c)
	if err != nil {
		return "", "", err
	}
	defer cl.close()
	product, err = detect(ctx, cl)
	if err != nil {
		return "", "", err
	}
	return adapterOf(product), product, nil
}

func adapterOf(product string) string {
	switch product {
	case productLlama:
		return LlamaCpp
	case productEmulated:
		return Emulated
	}
	return OpenAI
}

// detect recognises the product by who owns its models, then by its Server field, then by the pages that only it has.
func detect(ctx context.Context, cl *client) (string, error) {
	status, h, body, err := cl.get(ctx, "/v1/models", maxPage)
	switch {
	case err != nil:
		return "", err
	case h.Get("Server") == "llama.cpp":
		return productLlama, nil // also while it loads its model
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "", failed(ErrKey, errors.New(cl.addr+": set the engine's api_key"))
	case status >= 500:
		return "", failed(ErrDown, errors.New(cl.addr+"/v1/models fails; it may still be starting"))
	}
	if _, owner, err := parseModels(body); status == http.StatusOK && err == nil {
		if owner == gatewayOwner {
			return "", failed(ErrProtocol, errors.New(cl.addr+" is the gateway of a shoal agent; give the engine's own address"))
		}
		if p := productOf(owner); p != "" {
			return p, nil
		}
	}
	for _, page := range []struct{ path, product, key string }{
		{"/api/version", productOllama, "version"},
		{"/props", productLlama, "total_slots"},
		{"/server_info", productSGLang, "tp_size"},
		{"/version", productVLLM, "version"},
	} {
		status, _, body, err := cl.get(ctx, page.path, maxPage)
		if err != nil && !errors.Is(err, ErrTooLong) {
			return "", err
		}
		var top map[string]json.RawMessage
		if status == http.StatusOK && json.Unmarshal(body, &top) == nil && top[page.key] != nil {
			return page.product, nil
		}
	}
	return "", nil
}

// auto is an engine whose adapter is still to be found: the first probe that it answers tells.
type auto struct {
	cfg   Config
	found atomic.Pointer[Engine]
}

func (e *auto) engine() Engine {
	if p := e.found.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *auto) Do(ctx context.Context, r *Request) (*Response, error) {
	if in := e.engine(); in != nil {
		return in.Do(ctx, r)
	}
	return nil, failed(ErrDown, errors.New(strings.TrimSpace(e.cfg.URL)+" has not answered yet"))
}

func (e *auto) Probe(ctx context.Context) (Report, error) {
	in := e.engine()
	if in == nil {
		adapter, product, err := Detect(ctx, e.cfg)
		if err != nil {
			return Report{}, err
		}
		if in, err = build(e.cfg, adapter, product); err != nil {
			return Report{}, err
		}
		if !e.found.CompareAndSwap(nil, &in) {
			in.Close()
			in = e.engine()
		}
	}
	return in.Probe(ctx)
}

func (e *auto) Traits() Traits {
	if in := e.engine(); in != nil {
		return in.Traits()
	}
	return Traits{Cache: peer.Cache{Tokens: peer.Unknown, BlockTokens: peer.Unknown}}
}

func (e *auto) Close() error {
	closed := Engine(gone{})
	if p := e.found.Swap(&closed); p != nil {
		return (*p).Close()
	}
	return nil
}

// gone is what is left of an engine that was closed.
type gone struct{}

func (gone) Do(context.Context, *Request) (*Response, error) { return nil, failed(ErrClosed, nil) }
func (gone) Probe(context.Context) (Report, error)           { return Report{}, failed(ErrClosed, nil) }
func (gone) Traits() Traits                                  { return Traits{} }
func (gone) Close() error                                    { return nil }
