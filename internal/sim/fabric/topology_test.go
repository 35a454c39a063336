package fabric

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// murmur3 is MurmurHash3_x86_32 of any key, as its author has published it, to check the product's own against.
func murmur3(key []byte, seed uint32) uint32 {
	h, n := seed, uint32(len(key))
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	for ; len(key) >= 4; key = key[4:] {
		h = bits.RotateLeft32(h^mix(binary.LittleEndian.Uint32(key)), 13)*5 + 0xe6546b64
	}
	var tail [4]byte
	if copy(tail[:], key) > 0 {
		h ^= mix(binary.LittleEndian.Uint32(tail[:]))
	}
	h ^= n
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// key is what a switch of the ns-3 family hashes.
func key(src, dst int, sport, dport uint16) []byte {
	var b [12]byte
	binary.LittleEndian.PutUint32(b[0:], 0x0b000001+uint32(src)<<8)
	binary.LittleEndian.PutUint32(b[4:], 0x0b000001+uint32(dst)<<8)
	binary.LittleEndian.PutUint32(b[8:], uint32(sport)|uint32(dport)<<16)
	return b[:]
}

func topologyOf(t testing.TB, c ecmp.Config) *Topology {
	t.Helper()
	topo, err := NewTopology(c, 100_000_000_000, sim.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func TestHashesAreThoseOfTheReference(t *testing.T) {
	if h := murmur3([]byte("test"), 0); h != 0xba6bd213 {
		t.Fatalf("the checker is wrong: %#x", h)
	}
	topo := topologyOf(t, LeafSpine(2, 8, 4, 100_000_000_000))
	for i, spine := range [8]int{0, 2, 1, 0, 3, 3, 0, 0} {
		if got := topo.PathOf(i, 8+i, 10_000); got != spine {
			t.Errorf("the flow from host %d takes spine %d, want %d", i, got, spine)
		}
		if want := int(murmur3(key(i, 8+i, 10_000, DstPort), 16) % 4); want != spine {
			t.Errorf("the checker puts the flow from host %d on spine %d, want %d", i, want, spine)
		}
		// Acknowledgements hash for themselves, at the receiver's leaf.
		if got, want := topo.BackOf(i, 8+i, 10_000), int(murmur3(key(8+i, i, DstPort, 10_000), 17)%4); got != want {
			t.Errorf("the acknowledgements to host %d take spine %d, want %d", i, got, want)
		}
	}
}

func TestLeafSpine(t *testing.T) {
	topo := topologyOf(t, LeafSpine(2, 8, 4, 25_000_000_000))
	if topo.Hosts() != 16 || topo.Nodes() != 22 || len(topo.Links) != 2*16+2*2*4 {
		t.Fatalf("%d hosts, %d nodes, %d links", topo.Hosts(), topo.Nodes(), len(topo.Links))
	}
	names := func(links []LinkIndex) (s []string) {
		for _, l := range links {
			s = append(s, topo.Links[l].Name)
		}
		return s
	}
	paths := topo.Paths(3, 12)
	for p, want := range [][]string{{"leaf0->spine0", "spine0->leaf1"}, {"leaf0->spine1", "spine1->leaf1"}, {"leaf0->spine2", "spine2->leaf1"}, {"leaf0->spine3", "spine3->leaf1"}} {
		if got := names(paths[p]); !slices.Equal(got, want) {
			t.Errorf("path %d is %v, want %v", p, got, want)
		}
	}
	if up, down := topo.Links[topo.Up(3)], topo.Links[topo.Down(12)]; up.Name != "h3->leaf0" || down.Name != "leaf1->h12" {
		t.Errorf("it begins at %s and ends at %s", up.Name, down.Name)
	}
	if p := topo.Paths(0, 7); len(p) != 1 || len(p[0]) != 0 {
		t.Errorf("hosts of one leaf have the paths %v, want one without links", p)
	}
	for i, l := range topo.Links {
		if l.Rate != 25_000_000_000 || l.Delay != sim.Microsecond {
			t.Errorf("%s has %d bit/s and %v", l.Name, l.Rate, l.Delay)
		}
		if found, ok := topo.ByID(l.ID); l.ID != 0 && (!ok || found != LinkIndex(i)) {
			t.Errorf("%s is found as %d, %v", l.Name, found, ok)
		}
	}
	if topo.Connected(3, 3) || !topo.Connected(3, 4) || !topo.Connected(3, 12) {
		t.Error("Connected is wrong")
	}
}

// Two pods with two spines each, four cores: a flow between pods chooses a spine, and there one of the spine's two cores.
func TestFatTreeHasPathsOfThreeTiers(t *testing.T) {
	topo := topologyOf(t, FatTree(2, 2, 2, 2, 4, 100_000_000_000))
	if topo.Hosts() != 8 || topo.Nodes() != 8+4+4+4 {
		t.Fatalf("%d hosts, %d nodes", topo.Hosts(), topo.Nodes())
	}
	var got []string
	for _, p := range topo.Paths(0, 7) {
		s := ""
		for _, l := range p {
			s += topo.Links[l].Name + " "
		}
		got = append(got, s)
	}
	want := []string{
		"leaf0->spine0 spine0->core0 core0->spine2 spine2->leaf3 ", "leaf0->spine0 spine0->core2 core2->spine2 spine2->leaf3 ",
		"leaf0->spine1 spine1->core1 core1->spine3 spine3->leaf3 ", "leaf0->spine1 spine1->core3 core3->spine3 spine3->leaf3 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("between pods:\n%q, want\n%q", got, want)
	}
	if p := topo.Paths(0, 3); len(p) != 2 || len(p[0]) != 2 {
		t.Errorf("within a pod: %v, want two paths of two links", p)
	}
}

func TestBondsAreLinksOfTheirOwn(t *testing.T) {
	c := LeafSpine(2, 2, 2, 100_000_000_000)
	c.Links[0].Bond = 3 // leaf0 to spine0
	topo := topologyOf(t, c)
	if len(topo.Links) != 2*4+2*(3+1+1+1) {
		t.Fatalf("%d links", len(topo.Links))
	}
	var first []string
	for _, p := range topo.Paths(0, 2) {
		first = append(first, topo.Links[p[0]].Name)
	}
	if want := []string{"leaf0->spine0#1", "leaf0->spine0#2", "leaf0->spine0#3", "leaf0->spine1"}; !slices.Equal(first, want) {
		t.Errorf("paths begin with %q, want %q", first, want)
	}
	last := map[LinkIndex]int{}
	for _, p := range topo.Paths(0, 2) {
		last[p[1]]++
	}
	if len(last) != 2 {
		t.Errorf("paths over one bond go on over the same link; %v", last)
	}
	// The switch hashes twice with the same hash here: to spine0 when it is even, and then to a member.
	for port := range uint16(1000) {
		h := murmur3(key(0, 2, port, DstPort), 4)
		want := 3
		if h%2 == 0 {
			want = int(h % 3)
		}
		if got := topo.PathOf(0, 2, port); got != want {
			t.Fatalf("port %d takes path %d, want %d", port, got, want)
		}
	}
}

// Hop by hop, each switch with its own seed and its next hops in order, a flow comes to the path that PathOf gives.
func TestPathOfIsHashingHopByHop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, leaves, perLeaf := rapid.IntRange(1, 3).Draw(t, "pods"), rapid.IntRange(1, 3).Draw(t, "leaves"), rapid.IntRange(1, 3).Draw(t, "hosts a leaf")
		spines, coresEach := rapid.IntRange(1, 4).Draw(t, "spines"), rapid.IntRange(1, 3).Draw(t, "cores a spine")
		n := pods * leaves * perLeaf
		if n < 2 {
			return
		}
		topo, err := NewTopology(FatTree(pods, leaves, perLeaf, spines, spines*coresEach, 1_000_000_000), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		src, dst := rapid.IntRange(0, n-1).Draw(t, "src"), rapid.IntRange(0, n-2).Draw(t, "dst")
		if dst >= src {
			dst++
		}
		port := rapid.Uint16().Draw(t, "port")
		walk := func(from, to int, sport, dport uint16) (names []string) {
			choice := func(node, ways int) int {
				return int(murmur3(key(from, to, sport, dport), uint32(node)) % uint32(ways))
			}
			leafA, leafB := from/perLeaf, to/perLeaf
			podA, podB := leafA/leaves, leafB/leaves
			if leafA == leafB {
				return nil
			}
			s := choice(n+leafA, spines)
			spineA, spineB := podA*spines+s, podB*spines+s
			names = append(names, fmt.Sprintf("leaf%d->spine%d", leafA, spineA))
			if podA != podB {
				core := s + spines*choice(n+pods*leaves+spineA, coresEach)
				names = append(names, fmt.Sprintf("spine%d->core%d", spineA, core), fmt.Sprintf("core%d->spine%d", core, spineB))
			}
			return append(names, fmt.Sprintf("spine%d->leaf%d", spineB, leafB))
		}
		check := func(what string, path []LinkIndex, want []string) {
			var got []string
			for _, l := range path {
				got = append(got, topo.Links[l].Name)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s from host %d to host %d, port %d: %q, want %q", what, src, dst, port, got, want)
			}
		}
		check("data", topo.Paths(src, dst)[topo.PathOf(src, dst, port)], walk(src, dst, port, DstPort))
		check("acknowledgements", topo.Paths(dst, src)[topo.BackOf(src, dst, port)], walk(dst, src, DstPort, port))
	})
}

func TestTopologiesThatMakeNoSenseAreRefused(t *testing.T) {
	if _, err := NewTopology(LeafSpine(2, 2, 2, 1), 0, 0); err == nil {
		t.Error("a rate of 0 is taken")
	}
	if _, err := NewTopology(LeafSpine(2, 2, 2, 1), 1, -1); err == nil {
		t.Error("a delay below 0 is taken")
	}
	if _, err := NewTopology(ecmp.Config{Hosts: []ecmp.Host{{Name: "h", Leaf: "nowhere"}}}, 1, 0); err == nil {
		t.Error("a host on no switch is taken")
	}
}

func TestHostsWithoutAPathAreNotConnected(t *testing.T) {
	topo := topologyOf(t, LeafSpine(2, 2, 0, 1))
	if topo.Connected(0, 3) || !topo.Connected(0, 1) || topo.Connected(0, 0) {
		t.Error("Connected is wrong where leaves have no spines")
	}
}
