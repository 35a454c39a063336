package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/ecmp"
)

func TestCallsEndWithTheirContextAndWithTheProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		f.loss = 1
		p, err := Start(f, Config{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWatcher(p, WatchConfig{})
		if err != nil {
			t.Fatal(err)
		}
		w.Want(to)
		ran := make(chan error, 1)
		go func() { ran <- w.Run(context.Background()) }()
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		go func() { _, err := p.Learn(ctx, to, Options{}); ends <- err }()
		synctest.Wait()
		cancel()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { _, err := p.Learn(context.Background(), to, Options{}); ends <- err }()
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ends; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := <-ran; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := p.Learn(t.Context(), to, Options{}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if n := p.Stats().Waiting; n != 0 {
			t.Errorf("%d probes are still waited for", n)
		}
	})
}

// More targets than may be asked at once, on a network that never answers: all wait, and no more probes than the limit.
func TestProbesThatWaitForAnswersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		f.loss = 1
		p := prober(t, f, MaxRate)
		var wait sync.WaitGroup
		most := 0
		for i := range 3 * MaxConcurrent {
			wait.Go(func() {
				l := &learner{p: p, t: Target{Src: here, Dst: ip(10, 99, 0, i), DstPort: 7801, Proto: ecmp.TCP}, o: Options{}.withDefaults(), pace: newPace(MaxRate)}
				var shots []shot
				for port := range uint16(MaxBatch) {
					shots = append(shots, l.shot(50000+port, 2))
				}
				if err := l.send(t.Context(), shots); err != nil {
					t.Error(err)
				}
			})
		}
		for range 100 {
			pass(20 * time.Millisecond)
			most = max(most, p.Stats().Waiting)
		}
		wait.Wait()
		if s := p.Stats(); most != MaxOutstanding || s.Unanswered != 3*MaxOutstanding || s.Waiting != 0 {
			t.Errorf("at most %d, %+v", most, s)
		}
	})
}

// Numbers of probes come again after 65,535 of them, and an answer to the probe before is none to the one after.
func TestNumbersComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(leafSpine(4, murmur(1)))
		p := prober(t, f, MaxRate)
		l := &learner{p: p, t: to, o: Options{}.withDefaults(), pace: newPace(MaxRate)}
		for range 70_000 / MaxBatch {
			var shots []shot
			for port := range uint16(MaxBatch) {
				shots = append(shots, l.shot(50000+port, 2))
			}
			if err := l.send(t.Context(), shots); err != nil {
				t.Fatal(err)
			}
			for _, s := range shots {
				if s.from != f.route(s.probe.Tuple)[1] {
					t.Fatalf("port %d: %v", s.probe.Tuple.SrcPort, s.from)
				}
			}
		}
		if s := p.Stats(); s.Answered != s.Sent || s.Stray != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// hostile says whatever it likes to whoever listens.
type hostile struct {
	*fabric
	say chan message
}

func (h *hostile) Receive(b []byte) (int, netip.Addr, error) {
	select {
	case m := <-h.say:
		return copy(b, m.b), m.from, nil
	default:
		return h.fabric.Receive(b)
	}
}

func TestForgedAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hostile{newFabric(leafSpine(4, murmur(1))), make(chan message, 1<<16)}
		evil := netip.MustParseAddr("10.66.6.6")
		for id := range 1000 { // the right 5-tuples and numbers, but not the cookies
			for port := range 16 {
				p := Probe{Tuple: to.Tuple(uint16(50000 + port)), TTL: 2, ID: uint16(id), Cookie: uint32(id)}
				h.say <- message{evil, answerTo(appendProbe(nil, p), [2]byte{11, 0})}
			}
		}
		p, err := Start(h, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		m, err := p.Learn(t.Context(), to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		right(t, h.fabric, m, 4, 16)
		if p.Stats().Stray != 16000 {
			t.Errorf("%+v", p.Stats())
		}
	})
}

// broken fails to receive.
type broken struct{ *fabric }

func (broken) Receive([]byte) (int, netip.Addr, error) {
	return 0, netip.Addr{}, &net.OpError{Op: "read", Err: errors.New("network is down")}
}

func TestASocketThatFailsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Start(broken{newFabric(leafSpine(4, murmur(1)))}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		synctest.Wait()
		if _, err := p.Learn(t.Context(), to, Options{}); err == nil || errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, rate := range []int{-1, MaxRate + 1} {
		if _, err := Start(nil, Config{Rate: rate}); err == nil {
			t.Errorf("a rate of %d is accepted", rate)
		}
	}
}
