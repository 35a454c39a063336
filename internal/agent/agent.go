// Package agent is one peer as a running program: it owns the node and drives it with a clock and a lock, starts the
// engine's adapter, the cluster and the gateway around it, and offers metrics and an admin API on loopback.
//
// It decides nothing: what to do is the node's and the gateway's. Its main type is Agent, its settings are Config.
// Invariants: the node is touched under the lock only, and nothing waits while it is held; what Run has started has ended
// when it returns.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"shoal/internal/cluster"
	"shoal/internal/engine"
	"shoal/internal/gateway"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/socket"
	"shoal/internal/wire"
)

// Agent is one peer. Make it with New, run it once with Run.
type Agent struct {
	cfg     Config
	version string
	id      peer.ID
	log     *slog.Logger
	start   time.Time

	mu        sync.Mutex // guards what follows
	node      *node.Node
	decisions decisions
	addrs     map[peer.ID]string // of the others' peer ports
	lastAddr  map[peer.ID]string // the same, and of those that membership has lost; at most maxLast
	draining  bool

	directory atomic.Pointer[directory]
	cluster   atomic.Pointer[cluster.Cluster]
	engine    engine.Engine // nil: routes only
	closers   []func() error
	gate      *engine.Gate
	prober    *engine.Prober
	gateway   *gateway.Gateway
	paths     *paths // nil: no transfers are configured

	badDatagrams, refused, stateErrors atomic.Int64
	lastState                          uint64 // digest of what the state file holds

	ready chan struct{}
	bound Addrs
}

// Addrs are the addresses that an agent listens on, after port 0 has become a real one.
type Addrs struct{ Gateway, Admin, Peer, Gossip, Transfer string }

// New makes an agent of a configuration that Validate has passed. Nothing listens or connects yet.
func New(cfg Config, version string, log *slog.Logger) (*Agent, error) {
	a := &Agent{cfg: cfg, version: version, id: peer.ID(cfg.ID), log: log, start: time.Now(), addrs: make(map[peer.ID]string), lastAddr: make(map[peer.ID]string),
		ready: make(chan struct{})}
	nc := node.Defaults()
	if err := nc.Route.Policy.UnmarshalText([]byte(cfg.Route.Policy)); err != nil {
		return nil, err
	}
	nc.Route.GainPermille = cfg.Route.GainPermille
	nc.PushBack.High, nc.PushBack.Low = cfg.Route.PushBackHigh, cfg.Route.PushBackLow
	nc.MaxBlocks = cfg.Limits.Blocks
	nc.Paths.Lease, nc.Paths.MaxDelay, nc.Paths.MaxWait, nc.Paths.GiveUp, nc.Paths.MaxSlowdown = cfg.Paths.Lease, cfg.Paths.MaxDelay, cfg.Paths.MaxWait, cfg.Paths.GiveUp, cfg.Paths.MaxSlowdownPermille
	n, err := node.New(0, nc, a.id, uint64(a.start.UnixMilli()), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		return nil, err
	}
	a.node = n
	a.directory.Store(newDirectory(n))
	if err := a.openEngine(); err != nil {
		return nil, err
	}
	gc, err := a.gatewayConfig()
	if err != nil {
		return nil, err
	}
	if a.gateway, err = gateway.New(gc, a, log); err != nil {
		return nil, err
	}
	a.paths, err = newPaths(a)
	return a, err
}

// Ready is closed once everything listens; Addrs then tells where.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Addrs is valid after Ready.
func (a *Agent) Addrs() Addrs { return a.bound }

// Run serves until ctx ends, then drains: nothing new is admitted, requests in flight may end within cfg.Drain, and what
// is left is cut with an error event. It returns an error only for what prevented it from serving.
func (a *Agent) Run(ctx context.Context) error {
	defer func() {
		for _, c := range a.closers {
			c()
		}
	}()
	a.restore()
	front, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("agent: listen: %w", err)
	}
	defer front.Close()
	admin, err := net.Listen("tcp", a.cfg.Admin)
	if err != nil {
		return fmt.Errorf("agent: admin: %w", err)
	}
	defer admin.Close()
	local, err := a.listenSocket()
	if err != nil {
		return err
	}
	if local != nil {
		defer local.Close()
	}
	var transfers net.Listener
	transferAddr := ""
	if a.paths != nil {
		if transfers, err = a.paths.listen(); err != nil {
			return err
		}
		defer transfers.Close()
		transferAddr = a.paths.self.String()
	}
	a.mu.Lock()
	a.node.SetIdentity(a.version, front.Addr().String(), transferAddr)
	a.mu.Unlock()

	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx by the drain
	defer stop()
	g, work := errgroup.WithContext(work)
	if a.prober != nil {
		g.Go(func() error { a.prober.Run(work); return nil })
	}
	c, err := a.startCluster()
	if err != nil {
		if a.paths != nil {
			a.paths.close()
		}
		stop()
		g.Wait()
		return err
	}
	a.bound = Addrs{Gateway: front.Addr().String(), Admin: admin.Addr().String(), Peer: c.Self().PeerAddr, Gossip: c.GossipAddr(), Transfer: transferAddr}
	a.warnInsecure()
	handler := a.adminHandler()
	frontServer, adminServer := a.gateway.Server(a.gateway), &http.Server{Handler: ownOnly(handler), ReadHeaderTimeout: 5 * time.Second}
	socketServer := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	inFlight, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	frontServer.BaseContext = func(net.Listener) context.Context { return inFlight }
	g.Go(func() error { return served(a.serveFront(frontServer, front)) })
	g.Go(func() error { return served(adminServer.Serve(admin)) })
	if local != nil {
		g.Go(func() error { return served(socketServer.Serve(local)) })
	}
	if transfers != nil {
		g.Go(func() error { return a.paths.run(work, transfers) })
	}
	g.Go(func() error { a.tick(work); return nil })
	g.Go(func() error {
		select {
		case err := <-c.Failed():
			return err
		case <-work.Done():
			return nil
		}
	})
	close(a.ready)
	a.log.Info("listening", "gateway", a.bound.Gateway, "admin", a.bound.Admin, "peer", a.bound.Peer, "gossip", a.bound.Gossip,
		"policy", a.cfg.Route.Policy)

	select {
	case <-ctx.Done():
		a.drain(frontServer, cut)
	case <-work.Done():
	}
	c.Leave(time.Second)
	frontServer.Close()
	adminServer.Close()
	socketServer.Close()
	stop()
	err = g.Wait()
	a.saveState()
	return err
}

// listenSocket opens the admin API's unix socket; nil where there is none. Only this user may connect.
func (a *Agent) listenSocket() (net.Listener, error) {
	path := a.cfg.AdminSocket
	if path == "" {
		return nil, nil
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("agent: admin_socket: another agent listens at %s", path)
	}
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
		os.Remove(path) // of an agent that was killed
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		if err = os.Chmod(path, 0o600); err != nil {
			l.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("agent: admin_socket: %w", err)
	}
	return l, nil
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("agent: %w", err)
}

func (a *Agent) serveFront(s *http.Server, l net.Listener) error {
	l = socket.Listener(l)
	if a.cfg.TLS.Cert != "" {
		return s.ServeTLS(l, a.cfg.TLS.Cert, a.cfg.TLS.Key)
	}
	return s.Serve(l)
}

// drain tells everyone that this peer goes, and waits for what is in flight: own clients' requests and hops alike.
func (a *Agent) drain(s *http.Server, cut context.CancelCauseFunc) {
	a.log.Info("draining", "at_most", a.cfg.Drain)
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.locked(func(n *node.Node, now time.Duration) { n.Drain(now) })
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.Drain)
	defer cancel()
	err := s.Shutdown(ctx) // own clients' requests
	for err == nil && a.inFlight() > 0 {
		select { // hops
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		a.log.Warn("requests in flight are cut", "in_flight", a.inFlight())
		cut(gateway.ErrStopping)
		last, cancel := context.WithTimeout(context.Background(), time.Second) // for their error events
		defer cancel()
		s.Shutdown(last)
	}
}

func (a *Agent) inFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node.InFlight()
}

// tickInterval is how often the node publishes what has changed; at most the anti-entropy interval.
func (a *Agent) tickInterval() time.Duration {
	if i := a.cfg.Cluster.Interval; i > 0 {
		return min(i, 500*time.Millisecond)
	}
	if a.cfg.Cluster.Preset == "local" {
		return 100 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// roundInterval is how often the agent begins a round of anti-entropy.
func (a *Agent) roundInterval() time.Duration {
	switch i := a.cfg.Cluster.Interval; {
	case i > 0:
		return i
	case a.cfg.Cluster.Preset == "local":
		return 100 * time.Millisecond
	case a.cfg.Cluster.Preset == "wan":
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// stateEvery is how often the state file is written, where what it holds has changed.
const stateEvery = 10 * time.Second

func (a *Agent) tick(ctx context.Context) {
	t := time.NewTicker(a.tickInterval())
	defer t.Stop()
	saved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			a.locked(func(n *node.Node, now time.Duration) { n.Tick(now) })
			if a.paths != nil {
				a.paths.freshen()
			}
			if now.Sub(saved) >= stateEvery {
				saved = now
				a.saveState()
				if a.paths != nil {
					a.paths.sameFabrics()
				}
			}
		}
	}
}

// restore gives the node what its state file holds.
func (a *Agent) restore() {
	if a.cfg.State == "" || a.engine == nil {
		return
	}
	e, blocks, err := readState(a.cfg.State, a.id)
	switch {
	case errors.Is(err, errNoState):
	case err != nil:
		a.stateErrors.Add(1)
		a.log.Warn("the state file is ignored; the peers' copies serve instead", "error", err)
	default:
		a.mu.Lock()
		a.node.Restore(e, blocks)
		a.mu.Unlock()
	}
}

func (a *Agent) saveState() {
	if a.cfg.State == "" || a.engine == nil {
		return
	}
	a.mu.Lock()
	digest := a.node.Digest()
	e, blocks, ok := a.node.State()
	a.mu.Unlock()
	if !ok || digest == a.lastState {
		return
	}
	if err := writeState(a.cfg.State, a.id, e, blocks); err != nil {
		if a.stateErrors.Add(1) == 1 {
			a.log.Warn("the state file cannot be written", "error", err)
		}
		return
	}
	a.lastState = digest
}

func (a *Agent) startCluster() (*cluster.Cluster, error) {
	cc := cluster.Defaults()
	f := &a.cfg.Cluster
	cc.Shoal, cc.Preset, cc.Interval = f.Name, cluster.Preset(f.Preset), f.Interval
	cc.GossipBind, cc.PeerBind, cc.Advertise, cc.Join = f.GossipListen, f.PeerListen, f.Advertise, f.Join
	cc.Insecure, cc.ControlBind = a.cfg.Insecure, a.cfg.Paths.ControlAddr
	cc.Limits.Body = max(64<<20, int(a.cfg.Limits.Body)+1<<20) // what the gateway takes can be forwarded, a salt put in
	keys, err := a.shoalKeys()
	if err != nil {
		return nil, err
	}
	cc.Keys = keys
	self := cluster.Member{ID: a.id, Incarnation: uint64(a.start.UnixMilli()), MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion}
	c, err := cluster.Start(cc, self, a, a.log)
	if err != nil {
		return nil, err
	}
	a.cluster.Store(c)
	return c, nil
}

func (a *Agent) shoalKeys() ([]cluster.Key, error) {
	f := &a.cfg.Cluster
	var keys []cluster.Key
	switch {
	case f.KeyFile != "":
		k, err := cluster.ReadKeyFile(f.KeyFile)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	case f.Key != "":
		k, err := cluster.ParseKey(f.Key)
		if err != nil {
			return nil, fmt.Errorf("agent: config: cluster.key: %w", err)
		}
		keys = append(keys, k)
	}
	for i, old := range f.OldKeys {
		k, err := cluster.ParseKey(old)
		if err != nil {
			return nil, fmt.Errorf("agent: config: cluster.old_keys[%d]: %w", i, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (a *Agent) warnInsecure() {
	if a.cfg.Insecure {
		a.log.Warn("insecure: true: whoever reaches these ports may use and join this peer without a key",
			"gateway", a.bound.Gateway, "peer", a.bound.Peer, "gossip", a.bound.Gossip, "admin", a.bound.Admin)
	}
}

// NewLogger writes to standard error, at the level that cfg names.
func NewLogger(cfg *Config) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(cfg.LogLevel)) // Validate has passed it
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("peer_id", cfg.ID)
}
