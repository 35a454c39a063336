package fabric

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"shoal/internal/ecmp"
	"shoal/internal/sim"
)

// pick draws one of some values.
func pick[T any](t *rapid.T, name string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, name)
}

// randomNetwork is small, with links of several rates.
func randomNetwork(t *rapid.T) *Topology {
	var net ecmp.Config
	switch pick(t, "shape", "two leaves", "one leaf", "three tiers") {
	case "two leaves":
		net = LeafSpine(2, rapid.IntRange(1, 3).Draw(t, "hosts"), rapid.IntRange(1, 2).Draw(t, "spines"), 100e9)
	case "one leaf":
		net = LeafSpine(1, 3, 1, 100e9)
	default:
		net = FatTree(2, 1, 2, 1, 2, 100e9)
	}
	rates := []int64{100e9}
	if rapid.Bool().Draw(t, "several rates") {
		rates = []int64{400e9, 100e9, 25e9, 10e9}
	}
	for i := range net.Hosts {
		net.Hosts[i].Capacity = pick(t, "host rate", rates...)
	}
	for i := range net.Links {
		net.Links[i].Capacity = pick(t, "cable rate", rates...)
	}
	top, err := NewTopology(net, 100e9, pick(t, "delay", sim.Microsecond, 100*sim.Nanosecond, 0, 333))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func randomConfig(t *rapid.T, top *Topology) Config {
	cfg := Defaults()
	cfg.Checks = true
	cfg.Transport = pick(t, "transport", Window, DCQCN)
	cfg.Payload = pick(t, "payload", 1000, 1000, 4096, 9000)
	cfg.Quantum = pick(t, "quantum", sim.Nanosecond, 0)
	cfg.AcksWithData = rapid.Bool().Draw(t, "acks with data")
	cfg.MessagesWithData = rapid.Bool().Draw(t, "messages with data")
	cfg.PFC = rapid.Bool().Draw(t, "pfc")
	cfg.RTO = pick(t, "rto", 50*sim.Microsecond, 500*sim.Microsecond)
	cfg.NackEvery = 20 * sim.Microsecond
	// Buffers that are ample, and such that ports pause.
	if rapid.Bool().Draw(t, "little memory") {
		cfg.Share = uint(rapid.IntRange(0, 6).Draw(t, "share"))
		cfg.Buffer = 0
		reserved := map[int32]int64{}
		for _, l := range top.Links {
			reserved[l.To] += cfg.Reserve
			if cfg.PFC {
				reserved[l.To] += cfg.headroom(l.Rate, l.Delay)
			}
			cfg.Buffer = max(cfg.Buffer, reserved[l.To])
		}
		cfg.Buffer += (2*cfg.longest() + 200 + rapid.Int64Range(0, 50_000).Draw(t, "memory")) * (1<<cfg.Share + 1)
	}
	cfg.ECNMin, cfg.ECNMax = 20_000, 100_000
	cfg.DCQCN.IncreaseEvery = 30 * sim.Microsecond
	cfg.Seed = rapid.Uint64().Draw(t, "seed")
	return cfg
}

// TestPacketsEqualsOracle does the same random things to Packets and to the oracle.
func TestPacketsEqualsOracle(t *testing.T) {
	var seen Stats
	rapid.Check(t, func(t *rapid.T) { comparison(t, &seen) })
	t.Logf("%+v", seen)
	if seen.Data == 0 || seen.Lost == 0 || seen.Again == 0 || seen.Timeouts == 0 {
		t.Error("the scenarios leave out traffic or losses")
	}
}

func comparison(t *rapid.T, seen *Stats) {
	top := randomNetwork(t)
	cfg := randomConfig(t, top)
	n, err := NewPackets(top, cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(top, cfg)
	flows := map[ID]int{} // those under way
	known, last := []ID{}, false
	check := func(when string) {
		for i := range top.Links {
			a, b := n.Load(LinkIndex(i))
			c, d := o.load(LinkIndex(i))
			if a != c || b != d {
				t.Fatalf("%s at %v: link %s sent %d and queues %d, the oracle's %d and %d", when, n.Now(), top.Links[i].Name, a, b, c, d)
			}
		}
	}
	until := func(to sim.Time) {
		for {
			e, ok := n.Step(to)
			f, okay := o.step(to)
			if e != f || ok != okay || n.Now() != o.now {
				t.Fatalf("an event %+v %v at %d ps, and the oracle has %+v %v at %d ps", e, ok, n.Now(), f, okay, o.now)
			}
			if !ok {
				break
			}
			if e.Kind == Done {
				delete(flows, e.ID)
			}
			if !last && rapid.IntRange(0, 3).Draw(t, "reaction") == 0 {
				act(t, n, o, flows, &known)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "look") == 0 {
			check("after a step")
		}
	}
	for range rapid.IntRange(1, 12).Draw(t, "actions") {
		for range rapid.IntRange(1, 8).Draw(t, "at once") {
			act(t, n, o, flows, &known)
		}
		until(n.Now() + sim.Time(rapid.Int64Range(0, 30_000).Draw(t, "pause"))*sim.Nanosecond)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
	}
	last = true
	for i := range top.Links {
		n.SetLink(LinkIndex(i), true)
		o.setLink(LinkIndex(i), true)
	}
	until(n.Now() + 100*sim.Millisecond)
	check("at the end")
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
	if len(flows) > 0 {
		t.Fatalf("flows %v never end", flows)
	}
	a, b := n.Stats(), o.stats
	got := fmt.Sprint(a.Data, a.Pauses, a.Resumes, a.Marked, a.Lost, a.Dropped, a.Again, a.Timeouts)
	if want := fmt.Sprint(b.Data, b.Pauses, b.Resumes, b.Marked, b.Lost, b.Dropped, b.Again, b.Timeouts); got != want {
		t.Fatalf("counts %s, and the oracle's %s", got, want)
	}
	seen.Data += a.Data
	seen.Pauses += a.Pauses
	seen.Resumes += a.Resumes
	seen.Marked += a.Marked
	seen.Lost += a.Lost
	seen.Dropped += a.Dropped
	seen.Again += a.Again
	seen.Timeouts += a.Timeouts
}

// act does one random thing to both.
func act(t *rapid.T, n *Packets, o *oracle, flows map[ID]int, known *[]ID) {
	top := n.Topology()
	src := rapid.IntRange(0, top.Hosts()-1).Draw(t, "src")
	dst := rapid.IntRange(0, top.Hosts()-1).Draw(t, "dst")
	if rapid.Bool().Draw(t, "incast") {
		dst = 0
	}
	if dst == src {
		dst = (src + 1) % top.Hosts()
	}
	path := rapid.IntRange(0, len(top.Paths(src, dst))-1).Draw(t, "path")
	back := rapid.IntRange(0, len(top.Paths(dst, src))-1).Draw(t, "back")
	switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
	case what < 5:
		f := Flow{Src: src, Dst: dst, Bytes: rapid.Int64Range(1, 250_000).Draw(t, "bytes"), Paths: []int{path}, Back: back}
		id := n.Start(f)
		o.start(int32(id), f)
		flows[id] = len(*known)
		*known = append(*known, id)
	case what < 7:
		m := Message{Src: src, Dst: dst, Bytes: rapid.Int64Range(64, 2000).Draw(t, "size"), Path: path, Tag: rapid.Int64().Draw(t, "tag")}
		n.Send(m)
		o.send(m)
	case what < 8 && len(*known) > 0:
		id := pick(t, "moved", *known...)
		if _, ok := flows[id]; ok {
			f := o.flows[int32(id)]
			path %= len(top.Paths(f.src, f.dst))
			back %= len(top.Paths(f.dst, f.src))
			n.Move(id, path, back)
			o.move(int32(id), path, back)
		}
	case what == 8:
		l := LinkIndex(rapid.IntRange(0, len(top.Links)-1).Draw(t, "link"))
		up := rapid.Bool().Draw(t, "up")
		n.SetLink(l, up)
		o.setLink(l, up)
	}
}
