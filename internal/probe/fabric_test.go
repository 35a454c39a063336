package probe

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"shoal/internal/ecmp"
)

// fabric is a network in memory: a Wire that answers probes as routers and hosts do. It works in a synctest bubble.
type fabric struct {
	// route says who answers at TTL 1, 2, 3 and so on, up to the target's leaf; the zero address where a router is silent.
	route func(t ecmp.Tuple) []netip.Addr
	mute  bool // the target answers nothing
	// refuses is the code of "unreachable" with which the last router answers datagrams for a port that no transfer
	// uses; 0: it passes them on.
	refuses byte

	delay time.Duration
	loss  float64 // of probes and of answers, each
	twice float64 // answers that come twice
	// limit is how many answers a second a router gives, after a burst of 6, as Linux does; 0: all.
	limit int

	mu      sync.Mutex
	random  *rand.Rand
	start   time.Time
	buckets map[netip.Addr]*bucket
	answers chan message
	closed  chan struct{}
	sent    int
	reached int // packets of transfers' own 5-tuples that came to the target
	ports   map[uint16]int
	at      []time.Time // when packets were sent
	refuse  error       // what Send returns
}

type message struct {
	from netip.Addr
	b    []byte
}

func newFabric(route func(t ecmp.Tuple) []netip.Addr) *fabric {
	return &fabric{route: route, delay: 200 * time.Microsecond, random: rand.New(rand.NewPCG(1, 2)), start: time.Now(), buckets: map[netip.Addr]*bucket{},
		answers: make(chan message, 1<<14), closed: make(chan struct{}), ports: map[uint16]int{}}
}

func (f *fabric) Send(packet []byte, dst netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	p := readProbe(packet)
	f.sent++
	f.at = append(f.at, time.Now())
	way := f.route(p.Tuple)
	own := p.Tuple.DstPort != 33434
	if own {
		f.ports[p.Tuple.SrcPort]++
	}
	var from netip.Addr
	what := [2]byte{11, 0}
	if f.refuses != 0 && !own && int(p.TTL) > len(way) {
		from, what = way[len(way)-1], [2]byte{3, f.refuses}
	} else if int(p.TTL) <= len(way) {
		from = way[p.TTL-1]
	} else {
		if own {
			f.reached++
		}
		if !f.mute && p.Tuple.Proto == ecmp.UDP {
			from, what = p.Tuple.Dst, [2]byte{3, 3}
		}
	}
	if !from.IsValid() || f.random.Float64() < f.loss || f.random.Float64() < f.loss {
		return nil
	}
	if f.limit > 0 {
		b := f.buckets[from]
		if b == nil {
			full := newBucket(f.limit, 6)
			b = &full
			f.buckets[from] = b
		}
		was := b.next
		if b.take(time.Since(f.start)) > 0 {
			b.next = was
			return nil
		}
	}
	m := message{from, answerTo(packet, what)}
	n := 1
	if f.random.Float64() < f.twice {
		n = 2
	}
	for range n {
		time.AfterFunc(f.delay+time.Duration(f.random.Int64N(int64(f.delay))), func() {
			select {
			case f.answers <- m:
			default:
			}
		})
	}
	return nil
}

// set changes the network under those who use it.
func (f *fabric) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fabric) Receive(b []byte) (int, netip.Addr, error) {
	select {
	case m := <-f.answers:
		return copy(b, m.b), m.from, nil
	case <-f.closed:
		return 0, netip.Addr{}, net.ErrClosed
	}
}

func (f *fabric) Close() error { close(f.closed); return nil }

// readProbe is the inverse of appendProbe.
func readProbe(b []byte) Probe {
	l4 := b[ipHeader:]
	p := Probe{TTL: b[8], ID: binary.BigEndian.Uint16(b[4:]), Tuple: ecmp.Tuple{Proto: b[9],
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])),
		SrcPort: binary.BigEndian.Uint16(l4), DstPort: binary.BigEndian.Uint16(l4[2:])}}
	if p.Tuple.Proto == ecmp.TCP {
		p.Cookie = binary.BigEndian.Uint32(l4[4:])
	} else {
		p.Cookie = uint32(binary.BigEndian.Uint16(l4[6:]))
	}
	return p
}

// answerTo is an ICMP error about a packet, with the least quotation there is.
func answerTo(packet []byte, what [2]byte) []byte {
	b := make([]byte, icmpHeader, icmpHeader+ipHeader+8)
	b[0], b[1] = what[0], what[1]
	b = append(b, packet[:ipHeader+8]...)
	b[icmpHeader+8] = 1 // the TTL, as it arrived
	binary.BigEndian.PutUint16(b[2:], ^sum(0, b))
	return b
}

var (
	here  = netip.MustParseAddr("10.0.1.2")
	there = netip.MustParseAddr("10.0.2.2")
	to    = Target{Src: here, Dst: there, DstPort: 7801, Proto: ecmp.TCP}
)

func ip(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}

// hashing is how a switch chooses among n.
type hashing func(t ecmp.Tuple, n int) int

func murmur(seed uint32) hashing {
	return func(t ecmp.Tuple, n int) int {
		return int(ecmp.Model{Kind: ecmp.Murmur3, Seed: seed}.Hash(t) % uint32(n))
	}
}

// leafSpine is the way through a leaf, one of some spines and a leaf, where all answer with the interface that a packet
// came in at.
func leafSpine(spines int, h hashing) func(t ecmp.Tuple) []netip.Addr {
	return func(t ecmp.Tuple) []netip.Addr {
		s := h(t, spines)
		return []netip.Addr{ip(10, 0, 1, 1), ip(10, 1, s>>8, s&255), ip(10, 2, s>>8, s&255)}
	}
}

// leafSpineLinux is the same where the last leaf answers with the interface by which it would send something back.
func leafSpineLinux(spines int, h, back hashing) func(t ecmp.Tuple) []netip.Addr {
	return func(t ecmp.Tuple) []netip.Addr {
		s, r := h(t, spines), back(t, spines)
		return []netip.Addr{ip(10, 0, 1, 1), ip(10, 1, s>>8, s&255), ip(10, 2, r>>8, r&255)}
	}
}

// prober is a Prober on a fabric, for a test in a synctest bubble.
func prober(t *testing.T, f *fabric, rate int) *Prober {
	t.Helper()
	p, err := Start(f, Config{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// right fails where a port of the map leads elsewhere than it says, where two paths are one, and where a packet came to
// the target.
func right(t *testing.T, f *fabric, m *Map, paths, perPath int) {
	t.Helper()
	if len(m.Paths) != paths || m.Ports.Paths() != paths {
		t.Fatalf("%d paths, %d in the port map, want %d: %v", len(m.Paths), m.Ports.Paths(), paths, m.Paths)
	}
	seen := map[string]int{}
	for i := range paths {
		if n := len(m.Ports.Ports(i)); n < perPath {
			t.Errorf("path %d has %d ports, want %d", i, n, perPath)
		}
		for j, port := range m.Ports.Ports(i) {
			way := f.route(m.Target.Tuple(port))
			if s := viaText(way[:min(len(way), 2)]); j == 0 {
				if k, taken := seen[s]; taken {
					t.Errorf("paths %d and %d are one: %s", k, i, s)
				}
				seen[s] = i
			} else if k, ok := seen[s]; !ok || k != i {
				t.Errorf("port %d of path %d goes by %s", port, i, s)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reached > 0 {
		t.Errorf("%d probes came to the target", f.reached)
	}
}
