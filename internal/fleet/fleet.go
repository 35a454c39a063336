// Package fleet runs a shoal on a lab: one agent in the network namespace of every host, told what the fabric is like, or
// told nothing. It sends the lab's flows as real transfers between agents, so that what is measured is the product: the
// reservation, its datagrams, the choice of the source port, the mover.
//
// It builds no network and makes no workload (package lab does), and decides nothing about paths. Its main type is Fleet. Every
// agent has its files in the lab's run directory, and ends with Close or, after a crash, with the lab.
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"shoal/internal/agent"
	"shoal/internal/cluster"
	"shoal/internal/lab"
	"shoal/internal/peer"
)

// Config is how the agents run. The zero value is not usable: start from Defaults.
type Config struct {
	Binary string // of shoal; empty: this program
	// Described: the agents are told the fabric, with its switches' hash seeds; else they learn it by probes.
	Described bool
	// Probe is auto, on or off (agent.Paths).
	Probe string
	// Chunk is agent.Paths.Chunk, in bytes: small enough for flows that are scaled down to move while they last.
	Chunk int
	// Lease is agent.Paths.Lease.
	Lease time.Duration
	// Delay holds datagrams about reservations back.
	Delay time.Duration
	// Verify is agent.Paths.Verify.
	Verify time.Duration
	// LogLevel of the agents; their logs are in the run directory.
	LogLevel string
}

// Defaults are agents that are told the fabric.
func Defaults() Config {
	return Config{Described: true, Probe: "off", Chunk: 64 << 10, Lease: 3 * time.Second, LogLevel: "info"}
}

// The ports of every agent; each has a namespace to itself.
const (
	gatewayPort  = "8080"
	peerPort     = "8081"
	gossipPort   = "8082"
	adminPort    = "8083"
	transferPort = "9000"
)

// Fleet is the agents of a lab.
type Fleet struct {
	cfg    Config
	fabric *lab.Fabric
	hosts  []*host
	byName map[string]*host
	gone   chan string
}

// host is one agent.
type host struct {
	lab.Host
	dir    string
	cmd    *exec.Cmd
	ended  chan struct{}
	client *http.Client // over its socket
}

// Start starts an agent in every host, and waits until all know each other. say tells what it is waiting for.
func Start(ctx context.Context, fabric *lab.Fabric, cfg Config, say func(string)) (*Fleet, error) {
	f := &Fleet{cfg: cfg, fabric: fabric, byName: map[string]*host{}, gone: make(chan string, 1)}
	if cfg.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("fleet: %w", err)
		}
		f.cfg.Binary = self
	}
	if err := f.writeShared(); err != nil {
		return nil, err
	}
	for _, h := range fabric.Hosts() {
		say("starting the agent of " + h.Name)
		x, err := f.start(h)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.hosts = append(f.hosts, x)
		f.byName[h.Name] = x
	}
	if err := f.ready(ctx, say); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// writeShared writes what all agents read: the key, and what the fabric is like.
func (f *Fleet) writeShared() error {
	dir, err := f.fabric.HostDir(f.fabric.Hosts()[0].Name) // also makes the run directory known
	if err != nil {
		return err
	}
	b, err := yaml.Marshal(f.fabric.Describe())
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "fabric.yaml"), b, 0o600),
			os.WriteFile(filepath.Join(dir, "shoal.key"), []byte(cluster.NewKey().Text()+"\n"), 0o600))
	}
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// config is the configuration of one host's agent.
func (f *Fleet) config(h lab.Host, dir, shared string) agent.Config {
	c := agent.Defaults()
	c.ID = h.Name
	c.Listen = "127.0.0.1:" + gatewayPort
	c.Admin = "127.0.0.1:" + adminPort
	c.AdminSocket = filepath.Join(dir, "admin.sock")
	c.LogLevel = f.cfg.LogLevel
	c.Drain = time.Second
	c.Cluster.PeerListen = "0.0.0.0:" + peerPort // on both networks: a cut control network does not stop transfers
	c.Cluster.GossipListen = net.JoinHostPort(h.Control.String(), gossipPort)
	c.Cluster.Advertise = h.Control.String()
	c.Cluster.KeyFile = filepath.Join(shared, "shoal.key")
	for _, o := range f.fabric.Hosts()[:min(2, len(f.fabric.Hosts()))] {
		if o.Name != h.Name {
			c.Cluster.Join = append(c.Cluster.Join, net.JoinHostPort(o.Control.String(), gossipPort))
		}
	}
	p := &c.Paths
	p.Listen = net.JoinHostPort(h.Addr.String(), transferPort)
	p.ControlAddr = net.JoinHostPort(h.Control.String(), "7000")
	p.Probe, p.Chunk, p.Lease, p.Delay, p.Verify = f.cfg.Probe, f.cfg.Chunk, f.cfg.Lease, f.cfg.Delay, f.cfg.Verify
	p.MaxBytes = 1 << 30
	lc := f.fabric.Config()
	p.Ports = fmt.Sprintf("%d-%d", lc.FirstPort, lc.LastPort)
	if f.cfg.Described {
		p.Fabric = filepath.Join(shared, "fabric.yaml")
	}
	return c
}

func (f *Fleet) start(h lab.Host) (*host, error) {
	dir, err := f.fabric.HostDir(h.Name)
	if err != nil {
		return nil, err
	}
	shared := filepath.Join(f.fabric.Dir(), f.fabric.Hosts()[0].Name)
	c := f.config(h, dir, shared)
	b, err := yaml.Marshal(&c)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "agent.yaml"), b, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	x := &host{Host: h, dir: dir, ended: make(chan struct{})}
	x.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.AdminSocket)
	}}}
	return x, f.launch(x)
}

// launch starts the agent's process.
func (f *Fleet) launch(x *host) error {
	out, err := os.OpenFile(filepath.Join(x.dir, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer out.Close()
	x.cmd = exec.Command(f.cfg.Binary, "agent", "--config", filepath.Join(x.dir, "agent.yaml"))
	x.cmd.Stdout, x.cmd.Stderr = out, out
	x.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // many agents on few processors: looking for work costs each a tenth of its time
	if err := f.fabric.Start(x.Name, x.cmd); err != nil {
		return err
	}
	x.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
		select {
		case f.gone <- x.Name:
		default:
		}
	}(x.cmd, x.ended)
	return nil
}

// readyWithin bounds how long the agents may take to find each other.
const readyWithin = 60 * time.Second

// ready waits until every agent knows every other one, and where it takes in transfers.
func (f *Fleet) ready(ctx context.Context, say func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, x := range f.hosts {
		for {
			n, err := x.knows(ctx)
			if err == nil && n == len(f.hosts) {
				break
			}
			say(fmt.Sprintf("%s knows %d of %d agents", x.Name, n, len(f.hosts)))
			select {
			case <-x.ended:
				return fmt.Errorf("fleet: the agent of %s has ended: %s", x.Name, x.lastLine())
			case <-ctx.Done():
				return fmt.Errorf("fleet: the agent of %s does not know all others within %v (%d of %d): %w; its log is %s", x.Name, readyWithin, n, len(f.hosts), errors.Join(ctx.Err(), err), filepath.Join(x.dir, "agent.log"))
			case <-tick.C:
			}
		}
	}
	return nil
}

// knows is of how many peers the agent knows, itself among them, that they live and take in transfers.
func (x *host) knows(ctx context.Context) (int, error) {
	s, err := x.status(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range s.Peers {
		if p.Alive && p.Transfer != "" {
			n++
		}
	}
	return n, nil
}

func (x *host) status(ctx context.Context) (*agent.Status, error) {
	s := new(agent.Status)
	return s, x.call(ctx, "/status", nil, s)
}

// lastLine is the end of the agent's log.
func (x *host) lastLine() string {
	b, _ := os.ReadFile(filepath.Join(x.dir, "agent.log"))
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// call asks the agent: in nil is a GET.
func (x *host) call(ctx context.Context, path string, in, out any) error {
	return x.stream(ctx, path, in, func(d *json.Decoder) error { return d.Decode(out) })
}

// stream asks the agent, and has each read the answer.
func (x *host) stream(ctx context.Context, path string, in any, each func(*json.Decoder) error) error {
	method, body := http.MethodGet, io.Reader(nil)
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := x.client.Do(req)
	if err != nil {
		return fmt.Errorf("fleet: %s: %w", x.Name, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("fleet: %s: %s: %s: %s", x.Name, path, res.Status, bytes.TrimSpace(b))
	}
	if err := each(json.NewDecoder(res.Body)); err != nil {
		return fmt.Errorf("fleet: %s: %s: %w", x.Name, path, err)
	}
	return nil
}

// Move has one agent send bytes of nothing to another, under a policy. at, which may be nil, hears which paths carry them.
func (f *Fleet) Move(ctx context.Context, policy, from, to string, size int64, at func(paths ...int)) (agent.TransferReply, error) {
	return f.MoveAt(ctx, policy, from, to, size, time.Time{}, at)
}

// MoveAt is Move of bytes that are only announced, and there at ready.
func (f *Fleet) MoveAt(ctx context.Context, policy, from, to string, size int64, ready time.Time, at func(paths ...int)) (agent.TransferReply, error) {
	var r agent.TransferReply
	x := f.byName[from]
	if x == nil {
		return r, fmt.Errorf("fleet: no host is called %q", from)
	}
	err := x.stream(ctx, "/v1/transfers", agent.TransferRequest{Peer: peer.ID(to), Bytes: size, Policy: policy, ReadyUS: max(0, time.Until(ready).Microseconds())}, func(d *json.Decoder) error {
		for {
			r = agent.TransferReply{}
			if err := d.Decode(&r); err != nil || r.Done {
				return err
			}
			if at != nil && len(r.Now) > 0 {
				at(r.Now...)
			}
		}
	})
	if err == nil && r.Error != "" {
		err = fmt.Errorf("fleet: %s to %s: %s", from, to, r.Error)
	}
	return r, err
}

// Table is what one agent knows of all reservations.
func (f *Fleet) Table(ctx context.Context, name string) (agent.TableStatus, error) {
	var s agent.TableStatus
	x := f.byName[name]
	if x == nil {
		return s, fmt.Errorf("fleet: no host is called %q", name)
	}
	return s, x.call(ctx, "/v1/paths/table", nil, &s)
}

// Call asks the admin API of one host's agent.
func (f *Fleet) Call(ctx context.Context, name, path string, in, out any) error {
	x := f.byName[name]
	if x == nil {
		return fmt.Errorf("fleet: no host is called %q", name)
	}
	return x.call(ctx, path, in, out)
}

// Counters adds up one counter of all agents.
func (f *Fleet) Counters(ctx context.Context) (map[string]int64, error) {
	sum := map[string]int64{}
	for _, x := range f.hosts {
		s, err := x.status(ctx)
		if err != nil {
			return nil, err
		}
		for name, n := range s.Counters {
			sum[name] += n
		}
	}
	return sum, nil
}

// Ended gives the name of a host whose agent has ended, for whatever reason; at most one.
func (f *Fleet) Ended() <-chan string { return f.gone }

// Kill ends one host's agent with SIGKILL, as a crash would.
func (f *Fleet) Kill(name string) error {
	x := f.byName[name]
	if x == nil {
		return fmt.Errorf("fleet: no host is called %q", name)
	}
	err := x.cmd.Process.Kill()
	<-x.ended
	return err
}

// Close ends all agents.
func (f *Fleet) Close() {
	var all sync.WaitGroup
	for _, x := range f.hosts {
		x.cmd.Process.Signal(syscall.SIGTERM)
		all.Go(func() {
			t := time.NewTimer(5 * time.Second)
			defer t.Stop()
			select {
			case <-x.ended:
			case <-t.C:
				x.cmd.Process.Kill()
				<-x.ended
			}
			x.client.CloseIdleConnections()
		})
	}
	all.Wait()
}
