package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
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
	for i, ports := range []ecmp.Range{p.ports, ecmp.RoCE} {
		p.watchers[i], err = probe.NewWatcher(p.prober, probe.WatchConfig{Event: p.event, Interval: p.cfg.Verify,
			Options: probe.Options{Ports: ports, PerPath: p.cfg.PortsPerPath}})
		if err != nil {
			return err
		}
	}
	return nil
}

// watcherOf watches over the ports of the target's range.
func (p *paths) watcherOf(t target) *probe.Watcher {
	if t.isRoCE() {
		return p.watchers[1]
	}
	return p.watchers[0]
}

// probing runs the watchers until ctx ends; what they know is not trusted where they end before.
func (p *paths) probing(ctx context.Context) {
	if p.prober == nil {
		return
	}
	var all sync.WaitGroup
	for _, w := range p.watchers {
		all.Go(func() {
			err := w.Run(ctx)
			if ctx.Err() != nil {
				return
			}
			p.log.Error("paths: nothing can be probed any more; transfers go where ECMP sends them", "err", err)
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, k := range p.ways {
				k.w = k.w.without(aside, "nothing can be probed any more: "+err.Error())
			}
		})
	}
	all.Wait()
	p.prober.Close()
}

// begin keeps new ways, and has a new target learned, or its description verified.
func (p *paths) begin(w *ways) *ways {
	watcher := p.watcherOf(w.target)
	if watcher == nil {
		if w.state == aside && p.fabric == nil {
			w.reason += ", and " + p.blind
		}
		return p.put(w)
	}
	var models []*ecmp.Route
	reason := "probes are on their way"
	if w.route != nil {
		models, reason = append(models, w.route), "the description is being verified"
	}
	w = p.put(w.without(learning, reason)) // before an event can say more
	t := p.probed(w)
	if err := watcher.Want(t, models...); err != nil {
		return p.put(w.without(aside, err.Error()))
	}
	if m := watcher.Map(t); m != nil { // it was wanted before, by another name
		p.learned(w, m)
	}
	return p.current(w)
}

// current is what is known now of the target of w.
func (p *paths) current(w *ways) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.ways[w.target]; k != nil {
		return k.w
	}
	return w
}

// forget ends the watching of a target.
func (p *paths) forget(w *ways) {
	if watcher := p.watcherOf(w.target); watcher != nil {
		watcher.Drop(p.probed(w))
	}
}

// probed is the target as the prober knows it.
func (p *paths) probed(w *ways) probe.Target {
	return probe.Target{Src: p.self.Addr(), Dst: w.addr.Addr(), DstPort: w.addr.Port(), Proto: w.target.proto}
}

// event takes in what has happened to a target.
func (p *paths) event(e probe.Event) {
	if e.Kind == probe.Verified {
		return
	}
	p.mu.Lock()
	var all []*ways // several, where a peer is known by two names or ports
	for _, k := range p.ways {
		if p.probed(k.w) == e.Target {
			all = append(all, k.w)
		}
	}
	p.mu.Unlock()
	for _, w := range all {
		level := p.log.Warn
		switch e.Kind {
		case probe.Learned, probe.Relearned:
			p.learned(w, e.Map)
			level = p.log.Info
		case probe.Mismatch:
			p.replace(w, w.without(aside, e.String()))
		case probe.SteppedAside:
			p.replace(w, w.without(aside, e.Err.Error()))
		}
		level("paths: "+e.Kind.String(), "peer", w.target.peer, "event", e.String())
	}
}

// learned takes a map of the prober's.
func (p *paths) learned(w *ways, m *probe.Map) {
	n := *w
	n.paths, n.ports, n.state, n.reason = m.Paths, m.Ports, learned, fmt.Sprintf("%s with %d probes", m.How, m.Probes)
	if m.Model != nil {
		n.state, n.reason = verified, "by "+p.cfg.Fabric+", and probes agree"
	} else {
		p.learnNames(m.Paths)
	}
	if err := p.register(&n); err != nil {
		n = *w.without(aside, err.Error())
	}
	p.replace(w, &n)
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
	watcher := p.watcherOf(t)
	if watcher == nil {
		return fmt.Errorf("agent: nothing can be verified: %s", p.blind)
	}
	m := watcher.Map(p.probed(to))
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
	if v.Against() > 1 {
		p.replace(p.current(to), to.without(learning, "probes contradict what was known"))
		watcher.Relearn(p.probed(to))
	}
	to = p.current(to)
	reply := VerifyReply{Peer: t.peer, Asked: v.Asked, Wrong: len(v.Wrong), Silent: v.Asked - v.Answered, State: to.state, Reason: to.reason,
		TookMS: time.Since(start).Milliseconds(), Right: max(0, v.Answered-len(v.Wrong))}
	for _, x := range v.Wrong[:min(len(v.Wrong), 10)] {
		reply.Mismatch = append(reply.Mismatch, Wrong{x.Port, routers(x.Expected), routers(x.Seen)})
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
