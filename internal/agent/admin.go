package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sort"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shoal/internal/node"
	"shoal/internal/route"
)

// adminHandler is the admin API, on loopback and on a unix socket. Only what is about paths and transfers (pathsapi.go)
// changes anything.
//
//	GET /healthz    200 while the program runs
//	GET /readyz     200 where requests can be served, with the state; 503 while starting, draining, or with nobody to serve
//	GET /status     Status
//	GET /decisions  the last decisions, the latest first
//	GET /metrics    Prometheus
//	GET /debug/pprof/...
func (a *Agent) adminHandler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /readyz", a.readyz)
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Status()) })
	m.HandleFunc("GET /decisions", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		list := a.decisions.list()
		a.mu.Unlock()
		writeJSON(w, list)
	})
	m.Handle("GET /metrics", promhttp.HandlerFor(a.registry(), promhttp.HandlerOpts{}))
	if a.paths != nil {
		a.paths.handle(m)
	}
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return m
}

// ownOnly refuses what changes something and comes from a page in a browser: it shows an Origin, or, where its server's name
// was made to mean this machine, a Host that is neither an address nor localhost.
func ownOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		_, err = netip.ParseAddr(strings.Trim(host, "[]"))
		if r.Method != http.MethodGet && (r.Header.Get("Origin") != "" || err != nil && host != "localhost") {
			http.Error(w, "agent: the admin API is not for pages in browsers; call it by address, without Origin", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(v) // an error means that the client has gone
}

// The states of an agent, as /readyz and /status name them.
const (
	stateReady    = "ready"
	stateDegraded = "degraded" // the own engine is down, and peers serve
	stateDown     = "down"     // nobody can serve
	stateDraining = "draining"
)

// state says how the agent is, and how many peers can serve, itself among them.
func (a *Agent) state() (state string, serving int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ownUp := false
	for _, v := range a.node.Views(a.now(), nil) {
		if !v.Alive || v.Info == nil || len(v.Info.Models) == 0 || v.Load == nil || !v.Load.Up || v.Load.Draining {
			continue
		}
		serving++
		ownUp = ownUp || v.Self
	}
	switch {
	case a.draining:
		return stateDraining, serving
	case serving == 0:
		return stateDown, serving
	case a.engine != nil && !ownUp:
		return stateDegraded, serving
	}
	return stateReady, serving
}

func (a *Agent) readyz(w http.ResponseWriter, _ *http.Request) {
	state, serving := a.state()
	code := http.StatusOK
	if state == stateDown || state == stateDraining {
		code = http.StatusServiceUnavailable
	}
	w.WriteHeader(code)
	switch state {
	case stateDegraded:
		fmt.Fprintf(w, "degraded: the own engine does not answer; %d peers serve\n", serving)
	case stateDown:
		fmt.Fprintln(w, "down: no engine answers yet, neither the own one nor a peer's")
	default:
		fmt.Fprintf(w, "%s: %d peers serve\n", state, serving)
	}
}

// Status is this agent's view of the shoal now.
func (a *Agent) Status() *Status {
	state, _ := a.state()
	s := &Status{Self: a.id, Version: a.version, Incarnation: uint64(a.start.UnixMilli()), Policy: a.cfg.Route.Policy,
		UptimeMS: a.now().Milliseconds(), State: state, Gateway: a.bound.Gateway, Insecure: a.cfg.Insecure}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, v := range a.node.Views(now, nil) {
		p := PeerStatus{ID: v.ID, Self: v.Self, Alive: v.Alive, Addr: a.addrs[v.ID], RTT: v.RTT, Incarnation: v.Stamp.Incarnation,
			DocVersion: v.Stamp.Version, StaleMS: -1, Blocks: v.Blocks, Digest: fmt.Sprintf("%016x", v.Digest), Pending: v.Pending,
			Forwarded: v.Forwarded, Declined: v.Declined, Failed: v.Failed, Models: []string{}}
		if v.Self {
			p.Addr = a.bound.Peer
		}
		if v.Heard >= 0 {
			p.StaleMS = (now - v.Heard).Milliseconds()
		}
		if v.Info != nil {
			p.Gateway, p.Transfer, p.Engine, p.Emulated = v.Info.Gateway, v.Info.Transfer, v.Info.Engine, v.Info.Emulated
			for i := range v.Info.Models {
				p.Models = append(p.Models, v.Info.Models[i].Name)
			}
			sort.Strings(p.Models)
		}
		if v.Load != nil {
			p.Load = *v.Load
		}
		s.Peers = append(s.Peers, p)
	}
	s.Counters = a.countersLocked()
	return s
}

// countersLocked names every counter, for the admin API; metrics have the same ones.
func (a *Agent) countersLocked() map[string]int64 {
	c := a.node.Counters()
	out := map[string]int64{
		"decisions": c.Decisions, "prompt_tokens": c.PromptTokens, "cached_tokens": c.CachedTokens, "predicted_tokens": c.PredictedTokens,
		"mispredicted": c.Mispredicted, "declined_by_us": c.DeclinedByUs, "overlay_full": c.OverlayFull,
		"double_settle": c.DoubleSettle, "double_end": c.DoubleEnd, "adopted_blocks": c.Adopted, "adopt_refused": c.AdoptRefused, "unpublished": c.Unpublished,
		"engine_restarts": c.EngineRestarts, "bad_datagrams": a.badDatagrams.Load(), "refused_peers": a.refused.Load(),
		"state_errors": a.stateErrors.Load(), "in_flight": int64(a.node.InFlight()), "dispatched": int64(a.node.Dispatched()),
	}
	a.pathCountersLocked(out)
	for r, n := range a.decisions.reasons {
		if n > 0 {
			out["reason_"+route.Reason(r).String()] = n
		}
	}
	return out
}

// views is a copy of what the node knows, for metrics.
func (a *Agent) views() []node.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node.Views(a.now(), nil)
}
