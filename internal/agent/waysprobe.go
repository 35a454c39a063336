package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
	"shoal/internal/probe"
)

// What probes say of the ways. A described network is verified before it is trusted, an undescribed one learned; either is
// verified again and again, and where answers contradict it transfers go where ECMP sends them until it is learned anew.

// openProber opens the sockets for probes, where they are wanted and allowed.
func (p *paths) openProber() error {
	if p.cfg.Probe == "off" {
		p.blind = "probes are off (paths.probe)"
		return nil
	}
	if !p.self.Addr().Is4() || p.self.Addr().IsLoopback() {
		p.blind = "no switch lies between addresses like " + p.self.Addr().String()
		if p.cfg.Probe == "on" {
			return fmt.Errorf("agent: paths.probe: %s; use auto or off", p.blind)
		}
		return nil
	}
	w, err := probe.OpenWire()
	if err == nil {
		p.prober, err = probe.Start(w, probe.Config{})
	}
	if err != nil {
		if p.cfg.Probe == "on" {
			return fmt.Errorf("agent: paths.probe: %w", err)
		}
		p.blind = err.Error()
		p.log.Warn("paths are not probed", "reason", err)
		return nil
	}
	p.watcher, err = probe.NewWatcher(p.prober, probe.WatchConfig{Event: p.event, Interval: p.cfg.Verify,
		Options: probe.Options{Ports: p.ports, PerPath: p.cfg.PortsPerPath}})
	return err
}

// watch has a new target learned, or its description verified.
func (p *paths) watch(w *ways) {
	if p.watcher == nil {
		if w.state == aside && p.fabric == nil {
			p.put(w.with(aside, w.reason+", and "+p.blind))
		}
		return
	}
	var models []*ecmp.Route
	if w.route != nil {
		models = append(models, w.route)
	}
	t := p.probed(w)
	if err := p.watcher.Want(t, models...); err != nil {
		p.put(w.with(aside, err.Error()))
		return
	}
	switch w.state {
	case aside:
		p.put(w.with(learning, "probes are on their way"))
	case described: // not trusted before it is verified
		p.put(w.with(learning, "the description is being verified"))
	}
}

// probed is the target as the prober knows it.
func (p *paths) probed(w *ways) probe.Target {
	return probe.Target{Src: p.self.Addr(), Dst: w.addr.Addr(), DstPort: w.addr.Port(), Proto: w.target.proto}
}

// event takes in what has happened to a target.
func (p *paths) event(e probe.Event) {
	w := p.byProbe(e.Target)
	if w == nil {
		return
	}
	level := p.log.Info
	switch e.Kind {
	case probe.Verified:
		return
	case probe.Learned, probe.Relearned:
		p.learned(w, e.Map)
	case probe.Mismatch:
		p.put(w.with(aside, e.String()))
		level = p.log.Warn
	case probe.SteppedAside:
		p.put(w.with(aside, e.Err.Error()))
		level = p.log.Warn
	case probe.Blind:
		level = p.log.Warn
	}
	level("paths: "+e.Kind.String(), "peer", w.target.peer, "event", e.String())
}

// byProbe finds what is known of a target of the prober's.
func (p *paths) byProbe(t probe.Target) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.ways {
		if p.probed(w) == t {
			return w
		}
	}
	return nil
}

// learned takes a map of the prober's.
func (p *paths) learned(w *ways, m *probe.Map) {
	n := *w
	n.paths, n.ports, n.state, n.reason = m.Paths, m.Ports, learned, fmt.Sprintf("%s with %d probes", m.How, m.Probes)
	n.route = m.Model
	if m.Model != nil {
		n.state, n.reason = verified, "by "+p.cfg.Fabric+", and probes agree"
	} else {
		p.learnNames(m.Paths)
	}
	if err := p.register(&n); err != nil {
		n.state, n.reason = aside, err.Error()
	}
	p.put(&n)
}

// apiVerify probes a sample of a map's ports now.
func (p *paths) apiVerify(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	t, err := p.target(peer.ID(q.Get("peer")), q.Get("protocol"), 0)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(q.Get("ports"))
	if err != nil || n < 1 || n > 256 {
		return badRequest{fmt.Errorf("agent: ports is %q; give 1 to 256", q.Get("ports"))}
	}
	to, err := p.to(t)
	if err != nil {
		return err
	}
	if p.watcher == nil {
		return fmt.Errorf("agent: nothing can be verified: %s", p.blind)
	}
	m := p.watcher.Map(p.probed(to))
	if m == nil {
		return fmt.Errorf("agent: there is no map of the ways to %s to verify; it is %s (%s)", t.peer, to.state, to.reason)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	v, err := p.prober.Verify(ctx, m, m.Sample(0, n))
	if err != nil {
		return err
	}
	reply := VerifyReply{Peer: t.peer, Asked: v.Asked, Wrong: len(v.Wrong), Silent: v.Asked - v.Answered, State: to.state, Reason: to.reason,
		TookMS: time.Since(start).Milliseconds()}
	reply.Right = max(0, v.Answered-len(v.Wrong))
	for _, x := range v.Wrong[:min(len(v.Wrong), 10)] {
		reply.Mismatch = append(reply.Mismatch, Wrong{x.Port, routers(x.Expected), routers(x.Seen)})
	}
	if v.Against() > 1 {
		p.watcher.Relearn(p.probed(to))
	}
	writeJSON(w, reply)
	return nil
}

func routers(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		if a.IsValid() {
			out = append(out, a.String())
		} else {
			out = append(out, "*")
		}
	}
	return strings.Join(out, " ")
}
