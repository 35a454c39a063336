package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"shoal/internal/cluster"
	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/probe"
	"shoal/internal/reserve"
	"shoal/internal/transfer"
	"shoal/internal/wire"
)

// paths is the shell of the second decision: which way a KV transfer takes. It knows which source ports lead over which path
// to whom (ways), asks the node for a path, tells the others at once, and has the mover move what is this agent's to move.
type paths struct {
	a        *Agent
	cfg      Paths
	log      *slog.Logger
	self     netip.AddrPort // at which transfers are taken in
	ports    ecmp.Range
	policy   reserve.Policy
	fabric   *ecmp.Fabric // nil: not described
	mover    *transfer.Mover
	prober   *probe.Prober     // nil: may not, or must not, probe
	watchers [2]*probe.Watcher // over paths.ports, and over RoCE's
	blind    string            // why there is no prober

	making sync.Mutex // held while ways to a new target are made; before mu
	mu     sync.Mutex
	ways   map[target]*kept
	issued map[uint64]*ways      // reservations that the API gave out: what their paths are counted in; at most twice reserve.MaxPerOwner
	cut    map[peer.ID]time.Time // peers that do not answer over the peers' network; until when it is not tried again
	other  map[peer.ID]uint64    // peers whose description of the network is another one: its digest

	turns turns
	names atomic.Pointer[map[ecmp.LinkID]string] // of links that were learned; of described ones the fabric knows them
	count struct{ reserved, fallbacks, aside, sent, failed, received atomic.Int64 }
}

// target is where flows go: of what their source port is the only thing left to choose.
type target struct {
	peer  peer.ID
	proto uint8
	port  uint16 // 0: that of the peer's mover
}

// rocePort is the destination port of RoCE v2.
const rocePort = 4791

// newPaths prepares; nothing listens yet. It is nil where no transfers are configured.
func newPaths(a *Agent) (*paths, error) {
	cfg := a.cfg.Paths
	if cfg.Listen == "" {
		return nil, nil
	}
	p := &paths{a: a, cfg: cfg, log: a.log.With("part", "paths"), ways: map[target]*kept{}, issued: map[uint64]*ways{},
		cut: map[peer.ID]time.Time{}, other: map[peer.ID]uint64{}}
	p.names.Store(&map[ecmp.LinkID]string{})
	var err error
	if p.self, err = netip.ParseAddrPort(cfg.Listen); err != nil {
		return nil, fmt.Errorf("agent: config: paths.listen: %w", err)
	}
	if p.ports, err = cfg.ports(); err != nil {
		return nil, fmt.Errorf("agent: config: paths.ports: %w", err)
	}
	if err := p.policy.UnmarshalText([]byte(cfg.Policy)); err != nil {
		return nil, err
	}
	if cfg.Fabric != "" {
		if p.fabric, err = readFabric(cfg.Fabric); err != nil {
			return nil, err
		}
		digest := p.fabric.Digest()
		a.node.Table(0, func(t *reserve.Table, _, _ time.Duration) { t.SetFabric(digest) })
	}
	a.node.Table(0, func(t *reserve.Table, _, _ time.Duration) { p.openTurns(t) })
	mc := cfg.mover()
	mc.Source = p.self.Addr()
	p.mover, err = transfer.New(mc, a.id, p.log)
	return p, err
}

// readFabric reads the description of a network.
func readFabric(file string) (*ecmp.Fabric, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("agent: paths.fabric: %w", err)
	}
	defer f.Close()
	var c ecmp.Config
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("agent: paths.fabric %s: %w", file, err)
	}
	fabric, err := ecmp.New(c)
	if err != nil {
		return nil, fmt.Errorf("agent: paths.fabric %s: %w", file, err)
	}
	return fabric, nil
}

// listen opens the mover's port, and the sockets for probes.
func (p *paths) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("agent: paths.listen: %w", err)
	}
	p.self = l.Addr().(*net.TCPAddr).AddrPort()
	if err := p.openProber(); err != nil {
		p.close()
		l.Close()
		return nil, err
	}
	return l, nil
}

// close is for an agent that does not come to run.
func (p *paths) close() {
	p.closeTurns()
	p.mover.Close()
	if p.prober != nil {
		p.prober.Close()
	}
}

// run serves transfers until ctx ends.
func (p *paths) run(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, p.mover.Close)
	defer stop()
	defer p.closeTurns()
	watch, end := context.WithCancel(ctx)
	var probing sync.WaitGroup
	probing.Go(func() { p.probing(watch) })
	probing.Go(func() { p.leases(watch) })
	err := p.mover.Serve(l)
	p.mover.Close()
	end()
	probing.Wait()
	if ctx.Err() != nil || errors.Is(err, transfer.ErrClosed) {
		return nil
	}
	return err
}

// leases looks often whose time is over: what a crash has left behind is free when its lease ends, not when the node next publishes.
func (p *paths) leases(ctx context.Context) {
	tick := time.NewTicker(max(p.cfg.Lease/60, 5*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.table(func(t *reserve.Table, now, wall time.Duration) { t.Tick(now, wall) })
		}
	}
}

// tell sends reservations to those whose flows can share a link with them; the others hear of them by anti-entropy.
func (p *paths) tell(messages []reserve.Message) {
	if len(messages) == 0 {
		return
	}
	if p.cfg.Delay > 0 {
		time.AfterFunc(p.cfg.Delay, func() { p.send(messages) })
		return
	}
	p.send(messages)
}

func (p *paths) send(messages []reserve.Message) {
	c := p.a.cluster.Load()
	if c == nil {
		return
	}
	members := c.Members()
	for i := range messages {
		b, err := wire.AppendReserve(nil, &messages[i])
		if err != nil {
			p.log.Error("a reservation cannot be told", "err", err)
			continue
		}
		for _, m := range members {
			if messages[i].Entry.End > 0 || p.interested(m.ID, messages[i].Entry.Dst) { // a schedule is everyone's
				c.Send(m.ID, b) // best effort: the next round of anti-entropy repairs what is lost
			}
		}
	}
}

// interested reports whether flows of a peer can share a link with one of this peer's to dst: they leave by the same leaf, or
// arrive at the same one. Who hangs on dst's own leaf sends nothing into it from above. Nothing is known: everyone is.
func (p *paths) interested(id, dst peer.ID) bool {
	if p.fabric == nil || dst == "" {
		return true
	}
	its, ok1 := p.fabric.Host(string(id))
	far, ok2 := p.fabric.Host(string(dst))
	return !ok1 || !ok2 || its.Leaf != far.Leaf
}

// heardReservation takes in a datagram about a reservation.
func (a *Agent) heardReservation(from peer.ID, t wire.DatagramType, payload []byte) {
	var m reserve.Message
	if err := wire.DecodeReserve(t, payload, &m); err != nil || m.Owner != from {
		a.badDatagrams.Add(1)
		return
	}
	a.locked(func(n *node.Node, now time.Duration) { n.HeardReservation(now, from, &m) })
}

// linkName is the name of a link, for people.
func (p *paths) linkName(id ecmp.LinkID) string {
	if p.fabric != nil {
		if l, ok := p.fabric.Link(id); ok {
			return l.Name
		}
	}
	if n, ok := (*p.names.Load())[id]; ok {
		return n
	}
	return fmt.Sprintf("%08x", uint32(id))
}

// knowsLink reports whether a link of this name is described, or was learned.
func (p *paths) knowsLink(name string) bool {
	id := ecmp.NameLink(name)
	if p.fabric != nil {
		if _, ok := p.fabric.Link(id); ok {
			return true
		}
	}
	_, ok := (*p.names.Load())[id]
	return ok
}

// learnNames notes the names of links that were learned.
func (p *paths) learnNames(list []ecmp.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.names.Load()
	names := make(map[ecmp.LinkID]string, len(old)+8)
	for id, n := range old {
		names[id] = n
	}
	for _, path := range list {
		for _, name := range path.Via { // a learned link is named by the address that it leads to
			if len(names) < maxNames {
				names[ecmp.NameLink(name)] = name
			}
		}
	}
	p.names.Store(&names)
}

const maxNames = 1 << 16

// sameFabrics says once of each peer whose description of the network is another one: its links may have names that mean
// nothing here, or something else.
func (p *paths) sameFabrics() {
	if p.fabric == nil {
		return
	}
	own, others := p.fabric.Digest(), map[peer.ID]uint64{}
	p.a.locked(func(n *node.Node, _ time.Duration) {
		n.Fabrics(func(id peer.ID, digest uint64) {
			if digest != 0 && digest != own {
				others[id] = digest
			}
		})
	})
	p.mu.Lock()
	told := p.other
	p.other = others
	p.mu.Unlock()
	for id, digest := range others {
		if told[id] != digest {
			p.log.Warn("a peer has another description of the network; give all the same file", "peer", id, "its_digest", fmt.Sprintf("%016x", digest), "own_digest", fmt.Sprintf("%016x", own))
		}
	}
}

// Asked answers another peer's question about a transfer (cluster.Handler).
func (a *Agent) Asked(ctx context.Context, from peer.ID, m *wire.Ask) *wire.Reply {
	if a.paths == nil {
		return &wire.Reply{Refused: "no transfers are configured here (paths.listen)"}
	}
	switch m.What {
	case wire.AskThere:
		return &wire.Reply{}
	case wire.AskTicket:
		return a.paths.ticket(from, m)
	case wire.AskPull:
		return a.paths.pulled(ctx, from, m)
	}
	return &wire.Reply{Refused: fmt.Sprintf("question %d is not known to this version", m.What)}
}

var _ cluster.Handler = (*Agent)(nil)
