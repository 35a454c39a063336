package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/reserve"
)

// asked is a question to the admin API whose answer comes in lines.
type asked struct {
	status int
	lines  chan ReserveReply // closed at the end
	leave  func()
}

// ask asks, and leaves when the test ends.
func ask(t *testing.T, a *Agent, path string, in any) *asked {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+a.Addrs().Admin+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	q := &asked{res.StatusCode, make(chan ReserveReply, 4), leave}
	go func() {
		defer close(q.lines)
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			io.Copy(io.Discard, res.Body)
			return
		}
		for d := json.NewDecoder(res.Body); ; {
			var r ReserveReply
			if d.Decode(&r) != nil {
				return
			}
			q.lines <- r
		}
	}()
	return q
}

// next is the next line, in the state that it should have.
func (q *asked) next(t *testing.T, state string) ReserveReply {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r, more := <-q.lines:
		if !more || r.State != state {
			t.Fatalf("%+v (%v), want one that is %s", r, more, state)
		}
		return r
	case <-late.C:
		t.Fatalf("no line within %v, want one that is %s", patience, state)
		return ReserveReply{}
	}
}

// waitingShoal starts agents under policy shoal that wait, the first of which sends for very long: its first reservation.
func waitingShoal(t *testing.T, hosts int, change func(i int, c *Config)) (all []*Agent, first ReserveReply) {
	t.Helper()
	all = pathShoal(t, hosts, 2, func(i int, c *Config) {
		c.Paths.Policy, c.Paths.Lease = "shoal", time.Minute
		if change != nil {
			change(i, c)
		}
	})
	until(t, "nothing is stale", func() bool { return tableOf(t, all[0]).Schedule.Mode == "waiting" })
	return all, ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 40}).next(t, "granted") // 88 s, as it is predicted
}

// waiting reports whether so many own transfers wait, for the table and for the agent.
func waiting(t *testing.T, a *Agent, n int) func() bool {
	return func() bool {
		a.mu.Lock()
		kept := len(a.paths.turns.waiting)
		a.mu.Unlock()
		return kept == n && tableOf(t, a).Counters[pathWaiting] == int64(n)
	}
}

// Whoever asked first is told of the turn, or of its end; asking again takes nothing from it.
func TestAWaitingReservationIsStartedOnce(t *testing.T) {
	t.Parallel()
	all, first := waitingShoal(t, 2, nil)
	one := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20})
	id := one.next(t, "queued").ID
	intent := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 30, Intent: true}).next(t, "intended").ID
	two := ask(t, all[0], "/v1/paths/start", HoldRequest{ID: intent})
	two.next(t, "queued")
	until(t, "both wait", waiting(t, all[0], 2))
	for _, id := range []uint64{id, intent} {
		again := ask(t, all[0], "/v1/paths/start", HoldRequest{ID: id})
		if again.status != http.StatusBadRequest {
			t.Fatalf("%d for starting what waits already", again.status)
		}
		again.leave()
	}
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: first.ID})
	g := one.next(t, "granted")
	if g.ID != id || len(g.Legs) != 1 {
		t.Fatalf("%+v", g)
	}
	if again := ask(t, all[0], "/v1/paths/start", HoldRequest{ID: id}).next(t, "granted"); len(again.Legs) != 1 || again.Legs[0].ID != id {
		t.Fatalf("%+v: what moves can be asked for again", again)
	}
	one.leave()
	if r, _ := post[RenewReply](t, all[0], "/v1/paths/renew", HoldRequest{ID: id, Left: 1}); !r[0].Held {
		t.Fatal("who was granted and goes loses what moves")
	}
	three := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 30})
	gone := three.next(t, "queued").ID
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: gone}) // by another connection
	if r := three.next(t, "ended"); r.ID != gone || !strings.Contains(r.Reason, "released") {
		t.Fatalf("%+v", r)
	}
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: id})
	if g := two.next(t, "granted"); g.ID != intent {
		t.Fatalf("%+v", g)
	}
	until(t, "nobody waits", waiting(t, all[0], 0))
}

// standStill has the table find that an hour has passed in which nothing gave a sign of life.
func standStill(a *Agent) {
	a.paths.table(func(t *reserve.Table, now, wall time.Duration) { t.Tick(now+time.Hour, wall) })
}

// What lapses while it waits is told so: a client by a last line, the mover goes without a turn, an announcement is forgotten.
func TestWhatLapsesWhileItWaitsIsTold(t *testing.T) {
	t.Parallel()
	all, _ := waitingShoal(t, 2, nil)
	q := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20})
	id := q.next(t, "queued").ID
	intent := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Intent: true, ReadyUS: 60_000_000}).next(t, "intended").ID
	sent := make(chan []TransferReply, 1)
	go func() {
		r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", Bytes: 1 << 20})
		sent <- r
	}()
	until(t, "all three are known", waiting(t, all[0], 3))
	standStill(all[0])
	if r := q.next(t, "ended"); r.ID != id || !strings.Contains(r.Reason, "lapsed") || !strings.Contains(r.Reason, "reserve anew") {
		t.Fatalf("%+v", r)
	}
	if _, more := <-q.lines; more {
		t.Fatal("a line after the last one")
	}
	if r := <-sent; len(r) == 0 || r[len(r)-1].Error != "" || r[len(r)-1].Moved != 1<<20 || r[len(r)-1].Fallback {
		t.Fatalf("%+v", r)
	}
	if _, code := post[ReserveReply](t, all[0], "/v1/paths/start", HoldRequest{ID: intent}); code != http.StatusBadRequest {
		t.Fatalf("%d for an announcement that has lapsed", code)
	}
	until(t, "nothing is kept of them", waiting(t, all[0], 0))
	sameTables(t, all, 0)
}

// A transfer whose client goes away gives its place up, whether its bytes are there or not.
func TestATransferThatIsGivenUpWhileItWaits(t *testing.T) {
	t.Parallel()
	all, first := waitingShoal(t, 2, nil)
	failed := tableOf(t, all[0]).Counters["transfers_failed"]
	for i, ready := range []int64{0, maxAnnounced.Microseconds()} {
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := all[0].paths.move(ctx, "h1", "", "", 1<<20, all[0].paths.policy, time.Duration(ready)*time.Microsecond, nil, nil)
			ended <- err
		}()
		until(t, "it waits", waiting(t, all[0], 1))
		sameTables(t, all, 2)
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if !waiting(t, all[0], 0)() || tableOf(t, all[0]).Counters["transfers_failed"] != failed+int64(i)+1 {
			t.Fatal("something is left of it")
		}
		sameTables(t, all, 1)
	}
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: first.ID})
	sameTables(t, all, 0)
}

// Beyond give_up a transfer starts without its turn.
func TestATransferWaitsNoLongerThanGiveUp(t *testing.T) {
	t.Parallel()
	all, _ := waitingShoal(t, 2, func(_ int, c *Config) { c.Paths.MaxWait, c.Paths.GiveUp = 100*time.Millisecond, 300*time.Millisecond })
	r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", Bytes: 1 << 20})
	last := r[len(r)-1]
	if last.Error != "" || last.Moved != 1<<20 || last.TookNS < int64(300*time.Millisecond) {
		t.Fatalf("%+v", last)
	}
	if n := tableOf(t, all[0]).Counters["path_given_up"]; n != 1 {
		t.Fatalf("%d were given up", n)
	}
}

// An agent ends while its transfers wait, by whoever they were asked for, and nothing of it runs on.
func TestAnAgentEndsWhileTransfersWait(t *testing.T) {
	file := fabricFile(t, 4, 2)
	settings := func(_ int, c *Config) { c.Paths.Policy, c.Paths.Lease, c.Paths.Fabric = "shoal", time.Minute, file }
	all := pathShoal(t, 2, 2, settings)
	a, stop := run(t, func(c *Config) {
		c.ID, c.Paths.Listen, c.Paths.Probe, c.Cluster.Join = "h2", loopback(2).String()+":0", "off", []string{all[0].Addrs().Gossip}
		settings(2, c)
	})
	until(t, "it knows the others, and they it", func() bool {
		_, e1 := a.paths.to(target{peer: "h0", proto: ecmp.TCP})
		_, e2 := all[0].paths.to(target{peer: "h2", proto: ecmp.TCP})
		return e1 == nil && e2 == nil && tableOf(t, a).Schedule.Mode == "waiting"
	})
	ask(t, a, "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 40}).next(t, "granted")
	q := ask(t, a, "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1})
	q.next(t, "queued")
	ends := make(chan error, 3)
	for _, body := range []string{`{"peer":"h1","bytes":1000000}`, `{"peer":"h1","bytes":1000000,"ready_us":10000000}`} {
		go func() {
			_, err := http.Post("http://"+a.Addrs().Admin+"/v1/transfers", "application/json", strings.NewReader(body)) // answered at its end only
			ends <- err
		}()
	}
	go func() {
		_, err := all[0].paths.pull(t.Context(), "h2", "", "", 1<<20, "")
		ends <- err
	}()
	until(t, "all wait", waiting(t, a, 4))
	w, err := a.paths.to(target{peer: "h1", proto: ecmp.TCP})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		t.Fatal("the agent does not end")
	}
	for range q.lines { // until the connection ends
	}
	for range 3 {
		if err := <-ends; err == nil {
			t.Error("a transfer of an agent that has ended arrives")
		}
	}
	until(t, "nobody waits", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("(*paths).await(")) && !bytes.Contains(stacks, []byte("(*paths).hold("))
	})
	// Nor is anything set going later.
	a.paths.reserve(w, reserve.Request{Bytes: 1, Policy: reserve.Shoal, Phase: reserve.Intent, Ready: time.Now().Add(time.Minute).UnixMicro()})
	if a.paths.turns.timer.Stop() {
		t.Error("the timer of an agent that has ended is set")
	}
}
