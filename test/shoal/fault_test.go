package shoal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func emulated(int) []string { return []string{"--emulated"} }

// A prefix that came in at one agent is found again from another.
func TestAPrefixIsReusedFromEveryEntry(t *testing.T) {
	members := newShoal(t, 3, emulated)
	prefix := words(1, 1200)
	first := ask(t.Context(), members[0].api, prefix+"first question", false, 4)
	if first.status != http.StatusOK {
		t.Fatalf("%+v", first)
	}
	holder := first.header.Get("X-Shoal-Peer")
	for i, m := range []*member{members[1], members[2], members[0]} {
		eventually(t, m.id+" knows what "+holder+" holds", func() bool { p := m.of(holder); return p != nil && p.Blocks >= 18 })
		a := ask(t.Context(), m.api, prefix+fmt.Sprintf("question %d", i), i%2 == 0, 4)
		if a.header.Get("X-Shoal-Peer") != holder {
			t.Errorf("from %s: served by %s, held by %s (%s)", m.id, a.header.Get("X-Shoal-Peer"), holder, a.header.Get("X-Shoal-Reason"))
		}
		if a.cached < 1080 {
			t.Errorf("from %s: the engine reused %d of %d tokens", m.id, a.cached, a.all)
		}
	}
	idle(t, members)
}

// pitfalls 20, 30: a killed peer costs nobody else an answer.
func TestAKilledPeerCostsNobodyElseAnAnswer(t *testing.T) {
	const streams = 100
	members := newShoal(t, 4, func(i int) []string {
		if i == 3 {
			return []string{"--emulated", "--policy", "local"}
		}
		return []string{"--emulated"}
	})
	// Half of the prompts share a prefix that the fourth peer holds, so that many are there when it dies.
	held := words(4, 2000)
	ask(t.Context(), members[3].api, held, false, 1)
	holder := members[3].id
	for _, m := range members[:3] {
		eventually(t, m.id+" knows what is held", func() bool { p := m.of(holder); return p != nil && p.Blocks > 0 })
	}
	var wg sync.WaitGroup
	var begun atomic.Int64 // streams that the fourth peer has begun to answer
	ctx := context.WithValue(t.Context(), whenBegun, func(peer string) {
		if peer == holder {
			begun.Add(1)
		}
	})
	answers := make([]*answer, streams)
	for i := range streams {
		prompt := words(100+i, 500)
		if i%2 == 0 {
			prompt = held + fmt.Sprintf("question %d", i)
		}
		wg.Go(func() { answers[i] = ask(ctx, members[i%3].api, prompt, true, 120) })
	}
	eventually(t, "the fourth peer serves many of them", func() bool { return begun.Load() >= 5 })
	members[3].kill()
	wg.Wait()
	var whole, cut, failed int
	for i, a := range answers {
		switch {
		case a.status == http.StatusOK && a.done && a.errorEvent == "" && a.err == nil:
			whole++
		case a.firstByte && a.errorEvent != "" && a.err == nil && !a.done:
			cut++
			if strings.Contains(a.errorEvent, "127.0.0.1") {
				t.Errorf("the error names an inner address: %s", a.errorEvent)
			}
		default:
			failed++
			t.Errorf("stream %d: status %d, first byte %v, done %v, error event %q, error %v", i, a.status, a.firstByte, a.done, a.errorEvent, a.err)
		}
	}
	t.Logf("of %d streams: %d whole, %d ended in an error event after their first byte, %d failed otherwise", streams, whole, cut, failed)
	if cut == 0 {
		t.Error("no stream was at the killed peer: nothing was tested")
	}
	// And everybody goes on.
	for _, m := range members[:3] {
		if a := ask(t.Context(), m.api, held+"afterwards", true, 2); !a.done {
			t.Errorf("afterwards, through %s: %+v", m.id, a)
		}
	}
	idle(t, members[:3])
}

// pitfalls 18, 19: a client that leaves is forgotten everywhere, down to the engine.
func TestAThousandAbortedStreamsLeaveNothingInFlight(t *testing.T) {
	const streams, at = 1000, 50
	members := newShoal(t, 3, func(int) []string { return []string{"--emulated", "--log-level", "debug"} })
	gate := make(chan struct{}, at)
	var wg sync.WaitGroup
	for i := range streams {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			abort(t, members[i%3].api, words(i%40, 300)+fmt.Sprint(i), i)
		})
	}
	wg.Wait()
	idle(t, members)
}

// abort leaves a stream at some moment: at once, after the headers, or after some chunks.
func abort(t *testing.T, api, prompt string, i int) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	body, _ := json.Marshal(map[string]any{"model": "emulated", "max_tokens": 2000, "stream": true,
		"messages": []map[string]string{{"role": "user", "content": prompt}}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	if i%3 == 0 {
		time.AfterFunc(time.Duration(i%17)*time.Millisecond, func() { cancel(errLeft) })
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("stream %d: %v", i, err)
		}
		return
	}
	defer r.Body.Close()
	b := make([]byte, 512)
	for range i % 5 {
		if _, err := r.Body.Read(b); err != nil {
			return
		}
	}
}

// pitfalls 11, 16: an agent that restarts beside a warm engine knows again what it holds; with a new engine, nothing.
func TestARestartedAgentKnowsWhatItsEngineHolds(t *testing.T) {
	for _, c := range []struct {
		name          string
		state, engine bool // with a state file; the engine is restarted too
	}{{"with its state file", true, false}, {"from its peers", false, false}, {"with a new engine", true, true}, {"with a new engine, from its peers", false, true}} {
		t.Run(c.name, func(t *testing.T) { restart(t, c.state, c.engine) })
	}
}

func restart(t *testing.T, withState, newEngine bool) {
	dir := t.TempDir()
	addrs := ports(t, 3)
	engines := make([]*process, 3)
	for i := range engines {
		engines[i] = run(t, fmt.Sprintf("e%d", i+1), "engine", "--listen", addrs[i])
		eventually(t, "engine answers", func() bool { c, err := net.Dial("tcp", addrs[i]); return err == nil && c.Close() == nil })
	}
	members := newShoal(t, 3, func(i int) []string {
		args := []string{"--engine", "http://" + addrs[i], "--engine-kind", "emulated"}
		if i == 1 {
			args = append(args, "--policy", "local") // what comes in at a2 is held by a2
		}
		if withState {
			args = append(args, "--state", filepath.Join(dir, fmt.Sprintf("state-%d", i)))
		}
		return args
	})
	m := members[1]
	const prefixes = 5
	for i := range prefixes {
		if a := ask(t.Context(), m.api, words(i, 1200), false, 1); a.header.Get("X-Shoal-Peer") != m.id {
			t.Fatalf("%+v", a)
		}
	}
	eventually(t, "all is quiet and known", func() bool {
		own, seen := m.of(m.id), members[0].of(m.id)
		return own != nil && seen != nil && own.Blocks > 0 && seen.Blocks == own.Blocks && own.Load.InFlight == 0
	})
	blocks := m.of(m.id).Blocks
	if withState {
		m.stop() // which writes it
	} else {
		m.kill()
	}
	if newEngine {
		engines[1].kill()
		engines[1] = run(t, "e2", "engine", "--listen", addrs[1])
	}
	m.again(t)
	eventually(t, "the restarted agent is ready", func() bool { own := m.of(m.id); return own != nil && own.Load.Up })
	if newEngine {
		ready(t, members)
		s := m.status()
		if own := m.of(m.id); own.Blocks != 0 || s.Counters["adopted_blocks"] != 0 {
			t.Fatalf("%d stale blocks are believed, %d were adopted", own.Blocks, s.Counters["adopted_blocks"])
		}
		return
	}
	took := eventually(t, "its tree is back", func() bool { own := m.of(m.id); return own != nil && own.Blocks == blocks })
	s := m.status()
	t.Logf("%d blocks are back; %v after the engine was found up, %d ms after the start (anti-entropy round: 100 ms)", blocks, took.Round(time.Millisecond), s.UptimeMS)
	ready(t, members)
	// Others still hold the document of its former life, which says that it drains: what counts is the one of this life.
	heard := eventually(t, "another agent has the new document", func() bool {
		p := members[2].of(m.id)
		return p != nil && p.Incarnation == s.Incarnation && p.Blocks == blocks && p.Load.Up && !p.Load.Draining
	})
	t.Logf("another agent had its new document %v later", heard.Round(time.Millisecond))
	for i := range prefixes { // and the hit rate is what it was
		a := ask(t.Context(), members[2].api, words(i, 1200)+"after", false, 1)
		if a.cached < 1080 || a.header.Get("X-Shoal-Peer") != m.id {
			t.Errorf("prefix %d: %d of %d tokens were reused, by %s", i, a.cached, a.all, a.header.Get("X-Shoal-Peer"))
		}
	}
	idle(t, members)
}

// pitfalls 36: an agent that is told to stop lets streams end, and those that take too long end in an error event.
func TestAStoppedAgentEndsItsStreams(t *testing.T) {
	members := newShoal(t, 2, func(int) []string { return []string{"--emulated", "--policy", "local", "--drain", "1500ms"} })
	long, short := make(chan *answer, 1), make(chan *answer, 1)
	begun := make(chan string, 2)
	ctx := context.WithValue(t.Context(), whenBegun, func(peer string) { begun <- peer })
	go func() { long <- ask(ctx, members[0].api, words(1, 50), true, 5000) }()
	go func() { short <- ask(ctx, members[0].api, words(2, 50), true, 60) }()
	<-begun
	<-begun
	members[0].stop()
	if a := <-short; !a.done || a.errorEvent != "" {
		t.Errorf("the short stream did not come to its end: %+v", a)
	}
	if a := <-long; a.done || a.err != nil || !strings.Contains(a.errorEvent, "shutting down") {
		t.Errorf("the long stream: done %v, error event %q, error %v", a.done, a.errorEvent, a.err)
	}
	if a := ask(t.Context(), members[1].api, words(3, 50), true, 2); !a.done {
		t.Errorf("the other agent: %+v", a)
	}
}

// pitfalls 8: a conversation is at home at one peer, whichever entry its turns come in at, and a restarted entry sees
// everyone again.
func TestAConversationStaysTogetherAcrossEntriesAndRestarts(t *testing.T) {
	members := newShoal(t, 3, emulated)
	talk, known := words(1, 800), 0
	home := ""
	for turn := range 6 {
		m := members[turn%3]
		if turn == 3 {
			m.kill()
			eventually(t, "the others see that it is gone", func() bool { p := members[1].of(m.id); return p != nil && !p.Alive })
			m.again(t)
			ready(t, members)
			if home == m.id {
				return // its emulated engine has died with it: there is nothing to come home to
			}
		}
		if home != "" {
			eventually(t, m.id+" knows the conversation", func() bool { p := m.of(home); return p != nil && p.Blocks >= known })
		}
		a := ask(t.Context(), m.api, talk, turn%2 == 0, 4)
		if home == "" {
			home = a.header.Get("X-Shoal-Peer")
		}
		if got := a.header.Get("X-Shoal-Peer"); got != home || turn > 0 && a.cached < a.all*7/10 {
			t.Errorf("turn %d through %s: served by %s, at home at %s; %d of %d tokens were reused", turn, m.id, got, home, a.cached, a.all)
		}
		known = len(talk) / 256
		talk += words(10+turn, 200)
	}
	idle(t, members)
}

// pitfalls 31: an engine that comes back is served again within 2 s, and meanwhile its agent goes on through its peers.
func TestARestartedEngineIsServedAgainWithinTwoSeconds(t *testing.T) {
	addr := ports(t, 1)[0]
	engine := run(t, "engine", "engine", "--listen", addr)
	members := newShoal(t, 2, func(i int) []string {
		if i == 0 {
			return []string{"--engine", "http://" + addr, "--engine-kind", "emulated"}
		}
		return []string{"--emulated"}
	})
	engine.kill()
	for i := range 20 {
		if a := ask(t.Context(), members[0].api, words(i, 100), i%2 == 0, 2); !a.done || a.status != http.StatusOK {
			t.Fatalf("with the own engine down: %+v", a)
		}
	}
	eventually(t, "degraded is said", func() bool {
		r, err := http.Get("http://" + members[0].admin + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		b := make([]byte, 64)
		n, _ := r.Body.Read(b)
		return r.StatusCode == http.StatusOK && strings.HasPrefix(string(b[:n]), "degraded")
	})
	engine = run(t, "engine", "engine", "--listen", addr)
	eventually(t, "the engine listens", func() bool { c, err := net.Dial("tcp", addr); return err == nil && c.Close() == nil })
	if took := eventually(t, "its agent serves by it again", func() bool { p := members[0].of("a1"); return p != nil && p.Load.Up }); took > 2*time.Second {
		t.Errorf("back in service %v after its return", took)
	}
	engine.kill()
}
