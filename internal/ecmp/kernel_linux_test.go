package ecmp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace that the kernel itself chooses next hops in; it is gone after the test. It has next hops
// over the interfaces out0, out1 and so on, and in0, where packets to be forwarded come in.
type namespace struct {
	t    *testing.T
	name string
}

func newNamespace(t *testing.T, nextHops int) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("asking the kernel for its choices needs a network namespace, and that needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("asking the kernel for its choices needs the command ip (iproute2)")
	}
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); err != nil {
		t.Skip("this kernel has no net.ipv4.fib_multipath_hash_seed (Linux 6.11), so that its hash is not known")
	}
	n := &namespace{t, fmt.Sprintf("shoal-a-%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", n.name).CombinedOutput(); err != nil {
			t.Errorf("namespace %s is still there: %v: %s", n.name, err, out)
		}
	})
	for _, s := range []string{"ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0", "fib_multipath_hash_fields=0x37"} {
		n.sysctl(s)
	}
	n.ip("link set lo up", "addr add 192.0.2.1/32 dev lo", "link add in0 type veth peer name in0p", "link set in0p up", "link set in0 up",
		"addr add 198.18.255.1/24 dev in0")
	for i := range nextHops {
		n.ip(fmt.Sprintf("link add out%d type veth peer name out%dp", i, i), fmt.Sprintf("link set out%dp up", i),
			fmt.Sprintf("link set out%d up", i), fmt.Sprintf("addr add 198.19.%d.1/24 dev out%d", i, i),
			fmt.Sprintf("neigh replace 198.19.%d.2 lladdr 02:00:00:00:00:02 dev out%d", i, i))
	}
	return n
}

// ip runs commands of ip inside the namespace, one after the other in one process, and returns what they print.
func (n *namespace) ip(commands ...string) string {
	n.t.Helper()
	c := exec.Command("ip", "-n", n.name, "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := c.CombinedOutput()
	if err != nil {
		n.t.Fatalf("ip: %v: %s", err, out)
	}
	return string(out)
}

func (n *namespace) sysctl(setting string) {
	n.t.Helper()
	if out, err := exec.Command("ip", "netns", "exec", n.name, "sysctl", "-qw", "net.ipv4."+setting).CombinedOutput(); err != nil {
		n.t.Fatalf("net.ipv4.%s: %v: %s", setting, err, out)
	}
}

// asked are the next hops that the kernel says it takes for these flows when they are forwarded.
func (n *namespace) asked(flows []Tuple) []int {
	n.t.Helper()
	var commands []string
	for _, f := range flows {
		proto := "udp"
		if f.Proto == TCP {
			proto = "tcp"
		}
		commands = append(commands, fmt.Sprintf("route get %v from %v ipproto %s sport %d dport %d iif in0", f.Dst, f.Src, proto, f.SrcPort, f.DstPort))
	}
	var out []int
	for line := range strings.Lines(n.ip(commands...)) {
		if _, dev, ok := strings.Cut(line, " dev out"); ok {
			out = append(out, int(dev[0]-'0'))
		}
	}
	if len(out) != len(flows) {
		n.t.Fatalf("the kernel gave %d answers to %d flows", len(out), len(flows))
	}
	return out
}

// sent are the next hops over which packets of these flows leave that the machine sends itself. Asking is no use here: for an
// answer the kernel makes up a packet, and hashes that as if it were forwarded.
func (n *namespace) sent(flows []Tuple) []int {
	n.t.Helper()
	out := make([]int, len(flows))
	inside := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		inside <- n.send(flows, out)
	}()
	if err := <-inside; err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *namespace) send(flows []Tuple, out []int) error {
	fd, err := unix.Open("/run/netns/"+n.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	const ipv4 = 0x0008 // ETH_P_IP, in network order
	tap, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ipv4)
	if err != nil {
		return err
	}
	defer unix.Close(tap)
	if err := unix.SetsockoptTimeval(tap, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	number := map[int]int{} // next hop, by the index of the interface at its far end
	for k := 0; ; k++ {
		i, err := net.InterfaceByName(fmt.Sprintf("out%dp", k))
		if err != nil {
			break
		}
		number[i.Index] = k
	}
	packet := make([]byte, 200)
	for i, f := range flows {
		c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.Src, f.SrcPort)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.Dst, f.DstPort)))
		if err != nil {
			return err
		}
		if _, err := c.Write([]byte("shoal")); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		for {
			size, from, err := unix.Recvfrom(tap, packet, 0)
			if err != nil {
				return fmt.Errorf("no packet of %+v came out: %w", f, err)
			}
			k, ok := number[from.(*unix.SockaddrLinklayer).Ifindex]
			if ok && size >= 24 && [4]byte(packet[16:20]) == f.Dst.As4() && binary.BigEndian.Uint16(packet[20:]) == f.SrcPort {
				out[i] = k
				break
			}
		}
	}
	return nil
}

// randomFlows are flows from anywhere, or from the machine's own loopback address.
func randomFlows(r *rand.Rand, n int, local bool) []Tuple {
	flows := make([]Tuple, n)
	for i := range flows {
		f := Tuple{Src: netip.AddrFrom4([4]byte{10, 1, byte(r.Uint32()), byte(1 + r.IntN(254))}), Dst: netip.AddrFrom4([4]byte{10, 2, byte(r.Uint32()), byte(1 + r.IntN(254))}),
			SrcPort: uint16(1 + r.IntN(65535)), DstPort: uint16(1 + r.IntN(65535)), Proto: UDP}
		if r.IntN(2) == 0 {
			f.Src = netip.AddrFrom4([4]byte{10, 3, byte(r.Uint32()), byte(1 + r.IntN(254))}) // the larger address
		}
		if local {
			f.Src = addr("192.0.2.1")
		}
		if r.IntN(2) == 0 && !local {
			f.Proto = TCP
		}
		flows[i] = f
	}
	return flows
}

// The model against the kernel that this test runs on.
func TestTheKernelChoosesWhatTheModelSays(t *testing.T) {
	const hops, flows = 5, 200
	n := newNamespace(t, hops)
	r := rand.New(rand.NewPCG(1, 2))
	route := func(weights []int, count int) {
		s := "route replace 10.2.0.0/16"
		for k := range count {
			w := 1
			if k < len(weights) {
				w = weights[k]
			}
			s += fmt.Sprintf(" nexthop via 198.19.%d.2 dev out%d weight %d", k, k, w)
		}
		n.ip(s)
	}
	check := func(what string, m Model, s Selection, count int) {
		t.Helper()
		s.Bits = uint8(m.Bits())
		tuples := randomFlows(r, flows, m.Local)
		choices := n.asked
		if m.Local {
			choices = n.sent
		}
		got := choices(tuples)
		wrong := 0
		for i, f := range tuples {
			if s.Pick(m.Hash(f), count) != got[i] {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d flows go elsewhere", what, wrong, flows)
		}
	}
	for _, seed := range []uint32{1, 4711, 0xFFFFFFFF} {
		n.sysctl(fmt.Sprintf("fib_multipath_hash_seed=%d", seed))
		for _, policy := range []uint8{1, 3} {
			n.sysctl(fmt.Sprintf("fib_multipath_hash_policy=%d", policy))
			for _, local := range []bool{false, true} {
				m := Model{Kind: Linux, Seed: seed, Policy: policy, Local: local}
				for count := 2; count <= hops; count++ {
					route(nil, count)
					check(fmt.Sprintf("seed %d, policy %d, local %v, %d next hops", seed, policy, local, count), m, Selection{Kind: HashRange}, count)
				}
			}
		}
		weights := []int{1, 3, 2}
		route(weights, 3)
		check(fmt.Sprintf("seed %d, weights %v", seed, weights), Model{Kind: Linux, Seed: seed}, Selection{Kind: HashRange, Weights: weights}, 3)
	}
	n.sysctl("fib_multipath_hash_fields=0x11")
	route(nil, 4)
	check("only source address and source port", Model{Kind: Linux, Seed: 0xFFFFFFFF, Fields: SrcIP | SrcPort}, Selection{Kind: HashRange}, 4)
}

// Next hops that are objects: hash-threshold groups, and resilient ones with the buckets that the kernel tells.
func TestTheKernelsNextHopGroups(t *testing.T) {
	const hops, flows = 3, 200
	n := newNamespace(t, hops)
	n.sysctl("fib_multipath_hash_seed=99")
	n.sysctl("fib_multipath_hash_policy=3")
	for k := range hops {
		n.ip(fmt.Sprintf("nexthop add id %d via 198.19.%d.2 dev out%d", k+1, k, k))
	}
	r := rand.New(rand.NewPCG(3, 4))
	m := Model{Kind: Linux, Seed: 99}
	check := func(what string, s Selection) {
		t.Helper()
		s.Bits = 31
		tuples := randomFlows(r, flows, false)
		wrong := 0
		for i, got := range n.asked(tuples) {
			if s.Pick(m.Hash(tuples[i]), hops) != got {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d flows go elsewhere", what, wrong, flows)
		}
	}
	n.ip("nexthop add id 10 group 1,1/2,5/3,2", "route replace 10.2.0.0/16 nhid 10")
	check("hash-threshold", Selection{Kind: HashRange, Weights: []int{1, 5, 2}})

	n.ip("nexthop add id 11 group 1/2/3 type resilient buckets 13 idle_timer 600", "route replace 10.2.0.0/16 nhid 11")
	s := Selection{Kind: Resilient}
	for line := range strings.Lines(n.ip("nexthop bucket show id 11")) {
		// id 11 index 0 idle_time 0 nhid 3
		var id, index, next int
		var idle float64
		if _, err := fmt.Sscanf(line, "id %d index %d idle_time %f nhid %d", &id, &index, &idle, &next); err != nil || index != len(s.Buckets) {
			t.Skipf("ip says of a bucket %q: %v", line, err)
		}
		s.Buckets = append(s.Buckets, uint16(next-1))
	}
	if len(s.Buckets) != 13 {
		t.Skipf("ip told of %d buckets of 13", len(s.Buckets))
	}
	check("resilient", s)
}
