package probe

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/ecmp"
)

func learned(t *testing.T, p *Prober, to Target) *Map {
	t.Helper()
	m, err := p.Learn(t.Context(), to, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := leafSpine(4, murmur(1))
		f := newFabric(before)
		p := prober(t, f, 500)
		m := learned(t, p, to)
		verify := func() Verdict {
			t.Helper()
			v, err := p.Verify(t.Context(), m, m.Sample(0, 20))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if v := verify(); v.Asked != 20 || v.Answered != 20 || v.Against() != 0 {
			t.Errorf("unchanged: %+v", v)
		}
		f.loss = 0.4 // lost probes are sent again, and prove nothing
		if v := verify(); v.Answered < 15 || v.Against() != 0 {
			t.Errorf("lossy: %+v", v)
		}
		f.loss = 1
		if v := verify(); v.Asked != 20 || v.Answered != 0 || v.Against() != 0 {
			t.Errorf("dead: %+v", v)
		}
		f.loss, f.route = 0, leafSpine(4, murmur(2))
		v := verify()
		if v.Answered != 20 || len(v.Wrong) < 10 || v.Torn != 0 {
			t.Errorf("another seed: %+v", v)
		}
		for _, w := range v.Wrong {
			if path, ok := m.Ports.PathOf(w.Port); !ok || path != w.Path || w.Expected[1] != before(to.Tuple(w.Port))[1] || w.Seen[1] != f.route(to.Tuple(w.Port))[1] {
				t.Errorf("%+v", w)
			}
		}
		// One port only, and it changes its mind.
		odd, times := m.Sample(0, 1)[0], 0
		f.route = func(tu ecmp.Tuple) []netip.Addr {
			w := before(tu)
			if tu.SrcPort == odd && times < 3 {
				times++
				w[1], w[2] = ip(10, 1, 9, 9), ip(10, 2, 9, 9)
			}
			return w
		}
		if v := verify(); v.Torn != 1 || len(v.Wrong) != 0 {
			t.Errorf("an odd answer: %+v", v)
		}
		// A router that is the same for all ports has another address now.
		f.route = func(tu ecmp.Tuple) []netip.Addr { w := before(tu); w[0] = ip(10, 9, 9, 9); return w }
		if v := verify(); len(v.Wrong) != 2 {
			t.Errorf("another leaf: %+v", v)
		}
	})
}

func TestSamplesTakeTurns(t *testing.T) {
	m := &Map{Ports: ecmp.NewPortMap(4)}
	for port := range uint16(40) {
		m.Ports.Add(1000+port, int(port)%3) // path 3 has none
	}
	seen := map[uint16]bool{}
	for turn := range 8 {
		sample := m.Sample(turn, 8)
		if len(sample) != 8 {
			t.Errorf("turn %d: %v", turn, sample)
		}
		paths := map[int]bool{}
		for _, p := range sample {
			path, _ := m.Ports.PathOf(p)
			paths[path] = true
			seen[p] = true
		}
		if len(paths) != 3 {
			t.Errorf("turn %d asks for %d paths", turn, len(paths))
		}
	}
	if len(seen) != 40 {
		t.Errorf("only %d of 40 ports had their turn", len(seen))
	}
	if n := len(m.Sample(0, 5000)); n != 40 {
		t.Errorf("%d ports", n)
	}
}

// watching runs a Watcher and collects its events.
func watching(t *testing.T, p *Prober, c WatchConfig) (*Watcher, *[]Event) {
	t.Helper()
	events := &[]Event{}
	c.Event = func(e Event) { *events = append(*events, e) }
	w, err := NewWatcher(p, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return w, events
}

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func kinds(events []Event) string {
	var s []string
	for _, e := range events {
		if k := e.Kind.String(); len(s) == 0 || s[len(s)-1] != k {
			s = append(s, k)
		}
	}
	return strings.Join(s, ", ")
}

func TestAWatcherNoticesAnotherSeedAndLearnsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		if err := w.Want(to); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		first := w.Map(to)
		right(t, f, first, 4, 16)
		f.set(func() { f.route = leafSpine(4, murmur(2)) })
		pass(11 * time.Second)
		pass(5 * time.Second)
		second := w.Map(to)
		if second == nil || second == first {
			t.Fatalf("%v", *events)
		}
		right(t, f, second, 4, 16)
		for i := range first.Paths {
			if !slices.Equal(first.Paths[i].Links, second.Paths[i].Links) {
				t.Errorf("path %d has other links", i)
			}
		}
		if got := kinds(*events); !strings.HasPrefix(got, "learned, verified, mismatch, relearned") {
			t.Error(got)
		}
		for _, e := range *events {
			if e.Kind == Mismatch && (e.Map != first || len(e.Wrong) < 2 || !strings.Contains(e.String(), "goes by")) {
				t.Errorf("%v", e)
			}
		}
		if s := w.Status(); len(s) != 1 || s[0].State != Trusted || s[0].Map != second {
			t.Errorf("%+v", s)
		}
	})
}

// One of four spines is silent, and then the ports move: some of those that answered do not any more.
func TestPortsThatMoveToASilentRouterAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := func(seed uint32) func(tu ecmp.Tuple) []netip.Addr {
			inner := leafSpine(4, murmur(seed))
			return func(tu ecmp.Tuple) []netip.Addr {
				w := inner(tu)
				if w[1] == ip(10, 1, 0, 2) {
					w[1], w[2] = netip.Addr{}, netip.Addr{}
				}
				return w
			}
		}
		f := newFabric(network(1))
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to)
		pass(time.Minute)
		m := w.Map(to)
		if m == nil || len(m.Paths) != 3 || m.Complete || m.Unanswered == 0 {
			t.Fatalf("%+v", m)
		}
		// Every port that is known goes by the silent spine now.
		f.set(func() {
			f.route = func(tu ecmp.Tuple) []netip.Addr {
				return []netip.Addr{ip(10, 0, 1, 1), {}, {}}
			}
		})
		pass(30 * time.Second)
		if w.Map(to) != nil {
			t.Errorf("%v", kinds(*events))
		}
	})
}

func TestAWatcherStepsAsideWhereTheFabricSprays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steady := leafSpine(4, murmur(1))
		f := newFabric(steady)
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to)
		pass(time.Minute)
		n := 0
		f.set(func() { f.route = leafSpine(4, func(ecmp.Tuple, int) int { n++; return n * 7 % 5 % 4 }) })
		pass(time.Minute)
		if s := w.Status()[0]; s.State != Aside || !errors.Is(s.Err, ErrSprays) || w.Map(to) != nil {
			t.Errorf("%+v", s)
		}
		f.set(func() { f.route = steady })
		pass(5 * time.Minute)
		right(t, f, w.Map(to), 4, 16)
		if got := kinds(*events); got != "learned, verified, mismatch, stepped aside, relearned, verified" {
			t.Error(got)
		}
	})
}

// The fabric moves flows every 40 seconds.
func TestAWatcherStepsAsideWhereTheFabricAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(nil)
		f.route = func(tu ecmp.Tuple) []netip.Addr {
			return leafSpine(4, murmur(uint32(time.Since(f.start)/(40*time.Second))))(tu)
		}
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to)
		pass(30 * time.Minute)
		aside := 0
		for _, e := range *events {
			if e.Kind == Mismatch && errors.Is(e.Err, ErrUnstable) {
				aside++
			}
		}
		if aside == 0 {
			t.Errorf("%v", kinds(*events))
		}
	})
}

func TestAWatcherThatHearsNothingKeepsTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to)
		pass(time.Minute)
		m := w.Map(to)
		f.set(func() { f.loss = 1 })
		pass(5 * time.Minute)
		f.set(func() { f.loss = 0 })
		pass(time.Minute)
		if w.Map(to) != m || kinds(*events) != "learned, verified, blind, verified" {
			t.Errorf("%v", kinds(*events))
		}
	})
}

func TestAWatcherChecksConfiguredModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, way := clos(t, 4, murmurModel(7), 0)
		f := newFabric(way)
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to, route)
		w.Want(to, route)
		if w.Map(to) != nil {
			t.Error("it is trusted unseen")
		}
		pass(time.Minute)
		if m := w.Map(to); m == nil || m.Model != route {
			t.Fatalf("%v", *events)
		}
		f.set(func() { f.route = leafSpine(4, murmur(9)) })
		pass(time.Minute)
		if m := w.Map(to); m == nil || m.How != Probed || m.Refuted != 1 {
			t.Fatalf("%v", *events)
		}
		if got := kinds(*events); got != "learned, verified, mismatch, relearned, verified" {
			t.Error(got)
		}
		other, _ := clos(t, 4, murmurModel(8), 0)
		w.Want(to, other) // starts anew
		if w.Map(to) != nil {
			t.Error("the old map is used on")
		}
		pass(time.Minute)
		right(t, f, w.Map(to), 4, 16)
	})
}

func TestTargetsAreLimitedAndCanBeDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		target := func(i int) Target {
			return Target{Src: here, Dst: ip(10, 99, i>>8, i&255), DstPort: 7801, Proto: ecmp.TCP}
		}
		for i := range MaxTargets {
			if err := w.Want(target(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Want(target(MaxTargets)); !errors.Is(err, ErrTooMany) {
			t.Error(err)
		}
		if err := w.Want(target(0)); err != nil {
			t.Error(err)
		}
		pass(time.Second) // some are being learned
		for i := range MaxTargets - 2 {
			w.Drop(target(i))
		}
		w.Drop(target(0))
		if err := w.Want(target(MaxTargets)); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if s := w.Status(); len(s) != 3 || s[0].State != Trusted || s[1].State != Trusted || s[2].State != Trusted {
			t.Errorf("%+v", s)
		}
		for _, e := range *events {
			if e.Kind == SteppedAside || e.Kind == Mismatch {
				t.Error(e)
			}
		}
		if err := w.Want(Target{}); err == nil {
			t.Error("no target is wanted")
		}
	})
}

// 4096 targets are learned and verified with 500 probes a second; it only takes long.
func TestManyTargetsShareTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets, rate = 200, 500
		f := newFabric(leafSpine(4, murmur(1)))
		p := prober(t, f, rate)
		w, _ := watching(t, p, WatchConfig{})
		for i := range targets {
			w.Want(Target{Src: here, Dst: ip(10, 99, i>>8, i&255), DstPort: 7801, Proto: ecmp.TCP})
		}
		most := 0
		for range 200 {
			pass(time.Second)
			most = max(most, p.Stats().Waiting)
		}
		ready := 0
		for _, s := range w.Status() {
			if s.Map != nil {
				ready++
			}
		}
		sent := int(p.Stats().Sent)
		if ready != targets || sent > 200*rate+rateBurst || most > MaxOutstanding {
			t.Errorf("%d of %d are learned with %d probes, %d at once", ready, targets, sent, most)
		}
	})
}

func TestRelearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		w, events := watching(t, prober(t, f, 500), WatchConfig{})
		w.Want(to)
		pass(5 * time.Second)
		m := w.Map(to)
		w.Relearn(to)
		if w.Map(to) != nil {
			t.Error("the map is used on")
		}
		pass(5 * time.Second)
		if w.Map(to) == m || kinds(*events) != "learned, relearned" {
			t.Error(kinds(*events))
		}
	})
}

func TestWatchConfigIsChecked(t *testing.T) {
	for _, c := range []WatchConfig{{Sample: 1}, {Sample: MaxSample + 1}, {Interval: -1}, {Retry: time.Hour, MaxRetry: time.Minute}, {Options: Options{Rate: -1}}} {
		if w, err := NewWatcher(nil, c); err == nil {
			t.Errorf("%+v is accepted: %v", c, w)
		}
	}
}
