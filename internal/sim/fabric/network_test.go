package fabric

import (
	"testing"

	"shoal/internal/sim"
)

// TestMoveWaitsForWhatIsUnderWay: packets of both paths never mix, nothing is sent twice, and the flow loses one round trip.
func TestMoveWaitsForWhatIsUnderWay(t *testing.T) {
	n := reference(t, checked(Window))
	id := n.Start(Flow{Src: 0, Dst: 8, Bytes: 10_000_000, Paths: []int{0}})
	n.Step(100 * sim.Microsecond)
	n.Move(id, 1, 1)
	n.Move(id, 2, 2) // the later one counts
	events := run(t, n)
	s := n.Stats()
	if len(events) != 1 || events[0].ID != id || s.OutOfOrder != 0 || s.Again != 0 {
		t.Fatalf("%v, %+v", events, s)
	}
	bytes := uplinks(n)
	if bytes[0] == 0 || bytes[1] != 0 || bytes[2] == 0 || bytes[0]+bytes[2] != 10_000*1036 {
		t.Errorf("the spines get %v bytes", bytes)
	}
	if late := n.Now() - (10_000*83+8265)*sim.Nanosecond; late < 8*sim.Microsecond || late > 9*sim.Microsecond {
		t.Errorf("the move costs %v", late)
	}
}

// TestMoveBeforeAnythingIsSent costs nothing.
func TestMoveBeforeAnythingIsSent(t *testing.T) {
	n := reference(t, checked(Window))
	n.Start(Flow{Src: 0, Dst: 9, Bytes: 1_000_000, Paths: []int{1}})
	id := n.Start(Flow{Src: 0, Dst: 8, Bytes: 1_000_000, Paths: []int{0}})
	n.Move(id, 3, 3)
	run(t, n)
	if b := uplinks(n); b != [4]int64{0, 1000 * 1036, 0, 1000 * 1036} {
		t.Errorf("the spines get %v bytes", b)
	}
}

// TestDeadLink: what is on it is lost, a flow on it stands still until it is moved or the link is up.
func TestDeadLink(t *testing.T) {
	for _, how := range []string{"moved", "up again"} {
		n := reference(t, checked(Window))
		id := n.Start(Flow{Src: 0, Dst: 8, Bytes: 10_000_000, Paths: []int{0}})
		other := n.Start(Flow{Src: 0, Dst: 9, Bytes: 1_000_000, Paths: []int{1}})
		up := n.Topology().Paths(0, 8)[0][0]
		n.Step(50 * sim.Microsecond)
		n.SetLink(up, false)
		if n.Stats().Lost == 0 {
			t.Fatal("nothing was on the link")
		}
		e, ok := n.Step(20 * sim.Millisecond)
		if !ok || e.ID != other || e.Kind != Done {
			t.Fatalf("%s: %v %v instead of the end of the other flow", how, e, ok)
		}
		left := n.Left(id)
		if _, ok := n.Step(20 * sim.Millisecond); ok || n.Left(id) != left || n.Now() != 20*sim.Millisecond {
			t.Fatalf("%s: the flow goes on over a dead link", how)
		}
		if sent, queued := n.Load(up); queued != 0 || sent == 0 {
			t.Errorf("%d bytes wait for a dead link", queued)
		}
		switch how {
		case "moved":
			n.Move(id, 2, 0)
		case "up again":
			n.SetLink(up, true)
		}
		run(t, n)
		if s := n.Stats(); s.Timeouts == 0 || s.FlowBytes != 11_000_000 || n.Now() > 20*sim.Millisecond+n.cfg.RTO+sim.Millisecond {
			t.Errorf("%s at %v: %+v", how, n.Now(), s)
		}
	}
}

// TestDeadHost: its own link.
func TestDeadHost(t *testing.T) {
	n := reference(t, checked(Window))
	n.Start(Flow{Src: 0, Dst: 8, Bytes: 1_000_000, Paths: []int{0}})
	n.Start(Flow{Src: 8, Dst: 0, Bytes: 1_000_000, Paths: []int{0}})
	n.Step(20 * sim.Microsecond)
	n.SetLink(n.Topology().Up(0), false)
	n.SetLink(n.Topology().Down(0), false)
	n.Start(Flow{Src: 0, Dst: 9, Bytes: 1_000_000, Paths: []int{1}})
	if e, ok := n.Step(30 * sim.Millisecond); ok {
		t.Fatalf("%v", e)
	}
	n.SetLink(n.Topology().Up(0), true)
	n.SetLink(n.Topology().Down(0), true)
	if events := run(t, n); len(events) != 3 {
		t.Errorf("%v", events)
	}
}

// TestMessages: they arrive with their tags, ahead of data in the strict queue and behind it in the other; a lost one is
// silent.
func TestMessages(t *testing.T) {
	took := map[bool]sim.Time{}
	for _, with := range []bool{false, true} {
		cfg := checked(Window)
		cfg.MessagesWithData = with
		n := reference(t, cfg)
		for h := range 4 {
			n.Start(Flow{Src: h, Dst: 8, Bytes: 3_000_000, Paths: []int{0}})
		}
		n.Step(200 * sim.Microsecond)
		at := n.Now()
		n.Send(Message{Src: 0, Dst: 8, Bytes: 200, Path: 0, Tag: 77})
		e, ok := n.Step(sim.Never)
		if !ok || e.Kind != Arrived || e.Tag != 77 {
			t.Fatalf("%v %v", e, ok)
		}
		took[with] = e.At - at
		down := n.Topology().Down(9)
		n.Send(Message{Src: 0, Dst: 9, Bytes: 200, Path: 0, Tag: 78})
		n.SetLink(down, false)
		for _, e := range run(t, n) {
			if e.Kind == Arrived {
				t.Errorf("a lost message arrives: %v", e)
			}
		}
	}
	if took[false] > 4500*sim.Nanosecond || took[true] < took[false]+5*sim.Microsecond {
		t.Errorf("the strict queue takes %v, that of the data %v", took[false], took[true])
	}
}

// TestStep: time stops at until, and what is due then has not happened.
func TestStep(t *testing.T) {
	n := reference(t, checked(Window))
	if _, ok := n.Step(sim.Never); ok || n.Now() != 0 {
		t.Error("an empty network does something")
	}
	n.Start(Flow{Src: 0, Dst: 8, Bytes: 1000, Paths: []int{0}})
	end := (83 + 8265) * sim.Nanosecond
	if e, ok := n.Step(end); ok || n.Now() != end {
		t.Fatalf("%v: what is due at until has happened", e)
	}
	if e, ok := n.Step(end + 1); !ok || e.At != end || n.Now() != end {
		t.Fatalf("%v %v at %v", e, ok, n.Now())
	}
	if e, ok := n.Step(end + 1); ok || n.Now() != end+1 {
		t.Fatalf("%v", e)
	}
	n.Step(5) // the past changes nothing
	if n.Now() != end+1 {
		t.Error("time goes back")
	}
}

// TestIDsAreUsedAgain: memory follows what is under way, not what has been.
func TestIDsAreUsedAgain(t *testing.T) {
	n := reference(t, checked(Window))
	for range 1000 {
		n.Start(Flow{Src: 0, Dst: 8, Bytes: 5000, Paths: []int{0}})
		n.Send(Message{Src: 0, Dst: 8, Bytes: 100, Path: 0})
		run(t, n)
	}
	if len(n.flows) > 2 || len(n.messages) > 2 || len(n.timers) > 2 {
		t.Errorf("%d flows, %d messages, %d timers are kept", len(n.flows), len(n.messages), len(n.timers))
	}
}

// TestSameSeedSameDigest, twice in one process; another seed has other marks.
func TestSameSeedSameDigest(t *testing.T) {
	digest := func(seed uint64) sim.Digest {
		cfg := checked(DCQCN)
		cfg.Seed = seed
		n := reference(t, cfg)
		if _, err := Replay(n, incast(40, 400_000)); err != nil {
			t.Fatal(err)
		}
		if n.Stats().Marked == 0 {
			t.Error("nothing is marked")
		}
		return n.Digest()
	}
	if a, b := digest(1), digest(1); a != b {
		t.Errorf("the same seed gives %v and %v", a, b)
	}
	if a, b := digest(1), digest(2); a == b {
		t.Error("another seed gives the same digest")
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for name, f := range map[string]func(n *Packets){
		"no bytes":   func(n *Packets) { n.Start(Flow{Src: 0, Dst: 8, Paths: []int{0}}) },
		"one host":   func(n *Packets) { n.Start(Flow{Src: 1, Dst: 1, Bytes: 1, Paths: []int{0}}) },
		"no path":    func(n *Packets) { n.Start(Flow{Src: 0, Dst: 8, Bytes: 1}) },
		"wrong path": func(n *Packets) { n.Start(Flow{Src: 0, Dst: 8, Bytes: 1, Paths: []int{4}}) },
		"spread":     func(n *Packets) { n.Start(Flow{Src: 0, Dst: 8, Bytes: 1, Paths: []int{0}, Spread: 9}) },
		"large":      func(n *Packets) { n.Send(Message{Src: 0, Dst: 8, Bytes: MaxMessage + 1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(reference(t, checked(Window)))
		}()
	}
	if _, err := Replay(reference(t, checked(Window)), []Transfer{{Src: 0, Dst: 99, Bytes: 1}}); err == nil {
		t.Error("a transfer to a host that is not there is replayed")
	}
}

func TestTooManyPacketsAreRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("more packets than can be counted are taken")
		}
	}()
	cfg := checked(Window)
	cfg.Payload = 64
	reference(t, cfg).Start(Flow{Src: 0, Dst: 8, Bytes: 1 << 40, Paths: []int{0}})
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"Transport": func(c *Config) { c.Transport = 9 }, "Payload": func(c *Config) { c.Payload = 9001 }, "Quantum": func(c *Config) { c.Quantum = -1 },
		"Buffer": func(c *Config) { c.Buffer = 0 }, "Reserve": func(c *Config) { c.Reserve = -1 }, "Headroom": func(c *Config) { c.Headroom = -1 },
		"Share": func(c *Config) { c.Share = 17 }, "ResumeBelow": func(c *Config) { c.ResumeBelow = -1 }, "ECNMax": func(c *Config) { c.ECNMax = c.ECNMin },
		"ECNProbability": func(c *Config) { c.ECNProbability = 1.5 }, "Gain": func(c *Config) { c.DCQCN.Gain = 2 }, "AlphaEvery": func(c *Config) { c.DCQCN.AlphaEvery = 0 },
		"MinRate": func(c *Config) { c.DCQCN.MinRate = 0 }, "NackEvery": func(c *Config) { c.NackEvery = 0 }, "RTO": func(c *Config) { c.RTO = 0 },
		"FlowletGap": func(c *Config) { c.FlowletGap = 0 }, "PLB": func(c *Config) { c.PLB.Rounds = 0 },
	} {
		cfg := Defaults()
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(&cfg); cfg.Validate() == nil {
			t.Errorf("a wrong %s is taken", name)
		}
	}
}
