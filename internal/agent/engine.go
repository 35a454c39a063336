package agent

import (
	"fmt"
	"net"
	"sort"
	"time"

	"shoal/internal/engine"
	"shoal/internal/gateway"
	"shoal/internal/node"
	"shoal/internal/peer"
)

// openEngine makes the adapter, the gate and the prober of the engine that the configuration names, if any.
func (a *Agent) openEngine() error {
	f := &a.cfg.Engine
	if f.URL == "" && !f.Emulated {
		return nil
	}
	ec := engine.Defaults()
	ec.URL, ec.Adapter = f.URL, f.Kind
	if f.Kind == "auto" {
		ec.Adapter = engine.Auto
	}
	ec.TLS.CAFile, ec.TLS.Insecure = f.CA, f.SkipVerify
	ec.Silence = a.cfg.Limits.Silence
	key, err := secret("engine.key_file", f.Key, f.KeyFile)
	if err != nil {
		return err
	}
	ec.APIKey = key
	if f.Emulated {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("agent: emulated engine: %w", err)
		}
		s, err := engine.NewServer(f.Emulate)
		if err != nil {
			l.Close()
			return fmt.Errorf("agent: config: engine.emulate: %w", err)
		}
		go s.Serve(l)
		a.closers = append(a.closers, s.Close)
		ec.URL, ec.Adapter = "http://"+l.Addr().String(), engine.Emulated
	}
	e, err := engine.New(ec)
	if err != nil {
		return err
	}
	a.engine = e
	a.closers = append(a.closers, e.Close)
	a.gate = engine.NewGate(f.Limit, f.Queue)
	a.prober = engine.NewProber(e, engine.ProberConfig{OnReport: a.engineReport, OnChange: a.engineChange})
	return nil
}

func (a *Agent) engineChange(s engine.Status) {
	if s.Up {
		a.log.Info("engine is up", "adapter", a.engine.Traits().Adapter)
		return
	}
	a.log.Warn("engine is down; peers serve meanwhile", "error", s.Err)
	a.locked(func(n *node.Node, now time.Duration) { n.EngineDown(now) })
}

func (a *Agent) engineReport(r engine.Report) {
	f := &a.cfg.Engine
	t := a.engine.Traits()
	e := node.Engine{Running: r.Running, Waiting: r.Waiting, CachePermille: r.CachePermille, Info: peer.Info{
		Engine: t.Adapter, Emulated: t.Emulated, Role: peer.Serve, Salts: r.Salts, Cache: r.Cache, Limit: f.Limit, Slots: r.Slots,
		Epoch: r.Epoch, Models: aliased(r.Models, f.Aliases),
	}}
	if e.Info.Cache.Tokens < 0 && f.CacheTokens > 0 {
		e.Info.Cache.Tokens = f.CacheTokens
	}
	a.locked(func(n *node.Node, now time.Duration) { n.EngineUp(now, &e) })
}

// aliased adds the configured aliases to the models that they stand for.
func aliased(models []peer.Model, aliases map[string]string) []peer.Model {
	out := make([]peer.Model, len(models))
	for i, m := range models {
		m.Aliases = append([]string(nil), m.Aliases...)
		for alias, name := range aliases {
			if name == m.Name {
				m.Aliases = append(m.Aliases, alias)
			}
		}
		sort.Strings(m.Aliases)
		out[i] = m
	}
	return out
}

func (a *Agent) gatewayConfig() (gateway.Config, error) {
	c := gateway.Defaults()
	for _, k := range a.cfg.APIKeys {
		c.Keys = append(c.Keys, gateway.Key{Key: k.Key, File: k.KeyFile, Tenant: k.Tenant})
	}
	c.Isolate, c.PassAuthorization = a.cfg.Isolate, a.cfg.PassAuthorization
	if c.Isolate {
		// Every agent of the shoal derives the same salts, from what they all have and clients do not.
		keys, err := a.shoalKeys()
		if err != nil {
			return c, err
		}
		if len(keys) == 0 {
			return c, fmt.Errorf("agent: config: isolate: salts are derived from the shoal's key; give cluster.key_file (shoal keygen makes one)")
		}
		c.Secret = "cache-salt:" + keys[0].Text()
	}
	c.MaxBody, c.MaxRequests = int(a.cfg.Limits.Body), a.cfg.Limits.Requests
	return c, nil
}
