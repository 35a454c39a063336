package up

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeProcess is a process of virtual time.
type fakeProcess struct {
	pid   int
	ended chan error
	term  func(p *fakeProcess) // nil: ends at once when asked
	once  sync.Once
	log   *eventLog
}

func (p *fakeProcess) end(err error) { p.once.Do(func() { p.ended <- err }) }
func (p *fakeProcess) PID() int      { return p.pid }
func (p *fakeProcess) Wait() error   { return <-p.ended }
func (p *fakeProcess) Kill()         { p.log.add("kill"); p.end(errors.New("killed")) }
func (p *fakeProcess) Terminate() {
	p.log.add("terminate")
	if p.term != nil {
		p.term(p)
		return
	}
	p.end(nil)
}

// eventLog is what happened, each with its time since the log was made.
type eventLog struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (l *eventLog) add(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, time.Since(l.began).String()+" "+fmt.Sprintf(format, a...))
}

func (l *eventLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// fakeStarter starts processes that live as long as lives says, in order; the last one repeats. 0: until told to end;
// less than 0: it cannot be started.
type fakeStarter struct {
	lives []time.Duration
	term  func(p *fakeProcess)
	log   *eventLog
	n     int
}

func (f *fakeStarter) Start(s spec, output io.Writer) (process, error) {
	life := f.lives[min(f.n, len(f.lives)-1)]
	f.n++
	f.log.add("start %s", s.name)
	if life < 0 {
		return nil, errors.New("no such program")
	}
	p := &fakeProcess{pid: 100 + f.n, ended: make(chan error, 1), term: f.term, log: f.log}
	if life > 0 {
		time.AfterFunc(life, func() { p.end(errors.New("crash")) })
	}
	return p, nil
}

// testGroup is a group of one child called a1.
func testGroup(t *testing.T, f *fakeStarter, hard chan struct{}) (*group, *eventLog) {
	log := &eventLog{began: time.Now()}
	f.log = log
	g := newGroup(f, hard, func(format string, a ...any) { log.add(format, a...) })
	s := spec{name: "a1", log: filepath.Join(t.TempDir(), "a1.log"), drain: 10 * time.Second}
	o, err := newOutput(s, false, &g.settled, func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	g.add(&child{spec: s, out: o})
	return g, log
}

func want(t *testing.T, got fmt.Stringer, lines ...string) {
	t.Helper()
	if w := strings.Join(lines, "\n"); got.String() != w {
		t.Errorf("what happened:\n%s\nwant:\n%s", got, w)
	}
}

func TestDeadChildIsStartedAgainWithBackoffAndSaidSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{time.Minute, time.Second, 0}}, nil)
		g.settled.Store(true)
		g.start()
		<-time.After(2 * time.Minute)
		g.close()
		want(t, log,
			"0s start a1",
			"1m0s a1 (pid 101) ended: crash after 1m0s; starting it again in 500ms (try 1 of 5)",
			"1m0.5s start a1",
			"1m1.5s a1 (pid 102) ended: crash after 1s; starting it again in 1s (try 2 of 5)",
			"1m2.5s start a1",
			"2m0s terminate")
	})
}

func TestChildThatKeepsDyingIsLeftStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{time.Second}}, nil)
		g.settled.Store(true)
		g.start()
		c := <-g.gaveUp
		if c.err == nil || !strings.Contains(c.err.Error(), "6 times in a row") {
			t.Errorf("its error is %v", c.err)
		}
		if !g.allGaveUp() {
			t.Error("the only child has given up, and allGaveUp does not say so")
		}
		g.close()
		starts := strings.Count(log.String(), "start a1")
		if starts != tries+1 {
			t.Errorf("started %d times, want %d:\n%s", starts, tries+1, log)
		}
		if !strings.Contains(log.String(), "in 8s (try 5 of 5)") {
			t.Errorf("the last wait is not %v:\n%s", lastBackoff, log)
		}
	})
}

func TestBeforeTheFirstReadyAChildIsTriedFewerTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{-1}}, nil)
		g.start()
		c := <-g.gaveUp
		g.close()
		want(t, log,
			"0s start a1",
			"0s a1 cannot be started (no such program) after 0s; starting it again in 500ms (try 1 of 2)",
			"500ms start a1",
			"500ms a1 cannot be started (no such program) after 0s; starting it again in 1s (try 2 of 2)",
			"1.5s start a1",
			"1.5s a1 cannot be started (no such program) after 0s; not started again: it has ended 3 times in a row")
		if c.err == nil {
			t.Error("no error says why")
		}
	})
}

func TestChildThatLivedLongHasAllItsTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{time.Second, time.Second, healthy, 0}}, nil)
		g.settled.Store(true)
		g.start()
		<-time.After(5 * time.Minute)
		g.close()
		if !strings.Contains(log.String(), "after 30s; starting it again in 500ms (try 1 of 5)") {
			t.Errorf("after %v it does not start over:\n%s", healthy, log)
		}
	})
}

func TestStopTerminatesAndKillsOnlyAfterTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{0}, term: func(*fakeProcess) {}}, nil)
		g.start()
		<-time.After(time.Second)
		g.stop()
		want(t, log, "0s start a1", "1s terminate", "11s a1 (pid 101) has not ended within 10s; killing it", "11s kill")
		g.close()
	})
}

func TestSecondInterruptKillsWithoutDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := make(chan struct{})
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{0}, term: func(*fakeProcess) {}}, hard)
		g.start()
		time.AfterFunc(3*time.Second, func() { close(hard) })
		<-time.After(2 * time.Second)
		g.stop()
		want(t, log, "0s start a1", "2s terminate", "3s kill")
		g.close()
	})
}

func TestStopDuringBackoffStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := testGroup(t, &fakeStarter{lives: []time.Duration{time.Second}}, nil)
		g.start()
		<-time.After(1200 * time.Millisecond)
		g.stop()
		if n := strings.Count(log.String(), "start a1"); n != 1 {
			t.Errorf("started %d times, want once:\n%s", n, log)
		}
		g.close()
	})
}
