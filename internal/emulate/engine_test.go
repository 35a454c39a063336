package emulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shoal/internal/prefix"
)

// small is an engine whose figures can be followed by hand: blocks of 4 tokens, 10 ms a step, 1 ms a prompt token.
func small() Config {
	return Config{Model: "m", Context: 1000, Running: 4, Waiting: 3, StepTokens: 16, CacheTokens: 80, BlockTokens: 4,
		Prefill: time.Millisecond, Decode: 10 * time.Millisecond, Output: 3, TokenBytes: 4}
}

// chainOf is n hashes that only this name has.
func chainOf(name uint64, n int) []prefix.Hash {
	c := make([]prefix.Hash, n)
	for i := range c {
		c[i] = prefix.Hash(name<<32 | uint64(i+1))
	}
	return c
}

func mustNew(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run serves one request on an engine that has nothing else to do, and returns its events.
func run(t testing.TB, e *Engine, now time.Duration, r Request) []Event {
	t.Helper()
	if err := e.Submit(now, r); err != nil {
		t.Fatal(err)
	}
	return e.Advance(now+time.Hour, nil)
}

func TestTimesOfOneRequest(t *testing.T) {
	cfg := small()
	cfg.Overhead, cfg.DecodeEach = 5*time.Millisecond, time.Millisecond
	got := run(t, mustNew(t, cfg), 100*time.Millisecond, Request{ID: 1, Chain: chainOf(1, 5), Prompt: 20, Output: 3})
	ms := time.Millisecond
	// 5 ms until it is ready, then pieces of 16 and 4 tokens, then two steps of 11 ms.
	want := []Event{
		{At: 125 * ms, ID: 1, Kind: FirstToken, Token: 1},
		{At: 136 * ms, ID: 1, Kind: Token, Token: 2},
		{At: 147 * ms, ID: 1, Kind: Token, Token: 3},
		{At: 147 * ms, ID: 1, Kind: Done, Token: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%v\nwant\n%v", got, want)
	}
}

func TestCachedTokensAreExact(t *testing.T) {
	for _, c := range []struct{ prompt, want int }{
		{96, 92}, // of whole blocks the last one is computed again
		{97, 96}, {95, 92}, {4, 0}, {5, 4}, {1, 0},
	} {
		cfg := small()
		cfg.CacheTokens = 400
		e := mustNew(t, cfg)
		r := Request{ID: 1, Chain: chainOf(1, c.prompt/4), Prompt: c.prompt, Output: 1}
		run(t, e, 0, r)
		if m := e.Match(r.Chain, r.Prompt); m != c.want {
			t.Errorf("prompt of %d: match %d, want %d", c.prompt, m, c.want)
		}
		r.ID = 2
		ev := run(t, e, time.Hour, r)
		if ev[0].Cached != c.want {
			t.Errorf("prompt of %d again: %d cached, want %d", c.prompt, ev[0].Cached, c.want)
		}
		if took := ev[0].At - time.Hour; took != time.Duration(c.prompt-c.want)*time.Millisecond {
			t.Errorf("prompt of %d again: first token after %v", c.prompt, took)
		}
	}
}

func TestAnswersAreReusedWhereTheirBlocksAreNamed(t *testing.T) {
	e := mustNew(t, small())
	long := chainOf(1, 8)
	run(t, e, 0, Request{ID: 1, Chain: long[:6], Prompt: 16, Output: 10}) // 26 tokens, of which the last is never stored
	if m := e.Match(long, 32); m != 24 {
		t.Errorf("match %d, want 24", m)
	}
}

func TestConcurrentPrefixIsSharedOnceComputed(t *testing.T) {
	cfg := small()
	cfg.StepTokens = 8
	e := mustNew(t, cfg)
	chain := chainOf(1, 4)
	e.Submit(0, Request{ID: 1, Chain: chain, Prompt: 16, Output: 8})
	e.Advance(8*time.Millisecond, nil) // two of its blocks are there
	e.Submit(8*time.Millisecond, Request{ID: 2, Chain: chain, Prompt: 16, Output: 8})
	ev := e.Advance(time.Hour, nil)
	i := slices.IndexFunc(ev, func(e Event) bool { return e.ID == 2 })
	if ev[i].Cached != 12 {
		t.Errorf("the second request finds %d tokens, want the 12 that the first had computed when it started", ev[i].Cached)
	}
	if s := e.Stats(); s.Pinned != 0 || s.Running != 0 {
		t.Errorf("at the end %+v", s)
	}
}

func TestDecodingSequencesComeFirst(t *testing.T) {
	cfg := small()
	e := mustNew(t, cfg)
	e.Submit(0, Request{ID: 1, Chain: nil, Prompt: 1, Output: 4})
	e.Advance(time.Millisecond, nil)
	e.Submit(time.Millisecond, Request{ID: 2, Chain: nil, Prompt: 30, Output: 1})
	var got []string
	for _, ev := range e.Advance(time.Hour, nil) {
		got = append(got, fmt.Sprintf("%d %v %v", ev.ID, ev.Kind, ev.At))
	}
	// The step under way began before the second request came. Then it shares two steps: 15 tokens of it each.
	want := []string{"1 token 11ms", "1 token 36ms", "1 token 61ms", "1 done 61ms", "2 first-token 61ms", "2 done 61ms"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestEvictionTakesTheDeepestOfTheOldest(t *testing.T) {
	e := mustNew(t, small()) // 20 blocks
	a, b := chainOf(1, 8), chainOf(2, 8)
	run(t, e, 0, Request{ID: 1, Chain: a, Prompt: 32, Output: 1})
	run(t, e, time.Hour, Request{ID: 2, Chain: b, Prompt: 32, Output: 1})
	run(t, e, 2*time.Hour, Request{ID: 3, Chain: chainOf(3, 7), Prompt: 28, Output: 1})
	if m := e.Match(a, 33); m != 5*4 {
		t.Errorf("of the oldest prompt %d tokens are left, want 20: 3 of its 8 blocks made room", m)
	}
	if m := e.Match(b, 33); m != 8*4 {
		t.Errorf("of the newer prompt %d tokens are left", m)
	}
	if s := e.Stats(); s.Evicted != 3 || s.Blocks != s.Capacity {
		t.Errorf("stats %+v", s)
	}
}

func TestRequestsWaitForMemoryInOrder(t *testing.T) {
	e := mustNew(t, small()) // 80 tokens
	e.Submit(0, Request{ID: 1, Prompt: 40, Output: 8})
	e.Submit(0, Request{ID: 2, Prompt: 40, Output: 8}) // does not fit beside the first
	e.Submit(0, Request{ID: 3, Prompt: 4, Output: 1})  // would fit, but is not next
	var order []uint64
	for _, ev := range e.Advance(time.Hour, nil) {
		if ev.Kind == Done {
			order = append(order, ev.ID)
		}
	}
	if !slices.Equal(order, []uint64{1, 3, 2}) {
		t.Errorf("ended in the order %v", order)
	}
}

func TestSubmitRefusesAtItsLimits(t *testing.T) {
	e := mustNew(t, small())
	if err := e.Submit(0, Request{ID: 1, Prompt: 998, Output: 3}); err != ErrTooLong {
		t.Errorf("over the context: %v", err)
	}
	if err := e.Submit(0, Request{ID: 1, Prompt: 80, Output: 1}); err != ErrTooLong {
		t.Errorf("over the cache: %v", err)
	}
	if err := e.Submit(0, Request{ID: 1, Prompt: 79, Output: 1}); err != nil {
		t.Errorf("exactly the cache: %v", err)
	}
	for id := range uint64(6) {
		if err := e.Submit(0, Request{ID: id + 2, Prompt: 1, Output: 1}); err != nil {
			t.Errorf("request %d of 4 running and 3 waiting: %v", id+2, err)
		}
	}
	if err := e.Submit(0, Request{ID: 9, Prompt: 1, Output: 1}); err != ErrFull {
		t.Errorf("one more: %v", err)
	}
}

func TestCancelFreesEverything(t *testing.T) {
	e := mustNew(t, small())
	e.Submit(0, Request{ID: 1, Chain: chainOf(1, 5), Prompt: 20, Output: 100 - 40})
	e.Submit(0, Request{ID: 2, Prompt: 4, Output: 1})
	e.Advance(30*time.Millisecond, nil)
	if !e.Cancel(1) || !e.Cancel(2) && e.Cancel(2) || e.Cancel(1) || e.Cancel(7) {
		t.Error("Cancel does not tell what it found")
	}
	e.Advance(time.Hour, nil)
	if s := e.Stats(); s.Running != 0 || s.Waiting != 0 || s.Pinned != 0 || e.cache.reserved != 0 {
		t.Errorf("after cancel %+v, reserved %d", s, e.cache.reserved)
	}
	if m := e.Match(chainOf(1, 5), 21); m != 20 {
		t.Errorf("what it had computed is not cached: %d", m)
	}
}

func TestInstantEngineAnswersAtOnce(t *testing.T) {
	cfg := Instant()
	e := mustNew(t, cfg)
	e.Submit(7, Request{ID: 1, Chain: chainOf(1, 100), Prompt: 1600, Output: 50})
	ev := e.Advance(7, nil)
	if len(ev) != 51 || ev[50].Kind != Done || ev[50].At != 7 {
		t.Errorf("%d events, the last %+v", len(ev), ev[len(ev)-1])
	}
	if _, more := e.Next(); more {
		t.Error("something is still to come")
	}
}

// TestInvariantsHoldWhateverComes drives the engine at random, and as finely or coarsely in time as chance has it.
func TestInvariantsHoldWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := small()
		cfg.Running = rapid.IntRange(1, 5).Draw(t, "running")
		cfg.Overhead = time.Duration(rapid.IntRange(0, 3).Draw(t, "overhead")) * time.Millisecond
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		now, id := time.Duration(0), uint64(0)
		tokens, output := map[uint64]int{}, map[uint64]int{}
		var last time.Duration
		check := func(ev []Event) {
			for _, v := range ev {
				if v.At < last || v.At > now {
					t.Fatalf("event %+v at %v after one at %v", v, now, last)
				}
				last = v.At
				switch v.Kind {
				case Done:
					if tokens[v.ID] != output[v.ID] {
						t.Fatalf("request %d ends with %d of %d tokens", v.ID, tokens[v.ID], output[v.ID])
					}
					delete(output, v.ID)
				default:
					if tokens[v.ID]++; v.Token != tokens[v.ID] || (v.Kind == FirstToken) != (v.Token == 1) {
						t.Fatalf("event %+v is the token %d", v, tokens[v.ID])
					}
				}
			}
			s := e.Stats()
			if s.Running > cfg.Running || s.Running+s.Waiting > cfg.Running+cfg.Waiting || s.Pinned+e.cache.reserved > s.Capacity || s.Blocks > s.Capacity {
				t.Fatalf("over a limit: %+v reserved %d", s, e.cache.reserved)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				id++
				name := uint64(rapid.IntRange(1, 3).Draw(t, "name"))
				r := Request{ID: id, Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: rapid.IntRange(1, 20).Draw(t, "output")}
				r.Chain = chainOf(name, rapid.IntRange(0, (r.Prompt+r.Output)/4).Draw(t, "chain"))
				if e.Submit(now, r) == nil {
					output[id] = r.Output
				}
			case 2:
				now += time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond
				check(e.Advance(now, nil))
			case 3:
				one := uint64(rapid.IntRange(1, int(id)+1).Draw(t, "cancelled"))
				if _, open := output[one]; e.Cancel(one) != open {
					t.Fatalf("cancel of %d, open %v", one, open)
				}
				delete(output, one)
			}
		}
		now += time.Hour
		check(e.Advance(now, nil))
		if s := e.Stats(); len(output) != 0 || s.Running != 0 || s.Waiting != 0 || s.Pinned != 0 || e.cache.reserved != 0 {
			t.Fatalf("at the end %d are open, %+v, reserved %d", len(output), s, e.cache.reserved)
		}
	})
}

func TestTimesDoNotDependOnHowOftenTimeIsAdvanced(t *testing.T) {
	drive := func(every time.Duration) []Event {
		e := mustNew(t, small())
		r := rand.New(rand.NewPCG(1, 2))
		var log []Event
		for i := range uint64(40) {
			at := time.Duration(i) * 13 * time.Millisecond
			for now := at - 13*time.Millisecond; every > 0 && now < at; now += every {
				log = e.Advance(max(now, 0), log)
			}
			log = e.Advance(at, log) // what has ended by then makes room
			p := 1 + r.IntN(30)
			e.Submit(at, Request{ID: i, Chain: chainOf(r.Uint64N(4), p/4), Prompt: p, Output: 1 + r.IntN(5)})
		}
		return e.Advance(time.Hour, log)
	}
	fine, coarse := drive(time.Millisecond), drive(0)
	if len(fine) == 0 || !slices.Equal(fine, coarse) {
		t.Errorf("%d events with fine steps, %d with coarse ones", len(fine), len(coarse))
	}
}

func TestTextIsTheSameInPieces(t *testing.T) {
	whole := Text(nil, 42, 0, 200)
	var pieces []byte
	for i := 0; i < 200; i += 4 {
		pieces = Text(pieces, 42, i, 4)
	}
	if string(whole) != string(pieces) || string(whole[:len(Says)]) != Says {
		t.Errorf("%q\n%q", whole, pieces)
	}
	if string(whole) == string(Text(nil, 43, 0, 200)) {
		t.Error("another seed gives the same text")
	}
}

func TestBlocksOfABeginningAreTheBeginningOfTheBlocks(t *testing.T) {
	text := Text(nil, 1, 0, 1000)
	long, short := Blocks(nil, 7, text, 64), Blocks(nil, 7, text[:300], 64)
	if len(long) != 15 || !slices.Equal(long[:4], short) {
		t.Errorf("%d and %d blocks", len(long), len(short))
	}
	if slices.Equal(short, Blocks(nil, 8, text[:300], 64)) {
		t.Error("another root gives the same blocks")
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, break_ := range map[string]func(*Config){
		"model": func(c *Config) { c.Model = "" }, "context": func(c *Config) { c.Context = 1 },
		"running": func(c *Config) { c.Running = 0 }, "waiting": func(c *Config) { c.Waiting = -1 },
		"step_tokens": func(c *Config) { c.StepTokens = 3 }, "cache_tokens": func(c *Config) { c.CacheTokens = 3 },
		"block_tokens": func(c *Config) { c.BlockTokens = 0 }, "overhead": func(c *Config) { c.Overhead = -1 },
		"decode_each": func(c *Config) { c.DecodeEach = 2 * time.Hour }, "token_bytes": func(c *Config) { c.TokenBytes = 65 },
	} {
		c := small()
		break_(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, c := range []Config{Defaults(), Instant(), small()} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkInstantRequest(b *testing.B) {
	e := mustNew(b, Instant())
	text := Text(nil, 1, 0, 10000)
	var log []Event
	b.ReportAllocs()
	for b.Loop() {
		chain := Blocks(make([]prefix.Hash, 0, 160), 0, text, 64)
		if err := e.Submit(0, Request{ID: 1, Chain: chain, Prompt: 2500, Output: 16}); err != nil {
			b.Fatal(err)
		}
		log = e.Advance(0, log[:0])
	}
}
