package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"shoal/internal/wire"
)

// Errors that callers tell apart. Others mean that the connection failed.
var (
	// ErrSilent: the peer sent nothing for longer than Config.Silence.
	ErrSilent = errors.New("cluster: the peer is silent")
	// ErrUnknownPeer: no live peer has this ID.
	ErrUnknownPeer = errors.New("cluster: no live peer of this ID")
	// ErrBusy: as many hops as Limits.Hops allows are open to this peer.
	ErrBusy = errors.New("cluster: too many hops open to this peer")
	// ErrClosed: the cluster or the hop was closed.
	ErrClosed = errors.New("cluster: closed")
)

// Cluster is one peer's membership of a shoal. All methods are safe for concurrent use.
type Cluster struct {
	cfg     Config
	t       timing
	hooks   hooks
	self    Member
	h       Handler
	log     *slog.Logger
	started time.Time

	bodies sync.Pool // of *[]byte: of served requests

	gossip  *gossip
	control *control // nil without a control network
	ml      *memberlist.Memberlist
	resolve resolver

	tlsServer, tlsClient *tls.Config // nil without a key
	roots                *x509.CertPool

	members  *members
	lost     lost
	rejoin   chan struct{}
	asked    asks
	guard    *guard
	refusals refusals
	rounds   *rounds
	pinging  chan struct{} // slots for first round-trip times
	failed   chan error
	count    counters
	tick     atomic.Uint32 // seconds since the start, and one: the clock of what needs no better one

	ctx  context.Context // ends with the cluster
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closing bool
	inbound map[*inbound]struct{}

	calls sync.RWMutex // read-held while memberlist's goroutines call the Handler: nobody waits for those
	over  bool         // calls
}

// tell calls the Handler from a goroutine that Close does not wait for, unless the cluster is over.
func (c *Cluster) tell(f func(Handler)) {
	c.calls.RLock()
	defer c.calls.RUnlock()
	if !c.over {
		f(c.h)
	}
}

// hooks are how tests reach below a cluster.
type hooks struct {
	tune    func(*timing)
	cut     func(gossipAddr string) bool // this gossip address is unreachable
	lose    func(gossipAddr string) bool // packets to it are lost
	dial    func(ctx context.Context, peerAddr string) (net.Conn, error)
	resolve resolver
}

// Start listens, and joins the shoal in the background. self.PeerAddr is filled in from what the peer port listens on
// where it is empty, and the versions with those that this program speaks. The errors are those of the configuration and
// of the listen addresses.
func Start(cfg Config, self Member, h Handler, log *slog.Logger) (*Cluster, error) {
	return start(cfg, self, h, log, hooks{})
}

func start(cfg Config, self Member, h Handler, log *slog.Logger, hooks hooks) (*Cluster, error) {
	c, b, err := newCluster(cfg, self, h, log, hooks)
	if err != nil {
		return nil, err
	}
	if err := c.listen(b); err != nil {
		c.stop()
		if c.control != nil {
			c.control.udp.Close()
		}
		return nil, err
	}
	return c, nil
}

// newCluster makes a cluster that does not listen, and in which nothing runs.
func newCluster(cfg Config, self Member, h Handler, log *slog.Logger, hooks hooks) (*Cluster, binds, error) {
	if err := cfg.Validate(); err != nil {
		return nil, binds{}, err
	}
	if err := self.ID.Validate(); err != nil {
		return nil, binds{}, fmt.Errorf("cluster: %w", err)
	}
	b, err := cfg.checkBinds()
	if err != nil {
		return nil, b, err
	}
	t, _ := timings(cfg.Preset)
	if hooks.tune != nil {
		hooks.tune(&t)
	}
	cfg.Limits = cfg.Limits.orDefault(&t)
	if self.MinVersion == 0 && self.MaxVersion == 0 {
		self.MinVersion, self.MaxVersion = wire.MinVersion, wire.MaxVersion
	}
	c := &Cluster{cfg: cfg, t: t, hooks: hooks, self: self, h: h, log: log, started: time.Now(), members: newMembers(),
		rejoin: make(chan struct{}, 1), pinging: make(chan struct{}, 4), failed: make(chan error, 1), inbound: map[*inbound]struct{}{}}
	c.guard = newGuard(&c.cfg.Limits)
	c.rounds = newRounds(c)
	c.tick.Store(1)
	if c.resolve = hooks.resolve; c.resolve == nil {
		c.resolve = net.DefaultResolver
	}
	if len(cfg.Keys) > 0 {
		if c.tlsServer, c.tlsClient, c.roots, err = tlsConfigs(self.ID, cfg.Keys); err != nil {
			return nil, b, err
		}
	} else if b.open {
		log.Warn("cluster: INSECURE: ports beyond loopback without a key: whoever reaches them is a peer, and reads what peers send",
			"gossip", b.gossip, "peer", b.peer)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, b, nil
}

// listen opens the ports and starts what runs.
func (c *Cluster) listen(b binds) error {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := lc.Listen(c.ctx, "tcp", b.peer.String())
	if err != nil {
		return fmt.Errorf("cluster: peer port: %w", err)
	}
	if c.self.PeerAddr == "" {
		ip, err := advertised(b.peer.Addr(), b.advertise)
		if err != nil {
			ln.Close()
			return err
		}
		c.self.PeerAddr = netip.AddrPortFrom(ip, uint16(ln.Addr().(*net.TCPAddr).Port)).String()
	}
	if b.control.IsValid() {
		if c.control, err = c.newControl(b.control); err != nil {
			ln.Close()
			return err
		}
		c.self.ControlAddr = c.control.addr()
	}
	if _, err := decodeMeta(appendMeta(nil, &c.self)); err != nil {
		ln.Close()
		return fmt.Errorf("cluster: the own peer, as others would see it: %w", err)
	}
	if c.gossip, err = newGossip(b.gossip, b.advertise, "shoal "+c.cfg.Shoal, c.refusedAddr); err != nil {
		ln.Close()
		return err
	}
	c.gossip.cut, c.gossip.lose = c.hooks.cut, c.hooks.lose
	if c.ml, err = memberlist.Create(c.gossipConfig()); err != nil {
		ln.Close()
		c.gossip.Shutdown()
		return fmt.Errorf("cluster: gossip: %w", err)
	}
	c.wg.Add(6)
	go func() {
		defer c.wg.Done()
		<-c.ctx.Done()
		ln.Close()
	}()
	go c.accept(ln)
	go c.watchMembers()
	go c.keepJoining()
	go c.rounds.run()
	go c.sweep()
	if c.control != nil {
		c.wg.Add(1)
		go c.control.read()
	}
	return nil
}

func (c *Cluster) gossipConfig() *memberlist.Config {
	g := c.t.gossipConfig()
	g.Name = c.self.gossipName()
	g.Transport = c.gossip
	g.BindAddr, g.BindPort = c.gossip.advertise.Addr().String(), int(c.gossip.advertise.Port())
	g.AdvertiseAddr, g.AdvertisePort = g.BindAddr, g.BindPort
	g.Label = "shoal " + c.cfg.Shoal
	g.Delegate, g.Events, g.Alive, g.Ping = delegate{c}, events{c}, events{c}, pings{c}
	g.Logger = gossipLogger(c.log, c.refusedAddr)
	if len(c.cfg.Keys) > 0 {
		keys := make([][]byte, len(c.cfg.Keys))
		for i, k := range c.cfg.Keys {
			keys[i] = k.gossip()
		}
		ring, err := memberlist.NewKeyring(keys, keys[0])
		if err != nil {
			panic(fmt.Sprintf("cluster: keyring of %d keys: %v", len(keys), err)) // all are 32 bytes
		}
		g.Keyring = ring
	}
	return g
}

// Self is the own peer as it tells the others, with its real address.
func (c *Cluster) Self() Member { return c.self }

// GossipAddr is what others put into their join lists: host:port.
func (c *Cluster) GossipAddr() string { return c.gossip.advertise.String() }

// Members are the other live peers, by ID. The caller owns the slice.
func (c *Cluster) Members() []Member {
	var ms []Member
	for _, r := range c.members.all() {
		ms = append(ms, r.life.Member)
	}
	return ms
}

// Failed gives the error that makes this peer useless to its shoal, where there is one: another agent of the same ID was
// there first. At most one value ever comes. The cluster goes on, refused by the others; its owner should stop it.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Leave tells the others that this peer goes, waits at most timeout until the word is out, and closes the cluster.
func (c *Cluster) Leave(timeout time.Duration) error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	c.say(sayBye, nil)
	// memberlist takes what came last first: a moment between the farewell and its own word keeps them in order.
	t := time.NewTimer(min(c.t.gossip, timeout/2))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
		return ErrClosed
	}
	err := c.ml.Leave(timeout)
	if err != nil {
		err = fmt.Errorf("cluster: leave: %w", err)
	}
	return errors.Join(err, c.Close())
}

// Close ends everything at once; the others find out by themselves. It returns when nothing runs any more, ServeHop
// included: the contexts of all hops end.
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		c.wg.Wait()
		return nil
	}
	c.closing = true
	all := c.inbound
	c.inbound = nil
	c.mu.Unlock()
	c.stop()
	err := c.ml.Shutdown()
	for in := range all {
		in.l.close()
	}
	for _, r := range c.members.all() {
		r.shut()
	}
	c.wg.Wait()
	c.calls.Lock()
	c.over = true
	c.calls.Unlock()
	return err
}

// enter makes a connection known, so that it can be closed; false where the cluster is closing.
func (c *Cluster) enter(in *inbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.inbound[in] = struct{}{}
	return true
}

// exit forgets a connection; false where the cluster has closed it.
func (c *Cluster) exit(in *inbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.inbound[in]
	delete(c.inbound, in)
	return ok
}

// sweep is the clock of everything for which a second is exact enough.
func (c *Cluster) sweep() {
	defer c.wg.Done()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	idle := uint32(max(1, c.cfg.Limits.IdleTime/time.Second))
	stall := uint32(max(1, c.cfg.Limits.Stall/time.Second))
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		now := c.tick.Add(1)
		c.guard.second()
		for _, r := range c.members.all() {
			r.expire(idle)
		}
		c.mu.Lock()
		for in := range c.inbound {
			if in.stuck(now, stall, 4*idle) {
				in.stop()
				in.l.close()
			}
		}
		c.mu.Unlock()
	}
}

// stuck reports whether the other side takes or gives nothing where it should, or has not asked for anything for long:
// peers close what they keep idle themselves, and much sooner.
func (in *inbound) stuck(now, stall, idle uint32) bool {
	if b := in.busy.Load(); b != 0 {
		return now-b > stall
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cur == nil && !in.asks.Load() && now-in.l.tick.Load() > idle
}
