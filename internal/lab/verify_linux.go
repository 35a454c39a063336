package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shoal/internal/ecmp"
)

// Verify sends one packet for each of n random 5-tuples between hosts of different leaves, watches the interfaces of all
// switches, and compares every packet's way with what the description (Describe, at this moment) predicts. Nothing answers
// the packets, so that on an idle fabric the links' counters have to agree as well.
func (f *Fabric) Verify(ctx context.Context, n int, seed uint64) (*Verification, error) {
	return f.verify(ctx, f.Describe(), n, seed)
}

func (f *Fabric) verify(ctx context.Context, c ecmp.Config, n int, seed uint64) (*Verification, error) {
	probes, err := f.plan.probes(c, n, seed)
	if err != nil {
		return nil, err
	}
	w := &watch{f: f, all: probes, probes: map[ecmp.Tuple]*probe{}}
	for _, p := range probes {
		w.probes[p.tuple] = p
	}
	if err := w.open(); err != nil {
		w.close()
		return nil, err
	}
	defer w.close()
	before, err := f.SwitchCounters()
	if err != nil {
		return nil, err
	}
	for range probeTries {
		left := w.left()
		if len(left) == 0 {
			break
		}
		if err := f.sendProbes(ctx, left); err != nil {
			return nil, err
		}
		if err := w.settle(ctx); err != nil {
			return nil, err
		}
	}
	w.close()
	after, err := f.SwitchCounters()
	if err != nil {
		return nil, err
	}
	return judge(probes, before, after), nil
}

func judge(probes []*probe, before, after []Count) *Verification {
	v := &Verification{Sent: len(probes), Counted: true}
	packets := map[string]uint64{}
	for _, p := range probes {
		slices.Sort(p.seen)
		p.seen = slices.Compact(p.seen) // a second try
		for _, l := range p.want {
			packets[l] += uint64(p.sends)
		}
		if slices.Equal(p.want, p.seen) {
			v.Right++
			continue
		}
		if len(p.seen) < len(p.want) {
			v.Lost++
		}
		if len(v.Mistakes) < MaxMistakes {
			v.Mistakes = append(v.Mistakes, Mistake{Tuple: tupleText(p.tuple), Predicted: p.want, Seen: p.seen})
		}
	}
	for i := range after {
		name := linkName(after[i].From, after[i].To)
		v.Counted = v.Counted && after[i].Packets-before[i].Packets == packets[name]
	}
	return v
}

// sendProbes sends a packet for each.
func (f *Fabric) sendProbes(ctx context.Context, probes []*probe) error {
	sockets := map[string]int{}
	defer func() {
		for _, fd := range sockets {
			unix.Close(fd)
		}
	}()
	for i, p := range probes {
		fd, ok := sockets[p.src]
		if !ok {
			err := f.Do(p.src, func() (err error) {
				fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
				return err
			})
			if err != nil {
				return fmt.Errorf("lab: verify: raw socket in %s: %w", p.src, err)
			}
			sockets[p.src] = fd
		}
		if err := unix.Sendto(fd, packet(p.tuple), 0, &unix.SockaddrInet4{Addr: p.tuple.Dst.As4()}); err != nil {
			return fmt.Errorf("lab: verify: sending from %s: %w", p.src, err)
		}
		p.sends++
		if i%probeBatch == probeBatch-1 {
			if err := pause(ctx, 2*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// packet is an IPv4 packet that nothing answers: a RST, or a datagram that claims to be longer than it is.
func packet(t ecmp.Tuple) []byte {
	b := make([]byte, 40)
	src, dst := t.Src.As4(), t.Dst.As4()
	b[0], b[8], b[9] = 0x45, 64, t.Proto // the kernel fills in length and checksum
	binary.BigEndian.PutUint16(b[4:], probeID)
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[20:], t.SrcPort)
	binary.BigEndian.PutUint16(b[22:], t.DstPort)
	if t.Proto == ecmp.TCP {
		b[32], b[33] = 5<<4, 0x04
	} else {
		binary.BigEndian.PutUint16(b[24:], 0xffff)
	}
	return b
}

// watch captures what arrives at the switches.
type watch struct {
	f       *Fabric
	all     []*probe
	probes  map[ecmp.Tuple]*probe
	mu      sync.Mutex // of what the probes have seen, while readers run
	sockets []int
	stop    atomic.Bool
	readers sync.WaitGroup
	once    sync.Once
}

func (w *watch) open() error {
	for i := range w.f.plan.nodes {
		n := &w.f.plan.nodes[i]
		if n.tier == hosts {
			continue
		}
		from := map[int]string{} // by interface index: the link whose packets come in there
		for _, c := range w.f.plan.cables {
			if c.a.node != i && c.b.node != i {
				continue
			}
			own, other := c.ends(i)
			if sender := w.f.plan.nodes[other.node]; sender.tier != hosts {
				from[w.f.at(i).dev[own.dev]] = linkName(sender.name, n.name)
			}
		}
		var fd int
		err := w.f.at(i).do(func() (err error) {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(hostOrder(unix.ETH_P_IP)))
			return err
		})
		if err != nil {
			return fmt.Errorf("lab: verify: capturing in %s: %w", n.name, err)
		}
		w.sockets = append(w.sockets, fd)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBytes)
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyProbes()); err != nil {
			return fmt.Errorf("lab: verify: capturing in %s: filter: %w", n.name, err)
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
			return fmt.Errorf("lab: verify: capturing in %s: %w", n.name, err)
		}
		w.readers.Go(func() { w.read(fd, from) })
	}
	return nil
}

// onlyProbes lets packets with the probes' identification pass, so that transfers that go on are not copied.
func onlyProbes() *unix.SockFprog {
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: probeID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 64},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
}

// hostOrder is v as it stands in the network's order, read in this machine's.
func hostOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// read notes every probe that comes in, until close.
func (w *watch) read(fd int, from map[int]string) {
	var b [64]byte
	for !w.stop.Load() {
		n, addr, err := unix.Recvfrom(fd, b[:], 0)
		if err != nil {
			continue // the timeout, after which stop is looked at
		}
		ll, ok := addr.(*unix.SockaddrLinklayer)
		if !ok || ll.Pkttype != unix.PACKET_HOST || n < 24 || b[0] != 0x45 {
			continue
		}
		t := ecmp.Tuple{Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])), Proto: b[9],
			SrcPort: binary.BigEndian.Uint16(b[20:]), DstPort: binary.BigEndian.Uint16(b[22:])}
		p, link := w.probes[t], from[ll.Ifindex]
		if p == nil || link == "" {
			continue
		}
		w.mu.Lock()
		p.seen = append(p.seen, link)
		w.mu.Unlock()
	}
}

// left are the probes that have not been seen to the end.
func (w *watch) left() []*probe {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []*probe
	for _, p := range w.all {
		if len(p.seen) < len(p.want) {
			left = append(left, p)
		}
	}
	return left
}

// settle waits until everything was seen, or nothing has come for a while.
func (w *watch) settle(ctx context.Context) error {
	const patience = 50 // looks
	for last, quiet := -1, 0; quiet < patience; quiet++ {
		left := len(w.left())
		if left == 0 {
			return nil
		}
		if left != last {
			last, quiet = left, 0
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) close() {
	w.once.Do(func() {
		w.stop.Store(true)
		w.readers.Wait()
		for _, fd := range w.sockets {
			unix.Close(fd)
		}
	})
}
