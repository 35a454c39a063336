package reserve

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// called is one that the schedule lets in, and over which paths.
type called struct {
	owner peer.ID
	id    uint64
	paths []int
}

// naiveSchedule is one round by the words of shoal.go, of a table in which nobody has been called before.
func naiveSchedule(rows []Row, at int64, cfg Config, pathsOf func(src, dst peer.ID) []ecmp.Path, capacity int64) (calls []called) {
	sending, receiving, links := map[peer.ID]bool{}, map[peer.ID]bool{}, map[ecmp.LinkID]int64{}
	const forever = 1<<63 - 1
	var waiting []Row
	for _, r := range rows {
		switch e := r.Entry; {
		case e.Phase == Intent && e.Ready > 0 && e.End > e.Ready && e.Ready <= at:
			waiting = append(waiting, r)
		case e.Phase == Active && (e.End == 0 || e.End > at):
			sending[r.Owner], receiving[e.Dst] = true, true
			for _, l := range e.Links {
				until := e.End
				if until == 0 {
					until = forever
				}
				links[l] = max(links[l], until)
			}
		}
	}
	turn := func(e Entry) int64 { return e.Ready + (e.End-e.Ready)*cfg.Aging/1000 }
	slices.SortFunc(waiting, func(a, b Row) int {
		return cmp.Or(cmp.Compare(turn(a.Entry), turn(b.Entry)), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Entry.ID, b.Entry.ID))
	})
	free := func(p ecmp.Path) bool {
		return !slices.ContainsFunc(p.Links, func(l ecmp.LinkID) bool { return links[l] > 0 })
	}
	for _, r := range waiting {
		e := r.Entry
		old := at-e.Ready >= cfg.MaxWait.Microseconds()
		if at-e.Ready > 2*cfg.GiveUp.Microseconds() {
			continue
		}
		busy := sending[r.Owner] || receiving[e.Dst]
		paths := pathsOf(r.Owner, e.Dst)
		var got []int
		if !busy {
			length := float64(e.End - e.Ready)
			for i, p := range paths {
				width := float64(capacity) * float64(len(got))
				if free(p) && len(got) < cfg.Legs && (len(got) == 0 || len(p.Links) > 0 && width*length/1e6 < float64(e.Bytes)*8) {
					got = append(got, i)
					for _, l := range p.Links {
						links[l] = max(links[l], at+e.End-e.Ready)
					}
				}
			}
			if len(got) > 0 || len(paths) == 0 {
				calls = append(calls, called{r.Owner, e.ID, got})
				sending[r.Owner], receiving[e.Dst] = true, true
				continue
			}
		}
		if old {
			sending[r.Owner], receiving[e.Dst] = true, true
			if !busy {
				ends := func(p ecmp.Path) (end int64) {
					for _, l := range p.Links {
						end = max(end, links[l])
					}
					return end
				}
				first := slices.MinFunc(paths, func(a, b ecmp.Path) int { return cmp.Compare(ends(a), ends(b)) })
				for _, l := range first.Links {
					links[l] = max(links[l], ends(first))
				}
			}
		}
	}
	return calls
}

// calls is what a table's last round let in.
func (t *Table) calls() (calls []called) {
	for _, w := range t.waiters {
		if w.called {
			c := called{owner: w.owner, id: w.id}
			for _, p := range w.paths[:w.n] {
				c.paths = append(c.paths, int(p))
			}
			calls = append(calls, c)
		}
	}
	return calls
}

// Peers whose tables are equal reckon the same schedule, and it is the one of shoal.go.
func TestEqualTablesMakeTheSameSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		const rate = 100e9
		leaves, perLeaf, spines := 1+rng.IntN(3), 1+rng.IntN(3), 1+rng.IntN(4)
		hosts := leaves * perLeaf
		name := func(i int) peer.ID { return peer.ID(fmt.Sprintf("h%d", i)) }
		all := map[[2]int][]ecmp.Path{}
		for a := range leaves {
			for b := range leaves {
				if all[[2]int{a, b}] = spread(spines, a, b); a == b {
					all[[2]int{a, b}] = []ecmp.Path{{}}
				}
			}
		}
		unknown := rng.IntN(4) == 0
		pathsOf := func(src, dst peer.ID) []ecmp.Path {
			if unknown {
				return nil
			}
			return all[[2]int{int(src[1]-'0') / perLeaf, int(dst[1]-'0') / perLeaf}]
		}
		var tables []*Table
		for i := range hosts {
			x := newTable(t, name(i), 1, uint64(i))
			x.SetPaths(pathsOf, gigabits(100))
			tables = append(tables, x)
		}
		end := time.Duration(rng.Int64N(int64(40 * time.Second))) // the longest wait
		wall := noon + end
		for i, x := range tables {
			for range rng.IntN(5) {
				dst := name(rng.IntN(hosts))
				paths := all[[2]int{i / perLeaf, int(dst[1]-'0') / perLeaf}]
				s, err := x.Paths(paths, gigabits(100))
				if err != nil {
					t.Fatal(err)
				}
				bytes := 1 + rng.Int64N(8<<30)
				req := Request{Dst: dst, Bytes: bytes, Set: s, Policy: Shoal, Rate: []int64{0, rate, 2 * rate, 3 * rate}[rng.IntN(4)]}
				if rng.IntN(3) == 0 { // one that moves, perhaps beyond its end
					path := rng.IntN(len(paths))
					var g Grant
					a := asked{now: 0, wall: noon, req: &req, grant: &g, length: 1 + rng.Int64N(1e6)}
					if a.end = (wall + time.Duration(rng.IntN(100)-20)*time.Millisecond).Microseconds(); rng.IntN(4) == 0 {
						a.end = 0
					}
					x.reserve(&a, path, bytes)
					continue
				}
				req.Phase, req.Ready = Intent, (noon + time.Duration(rng.Int64N(int64(end)+int64(time.Second))) + 1000).Microseconds()
				if unknown && len(paths[0].Links) > 0 { // its owner knows more than others
					continue
				}
				mustReserve(t, x, 0, req)
			}
		}
		for i, x := range tables {
			for _, m := range x.Take(nil) {
				for j, y := range tables {
					if j != i {
						if v := y.Heard(0, wall, m.Owner, &m); v != Accepted {
							t.Fatal(v)
						}
					}
				}
			}
		}
		want := naiveSchedule(tables[0].Rows(nil), wall.Microseconds(), Defaults(), func(src, dst peer.ID) []ecmp.Path {
			return all[[2]int{int(src[1]-'0') / perLeaf, int(dst[1]-'0') / perLeaf}]
		}, rate)
		for _, x := range tables {
			if x.Digest() != tables[0].Digest() {
				t.Fatal("the tables are not equal")
			}
			x.plan(end, wall)
			got := x.calls()
			if unknown {
				for i := range got {
					got[i].paths, want[i].paths = nil, nil
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s calls %+v, want %+v, of %+v", x.self, got, want, x.Rows(nil))
			}
			x.auditSchedule(t)
		}
	})
}

// auditSchedule compares what the table keeps for speed with what its rows say.
func (t *Table) auditSchedule(f failer) {
	f.Helper()
	owed, waiters, sending := map[peer.ID]int64{}, 0, 0
	for _, r := range t.Rows(nil) {
		e := r.Entry
		owed[e.Dst] += e.Bytes
		if e.Phase == Intent && e.End > e.Ready && e.Ready > 0 {
			waiters++
		}
		if e.Phase == Active && r.Owner == t.self {
			sending++
		}
	}
	for id, n := range t.nics {
		if n.owed != owed[id] {
			f.Fatalf("%d bytes to %s; by the rows %d", n.owed, id, owed[id])
		}
	}
	own := 0
	for _, list := range [][]*waiter{t.waiters, t.ours} {
		for i := range list {
			if i > 0 && list[i-1].compare(list[i]) >= 0 {
				f.Fatalf("waiters %d and %d are out of order", i-1, i)
			}
		}
	}
	for i, w := range t.coming {
		if w.place != i || i > 0 && t.coming[(i-1)/2].ready > w.ready {
			f.Fatalf("waiter %d of those that come is not at its place", i)
		}
	}
	for _, list := range [][]*waiter{t.waiters, t.coming} {
		for _, w := range list {
			if w.own {
				own++
			}
			if w.own != slices.Contains(t.ours, w) {
				f.Fatalf("%s %d is among the own waiters, or is not", w.owner, w.id)
			}
		}
	}
	if t.waiting() != waiters || own != len(t.ours) || sending != t.sending {
		f.Fatalf("%d waiters, %d own, %d sending; by the rows %d waiters, %d sending", t.waiting(), len(t.ours), t.sending, waiters, sending)
	}
	active := 0
	for i := range t.held {
		if h := &t.held[i]; h.owner != nil && h.entry.Phase == Active {
			if active++; t.active[h.moves] != uint32(i) {
				f.Fatalf("%d of %s is not among the active", h.entry.ID, h.owner.id)
			}
		}
	}
	if active != len(t.active) {
		f.Fatalf("%d active; %d are listed", active, len(t.active))
	}
	idle, lanes := 0, 0
	for _, n := range t.nics {
		if n.holds == 0 {
			idle++
		}
	}
	for _, l := range t.lanes {
		lanes += len(l.paths)
	}
	if idle != t.idleNICs || lanes != t.lanePaths {
		f.Fatalf("%d idle NICs counted as %d, %d paths as %d", idle, t.idleNICs, lanes, t.lanePaths)
	}
}

// Whatever the network does, every transfer begins and ends, nobody waits beyond what others and the bound allow, and
// nothing is held afterwards. Where news take no time, no two scheduled transfers ever share anything.
func TestEveryTransferEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := plantConfig{leaves: rapid.IntRange(1, 3).Draw(t, "leaves"), spines: rapid.IntRange(1, 4).Draw(t, "spines"), perLeaf: rapid.IntRange(1, 4).Draw(t, "hosts"),
			rate: 100e9, policy: Shoal, efficiency: rapid.SampledFrom([]float64{1, 1000.0 / 1036}).Draw(t, "efficiency")}
		seed := rapid.Uint64Range(0, 1<<32).Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 3))
		if rng.IntN(2) == 0 {
			c.announce = time.Duration(rng.IntN(1000)) * time.Millisecond
		}
		perfect := rapid.Bool().Draw(t, "perfect")
		if !perfect {
			c.delay, c.jitter, c.skew = time.Duration(rng.IntN(80))*time.Millisecond, 1+time.Duration(rng.IntN(20))*time.Millisecond, 1+time.Duration(rng.IntN(60))*time.Millisecond
			c.lose, c.blind = rng.Float64()*0.4, rng.IntN(4) == 0
		}
		p := newPlant(t, seed, c)
		hosts := c.leaves * c.perLeaf
		n := rapid.IntRange(1, 20).Draw(t, "transfers")
		var bytes int64
		for range n {
			src, dst := rng.IntN(hosts), rng.IntN(hosts)
			b := 1 + rng.Int64N(2<<30)
			bytes += b
			p.arrive(time.Second+time.Duration(rng.Int64N(int64(2*time.Second))), src, dst, b)
		}
		p.run(10 * time.Minute)
		serial := time.Duration(float64(bytes) * 8 / float64(c.rate) / p.efficiency * 1e9) // all of them one after the other
		for i, x := range p.all {
			if !x.done {
				t.Fatalf("transfer %d never ends: %+v", i, x)
			}
			if wait := x.began - x.ready; wait > Defaults().GiveUp || perfect && wait > serial+time.Millisecond {
				t.Fatalf("transfer %d waits %v; all together take %v", i, wait, serial)
			}
		}
		for _, h := range p.hosts {
			if h.table.Len() > 0 || h.table.waiting() > 0 || h.table.sending > 0 {
				t.Fatalf("%s still holds %+v", h.name, h.table.Rows(nil))
			}
			h.table.auditSchedule(t)
			h.table.audit(t, nil)
		}
		if perfect && p.shared > 0 {
			t.Fatalf("scheduled transfers shared %d times", p.shared)
		}
	})
}

// Nobody announces further ahead than MaxReady, its clock's lead included: what says so is refused, in a message and in a section.
func TestNobodyIsReadyInTheFarFuture(t *testing.T) {
	latest := (noon + MaxReady + MaxAhead).Microseconds()
	for i, c := range []struct {
		ready int64
		want  Verdict
	}{{latest, Accepted}, {latest + 1, TooFarAhead}, {MaxTime - 1000, TooFarAhead}} {
		x := newTable(t, "x", 1, 1)
		g := mustReserve(t, x, 0, Request{Set: paths(t, x, spread(4, 0, 1)), Bytes: 1e9, Policy: Shoal, Phase: Intent, Ready: (noon + time.Second).Microseconds()})
		e := Entry{ID: 1, Seq: 1, Stamp: StampAt(noon), Phase: Intent, Dst: "d", Bytes: 1e9, Ready: c.ready, End: c.ready + 1000}
		if v := x.Heard(0, noon, "b", &Message{"b", 1, false, e}); v != c.want {
			t.Errorf("%d: %v, want %v", i, v, c.want)
		}
		if x.Merge(0, noon, "c", 1, &Section{Seq: 1, Entries: []Entry{e}}); x.Stats().Verdicts[c.want] != 2 {
			t.Errorf("%d: in a section %v", i, x.Stats().Verdicts)
		}
		if ids, next := x.Admit(0, noon, nil); len(ids) > 0 || next < 0 || next > time.Second {
			t.Errorf("%d: %v, next at %v of %d", i, ids, next, g.ID)
		}
	}
	for _, us := range []int64{int64(never / time.Microsecond), int64(never/time.Microsecond) + 1, 1<<63 - 1} {
		if at := later(time.Hour, 0, us); at != never {
			t.Errorf("%d us come at %v", us, at)
		}
	}
	if at := later(time.Hour, noon, (noon + time.Second).Microseconds()); at != time.Hour+time.Second {
		t.Errorf("a second from now is %v", at)
	}
}

// What has ended early counts until the others know, the newest too, though this peer goes through no rounds.
func TestManyEndEarly(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	far(t, x, 21*time.Millisecond, 1, 20) // messages take 20 ms
	set := paths(t, x, spread(4, 7, 8))
	g := mustReserve(t, x, 0, Request{Dst: "e", Set: set, Bytes: 20e9, Policy: Shoal, Flows: MaxLegs + 2, Rate: 400e9})
	if len(g.Legs) != MaxLegs+2 || g.Queued {
		t.Fatalf("%+v", g)
	}
	now := 10 * time.Millisecond
	for i, l := range g.Legs {
		if i == MaxLegs { // the others know of those before
			now += 21 * time.Millisecond
		}
		x.Release(now, noon+now, l.ID)
		if n := len(x.ended); n == 0 || n != i%MaxLegs+1 || x.ended[n-1].until != (noon+now+20*time.Millisecond).Microseconds() {
			t.Fatalf("%d: %+v", i, x.ended)
		}
	}
}

// However many paths are taken, whoever has a free one gets it.
func TestTheLastOfManyPathsIsFound(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	const crowds = 2 + maxLooks/MaxPaths
	all := map[peer.ID][]ecmp.Path{}
	name := func(i int) peer.ID { return peer.ID(fmt.Sprint("s", i)) }
	for i := range crowds {
		taken := []ecmp.Path{{Links: []ecmp.LinkID{1}}}
		for range MaxPaths - 1 {
			taken = append(taken, taken[0])
		}
		all[name(i)] = taken
	}
	all["last"] = slices.Clone(all[name(0)])
	all["last"][MaxPaths-1] = ecmp.Path{Links: []ecmp.LinkID{2}}
	x.SetPaths(func(src, _ peer.ID) []ecmp.Path { return all[src] }, gigabits(100))
	tell := func(src peer.ID, e Entry) {
		e.ID, e.Seq, e.Stamp, e.Bytes = 1, 1, StampAt(noon), 1e9
		if v := x.Heard(0, noon, src, &Message{src, 1, false, e}); v != Accepted {
			t.Fatal(v)
		}
	}
	at := noon.Microseconds()
	tell("a", Entry{Dst: "b", Links: []ecmp.LinkID{1}, End: at + 1e6})
	for i := range crowds {
		ready := at - 1000
		if i%2 == 1 { // waits for so long that it keeps a path
			ready -= x.maxWait
		}
		tell(name(i), Entry{Phase: Intent, Dst: "d" + name(i), Ready: ready, End: ready + 80_000})
	}
	tell("last", Entry{Phase: Intent, Dst: "dlast", Ready: at, End: at + 80_000})
	x.plan(0, noon)
	if got := x.calls(); !reflect.DeepEqual(got, []called{{"last", 1, []int{MaxPaths - 1}}}) {
		t.Errorf("it calls %+v", got)
	}
	if x.looks > maxLooks+MaxPaths {
		t.Errorf("%d paths are looked at to keep one", x.looks)
	}
}

// Who has waited for twice GiveUp has given up, or is dead: it keeps nobody off.
func TestWhoHasGivenUpIsOutOfTheSchedule(t *testing.T) {
	x := newTable(t, "x", 1, 1)
	at := noon.Microseconds()
	for i, c := range []struct {
		src   peer.ID
		ready int64
	}{{"a", at}, {"b", at + x.giveUp}} {
		e := Entry{ID: 1, Seq: 1, Stamp: StampAt(noon), Phase: Intent, Dst: "d", Bytes: 1e9, Ready: c.ready, End: c.ready + 80_000}
		if v := x.Heard(0, noon, c.src, &Message{c.src, 1, false, e}); v != Accepted {
			t.Fatal(i, v)
		}
	}
	for _, c := range []struct {
		after int64
		want  peer.ID
	}{{2 * x.giveUp, "a"}, {2*x.giveUp + 1, "b"}} {
		x.version++
		for _, w := range x.waiters {
			w.called = false
		}
		x.plan(time.Duration(c.after)*time.Microsecond, noon+time.Duration(c.after)*time.Microsecond)
		if got := x.calls(); len(got) != 1 || got[0].owner != c.want {
			t.Errorf("after %d us it calls %+v, want %s", c.after, got, c.want)
		}
	}
}
