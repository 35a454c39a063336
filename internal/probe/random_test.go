package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/ecmp"
)

// Networks of any sort: loss, doubled answers, routers that answer few probes a second or none, a last leaf that
// answers with its way back, a mute target, a seed that changes. A map that is learned is right, whatever happened; it
// misses only paths whose routers are silent; and no probe comes to the target.
func TestMapsOfRandomNetworksAreRight(t *testing.T) {
	cases := networks
	if n, err := strconv.Atoi(os.Getenv("SHOAL_PROBE_NETWORKS")); err == nil {
		cases = n
	}
	outcome := map[string]int{}
	for seed := range uint64(cases) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 99))
				spines, hash, back := 1+r.IntN(8), murmur(r.Uint32()), murmur(r.Uint32())
				linux := r.IntN(3) == 0
				quiet := map[netip.Addr]bool{}
				network := func(hash hashing) func(tu ecmp.Tuple) []netip.Addr {
					inner := leafSpine(spines, hash)
					if linux {
						inner = leafSpineLinux(spines, hash, back)
					}
					return func(tu ecmp.Tuple) []netip.Addr {
						way := inner(tu)
						for i, a := range way {
							if quiet[a] {
								way[i] = netip.Addr{}
							}
						}
						return way
					}
				}
				if r.IntN(3) == 0 {
					for s := range spines {
						quiet[ip(10, 1, 0, s)] = r.IntN(3) == 0
						quiet[ip(10, 2, 0, s)] = r.IntN(6) == 0
					}
					quiet[ip(10, 0, 1, 1)] = r.IntN(3) == 0
				}
				f := newFabric(network(hash))
				f.loss, f.twice = max(0, r.Float64()*0.3-0.15), r.Float64()*0.1
				f.limit = []int{0, 0, 100, 10}[r.IntN(4)]
				f.mute = r.IntN(5) == 0
				before, changed := f.route, time.Time{}
				after := network(murmur(r.Uint32()))
				// What a change moves to a silent router falls silent, and proves little: that is for another test.
				if len(quiet) == 0 && r.IntN(4) == 0 {
					timer := time.AfterFunc(time.Duration(r.IntN(2000))*time.Millisecond, func() { f.set(func() { f.route, changed = after, time.Now() }) })
					defer timer.Stop()
				}
				target := to
				target.Proto = []uint8{ecmp.TCP, ecmp.UDP}[r.IntN(2)]
				m, err := prober(t, f, 500).Learn(t.Context(), target, Options{Seed: seed, PerPath: 1 + r.IntN(20)})
				silentSpines := false
				for _, q := range quiet {
					silentSpines = silentSpines || q
				}
				switch {
				case err == nil:
					outcome[m.How.String()]++
				case errors.Is(err, ErrBlind) && (silentSpines || f.mute), errors.Is(err, ErrUnstable):
					outcome[errors.Unwrap(err).Error()]++
					return
				default:
					t.Fatal(err)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.reached > 0 {
					t.Errorf("%d probes came to the target", f.reached)
				}
				if len(m.Paths) > spines || !silentSpines && m.Complete && len(m.Paths) < spines {
					t.Errorf("%d paths of %d: %v", len(m.Paths), spines, m.Paths)
				}
				// What the paths say is compared with who would answer, were nobody silent.
				clear(quiet)
				wrong := misled(m, f.route)
				if wrong != "" && time.Since(changed) < 2*time.Second { // too late for the last look, perhaps
					wrong = misled(m, before)
				}
				if wrong != "" {
					t.Error(wrong)
				}
			})
		})
	}
	t.Log(outcome)
}

// misled says where ports of one path go by different spines, or ports of different paths by one.
func misled(m *Map, route func(tu ecmp.Tuple) []netip.Addr) (wrong string) {
	of, taken := map[netip.Addr]int{}, map[int]netip.Addr{}
	for i := range m.Paths {
		for _, port := range m.Ports.Ports(i) {
			spine := route(m.Target.Tuple(port))[1]
			if j, ok := of[spine]; ok && j != i {
				wrong += fmt.Sprintf("spine %s is on paths %d and %d\n", spine, i, j)
			}
			if s, ok := taken[i]; ok && s != spine {
				wrong += fmt.Sprintf("path %d goes by %s and by %s: %v\n", i, s, spine, m.Paths[i])
			}
			of[spine], taken[i] = i, spine
		}
	}
	return wrong
}
