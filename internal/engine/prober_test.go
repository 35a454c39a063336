package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// moody is an engine whose Probe does what the test says.
type moody struct {
	gone
	probe  func(ctx context.Context) (Report, error)
	probes []time.Duration
	began  time.Time
}

func (m *moody) Probe(ctx context.Context) (Report, error) {
	m.probes = append(m.probes, time.Since(m.began))
	return m.probe(ctx)
}

// watched runs a prober over m in a bubble of its own time, and returns the changes that it told of.
func watched(t *testing.T, m *moody, run func(p *Prober, sleep func(time.Duration))) (changes []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.began = time.Now()
		p := NewProber(m, ProberConfig{OnChange: func(s Status) {
			changes = append(changes, fmt.Sprintf("%v %v", time.Since(m.began), s.Up))
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		run(p, func(d time.Duration) {
			pass(d)
			synctest.Wait()
		})
		cancel()
		<-done
	})
	return changes
}

func down() error { return failed(ErrDown, errors.New("refused")) }

func TestProberAsksOnceASecond(t *testing.T) {
	m := &moody{probe: func(context.Context) (Report, error) { return Report{Running: 3}, nil }}
	changes := watched(t, m, func(p *Prober, sleep func(time.Duration)) {
		sleep(10500 * time.Millisecond)
		if s := p.Status(); !s.Up || s.Report.Running != 3 || time.Since(s.Checked) > time.Second {
			t.Errorf("status %+v", s)
		}
	})
	if len(m.probes) != 11 || !slices.Equal(changes, []string{"0s true"}) {
		t.Errorf("%d probes, changes %v", len(m.probes), changes)
	}
}

// pitfalls 31
func TestRestartedEngineIsBackWithinTwoSeconds(t *testing.T) {
	for back := 3 * time.Second; back < 200*time.Second; back = back*3/2 + 70*time.Millisecond {
		var up time.Duration
		m := &moody{}
		m.probe = func(context.Context) (Report, error) {
			if at := time.Since(m.began); at > time.Second && at < back {
				return Report{}, down()
			}
			return Report{}, nil
		}
		watched(t, m, func(p *Prober, sleep func(time.Duration)) {
			sleep(2500 * time.Millisecond)
			if p.Status().Up {
				t.Error("an engine that refuses connections counts as up")
			}
			sleep(back + 2*time.Second - time.Since(m.began))
			if s := p.Status(); s.Up {
				up = s.Changed.Sub(m.began)
			}
		})
		if up < back {
			t.Errorf("back after %v: not up within two seconds", back)
		}
		if n := len(m.probes); float64(n) > back.Seconds()+6 {
			t.Errorf("back after %v: %d probes", back, n)
		}
	}
}

func TestFailedRequestIsFollowedByAProbeAtOnce(t *testing.T) {
	m := &moody{}
	m.probe = func(context.Context) (Report, error) {
		if time.Since(m.began) > 1200*time.Millisecond {
			return Report{}, down()
		}
		return Report{}, nil
	}
	changes := watched(t, m, func(p *Prober, sleep func(time.Duration)) {
		sleep(1500 * time.Millisecond)
		for range 1000 {
			p.Failed(down())
		}
		sleep(time.Millisecond)
		if p.Status().Up {
			t.Error("still up")
		}
		for range 100 { // and while it is down failures change nothing
			p.Failed(down())
			sleep(time.Millisecond)
		}
	})
	if !slices.Equal(changes, []string{"0s true", "1.5s false"}) || len(m.probes) != 3 {
		t.Errorf("changes %v, probes at %v", changes, m.probes)
	}
}

func TestManyFailedRequestsDoNotFloodTheEngine(t *testing.T) {
	m := &moody{probe: func(context.Context) (Report, error) { return Report{}, nil }} // it is up all the same
	watched(t, m, func(p *Prober, sleep func(time.Duration)) {
		for range 1000 {
			p.Failed(down())
			sleep(time.Millisecond)
		}
	})
	if n := len(m.probes); n > 12 {
		t.Errorf("%d probes in a second", n)
	}
}

func TestSlowEngineIsDownOnlyAfterSomeProbes(t *testing.T) {
	m := &moody{}
	m.probe = func(ctx context.Context) (Report, error) {
		if at := time.Since(m.began); at > 5*time.Second && at < 9*time.Second || at > 20*time.Second {
			<-ctx.Done() // hangs
			return Report{}, ctx.Err()
		}
		return Report{}, nil
	}
	changes := watched(t, m, func(p *Prober, sleep func(time.Duration)) { sleep(40 * time.Second) })
	if len(changes) != 2 || changes[0] != "0s true" || changes[1] != "31s false" && changes[1] != "32s false" {
		t.Errorf("changes %v, probes at %v", changes, m.probes)
	}
}

func TestEngineThatWasNeverUpIsToldOnce(t *testing.T) {
	m := &moody{probe: func(context.Context) (Report, error) { return Report{}, down() }}
	changes := watched(t, m, func(p *Prober, sleep func(time.Duration)) { sleep(20 * time.Second) })
	if !slices.Equal(changes, []string{"0s false"}) {
		t.Errorf("changes %v", changes)
	}
}
