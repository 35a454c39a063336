package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/wire"
)

func TestHopsToOnePeerAreBounded(t *testing.T) {
	serve, begun, _ := holding()
	a, _ := pair(t, serving(serve), with(func(c *Config) { c.Limits.Hops, c.Limits.Idle = 3, 2 }))
	var open []*Hop
	f := &wire.Forward{Method: "POST", Path: "/", Stream: true}
	for range 3 {
		h, err := a.c.OpenHop(context.Background(), "b", f, nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, h)
		within(t, "start", begun)
	}
	if _, err := a.c.OpenHop(context.Background(), "b", f, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("a fourth hop: %v", err)
	}
	open[0].Close()
	h, err := a.c.OpenHop(context.Background(), "b", f, nil)
	if err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	open[0] = h
	for _, h := range open {
		h.Close()
	}
	if n := a.c.Stats().HopsOut; n != 0 {
		t.Errorf("%d open", n)
	}
}

func TestKeptConnectionsAreBounded(t *testing.T) {
	release := make(chan struct{})
	a, _ := pair(t, serving(func(s *HopStream) { <-release; echo(s) }), with(func(c *Config) { c.Limits.Idle = 2 }))
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, _, err := hop(a.c, "b", "x"); err != nil {
				t.Error(err)
			}
		}()
	}
	eventually(t, "eight hops", func() bool { return a.c.Stats().HopsOut == 8 })
	close(release)
	wg.Wait()
	if n := a.c.Stats().IdleConns; n != 2 {
		t.Errorf("%d kept", n)
	}
}

func TestImpossibleRequestsAreNotSent(t *testing.T) {
	a, b := pair(t, with(func(c *Config) { c.Limits.Body = 100 }))
	for want, f := range map[string]func() error{
		"no live peer": func() error { _, _, err := hop(a.c, "nobody", "x"); return err },
		"limit is 100": func() error { _, _, err := hop(a.c, "b", strings.Repeat("x", 101)); return err },
		"claims 5": func() error {
			_, _, err := hopWith(context.Background(), a.c, "b", &wire.Forward{BodyLen: 5}, nil)
			return err
		},
		"request:": func() error {
			_, _, err := hopWith(context.Background(), a.c, "b", &wire.Forward{Path: strings.Repeat("/", wire.MaxPath+1)}, nil)
			return err
		},
		"context canceled": func() error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, _, err := hopWith(ctx, a.c, "b", &wire.Forward{Method: "POST", Path: "/"}, nil)
			if !errors.Is(err, context.Canceled) {
				return err
			}
			return context.Canceled
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if a.c.Stats().HopsOut != 0 || b.c.Stats().HopsServed > 1 {
		t.Errorf("%+v", a.c.Stats())
	}
}

// A client that does not read slows the engine down: only what fits the sockets is on the way.
func TestSlowOriginSlowsTheEngine(t *testing.T) {
	const chunk, chunks = 64 << 10, 512
	var sent atomic.Int64
	a, _ := pair(t, patient, serving(func(s *HopStream) {
		s.Accept(&wire.Accept{})
		p := make([]byte, chunk)
		for range chunks {
			if s.Data(p) != nil {
				return
			}
			sent.Add(chunk)
		}
		s.End(&wire.End{})
	}))
	h, err := a.c.OpenHop(context.Background(), "b", &wire.Forward{Method: "POST", Path: "/", Stream: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	// It has stopped when a while passes without progress.
	for last := int64(-1); last != sent.Load() || last == 0; {
		last = sent.Load()
		<-time.After(100 * time.Millisecond)
	}
	if n := sent.Load(); n > chunk*chunks/2 {
		t.Errorf("%d bytes are on the way", n)
	}
	got := 0
	for {
		typ, p, err := h.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if typ == wire.TypeEnd {
			break
		}
		if typ == wire.TypeData {
			got += len(p)
		}
	}
	if got != chunk*chunks {
		t.Errorf("%d of %d bytes", got, chunk*chunks)
	}
}

func TestRoundTripTimeIsTheMedianOfTheLastFew(t *testing.T) {
	r := newRemote(nil, &life{Member: Member{ID: peer.ID("x")}})
	for i, tc := range []struct{ d, want time.Duration }{{5, 5}, {9, 9}, {6, 6}, {1000, 9}, {7, 7}, {7, 7}, {7, 7}, {1, 7}, {1, 7}, {1, 7}, {1, 1}} {
		if got := r.sample(tc.d); got != tc.want {
			t.Errorf("sample %d: %d, not %d", i, got, tc.want)
		}
	}
}
