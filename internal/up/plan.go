package up

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"shoal/internal/llama"
)

// The ports of agent i (from 0) are at these distances above the base, so that one number tells them all: with base
// 8080, agent a2 has its API at 8081, its peer port at 9081, gossip at 10081, admin at 11081, its engine at 12081.
const (
	peerStep   = 1000
	gossipStep = 2000
	adminStep  = 3000
	engineStep = 4000

	portSpan = engineStep + MaxAgents - 1
	maxBase  = 65535 - portSpan

	// Where --port 0 looks for a free base: below the range that systems give out to clients (from 32768 on).
	autoFirst, autoLast, autoStride = 18080, 27080, MaxAgents
)

// AdminPort is the admin port of the first agent of a shoal that was started with the default port.
const AdminPort = 8080 + adminStep

// plan is what one run starts, worked out beforehand: plain data.
type plan struct {
	base      int
	peers     []peerPlan
	llama     bool // engines are llama.cpp servers that this run starts
	keepState bool // the engines outlive the run, so that the agents' state files are worth keeping
	cfg       Config
}

// peerPlan is one agent and its engine.
type peerPlan struct {
	id, engineName              string // a1, e1
	listen, peer, gossip, admin string // host:port
	engineAddr                  string // of an engine that this run starts
	enginePort                  int
	engineURL                   string // of any engine outside the agent; empty with an emulated one, or none
	emulated                    bool
}

func (p *peerPlan) hasEngine() bool { return p.emulated || p.engineURL != "" }

func newPlan(cfg Config) (*plan, error) {
	p := &plan{cfg: cfg, llama: len(cfg.Engines) == 0 && cfg.Emulated == 0, keepState: len(cfg.Engines) > 0}
	agents := max(cfg.Agents, len(cfg.Engines), cfg.Emulated)
	if p.llama && agents == 0 {
		agents = 3
	}
	if cfg.Port != 0 {
		p.lay(cfg.Port, agents)
		return p, nil
	}
	for base := autoFirst; base <= autoLast; base += autoStride {
		p.lay(base, agents)
		if p.checkPorts() == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("up: no base port between %d and %d has all its ports free; name one with --port", autoFirst, autoLast)
}

// urls are the addresses of the agents' APIs.
func (p *plan) urls() []string {
	urls := make([]string, len(p.peers))
	for i := range p.peers {
		urls[i] = "http://" + p.peers[i].listen
	}
	return urls
}

// lay names the peers and their ports.
func (p *plan) lay(base, agents int) {
	p.base, p.peers = base, nil
	for i := range agents {
		at := func(step int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(base+step+i)) }
		q := peerPlan{
			id: "a" + strconv.Itoa(i+1), engineName: "e" + strconv.Itoa(i+1),
			listen: at(0), peer: at(peerStep), gossip: at(gossipStep), admin: at(adminStep),
		}
		switch {
		case p.llama:
			q.engineAddr, q.enginePort = at(engineStep), base+engineStep+i
			q.engineURL = "http://" + q.engineAddr
		case i < len(p.cfg.Engines):
			q.engineURL = p.cfg.Engines[i]
		case i < p.cfg.Emulated:
			q.emulated = true
		}
		p.peers = append(p.peers, q)
	}
}

// checkPorts reports the first port that something else listens on. The ports are free again when it returns; the
// children that take them later report for themselves what has changed since.
func (p *plan) checkPorts() error {
	for i := range p.peers {
		q := &p.peers[i]
		for _, use := range []struct{ addr, what string }{
			{q.listen, "the API of agent " + q.id}, {q.peer, "the peer port of agent " + q.id},
			{q.gossip, "the gossip of agent " + q.id}, {q.admin, "the admin API of agent " + q.id},
			{q.engineAddr, "engine " + q.engineName},
		} {
			if use.addr == "" {
				continue
			}
			if err := free(use.addr, use.addr == q.gossip); err != nil {
				return fmt.Errorf("up: %s, meant for %s, is taken (%w); end what listens there (another `shoal up`?), or choose other ports with --port, for instance --port %d",
					use.addr, use.what, err, otherBase(p.base))
			}
		}
	}
	return nil
}

// otherBase is a base whose ports cannot be those of base.
func otherBase(base int) int {
	if base+100 <= maxBase {
		return base + 100
	}
	return base - 100
}

// free reports why a loopback port cannot be listened on, nil where it can.
func free(addr string, alsoUDP bool) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	l.Close()
	if alsoUDP {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// spec is one child process to run. It is immutable.
type spec struct {
	name  string
	path  string
	args  []string
	env   []string // added to this program's own
	dir   string   // working directory; empty: this program's
	admin string   // of an agent; empty for an engine
	log   string   // file
	// quiet children's lines go to their log only; of the others, those of level warn and above are shown too.
	quiet bool
	drain time.Duration // from SIGTERM to SIGKILL
}

// agents are the specs of all agents. Each joins all the others, so that the order in which they come up does not
// matter, nor which of them is restarted.
func (p *plan) agents(d *runDir) []spec {
	var specs []spec
	for i := range p.peers {
		q := &p.peers[i]
		args := []string{"agent", "--id", q.id, "--listen", q.listen, "--peer-listen", q.peer,
			"--gossip-listen", q.gossip, "--admin-listen", q.admin, "--policy", p.cfg.Policy, "--preset", "local",
			"--state", d.path(q.id + ".state"), "--log-level", p.cfg.LogLevel, "--drain", p.cfg.Drain.String()}
		switch {
		case q.emulated:
			args = append(args, "--emulated")
		case p.llama:
			args = append(args, "--engine", q.engineURL, "--engine-kind", "llamacpp",
				"--engine-cache-tokens", strconv.FormatInt(llama.Options{}.CacheTokens(), 10)) // it does not tell
		case q.engineURL != "":
			args = append(args, "--engine", q.engineURL)
		}
		for j := range p.peers {
			if j != i {
				args = append(args, "--join", p.peers[j].gossip)
			}
		}
		specs = append(specs, spec{name: q.id, path: p.cfg.Exe, args: append(args, p.cfg.AgentArgs...),
			env: p.share(), admin: q.admin, log: filepath.Join(d.logs(), q.id+".log"), drain: p.cfg.Drain + 3*time.Second})
	}
	return specs
}

// share gives each agent its share of the processors, which they would fight over otherwise: with more agents than
// processors, looking for work costs each a tenth of its time. GOMAXPROCS in this program's environment goes before it.
func (p *plan) share() []string {
	if os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	return []string{"GOMAXPROCS=" + strconv.Itoa(max(1, runtime.NumCPU()/len(p.peers)))}
}
