package gateway

import (
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"

	"shoal/internal/gateway/body"
)

// The paths of the API that the gateway knows. Others below /v1/ are passed through.
const (
	pathChat        = "/v1/chat/completions"
	pathCompletions = "/v1/completions"
	pathEmbeddings  = "/v1/embeddings"
	pathModels      = "/v1/models"
)

// Gateway is one agent's front. Make it with New. It is an http.Handler for clients and a prometheus.Collector, and
// serves other peers' hops. All methods are safe for concurrent use.
type Gateway struct {
	shoal   Shoal
	cfg     Config
	auth    *auth
	log     *slog.Logger
	metrics *metrics
	calls   sync.Pool // of *call
	buffers sync.Pool // of *[readBytes]byte
}

// New makes a gateway, and reads the files of its keys. It starts nothing.
func New(cfg Config, s Shoal, log *slog.Logger) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	auth, err := newAuth(&cfg)
	if err != nil {
		return nil, err
	}
	g := &Gateway{shoal: s, cfg: cfg, auth: auth, log: log, metrics: newMetrics()}
	g.calls.New = func() any { return &call{g: g} }
	g.buffers.New = func() any { return new([readBytes]byte) }
	return g, nil
}

// Server makes the server that this gateway should run in, with the limits of its configuration; h is the gateway, or
// what the agent has put around it.
func (g *Gateway) Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: g.cfg.HeaderTime,
		IdleTimeout:       g.cfg.IdleTime,
		MaxHeaderBytes:    g.cfg.MaxHeader,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// ServeHTTP serves one request of a client.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := g.metrics.inFlight.Add(1)
	defer g.metrics.inFlight.Add(-1)
	g.hurry(w, r)
	api, word := classify(r.URL.Path)
	status, reason := http.StatusInternalServerError, ""
	defer func() { g.metrics.ended(word, status, reason) }()
	defer g.logPanic()

	tenant, ok := g.auth.tenant(r.Header.Get("Authorization"))
	var p *problem
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", "Bearer")
		p = &problem{status: http.StatusUnauthorized, kind: invalidRequest, code: "invalid_api_key",
			message: "The API key is missing or not known; send it as \"Authorization: Bearer KEY\"."}
	case n > int64(g.cfg.MaxRequests):
		p = overloaded("Too many requests are in flight here; try again shortly.", 0)
	case !clean(r.URL.Path):
		p = unknownPath()
	case api == apiModels:
		status = g.serveModels(w, r)
		return
	case api != apiOther && r.Method != http.MethodPost:
		status = notAllowed(w, http.MethodPost)
		return
	default:
		p = oversize(r)
	}
	if p != nil {
		p.write(w)
		status = p.status
		return
	}
	c := g.calls.Get().(*call)
	defer c.put()
	var cut bool
	if status, reason, cut = c.serve(w, r, api, word, tenant); cut {
		panic(http.ErrAbortHandler) // how net/http is told; it logs nothing
	}
}

// logPanic says that a request has run into a fault of ours, loudly: the server itself would log it among the noise of
// clients. The panic goes on, and the server cuts the connection.
func (g *Gateway) logPanic() {
	if p := recover(); p != nil {
		if p != http.ErrAbortHandler {
			g.log.Error("a fault of this program cut a request; please report it", "panic", p, "stack", string(debug.Stack()))
		}
		panic(p)
	}
}

// api is which part of the API a request belongs to.
type api uint8

const (
	apiOther api = iota
	apiChat
	apiCompletions
	apiEmbeddings
	apiModels
)

func (a api) body() body.Kind {
	switch a {
	case apiChat:
		return body.Chat
	case apiCompletions:
		return body.Completion
	case apiEmbeddings:
		return body.Embedding
	}
	return body.Other
}

// classify tells the API of a path, and its word in counters.
func classify(path string) (api, string) {
	switch path {
	case pathChat:
		return apiChat, "chat"
	case pathCompletions:
		return apiCompletions, "completions"
	case pathEmbeddings:
		return apiEmbeddings, "embeddings"
	case pathModels:
		return apiModels, "models"
	}
	if strings.HasPrefix(path, pathModels+"/") {
		return apiModels, "models"
	}
	return apiOther, "other"
}

// clean reports whether a path, decoded, lies below /v1/ and means what it says: an engine must not be led elsewhere on its
// host by dots or double slashes.
func clean(p string) bool {
	return strings.HasPrefix(p, "/v1/") && (path.Clean(p) == p || path.Clean(p)+"/" == p)
}
