package cluster

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

// goroutines are those that belong to a cluster or to its gossip, without the one that runs the test.
func goroutines() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var ours []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if (strings.Contains(g, "shoal/internal/cluster") || strings.Contains(g, "hashicorp/memberlist")) && !strings.Contains(g, "testing.tRunner") {
			ours = append(ours, g)
		}
	}
	return ours
}

func TestNothingRunsAfterClose(t *testing.T) {
	for _, keys := range [][]Key{nil, {{1}}} {
		serve, begun, ended := holding()
		keyed := with(func(c *Config) { c.Keys = keys })
		a, b := pair(t, keyed, serving(serve))
		c := begin(t, "c", keyed, joining(a), with(func(c *Config) { c.Join = append(c.Join, "127.0.0.1:1") }))
		c.up(t, "b")
		a.up(t, "c")
		var hops []*Hop
		for _, to := range []peer.ID{"b", "b", "c"} {
			h, err := a.c.OpenHop(context.Background(), to, &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			hops = append(hops, h)
		}
		within(t, "start", begun)
		within(t, "start", begun)
		for _, x := range []*agent{b, c, a} {
			if err := x.c.Close(); err != nil {
				t.Error(err)
			}
			x.c.Close()
		}
		within(t, "end", ended)
		within(t, "end", ended)
		for _, h := range hops {
			for {
				if _, _, err := h.Recv(); err != nil {
					break
				}
			}
			h.Close()
		}
		told := func() int {
			n := 0
			for _, x := range []*agent{a, b, c} {
				n += x.ups.len() + x.downs.len() + x.refusals.len() + x.rtts.len()
			}
			return n
		}
		before := told()
		eventually(t, "no goroutine is left", func() bool { return len(goroutines()) == 0 })
		if told() != before {
			t.Error("the Handler was called after Close")
		}
		if _, _, err := hop(a.c, "b", "x"); err == nil {
			t.Error("a hop after Close")
		}
		if err := a.c.Send("b", nil); err == nil {
			t.Error("a datagram after Close")
		}
		a.c.Broadcast(nil)
	}
}
