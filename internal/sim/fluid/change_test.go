package fluid

import (
	"slices"
	"strings"
	"testing"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

const alone20MB = 1_668_265 * sim.Nanosecond

func start(f *Fluid, src, dst, path int, bytes int64) fabric.ID {
	return f.Start(fabric.Flow{Src: src, Dst: dst, Bytes: bytes, Paths: []int{path}})
}

// ends goes on for a second, and returns when flows ended.
func ends(t testing.TB, f *Fluid) map[fabric.ID]sim.Time {
	t.Helper()
	return pass(t, f, f.Now()+sim.Second)
}

func pass(t testing.TB, f *Fluid, until sim.Time) map[fabric.ID]sim.Time {
	t.Helper()
	at := map[fabric.ID]sim.Time{}
	for {
		e, ok := f.Step(until)
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if !ok {
			return at
		}
		at[e.ID] = e.At
	}
}

func near(t testing.TB, what string, got, want sim.Time) {
	t.Helper()
	if d := got - want; d > sim.Nanosecond || -d > sim.Nanosecond {
		t.Errorf("%s: %d ps, want %d", what, got, want)
	}
}

func TestMoveTakesEffectAtOnce(t *testing.T) {
	f := newFluid(t, paper(t))
	a, b := start(f, 0, 8, 1, 20_000_000), start(f, 1, 9, 1, 20_000_000)
	f.Step(830 * sim.Microsecond) // half of a path each: a quarter has left
	if left := f.Left(a); left != 15_000_000 {
		t.Errorf("%d bytes are left, want 15000000", left)
	}
	f.Move(b, 2, 0)
	at := ends(t, f)
	near(t, "the one that stays", at[a], 830*sim.Microsecond+15_000*83*sim.Nanosecond+8265*sim.Nanosecond)
	near(t, "the one that moves", at[b], at[a])
	first, _ := f.Load(f.topo.Paths(1, 9)[1][0])
	second, _ := f.Load(f.topo.Paths(1, 9)[2][0])
	if first != (5_000+20_000)*1036 || second != 15_000*1036 {
		t.Errorf("the paths have carried %d and %d bytes", first, second)
	}
}

func TestMoveOfWhatHasGoneChangesNothing(t *testing.T) {
	f := newFluid(t, paper(t))
	a := start(f, 0, 8, 1, 20_000_000)
	f.Step(20_000*83*sim.Nanosecond + 1)
	if left := f.Left(a); left != 1 {
		t.Errorf("%d bytes are left while the last ones are under way; want 1", left)
	}
	f.Move(a, 2, 0)
	if e, ok := f.Step(sim.Never); !ok || e != (fabric.Event{At: alone20MB, Kind: fabric.Done, ID: a}) {
		t.Errorf("%+v, %v", e, ok)
	}
	f.Move(a, 3, 0)
	if left := f.Left(a); left != 0 {
		t.Errorf("%d bytes of a flow that is done are left", left)
	}
}

func TestStepStopsBeforeWhatIsDueThen(t *testing.T) {
	f := newFluid(t, paper(t))
	start(f, 0, 8, 0, 20_000_000)
	if e, ok := f.Step(alone20MB); ok || f.Now() != alone20MB {
		t.Errorf("%+v happened before its time; now %v", e, f.Now())
	}
	if e, ok := f.Step(alone20MB + 1); !ok || e.At != alone20MB {
		t.Errorf("%+v, %v", e, ok)
	}
	if _, ok := f.Step(5); ok || f.Now() != alone20MB {
		t.Errorf("time went back to %v", f.Now())
	}
}

func TestFlowsStandStillOnALinkThatIsDown(t *testing.T) {
	f := newFluid(t, paper(t))
	down := f.topo.Paths(0, 8)[1][1]
	waits, moves := start(f, 0, 8, 1, 20_000_000), start(f, 1, 9, 1, 20_000_000)
	f.Step(830 * sim.Microsecond)
	f.SetLink(down, false)
	later := start(f, 2, 10, 1, 20_000_000)
	f.Move(moves, 0, 0)
	at := pass(t, f, 10*sim.Millisecond)
	near(t, "the one that moved", at[moves], 830*sim.Microsecond+15_000*83*sim.Nanosecond+8265*sim.Nanosecond)
	if l, m := f.Left(waits), f.Left(later); l != 15_000_000 || m != 20_000_000 {
		t.Errorf("%d and %d bytes are left", l, m)
	}
	f.SetLink(down, true)
	at = ends(t, f)
	near(t, "the one that waits", at[waits], 10*sim.Millisecond+30_000*83*sim.Nanosecond+8265*sim.Nanosecond)
	near(t, "the one that came later", at[later], 10*sim.Millisecond+35_000*83*sim.Nanosecond+8265*sim.Nanosecond)
	f.SetLink(f.topo.Up(3), false)
	start(f, 3, 11, 0, 1)
	if e, ok := f.Step(2 * sim.Second); ok {
		t.Errorf("a host without its link: %+v", e)
	}
}

func TestSprayIsStripedOverPathsThatAreUp(t *testing.T) {
	topo := paper(t)
	f := newFluid(t, topo)
	all := []int{0, 1, 2, 3}
	a := f.Start(fabric.Flow{Src: 0, Dst: 8, Bytes: 20_000_000, Paths: all, Spread: fabric.Spray})
	b := start(f, 1, 9, 0, 20_000_000)
	// Spine 0 carries a flow and a quarter of one: 0.8 of its rate for b, and a quarter of 0.8 for a.
	at := ends(t, f)
	near(t, "striped", at[a], sim.Time(25_000*83)*sim.Nanosecond+8265*sim.Nanosecond)
	near(t, "beside it", at[b], at[a])
	for p, want := range []int64{25_000 * 1036, 5_000 * 1036, 5_000 * 1036, 5_000 * 1036} {
		if got, _ := f.Load(topo.Paths(0, 8)[p][0]); got < want-4 || got > want+4 {
			t.Errorf("path %d has carried %d bytes, want %d", p, got, want)
		}
	}

	f = newFluid(t, topo)
	f.SetLink(topo.Paths(0, 8)[2][1], false)
	a = f.Start(fabric.Flow{Src: 0, Dst: 8, Bytes: 20_000_000, Paths: all, Spread: fabric.Spray})
	near(t, "striped over three", ends(t, f)[a], alone20MB)
	if got, _ := f.Load(topo.Paths(0, 8)[2][0]); got != 0 {
		t.Errorf("%d bytes went over a path that is down", got)
	}
	// The path comes back for a flow that is under way.
	f.Start(fabric.Flow{Src: 0, Dst: 8, Bytes: 20_000_000, Paths: all, Spread: fabric.Spray})
	f.Step(f.Now() + 830*sim.Microsecond)
	f.SetLink(topo.Paths(0, 8)[2][1], true)
	ends(t, f)
	if got, _ := f.Load(topo.Paths(0, 8)[2][0]); got < 2_500*1036-4 || got > 2_500*1036+4 {
		t.Errorf("%d bytes went over the path that came back, want %d", got, 2_500*1036)
	}
}

func TestAFlowletIsAFlow(t *testing.T) {
	f := newFluid(t, paper(t))
	a := f.Start(fabric.Flow{Src: 0, Dst: 8, Bytes: 20_000_000, Paths: []int{2, 1}, Spread: fabric.Flowlet})
	near(t, "flowlet", ends(t, f)[a], alone20MB)
	if got, _ := f.Load(f.topo.Paths(0, 8)[2][0]); got != 20_000*1036 {
		t.Errorf("the first path has carried %d bytes", got)
	}
}

// Two flows on one spine: after 12 rounds they part, and never come together again.
func TestPLBLeavesACongestedPath(t *testing.T) {
	f := newFluid(t, paper(t))
	plb := func(src, dst int) fabric.ID {
		return f.Start(fabric.Flow{Src: src, Dst: dst, Bytes: 200_000_000, Paths: []int{0, 1, 2, 3}, Spread: fabric.PLB})
	}
	a, b := plb(0, 8), start(f, 1, 9, 0, 200_000_000)
	at := ends(t, f)
	if a, b := at[a], at[b]; a != b {
		t.Errorf("they end at %v and %v", a, b)
	}
	// 12 rounds at half speed, then alone.
	rounds := 12 * 100 * sim.Microsecond
	near(t, "after a move", at[a], 200_000*83*sim.Nanosecond+rounds/2+8265*sim.Nanosecond)
}

// Where its own sender, or nothing, holds it back, a flow stays; where its receiver does, it moves in vain.
func TestPLBSeesMarksOnly(t *testing.T) {
	for name, c := range map[string]struct {
		flows [2][2]int
		moves bool
	}{
		"one sender": {[2][2]int{{0, 8}, {0, 9}}, false}, "apart": {[2][2]int{{0, 8}, {1, 9}}, false}, "one receiver": {[2][2]int{{0, 8}, {1, 8}}, true},
	} {
		f := newFluid(t, paper(t))
		for i, e := range c.flows {
			f.Start(fabric.Flow{Src: e[0], Dst: e[1], Bytes: 200_000_000, Paths: []int{i, 2, 3}, Spread: fabric.PLB})
		}
		f.Step(10 * sim.Millisecond)
		if moved := f.flows[0].path != 0 || f.flows[1].path != 1; moved != c.moves {
			t.Errorf("%s: moved is %v", name, moved)
		}
		ends(t, f)
	}
}

func TestMessagesTakeTheTimeOfAnEmptyPath(t *testing.T) {
	f := newFluid(t, paper(t))
	start(f, 0, 8, 1, 20_000_000) // does not matter
	f.Send(fabric.Message{Src: 0, Dst: 8, Bytes: 200, Path: 1, Tag: 7})
	f.Send(fabric.Message{Src: 0, Dst: 1, Bytes: 200, Tag: 8})
	var got []fabric.Event
	for range 2 {
		e, _ := f.Step(sim.Never)
		got = append(got, e)
	}
	// 200 bytes take 16 ns a hop.
	if want := []fabric.Event{{At: 2032 * sim.Nanosecond, Kind: fabric.Arrived, Tag: 8}, {At: 4064 * sim.Nanosecond, Kind: fabric.Arrived, Tag: 7}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.SetLink(f.topo.Paths(0, 8)[1][0], false)
	f.Send(fabric.Message{Src: 0, Dst: 8, Bytes: 200, Path: 1, Tag: 9})
	if e, ok := f.Step(sim.Second); ok {
		t.Errorf("a message came over a link that is down: %+v", e)
	}
}

// A run is the same each time, and another one is not.
func TestTheSameRunHasTheSameDigest(t *testing.T) {
	w := workload(t, 30, 100, 8, 8)
	run := func(seed uint64) sim.Digest {
		c := DefaultConfig()
		c.Seed = seed
		f, err := New(paper(t), c)
		if err != nil {
			t.Fatal(err)
		}
		drive(t, f, w, func(i int, s *fabric.Flow) {
			s.Paths = append(s.Paths, i%4, (i+1)%4, (i+2)%4, (i+3)%4)
			s.Spread = []fabric.Spread{fabric.First, fabric.Spray, fabric.PLB}[i%3]
		})
		return f.Digest()
	}
	a, b, c := run(1), run(1), run(2)
	if a != b || a == c {
		t.Errorf("digests %v, %v; with another seed %v", a, b, c)
	}
	// On every machine.
	if want := "8df806eca984f82f"; a.String() != want {
		t.Errorf("digest %v, want %v", a, want)
	}
}

func TestNothingIsAllocatedOnceWarm(t *testing.T) {
	f, w := newFluid(t, paper(t)), workload(t, 30, 40, 8, 8)
	run := func() {
		start := f.Now()
		var s fabric.Flow
		paths := [4]int{}
		for i, done := 0, 0; done < len(w.Flows); {
			until := sim.Never
			if i < len(w.Flows) {
				until = start + sim.Of(w.Flows[i].At)
			}
			if _, ok := f.Step(until); ok {
				done++
				continue
			}
			x := w.Flows[i]
			paths = [4]int{i % 4, 1, 2, 3}
			s = fabric.Flow{Src: x.Src, Dst: x.Dst, Bytes: x.Bytes, Paths: paths[:], Spread: fabric.Spread(i % 4)}
			if id := f.Start(s); i%5 == 0 {
				f.Move(id, (i+1)%4, 0)
			}
			i++
		}
	}
	run()
	run()
	if n := testing.AllocsPerRun(3, run); n > 1 {
		t.Errorf("%g allocations in a run of 40 flows", n)
	}
}

func TestConfigurationsOutOfRangeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"packets of": func(c *Config) { c.Payload = 63 }, "headers": func(c *Config) { c.Header = -1 }, "acknowledgements": func(c *Config) { c.Ack = 2000 },
		"rounded": func(c *Config) { c.Quantum = -1 }, "PLB rounds of": func(c *Config) { c.PLBRound = 0 }, "0 PLB rounds": func(c *Config) { c.PLBRounds = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if _, err := New(paper(t), c); err == nil || !strings.HasPrefix(err.Error(), "fluid: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Any rate will do, but not any two at once.
	for _, rate := range []int64{1, 1_000_000, 3_200 * gbit, 1 << 62} {
		if f, err := New(leafSpine(t, 2, 2, 2, rate, 0), DefaultConfig()); err != nil || f.links[0].cap>>(rateBits-1) != 1 {
			t.Errorf("%d bit/s: %v", rate, err)
		}
	}
	c := fabric.LeafSpine(2, 2, 2, 1000*gbit)
	c.Links[0].Capacity = 1000
	topo, err := fabric.NewTopology(c, gbit, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(topo, DefaultConfig()); err == nil || !strings.Contains(err.Error(), "slower than the fastest") {
		t.Errorf("%v", err)
	}
}

// Check finds what it is there for.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *Fluid)
		want  string
	}{
		"nothing":               {func(f *Fluid) {}, ""},
		"bytes from nowhere":    {func(f *Fluid) { f.links[f.topo.Up(0)].sent++ }, "links up have carried"},
		"bytes that are gone":   {func(f *Fluid) { f.flows[0].joined -= 5 }, "flows have sent"},
		"too many bytes":        {func(f *Fluid) { f.flows[0].left = f.flows[0].total + 1<<60 }, "flow 0 has"},
		"a fast flow":           {func(f *Fluid) { f.flows[1].rate++ }, "h1->leaf0 gives more than its rate"},
		"a slow flow":           {func(f *Fluid) { f.flows[1].rate -= 5 }, "flow 1 sends at"},
		"unequal shares":        {func(f *Fluid) { f.flows[0].rate -= 5; f.flows[2].rate += 5 }, "flow 0 sends at"},
		"a weight":              {func(f *Fluid) { f.links[f.topo.Up(0)].load++ }, "h0->leaf0 gives"},
		"a flow elsewhere":      {func(f *Fluid) { f.flows[0].hops[0].at = 1 }, "lists flow 0, which is elsewhere"},
		"a flow on a dead link": {func(f *Fluid) { f.links[f.topo.Down(9)].up = false }, "leaf1->h9 is down and carries 1"},
	} {
		f := newFluid(t, paper(t))
		start(f, 0, 8, 0, 20_000_000)
		start(f, 1, 9, 1, 20_000_000)
		start(f, 0, 10, 2, 20_000_000)
		f.Step(0)
		c.spoil(f)
		if err := f.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestFlowsThatCannotBeAreRefused(t *testing.T) {
	f := newFluid(t, paper(t))
	for _, s := range []fabric.Flow{
		{Src: 0, Dst: 8, Bytes: 0, Paths: []int{0}}, {Src: 0, Dst: 8, Bytes: sim.MaxFlowBytes + 1, Paths: []int{0}}, {Src: 0, Dst: 8, Bytes: 1},
		{Src: 0, Dst: 8, Bytes: 1, Paths: []int{4}}, {Src: 0, Dst: 8, Bytes: 1, Paths: []int{0, -1}}, {Src: 0, Dst: 8, Bytes: 1, Paths: []int{0}, Back: 4},
	} {
		func() {
			defer func() {
				if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "fluid: ") {
					t.Errorf("%+v: %v", s, r)
				}
			}()
			f.Start(s)
		}()
	}
	// The largest there may be, but for its last packet.
	start(f, 0, 8, 0, sim.MaxFlowBytes/1000*1000)
	e, ok := f.Step(sim.Never)
	near(t, "a TiB", e.At, sim.Time(sim.MaxFlowBytes/1000*83)*sim.Nanosecond+8265*sim.Nanosecond)
	if !ok || f.Check() != nil {
		t.Error(f.Check())
	}
}
