package lab

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shoal/internal/sim"
)

func TestHostsAreInTheirNamespaces(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	cmd := exec.Command("cat", "/proc/net/dev")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := f.Exec("h1", cmd); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, ":") != 3 || !strings.Contains(got, "data:") || !strings.Contains(got, "mgmt:") || !strings.Contains(got, "lo:") {
		t.Errorf("h1 has the interfaces\n%s", got)
	}
	if err := f.Exec("h1", exec.Command("false")); err == nil {
		t.Error("a failed command is no error")
	}
	if err := f.Exec("h9", exec.Command("true")); err == nil {
		t.Error("a command ran in h9")
	}
	own, _ := os.Readlink("/proc/thread-self/ns/net")
	var inside string
	if err := f.Do("spine0", func() (err error) { inside, err = os.Readlink("/proc/thread-self/ns/net"); return err }); err != nil {
		t.Fatal(err)
	}
	if now, _ := os.Readlink("/proc/thread-self/ns/net"); inside == own || now != own {
		t.Errorf("was in %s, then %s, now %s", own, inside, now)
	}
}

// dial opens a connection from a host, and closes it.
func dial(f *Fabric, from string, to netip.AddrPort, patience time.Duration) error {
	return f.Do(from, func() error {
		c, err := net.DialTimeout("tcp4", to.String(), patience)
		if err == nil {
			c.Close()
		}
		return err
	})
}

func TestControlNetworkIsBesideTheFabricAndCanBeCut(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	to := netip.AddrPortFrom(f.Hosts()[3].Control, 7946)
	var l net.Listener
	if err := f.Do("h3", func() (err error) { l, err = net.Listen("tcp4", to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []bool{false, true, false} {
		if err := f.CutControl(cut); err != nil {
			t.Fatal(err)
		}
		patience := 10 * time.Second // a slow machine
		if cut {
			patience = 200 * time.Millisecond
		}
		if err := dial(f, "h0", to, patience); (err != nil) != cut {
			t.Errorf("cut %v: %v", cut, err)
		}
	}
	after, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range difference(before, after) {
		if c.Packets != 0 {
			t.Errorf("%d packets went from %s to %s", c.Packets, c.From, c.To)
		}
	}
}

// 1 MB at 20 Mb/s takes 0.42 s and more; nothing is larger than a packet; congestion control is not the machine's.
func TestLinksAreShapedPacketByPacket(t *testing.T) {
	t.Parallel()
	c := small(t)
	c.Rate = 20_000_000
	f := up(t, c)
	p, err := NewPlain(f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const size = 1_000_000
	before, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	sent, err := p.Send(t.Context(), PlainPolicy, sim.Flow{Src: 0, Dst: 3, Bytes: size, Port: c.FirstPort}, func(...int) {})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("%d bytes took %v at 20 Mb/s", size, took)
	}
	if sent.Port != c.FirstPort {
		t.Errorf("it went from port %d, not %d", sent.Port, c.FirstPort)
	}
	after, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	forward := map[string]uint64{}
	for _, l := range difference(before, after) {
		if l.Packets > 0 && l.Bytes > 1514*l.Packets {
			t.Errorf("%s to %s: %d bytes in %d packets", l.From, l.To, l.Bytes, l.Packets)
		}
		if l.Bytes > size {
			forward[l.From+" "+l.To] = l.Packets
		}
	}
	if len(forward) != 4 || forward["h0 leaf0"] == 0 || forward["leaf1 h3"] == 0 {
		t.Errorf("the bytes went over %v", forward)
	}
	err = f.Do("h0", func() error {
		c, err := net.Dial("tcp4", netip.AddrPortFrom(f.Hosts()[3].Addr, plainPort).String())
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var name string
		raw.Control(func(fd uintptr) { name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
		if name = strings.TrimRight(name, "\x00"); name != congestionControl() {
			t.Errorf("congestion control %q, want %s", name, congestionControl())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAWorkloadIsPlayedOnAFabric(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	p, err := NewPlain(f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := f.Config().Of(sim.DefaultWorkload())
	w.QPS, w.Requests, w.Scale = 100, 20, 20_000
	c := DefaultRun()
	c.Network, c.Sender, c.Policies, c.Dir = f, p, []string{PlainPolicy}, filepath.Join(t.TempDir(), "results")
	if c.Workloads, err = sim.GenerateAll(w, []float64{100}, []uint64{1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	results, err := ReadResults(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 {
		t.Fatalf("%d runs", len(results))
	}
	for _, r := range results {
		var sent, counted int64
		for _, x := range r.FlowResults {
			sent += x.Bytes
			if x.FCTUs <= 0 || x.Port == 0 || len(x.Paths) != 1 || x.Error != "" {
				t.Errorf("flow %+v", x)
			}
		}
		for _, b := range r.spineBytes() {
			counted += b
		}
		// headers, and what was sent again
		if len(r.FlowResults) != 20 || counted < sent || counted > sent*12/10 || r.End.Failed != 0 {
			t.Errorf("%d flows, %d bytes, %d counted at the spines", len(r.FlowResults), sent, counted)
		}
	}
}

// What the fabric does is verified while it works.
func TestKernelIsPredictedWhileTransfersGoOn(t *testing.T) {
	t.Parallel()
	f := up(t, small(t))
	p, err := NewPlain(f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	under := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := p.Send(ctx, PlainPolicy, sim.Flow{Src: 0, Dst: 2, Bytes: sim.MaxFlowBytes}, func(...int) { close(under) })
		ended <- err
	}()
	<-under
	v, err := f.Verify(t.Context(), 200, 3)
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || v.Counted {
		t.Errorf("%d of %d, %d lost, counters agree: %v; %v", v.Right, v.Sent, v.Lost, v.Counted, v.Mistakes)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a terabyte has arrived")
	}
}
