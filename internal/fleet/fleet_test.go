package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/agent"
	"shoal/internal/lab"
	"shoal/internal/peer"
)

const patience = 45 * time.Second

// up brings a small lab up with agents, or skips the test and says why.
func up(t *testing.T, change func(*lab.Config, *Config)) (*lab.Fabric, *Fleet) {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip("NOT RUN:", err)
	}
	lc, fc := lab.Defaults(), Defaults()
	lc.Name = fmt.Sprintf("shoal-t%d", os.Getpid())
	lc.RunDir = filepath.Join(t.TempDir(), "lab")
	lc.Spines, lc.HostsPerLeaf = 4, 3
	fc.Binary = binary(t)
	change(&lc, &fc)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	say := func(string) {}
	fabric, err := lab.Up(ctx, lc, say)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fabric.Down(context.Background(), say); err != nil {
			t.Error(err)
		}
	})
	f, err := Start(ctx, fabric, fc, say)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, x := range f.hosts {
				b, _ := os.ReadFile(filepath.Join(x.dir, "agent.log"))
				lines := strings.Split(strings.TrimSpace(string(b)), "\n")
				t.Logf("%s:\n%s", x.Name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
			}
		}
		f.Close()
	})
	return fabric, f
}

var build struct {
	sync.Once
	path string
	err  error
}

// binary builds the program once.
func binary(t *testing.T) string {
	build.Do(func() {
		dir, err := os.MkdirTemp("", "shoal-fleet")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "shoal")
		out, err := exec.Command("go", "build", "-o", build.path, "shoal/cmd/shoal").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
	os.Exit(code)
}

func until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for !ok() {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
	return time.Since(began)
}

func table(t *testing.T, f *Fleet, name string) agent.TableStatus {
	t.Helper()
	s, err := f.Table(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// held counts the reservations of an owner that a table has.
func held(s agent.TableStatus, owner string) (n int) {
	for _, e := range s.Entries {
		if e.Owner == peer.ID(owner) {
			n++
		}
	}
	return n
}

// transfers go on from one host to another until stop is called, which tells how many arrived and how many failed.
func transfers(f *Fleet, policy, from, to string, size int64) (stop func() (arrived, failed int, last error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var arrived, failed int
	var last error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := f.Move(ctx, policy, from, to, size, nil); err == nil {
				arrived++
			} else if ctx.Err() == nil {
				failed, last = failed+1, err
			}
		}
	}()
	return func() (int, int, error) { cancel(); <-done; return arrived, failed, last }
}

// The agents are told nothing about the network. Probes find ports for every path; the hash of a leaf changes under
// transfers that are on their way, is noticed, and learned again.
func TestProbesLearnAFabricAndNoticeItsChange(t *testing.T) {
	fabric, f := up(t, func(l *lab.Config, c *Config) {
		l.HostsPerLeaf = 1
		c.Described, c.Probe, c.Verify = false, "on", time.Second
	})
	pathMap := func() (m agent.PathMap) {
		if err := f.Call(t.Context(), "h0", "/v1/paths/map?peer=h1", nil, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	took := until(t, "a learned map", func() bool { return pathMap().State == "learned" })
	m := pathMap()
	if len(m.Paths) != 4 {
		t.Fatalf("%d paths of 4: %+v", len(m.Paths), m)
	}
	for _, p := range m.Paths {
		if len(p.Ports) < 8 {
			t.Errorf("path %d by %v has %d ports", p.Path, p.Via, len(p.Ports))
		}
	}
	t.Logf("told nothing: %d paths after %v, %s", len(m.Paths), took.Round(time.Millisecond), m.Reason)
	var v agent.VerifyReply
	if err := f.Call(t.Context(), "h0", "/v1/paths/verify?peer=h1&ports=32", struct{}{}, &v); err != nil || v.Wrong > 0 || v.Right < 16 {
		t.Fatalf("%+v, %v", v, err)
	}

	stop := transfers(f, "least", "h0", "h1", 200_000)
	was := fabric.Seeds()["leaf0"]
	if err := fabric.SetSeed("leaf0", was+1); err != nil {
		t.Fatal(err)
	}
	noticed := until(t, "the change is noticed", func() bool { return pathMap().State == "aside" || !samePorts(m, pathMap()) })
	relearned := until(t, "it is learned again", func() bool { n := pathMap(); return n.State == "learned" && !samePorts(m, n) })
	arrived, failed, err := stop()
	if arrived == 0 || failed > 0 {
		t.Fatalf("%d transfers arrived meanwhile, %d failed: %v", arrived, failed, err)
	}
	if err := f.Call(t.Context(), "h0", "/v1/paths/verify?peer=h1&ports=32", struct{}{}, &v); err != nil || v.Wrong > 0 || v.Right < 16 {
		t.Fatalf("%+v, %v", v, err)
	}
	t.Logf("another hash seed at the leaf: noticed after %v, learned again %v later; %d transfers arrived meanwhile, 0 failed", noticed.Round(time.Millisecond), relearned.Round(time.Millisecond), arrived)
}

func samePorts(a, b agent.PathMap) bool {
	return slices.EqualFunc(a.Paths, b.Paths, func(x, y agent.PathStatus) bool { return slices.Equal(x.Ports, y.Ports) })
}

// A described fabric is verified by probes before it is trusted; a wrong description is not.
func TestADescriptionIsVerified(t *testing.T) {
	fabric, f := up(t, func(l *lab.Config, c *Config) {
		l.HostsPerLeaf, l.Spines = 1, 2
		c.Described, c.Probe = true, "on"
	})
	state := func(from, to string) (m agent.PathMap) {
		if err := f.Call(t.Context(), from, "/v1/paths/map?peer="+to, nil, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	until(t, "the description is verified", func() bool { return state("h0", "h1").State == "verified" })
	if err := fabric.SetSeed("leaf1", fabric.Seeds()["leaf1"]+1); err != nil { // before h1 has ever looked
		t.Fatal(err)
	}
	until(t, "the wrong one is not: it is learned instead", func() bool { return state("h1", "h0").State == "learned" })
}

// Bursts at the same moment, while messages take 50 ms.
func TestBurstsMoveApart(t *testing.T) {
	_, f := up(t, func(_ *lab.Config, c *Config) { c.Delay = 50 * time.Millisecond })
	for round, policy := range []string{"ark", "least", "ark", "least"} {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 3 { // three flows, four spines; 60 MB take five seconds
			all.Go(func() { f.Move(ctx, policy, fmt.Sprint("h", i), fmt.Sprint("h", 3+i), 60_000_000, nil) })
		}
		settled := until(t, "every flow has a path to itself", func() bool {
			s := table(t, f, "h0")
			links := map[string]int{}
			for _, e := range s.Entries {
				links[strings.Join(e.Links, " ")]++
			}
			return len(s.Entries) == 3 && len(links) == 3
		})
		cancel()
		all.Wait()
		until(t, "nothing is held", func() bool { return len(table(t, f, "h0").Entries)+len(table(t, f, "h2").Entries) == 0 })
		t.Logf("round %d, %s: apart after %v", round+1, policy, settled.Round(time.Millisecond))
	}
	c, err := f.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d conflicts, %d moves", c["path_conflicts"], c["path_moves"])
}

// A host is killed while it holds four paths.
func TestAKilledHostFreesItsPaths(t *testing.T) {
	_, f := up(t, func(_ *lab.Config, c *Config) {})
	stop := transfers(f, "least", "h1", "h4", 400_000)
	var r agent.ReserveReply
	if err := f.Call(t.Context(), "h0", "/v1/paths/reserve", agent.ReserveRequest{Peer: "h3", Bytes: 1 << 30, Flows: 4}, &r); err != nil || len(r.Legs) != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	until(t, "they are known", func() bool { return held(table(t, f, "h1"), "h0") == 4 })
	if err := f.Kill("h0"); err != nil {
		t.Fatal(err)
	}
	took := until(t, "they have ended", func() bool { return held(table(t, f, "h1"), "h0") == 0 && held(table(t, f, "h5"), "h0") == 0 })
	if took > f.cfg.Lease+2*time.Second { // for a slow machine
		t.Errorf("freed after %v; the lease is %v", took, f.cfg.Lease)
	}
	arrived, failed, err := stop()
	if arrived == 0 || failed > 0 {
		t.Fatalf("%d transfers of others arrived, %d failed: %v", arrived, failed, err)
	}
	var after agent.Status
	if err := f.Call(t.Context(), "h1", "/status", nil, &after); err != nil {
		t.Fatal(err)
	}
	t.Logf("4 paths of a killed host are free after %v (lease %v); meanwhile %d transfers of others arrived, 0 failed, %d were resumed", took.Round(time.Millisecond), f.cfg.Lease, arrived, after.Counters["transfer_resumes"])
}

// The control network is gone for ten seconds: membership, datagrams, anti-entropy. Transfers go on, and afterwards all agree.
func TestTransfersGoOnWithoutTheControlNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: 10 s without a control network, with -short")
	}
	fabric, f := up(t, func(l *lab.Config, _ *Config) { l.HostsPerLeaf = 2 })
	var stops []func() (int, int, error)
	for i := range 2 {
		stops = append(stops, transfers(f, "least", fmt.Sprint("h", i), fmt.Sprint("h", 2+i), 300_000))
	}
	until(t, "transfers arrive", func() bool { c, err := f.Counters(t.Context()); return err == nil && c["transfers_sent"] > 4 })
	if err := fabric.CutControl(true); err != nil {
		t.Fatal(err)
	}
	cut := time.NewTimer(10 * time.Second)
	before, err := f.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-cut.C
	meanwhile, err := f.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fabric.CutControl(false); err != nil {
		t.Fatal(err)
	}
	n := meanwhile["transfers_sent"] - before["transfers_sent"]
	for i, stop := range stops {
		arrived, failed, err := stop()
		if failed > 0 {
			t.Errorf("from h%d: %d transfers arrived, %d failed: %v", i, arrived, failed, err)
		}
	}
	if n < 10 {
		t.Errorf("%d transfers in 10 s without a control network", n)
	}
	var r agent.ReserveReply
	if err := f.Call(t.Context(), "h0", "/v1/paths/reserve", agent.ReserveRequest{Peer: "h3", Bytes: 1 << 30, Flows: 2}, &r); err != nil {
		t.Fatal(err)
	}
	var digests []string
	took := until(t, "all tables are equal", func() bool {
		for _, l := range r.Legs { // held for as long as it takes
			f.Call(t.Context(), "h0", "/v1/paths/renew", agent.HoldRequest{ID: l.ID, Left: 1 << 30}, new(agent.RenewReply))
		}
		digests = digests[:0]
		for _, h := range fabric.Hosts() {
			s := table(t, f, h.Name)
			if held(s, "h0") != 2 || len(s.Entries) != 2 {
				return false
			}
			digests = append(digests, s.Digest)
		}
		for _, d := range digests {
			if d != digests[0] {
				return false
			}
		}
		return true
	})
	t.Logf("%d transfers arrived in 10 s without a control network, 0 failed; %v after its return all %d tables are equal (%s)", n, took.Round(time.Millisecond), len(digests), digests[0])
}
