package probe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWhenItIsUnlikelyThatAPathIsMissing(t *testing.T) {
	for _, c := range []struct{ paths, ports int }{{1, 21}, {2, 37}, {3, 53}, {4, 70}, {8, 136}, {16, 275}, {64, 1161}} {
		enough := 0
		for overlooked(c.paths, enough) > 1e-6 {
			enough++
		}
		if enough != c.ports {
			t.Errorf("%d paths need %d ports, want %d", c.paths, enough, c.ports)
		}
	}
	if overlooked(0, 100) != 1 || overlooked(4, 0) != 1 {
		t.Error("a probability is not one")
	}
}

// The bound holds: of many runs with m+1 equal paths, not more stop at m than it says.
func TestTheStopRuleKeepsItsPromise(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, paths := range []int{2, 4, 8} {
		const runs, miss = 20000, 0.02
		missed := 0
		for range runs {
			seen := map[int]bool{}
			for n := 1; ; n++ {
				seen[r.IntN(paths)] = true
				if overlooked(len(seen), n) <= miss {
					break
				}
			}
			if len(seen) < paths {
				missed++
			}
		}
		// It may stop too early once at each number of paths before the last, so the sum of these is what holds.
		if share := float64(missed) / runs; share > miss*float64(paths-1) {
			t.Errorf("%d paths: missed some in %.4f of all runs", paths, share)
		}
	}
}

// Whatever is answered, and in whatever order: a reading is consistent in itself, and never puts ports with different
// answers on one path.
func TestAReadingIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(rapid.IntRange(1, 4).Draw(t, "hops"), Options{Retries: 1, Miss: 1e-3, Inbound: rapid.Bool().Draw(t, "inbound")})
		n := rapid.IntRange(0, 150).Draw(t, "notes")
		for range n {
			a := addr{10, 0, 0, byte(rapid.IntRange(1, 4).Draw(t, "who"))}
			if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				a = addr{}
			}
			port := uint16(rapid.IntRange(1, 40).Draw(t, "port"))
			b.note(port, uint8(rapid.IntRange(1, b.hops).Draw(t, "ttl")), a)
			if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
				b.open(port).again++
			}
		}
		r := b.read()
		known, sum := 0, 0
		for i, tr := range b.traces {
			if r.of[i] < 0 {
				continue
			}
			known++
			k := r.keys[r.of[i]]
			for h := range k {
				if tr.seen[h] != (addr{}) && k[h] != (addr{}) && tr.seen[h] != k[h] {
					t.Fatalf("port %d answered %v and is on %v", tr.port, tr.seen, k)
				}
				if k[h] != (addr{}) && r.kinds[h] != telling {
					t.Fatalf("hop %d is in a path and tells nothing", h)
				}
			}
		}
		for i, n := range r.ports {
			sum += n
			if n == 0 {
				t.Fatalf("path %d has no port", i)
			}
			if i > 0 && r.keys[i-1].compare(r.keys[i]) >= 0 {
				t.Fatal("paths are not sorted")
			}
		}
		if known != r.known || sum != known {
			t.Fatalf("%d known, %d counted, %d in paths", known, r.known, sum)
		}
	})
}

func TestABucketKeepsItsRate(t *testing.T) {
	b := newBucket(100, 8)
	now := time.Duration(0)
	free := 0
	for range 20 {
		if b.take(now) == 0 {
			free++
		}
	}
	if free != 8 {
		t.Errorf("%d left at once, want 8", free)
	}
	for range 1000 {
		now += b.take(now)
	}
	if got := float64(1020-8) / now.Seconds(); math.Abs(got-100) > 1 {
		t.Errorf("%.1f a second", got)
	}
	now += time.Hour // the burst does not grow
	free = 0
	for range 20 {
		if b.take(now) == 0 {
			free++
		}
	}
	if free != 8 {
		t.Errorf("%d left at once after a pause, want 8", free)
	}
}

func TestPace(t *testing.T) {
	p := newPace(200)
	text := ""
	for _, c := range [][2]int{{64, 64}, {64, 20}, {64, 20}, {3, 0}, {64, 40}, {64, 64}, {64, 0}, {64, 0}, {64, 0}, {64, 0}, {64, 0}, {64, 0}, {64, 0}, {64, 64}} {
		p.heard(c[0], c[1])
		text += fmt.Sprint(p.rate, " ")
	}
	if text != "200 100 50 50 50 75 37 18 9 4 2 2 2 27 " {
		t.Error(text)
	}
	if p = newPace(1); p.rate != 1 {
		t.Error(p.rate)
	}
	p.heard(64, 0)
	if p.rate != 1 {
		t.Error(p.rate)
	}
}
