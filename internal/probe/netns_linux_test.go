package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shoal/internal/ecmp"
)

// realFabric is h1 - l1 - s0..s3 - l2 - h2 of network namespaces, with the kernel's ECMP. Packets from h1 are chosen a
// spine for at l1.
type realFabric struct {
	t      *testing.T
	prefix string
	mu     sync.Mutex
	spine  map[uint16]int // by source port, of packets on their way to the target port
	taps   sync.WaitGroup
}

const realSpines = 4

var (
	realSrc = netip.MustParseAddr("10.81.1.2")
	realDst = netip.MustParseAddr("10.81.2.2")
)

// realScript makes the fabric. $P is what the names of the namespaces begin with, $IN whether routers answer with the
// interface that a packet came in at.
const realScript = `
ns() { n=$1; shift; ip -n $P-$n "$@"; }
for n in h1 h2 l1 l2 s0 s1 s2 s3; do
	ip netns add $P-$n
	ns $n link set lo up
done
for n in l1 l2 s0 s1 s2 s3; do
	ip netns exec $P-$n sh -c 'cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 3 >fib_multipath_hash_policy && echo 0x37 >fib_multipath_hash_fields &&
		echo 0 >icmp_ratelimit && echo 10000 >icmp_msgs_per_sec && echo 10000 >icmp_msgs_burst && echo '$IN' >icmp_errors_use_inbound_ifaddr &&
		echo 0 >conf/all/rp_filter && echo 0 >conf/default/rp_filter'
done
for i in 1 2; do
	ip link add eth0 netns $P-h$i type veth peer name host netns $P-l$i
	ns h$i addr add 10.81.$i.2/24 dev eth0
	ns l$i addr add 10.81.$i.1/24 dev host
	ns h$i link set eth0 up
	ns l$i link set host up
	ns h$i route add default via 10.81.$i.1
	for s in 0 1 2 3; do
		ip link add s$s netns $P-l$i type veth peer name l$i netns $P-s$s
		ns l$i addr add 10.82.$s$i.0/31 dev s$s
		ns s$s addr add 10.82.$s$i.1/31 dev l$i
		ns l$i link set s$s up
		ns s$s link set l$i up
		ns s$s route add 10.81.$i.0/24 via 10.82.$s$i.0
	done
done
ns l1 route add 10.81.2.0/24 nexthop via 10.82.01.1 nexthop via 10.82.11.1 nexthop via 10.82.21.1 nexthop via 10.82.31.1
ns l2 route add 10.81.1.0/24 nexthop via 10.82.02.1 nexthop via 10.82.12.1 nexthop via 10.82.22.1 nexthop via 10.82.32.1
`

func newRealFabric(t *testing.T, inbound bool) *realFabric {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: network namespaces need it")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip command (iproute2)")
	}
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); err != nil {
		t.Skip("the kernel has no fib_multipath_hash_seed (Linux 6.11)")
	}
	// What a killed test has left behind.
	left, _ := filepath.Glob("/run/netns/shoal-e-*")
	for _, path := range left {
		name, pid := filepath.Base(path), 0
		if fmt.Sscanf(name, "shoal-e-%d-", &pid); pid > 0 && unix.Kill(pid, 0) == unix.ESRCH {
			exec.Command("ip", "netns", "del", name).Run()
		}
	}
	f := &realFabric{t: t, prefix: fmt.Sprintf("shoal-e-%d", os.Getpid()), spine: map[uint16]int{}}
	t.Cleanup(func() {
		for _, n := range []string{"h1", "h2", "l1", "l2", "s0", "s1", "s2", "s3"} {
			exec.Command("ip", "netns", "del", f.prefix+"-"+n).Run()
		}
		f.taps.Wait()
	})
	in := "0"
	if inbound {
		in = "1"
	}
	cmd := exec.Command("sh", "-euc", realScript)
	cmd.Env = append(os.Environ(), "P="+f.prefix, "IN="+in)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "Operation not permitted") {
			t.Skipf("root without network namespaces: %s", bytes.TrimSpace(out))
		}
		t.Fatalf("%v: %s", err, out)
	}
	return f
}

// seed sets the hash seed of the first leaf.
func (f *realFabric) seed(seed uint32) {
	f.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", f.prefix+"-l1", "sh", "-c", fmt.Sprintf("echo %d >/proc/sys/net/ipv4/fib_multipath_hash_seed", seed)).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
}

// within calls do on a thread that is in a namespace. Sockets that it opens stay there.
func (f *realFabric) within(name string, do func()) {
	f.t.Helper()
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		ns, err := os.Open("/run/netns/" + f.prefix + "-" + name)
		if err != nil {
			failed = err
			return
		}
		defer ns.Close()
		if failed = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); failed == nil {
			do()
		}
	}()
	<-done
	if failed != nil {
		f.t.Fatal(failed)
	}
}

// tap notes which source ports come by a spine with packets that are no probes: their TTL is high.
func (f *realFabric) tap(spine int) {
	f.t.Helper()
	f.within(fmt.Sprintf("s%d", spine), func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 255})))
		if err != nil {
			f.t.Error(err)
			return
		}
		s := os.NewFile(uintptr(fd), "tap")
		f.t.Cleanup(func() { s.Close() })
		f.taps.Go(func() {
			b := make([]byte, 2048)
			for {
				n, err := s.Read(b)
				if err != nil {
					return
				}
				if n < ipHeader+8 || b[8] < 20 || netip.AddrFrom4([4]byte(b[16:20])) != realDst {
					continue
				}
				f.mu.Lock()
				f.spine[binary.BigEndian.Uint16(b[ipHeader:])] = spine
				f.mu.Unlock()
			}
		})
	})
}

// confirm really sends from every port of the map, and looks by which spine it goes.
func (f *realFabric) confirm(m *Map) {
	f.t.Helper()
	f.mu.Lock()
	clear(f.spine)
	f.mu.Unlock()
	var ports []uint16
	for i := range m.Paths {
		ports = append(ports, m.Ports.Ports(i)...)
	}
	var failed error
	f.within("h1", func() {
		for _, port := range ports {
			from, to := netip.AddrPortFrom(realSrc, port), netip.AddrPortFrom(realDst, m.Target.DstPort)
			var c net.Conn
			var err error
			if m.Target.Proto == ecmp.TCP {
				d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: 5 * time.Second}
				c, err = d.Dial("tcp", to.String())
			} else if c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to)); err == nil {
				_, err = c.Write([]byte("x"))
			}
			if err != nil {
				failed = fmt.Errorf("from port %d: %w", port, err)
				return
			}
			if tc, ok := c.(*net.TCPConn); ok {
				tc.SetLinger(0) // the port is free again at once
			}
			c.Close()
		}
	})
	if failed != nil {
		f.t.Fatal(failed)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		f.mu.Lock()
		n := 0
		for _, port := range ports {
			if _, ok := f.spine[port]; ok {
				n++
			}
		}
		f.mu.Unlock()
		if n == len(ports) {
			break
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("only %d of %d ports came by", n, len(ports))
		}
		<-time.After(time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := map[int]int{}
	for i := range m.Paths {
		for j, port := range m.Ports.Ports(i) {
			s := f.spine[port]
			if j == 0 {
				if k, ok := taken[s]; ok {
					f.t.Errorf("paths %d and %d both go by spine %d", k, i, s)
				}
				taken[s] = i
				if want := fmt.Sprintf("10.82.%d.1", 10*s+1); m.Paths[i].Via[1] != want {
					f.t.Errorf("path %d goes by spine %d and says %v", i, s, m.Paths[i].Via)
				}
			}
			if taken[s] != i {
				f.t.Errorf("port %d of path %d goes by spine %d", port, i, s)
			}
		}
	}
	f.t.Logf("%d ports of %d paths are right", len(ports), len(m.Paths))
}

// prober is a Prober in the first host.
func (f *realFabric) prober() *Prober {
	f.t.Helper()
	var w Wire
	var err error
	f.within("h1", func() { w, err = OpenWire() })
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := Start(w, Config{Rate: 5000})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.Close() })
	return p
}

// listen opens the second host for connections, and sends back what comes.
func (f *realFabric) listen(port int) {
	f.t.Helper()
	var l net.Listener
	var err error
	f.within("h2", func() { l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", realDst, port)) })
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
}

// A map is learned on real routers by who is told nothing; every port is tried with real packets; then the leaf hashes in
// another way, which is noticed, and the map is learned anew. A transfer on one of the ports goes on all the while.
func TestOnRealRouters(t *testing.T) {
	for name, inbound := range map[string]bool{"inbound": true, "as Linux comes": false} {
		t.Run(name, func(t *testing.T) {
			f := newRealFabric(t, inbound)
			f.seed(20261129)
			for s := range realSpines {
				f.tap(s)
			}
			f.listen(7801)
			p := f.prober()
			events := make(chan Event, 1000)
			w, err := NewWatcher(p, WatchConfig{Options: Options{Rate: 2000}, Interval: 100 * time.Millisecond, Doubt: 20 * time.Millisecond,
				Event: func(e Event) { events <- e }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan struct{})
			go func() { defer close(ran); w.Run(ctx) }()
			defer func() { cancel(); <-ran }()
			until := func(k EventKind) Event {
				t.Helper()
				timeout := time.After(30 * time.Second)
				for {
					select {
					case e := <-events:
						if e.Kind != Verified {
							t.Log(e)
						}
						if e.Kind == k {
							return e
						}
					case <-timeout:
						t.Fatalf("%v has not happened", k)
					}
				}
			}
			target := Target{Src: realSrc, Dst: realDst, DstPort: 7801, Proto: ecmp.TCP}
			if err := w.Want(target); err != nil {
				t.Fatal(err)
			}
			m := until(Learned).Map
			if len(m.Paths) != realSpines || !m.Complete || m.Mixed == inbound {
				t.Fatalf("%+v", m)
			}
			t.Logf("%d probes, %s", m.Probes, m.Took)
			f.confirm(m)
			moved := f.transfer(m.Ports.Ports(0)[0])
			until(Verified)
			before := p.Stats()
			until(Verified)
			t.Logf("%+v, then %+v", before, p.Stats())

			f.seed(77)
			began := time.Now()
			if e := until(Mismatch); len(e.Wrong) < 2 || e.Map != m {
				t.Errorf("%+v", e)
			}
			if w.Map(target) != nil && w.Map(target) == m {
				t.Error("the map is used on")
			}
			t.Logf("noticed after %s", time.Since(began))
			n := until(Relearned).Map
			t.Logf("learned again after %s", time.Since(began))
			if len(n.Paths) != realSpines || !n.Complete {
				t.Fatalf("%+v", n)
			}
			same := 0
			for i := range n.Paths {
				if !slices.Equal(n.Paths[i].Links, m.Paths[i].Links) {
					t.Errorf("path %d has other links: %v, %v", i, n.Paths[i], m.Paths[i])
				}
				for _, port := range n.Ports.Ports(i) {
					if k, ok := m.Ports.PathOf(port); ok && k == i {
						same++
					}
				}
			}
			if same == n.Ports.Len() {
				t.Error("the seed changed nothing")
			}
			moved()
			f.confirm(n)
		})
	}
}

// transfer sends and gets back bytes on a connection from a port until the returned function is called, which fails if
// something went wrong.
func (f *realFabric) transfer(port uint16) func() {
	f.t.Helper()
	var c net.Conn
	var err error
	f.within("h1", func() {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(realSrc, port))}
		c, err = d.Dial("tcp", netip.AddrPortFrom(realDst, 7801).String())
	})
	if err != nil {
		f.t.Fatal(err)
	}
	stop := make(chan struct{})
	ended := make(chan error, 1)
	rounds := 0
	go func() {
		b := make([]byte, 64<<10)
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			c.SetDeadline(time.Now().Add(5 * time.Second))
			_, err := c.Write(b)
			if err == nil {
				_, err = io.ReadFull(c, b)
			}
			if err != nil {
				ended <- err
				return
			}
			rounds++
		}
	}()
	return func() {
		f.t.Helper()
		close(stop)
		if err := <-ended; err != nil {
			f.t.Errorf("the transfer: %v", err)
		}
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		f.t.Logf("%d MB were moved meanwhile", rounds*2*64>>10)
	}
}

func TestUDPOnRealRouters(t *testing.T) {
	f := newRealFabric(t, true)
	f.seed(4711)
	for s := range realSpines {
		f.tap(s)
	}
	target := Target{Src: realSrc, Dst: realDst, DstPort: 4791, Proto: ecmp.UDP}
	m, err := f.prober().Learn(t.Context(), target, Options{Rate: 2000})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Paths) != realSpines || !m.Complete {
		t.Fatalf("%+v", m)
	}
	f.confirm(m)
}
