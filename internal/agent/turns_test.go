package agent

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/reserve"
)

// sending are the reservations of an agent's own whose bytes move.
func sending(a *Agent) (rows []reserve.Row) {
	a.paths.table(func(t *reserve.Table, _, _ time.Duration) { rows = t.Rows(nil) })
	return slices.DeleteFunc(rows, func(r reserve.Row) bool { return r.Owner != a.id || r.Entry.Phase != reserve.Active })
}

// Under policy shoal one transfer a NIC moves at a time: the others wait for their turn, and all arrive.
func TestTransfersWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	all := pathShoal(t, 4, 2, func(_ int, c *Config) {
		c.Paths.Policy, c.Paths.Chunk, c.Paths.MaxBytes, c.Paths.MaxDelay = "shoal", 64<<10, 1<<30, reserve.MaxAhead
	})
	until(t, "nothing is stale", func() bool {
		return tableOf(t, all[0]).Schedule.Mode == "waiting" && tableOf(t, all[1]).Schedule.Mode == "waiting"
	})
	const n = 6
	ended := make(chan []TransferReply, n)
	for i := range n {
		go func() {
			r, _ := post[TransferReply](t, all[i%2], "/v1/transfers", TransferRequest{Peer: "h3", Bytes: 8 << 20})
			ended <- r
		}()
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	seen := 0
	for left := n; left > 0; {
		select {
		case r := <-ended:
			left--
			if len(r) == 0 || r[len(r)-1].Error != "" || r[len(r)-1].Moved != 8<<20 || r[len(r)-1].AnyPath > 0 {
				t.Errorf("%+v", r)
			}
		case <-look.C:
			for _, a := range all[:2] {
				rows := sending(a)
				seen += len(rows)
				if len(rows) > 1 {
					t.Fatalf("%s sends at once: %+v", a.id, rows)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("nothing was seen to move")
	}
	p, code := post[TransferReply](t, all[3], "/v1/transfers", TransferRequest{Peer: "h0", Bytes: 8 << 20, Pull: true})
	if code != http.StatusOK || !p[0].Done || p[0].Moved != 8<<20 {
		t.Fatalf("%d %+v", code, p)
	}
	sameTables(t, all, 0)
	sum := map[string]int64{}
	for _, a := range all[:2] {
		c := tableOf(t, a).Counters
		for name, v := range c {
			sum[name] += v
		}
		if c["path_waited_us"] == 0 {
			t.Errorf("nothing waited at %s", a.id)
		}
	}
	if sum["path_scheduled"] != n+1 || sum["path_unwaited"] != 0 || sum["path_given_up"] != 0 {
		t.Errorf("%d of %d began at their turn, %d did not wait, %d were given up", sum["path_scheduled"], n+1, sum["path_unwaited"], sum["path_given_up"])
	}
}

// Agents that send to one NIC take turns by what they tell each other, the shortest first; who is in nobody's way does not wait.
func TestAgentsTakeTurns(t *testing.T) {
	t.Parallel()
	all := pathShoal(t, 6, 2, func(_ int, c *Config) {
		c.Paths.Policy, c.Paths.Lease, c.Paths.MaxDelay = "shoal", time.Minute, reserve.MaxAhead
	})
	for _, a := range all {
		until(t, "nothing is stale", func() bool { return tableOf(t, a).Schedule.Mode == "waiting" })
	}
	const second = 12_500_000_000 // bytes of a link; turns are twelve seconds apart for each
	first := ask(t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h3", Bytes: 50 * second}).next(t, "granted")
	sameTables(t, all, 1)
	turns := make([]*asked, 6)
	for _, i := range []int{3, 0, 5, 2, 1, 4} {
		turns[i] = ask(t, all[i%3], "/v1/paths/reserve", ReserveRequest{Peer: "h3", Bytes: int64(30+i) * second})
		turns[i].next(t, "queued")
	}
	aside := ask(t, all[3], "/v1/paths/reserve", ReserveRequest{Peer: "h0", Bytes: second}).next(t, "granted")
	post[struct{}](t, all[3], "/v1/paths/release", HoldRequest{ID: aside.ID})
	sameTables(t, all, 1+len(turns))
	who, id := all[0], first.ID
	for i, q := range turns {
		post[struct{}](t, who, "/v1/paths/release", HoldRequest{ID: id})
		g := q.next(t, "granted")
		who, id = all[i%3], g.ID
		sameTables(t, all, len(turns)-i)
		var rows []reserve.Row
		for _, a := range all {
			rows = append(rows, sending(a)...)
		}
		if len(rows) != 1 || rows[0].Owner != who.id || rows[0].Entry.ID != id || !g.Legs[0].Reserved {
			t.Fatalf("turn %d is %d of %s, and what moves is %+v", i, id, who.id, rows)
		}
	}
	post[struct{}](t, who, "/v1/paths/release", HoldRequest{ID: id})
	sameTables(t, all, 0)
	for i, a := range all {
		c := tableOf(t, a).Counters
		if want := []int64{3, 2, 2, 1, 0, 0}[i]; c["path_scheduled"] != want || c["path_unwaited"] != 0 || c["path_conflicts"] != 0 {
			t.Errorf("%s: %d of %d began at their turn, %d did not wait, %d conflicts", a.id, c["path_scheduled"], want, c["path_unwaited"], c["path_conflicts"])
		}
	}
}

// An engine's own library is told when it is its turn, and loses its place when it goes away.
func TestReservationsAreQueuedAndGranted(t *testing.T) {
	t.Parallel()
	all := pathShoal(t, 4, 2, func(_ int, c *Config) { c.Paths.Policy, c.Paths.Lease = "shoal", time.Minute })
	until(t, "nothing is stale", func() bool { return tableOf(t, all[0]).Schedule.Mode == "waiting" })
	first, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 40}) // 88 s, as it is predicted
	if len(first) != 1 || first[0].State != "granted" {
		t.Fatalf("%+v", first)
	}
	lines := make(chan []ReserveReply, 1)
	go func() {
		r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h3", Bytes: 1 << 20})
		lines <- r
	}()
	waiting := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, e := range tableOf(t, all[3]).Entries { // everyone knows
				if e.Phase == "waiting" {
					n++
				}
			}
			return n == want && tableOf(t, all[0]).Counters["path_waiting"] == int64(want)
		}
	}
	until(t, "one waits", waiting(1))
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+all[0].Addrs().Admin+"/v1/paths/reserve", strings.NewReader(`{"peer":"h3","bytes":5}`))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "two wait", waiting(2))
	leave()
	res.Body.Close()
	until(t, "one has gone away", waiting(1))
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: first[0].ID})
	r := <-lines
	if len(r) != 2 || r[0].State != "queued" || len(r[0].Legs) != 0 || r[1].State != "granted" || len(r[1].Legs) != 1 || r[1].Legs[0].Port == 0 || !r[1].Legs[0].Reserved {
		t.Fatalf("%+v", r)
	}
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: r[1].Legs[0].ID})
	sameTables(t, all, 0)

	// One that is announced starts when its bytes are there, whenever that is.
	a, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Intent: true, ReadyUS: 20_000})
	if a[0].State != "intended" {
		t.Fatalf("%+v", a)
	}
	seq := uint64(0)
	until(t, "it is put off some times", func() bool {
		e := tableOf(t, all[1]).Entries
		if len(e) == 1 && seq == 0 {
			seq = e[0].Seq
		}
		return len(e) == 1 && e[0].Seq > seq+2
	})
	s, _ := post[ReserveReply](t, all[0], "/v1/paths/start", HoldRequest{ID: a[0].ID})
	if len(s) != 1 || s[0].State != "granted" || len(s[0].Legs) != 1 {
		t.Fatalf("%+v", s)
	}
}

// What is announced and never started is given up a lease after its time.
func TestAnAnnouncementIsGivenUp(t *testing.T) {
	t.Parallel()
	all := pathShoal(t, 2, 2, func(_ int, c *Config) { c.Paths.Policy, c.Paths.Lease = "shoal", 300*time.Millisecond })
	until(t, "nothing is stale", func() bool { return tableOf(t, all[0]).Schedule.Mode == "waiting" })
	post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Intent: true, ReadyUS: 1000})
	until(t, "it has ended", func() bool {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		return len(all[0].paths.turns.waiting) == 0
	})
	sameTables(t, all, 0)
}
