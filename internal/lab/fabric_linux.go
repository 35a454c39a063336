package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"shoal/internal/ecmp"
)

// Fabric is a lab that is up. It is safe for concurrent use.
type Fabric struct {
	cfg    Config
	plan   *plan
	dir    string
	token  string
	spaces map[string]*space // by node name, and management

	mu    sync.Mutex
	seeds map[string]uint32
}

// builders is how many namespaces or cables are made at once: mostly they wait for the kernel.
const builders = 8

// Up makes the fabric. It refuses where one of this name, or in this run directory, is up. What was made is removed again
// where Up fails or ctx ends; a program that is killed leaves it to Down. Progress goes to say, which may be nil.
func Up(ctx context.Context, cfg Config, say func(string)) (*Fabric, error) {
	if say == nil {
		say = func(string) {}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := Supported(); err != nil {
		return nil, err
	}
	f := &Fabric{cfg: cfg, plan: newPlan(cfg), dir: runDirOf(cfg.Name, cfg.RunDir), spaces: map[string]*space{}}
	f.seeds = f.plan.seeds()
	d, err := lockRunDir(f.dir, true)
	if err != nil {
		return nil, err
	}
	s, err := f.claim(d)
	if err != nil {
		if s == nil && !isUp(d) {
			d.abandon()
		} else {
			d.unlock()
		}
		return nil, err
	}
	defer d.unlock()
	if err = f.build(ctx, say); err == nil {
		s.Up = true
		err = d.write(s)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, takeDown(context.WithoutCancel(ctx), d, s, say))
	}
	say(fmt.Sprintf("%s is up: %d hosts, %d switches, %d cables", cfg.Name, len(f.plan.hosts), len(f.plan.nodes)-len(f.plan.hosts), len(f.plan.cables)))
	return f, nil
}

func isUp(d *runDir) bool {
	_, err := os.Stat(filepath.Join(d.dir, stateName))
	return err == nil
}

// Supported reports why no lab can be brought up here; nil where one can, as far as a namespace that is made and thrown away
// tells. Errors are ErrUnsupported.
func Supported() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: run it as root", ErrUnsupported)
	}
	return lostThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("%w: making a network namespace: %w; a container needs --privileged", ErrUnsupported, err)
		}
		if err := apply("a namespace", switchSettings(1)); err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		return nil
	})
}

// claim writes the state before anything is made.
func (f *Fabric) claim(d *runDir) (*state, error) {
	switch s, err := d.read(); {
	case err == nil:
		return nil, fmt.Errorf("lab: %s is up since %s, or was left behind; take it down with `shoal lab down%s`", s.Config.Name, s.Started.Format(time.DateTime), downFlags(s.Config))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for _, name := range f.plan.namespaces() {
		if _, err := os.Lstat(namespaceDir + "/" + name); err == nil {
			return nil, fmt.Errorf("lab: there is a namespace %s that no state file in %s tells of; give the lab another name, or remove it with `ip netns delete %s`", name, f.dir, name)
		}
	}
	var token [16]byte
	rand.Read(token[:])
	f.token = hex.EncodeToString(token[:])
	s := &state{Format: stateFormat, Config: f.cfg, Started: time.Now(), PID: os.Getpid(), Token: f.token, Namespaces: f.plan.namespaces(),
		MadeDir: d.made, MadeParent: d.madeParent, Seeds: f.seeds}
	return s, d.write(s)
}

// downFlags are the flags of `shoal lab down` that find this lab.
func downFlags(c Config) (flags string) {
	if c.Name != DefaultName {
		flags += " --name " + c.Name
	}
	if c.RunDir != "" {
		flags += " --run-dir " + c.RunDir
	}
	return flags
}

// build makes the namespaces, then the cables, then the routes.
func (f *Fabric) build(ctx context.Context, say func(string)) error {
	var mu sync.Mutex // of spaces, while they are made
	err := stage(ctx, len(f.plan.nodes)+1, "namespaces", say, func(i int) error {
		name, settings := management, quiet()
		if i < len(f.plan.nodes) {
			n := &f.plan.nodes[i]
			name = n.name
			if n.tier == hosts {
				settings = f.plan.hostSettings()
			} else {
				settings = switchSettings(f.seeds[name])
			}
		}
		s, err := makeSpace(f.cfg.Name+"-"+name, settings)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		f.spaces[name] = s
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.bridge(); err != nil {
		return err
	}
	err = stage(ctx, len(f.plan.cables)+len(f.plan.hosts), "cables", say, func(i int) error {
		if i < len(f.plan.cables) {
			return f.lay(&f.plan.cables[i])
		}
		return f.plug(f.plan.hosts[i-len(f.plan.cables)])
	})
	if err != nil {
		return err
	}
	if err := f.index(); err != nil {
		return err
	}
	return stage(ctx, len(f.plan.nodes), "routing tables", say, f.install)
}

// stage does n things, several at once, in any order.
func stage(ctx context.Context, n int, what string, say func(string), do func(i int) error) error {
	say(fmt.Sprintf("making %d %s", n, what))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(builders)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("lab: %w", err)
			}
			return do(i)
		})
	}
	return g.Wait()
}

// index learns the interface indexes of all cables' ends.
func (f *Fabric) index() error {
	for i := range f.plan.nodes {
		s := f.at(i)
		links, err := s.nl.LinkList()
		if err != nil {
			return fmt.Errorf("lab: %s: %w", s.name, err)
		}
		for _, l := range links {
			s.dev[l.Attrs().Name] = l.Attrs().Index
		}
	}
	for _, c := range f.plan.cables {
		for _, e := range []end{c.a, c.b} {
			if f.at(e.node).dev[e.dev] == 0 {
				return fmt.Errorf("lab: %s has no interface %s any more; take the lab down and up again", f.at(e.node).name, e.dev)
			}
		}
	}
	return nil
}

// Open returns the lab of this name that another program has brought up. dir is its run directory; empty: the default.
func Open(name, dir string) (*Fabric, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	dir = runDirOf(name, dir)
	s, err := readState(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("lab: no lab is up in %s; bring one up with `shoal lab up`", dir)
	case err != nil:
		return nil, err
	case !s.Up:
		return nil, fmt.Errorf("lab: %s is half made; take it down with `shoal lab down%s`", s.Config.Name, downFlags(s.Config))
	}
	f := &Fabric{cfg: s.Config, plan: newPlan(s.Config), dir: dir, token: s.Token, seeds: s.Seeds, spaces: map[string]*space{}}
	for i := range len(f.plan.nodes) + 1 {
		name := management
		if i < len(f.plan.nodes) {
			name = f.plan.nodes[i].name
		}
		sp, err := openSpace(f.cfg.Name + "-" + name)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%w; take the lab down with `shoal lab down%s`", err, downFlags(s.Config))
		}
		f.spaces[name] = sp
	}
	if err := f.index(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close gives back what this process holds of the lab, and leaves the lab up. Nothing may be called afterwards.
func (f *Fabric) Close() error {
	for _, s := range f.spaces {
		s.close()
	}
	return nil
}

// Down ends the lab: see the function Down.
func (f *Fabric) Down(ctx context.Context, say func(string)) error {
	f.Close()
	return down(ctx, f.cfg.Name, f.dir, f.token, say)
}

// Config is what the lab was made from.
func (f *Fabric) Config() Config { return f.cfg }

// Dir is the lab's run directory.
func (f *Fabric) Dir() string { return f.dir }

// Hosts are the hosts in order: what Flow.Src and Flow.Dst count.
func (f *Fabric) Hosts() []Host { return append([]Host(nil), f.plan.hosts...) }

// Describe is the fabric as policies see it, with the hash seeds of this moment.
func (f *Fabric) Describe() ecmp.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan.describe(f.seeds)
}

// Seeds are the switches' hash seeds at this moment.
func (f *Fabric) Seeds() map[string]uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.seeds)
}

// SetSeed changes the hash seed of a switch, under whatever runs: from the next packet on its flows take other paths.
func (f *Fabric) SetSeed(name string, seed uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.seeds[name]; !ok {
		return fmt.Errorf("lab: no switch is called %q", name)
	}
	if seed == 0 {
		return errors.New("lab: the hash seed 0 stands for any; give another")
	}
	s := f.spaces[name]
	if err := s.do(func() error { return apply(s.name, []setting{seedSetting(seed)}) }); err != nil {
		return err
	}
	f.seeds[name] = seed
	return updateState(f.dir, f.token, func(s *state) { s.Seeds[name] = seed })
}

// CutControl takes the management network down (true) or up again: nothing arrives on it, and nobody is told.
func (f *Fabric) CutControl(cut bool) error {
	s := f.spaces[management]
	link, err := s.nl.LinkByName(bridgeName)
	if err == nil && cut {
		err = s.nl.LinkSetDown(link)
	} else if err == nil {
		err = s.nl.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("lab: the management network: %w", err)
	}
	return nil
}

// HostDir makes a directory for the files of one host's processes below the run directory; Down removes it.
func (f *Fabric) HostDir(host string) (string, error) {
	if _, err := f.node(host); err != nil {
		return "", err
	}
	if err := updateState(f.dir, f.token, func(s *state) { s.addDir(host) }); err != nil {
		return "", err
	}
	dir := filepath.Join(f.dir, host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	return dir, nil
}

// at is the open namespace of a node.
func (f *Fabric) at(i int) *space { return f.spaces[f.plan.nodes[i].name] }

// node is the open namespace of a host, a switch, or "mgmt".
func (f *Fabric) node(name string) (*space, error) {
	if s := f.spaces[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("lab: %s has no host and no switch called %q", f.cfg.Name, name)
}

// Do runs fn on a thread inside the namespace of a host, a switch, or "mgmt" (the management network's bridge), and waits
// for it. Sockets and processes made by fn itself are inside for good; a goroutine that fn starts is not.
func (f *Fabric) Do(where string, fn func() error) error {
	s, err := f.node(where)
	if err != nil {
		return err
	}
	return s.do(fn)
}
