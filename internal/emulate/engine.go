// Package emulate is a model of an LLM inference engine: a paged prefix cache, continuous batching with chunked prefill,
// a bounded queue, and a time for everything. It computes no answer: the text that goes with it says that it is emulated.
// Package engine puts it behind HTTP with a real clock; the cluster simulator drives it with a virtual one.
//
// It is not an estimate of an engine: what it says of its cache is the truth of this engine, which is why the cache is
// written here and not shared with package prefix, whose trees are what others believe of it. Nothing is preempted: a
// sequence starts when all its blocks will fit.
//
// Main type: Engine. Invariants: a step never exceeds the configured sequences and tokens; requests start in the order in
// which they came; a block that a running sequence uses is not evicted; a cached block's ancestors are cached; the same
// calls with the same times give the same events.
//
// It follows vLLM V1: its scheduler (decoding sequences first, then prefills in pieces, then new requests), and its cache
// (freed blocks queue up deepest first and are evicted in that order; at least one token of a prompt is computed).
package emulate

import (
	"errors"
	"fmt"
	"time"

	"shoal/internal/prefix"
)

// Why Submit refuses a request.
var (
	ErrFull    = errors.New("emulate: the queue is full")
	ErrTooLong = errors.New("emulate: prompt and answer do not fit into the context or the cache")
)

// Request is one sequence to be served.
type Request struct {
	ID uint64 // the caller's; unique among those that have not ended
	// Chain is the hashes of the full blocks of the prompt, and may go on with those of the answer, which then can be
	// reused as well. It is not changed, and kept until the request has ended.
	Chain  []prefix.Hash
	Prompt int // tokens, at least 1
	Output int // tokens, at least 1
}

// Kind is what an Event tells.
type Kind uint8

const (
	FirstToken Kind = iota // the prefill is done
	Token                  // one further token
	Done                   // the last token has been told of before; it follows at once
)

func (k Kind) String() string {
	switch k {
	case FirstToken:
		return "first-token"
	case Token:
		return "token"
	case Done:
		return "done"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is something that happened to a request.
type Event struct {
	At     time.Duration
	ID     uint64
	Kind   Kind
	Token  int // how many tokens of the answer there are now
	Cached int // prompt tokens that were found in the cache
}

// Engine is one emulated engine. It starts empty at time 0.
type Engine struct {
	cfg     Config
	cache   *cache
	waiting []*sequence
	running []*sequence
	byID    map[uint64]*sequence
	busy    bool          // a step is under way
	end     time.Duration // of the step under way, or of the last one
	stats   Stats
}

// Stats are counts of the engine's whole life, and of the moment.
type Stats struct {
	Running, Waiting int
	Blocks, Capacity int // of the cache: held by sequences or kept as prefixes, and in all
	Pinned           int // blocks that running sequences use
	Requests         int64
	PromptTokens     int64 // of started requests, cached ones included
	CachedTokens     int64
	OutputTokens     int64
	Evicted          int64 // blocks
}

// sequence is a request in the engine.
type sequence struct {
	Request
	ready    time.Duration
	started  bool
	cached   int // tokens
	computed int // tokens of prompt and answer with KV in memory
	tokens   int // of the answer
	chunk    int // prompt tokens in the step under way
	decodes  bool
	named    []int32 // its blocks with a hash, in order
	private  int     // its blocks without
	reserved int     // blocks that it may still take
}

// New makes an engine. The configuration must be valid.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Engine{cfg: cfg, cache: newCache(cfg.CacheTokens / cfg.BlockTokens), byID: map[uint64]*sequence{}}, nil
}

// Submit takes a request in at the time now; Advance to now first, so that what has ended by then makes room. Times never
// go back from call to call.
func (e *Engine) Submit(now time.Duration, r Request) error {
	if r.Prompt < 1 || r.Output < 1 || e.byID[r.ID] != nil {
		panic(fmt.Sprintf("emulate: request %d with %d prompt and %d output tokens is wrong or not new", r.ID, r.Prompt, r.Output))
	}
	if r.Prompt+r.Output > e.cfg.Context || e.blocks(r.Prompt+r.Output) > e.cache.capacity {
		return ErrTooLong
	}
	if len(e.waiting)+len(e.running) >= e.cfg.Running+e.cfg.Waiting {
		return ErrFull
	}
	s := &sequence{Request: r, ready: now + e.cfg.Overhead}
	e.byID[r.ID] = s
	e.waiting = append(e.waiting, s)
	e.stats.Requests++
	return nil
}

// Cancel ends a request early and frees what it holds; false where it has ended already. What it has computed stays
// cached.
func (e *Engine) Cancel(id uint64) bool {
	s := e.byID[id]
	if s == nil {
		return false
	}
	list := &e.waiting
	if s.started {
		list = &e.running
		e.release(s)
	}
	delete(e.byID, id)
	for i, other := range *list {
		if other == s {
			*list = append((*list)[:i], (*list)[i+1:]...)
			break
		}
	}
	return true
}

// Advance lets time pass up to now, and appends what happens to log, in order.
func (e *Engine) Advance(now time.Duration, log []Event) []Event {
	for {
		at, ok := e.Next()
		if !ok || at > now {
			return log
		}
		if e.busy {
			log = e.finish(log)
		} else {
			e.begin(at)
		}
	}
}

// Next is when something will happen next, if ever: the time for the next Advance.
func (e *Engine) Next() (time.Duration, bool) {
	switch {
	case e.busy || len(e.running) > 0:
		return e.end, true
	case len(e.waiting) > 0:
		return max(e.end, e.waiting[0].ready), true
	}
	return 0, false
}

// Match is how many prompt tokens of a chain the cache would give now to a request with so many.
func (e *Engine) Match(chain []prefix.Hash, prompt int) int {
	return len(e.cache.match(chain, e.reusable(prompt))) * e.cfg.BlockTokens
}

// Stats tells the counts of now.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), len(e.waiting)
	s.Blocks, s.Pinned, s.Capacity = e.cache.used(), e.cache.pinned+e.cache.private, e.cache.capacity
	s.Evicted = e.cache.evicted
	return s
}

// begin puts the next step together.
func (e *Engine) begin(at time.Duration) {
	budget, prefill, decoding := e.cfg.StepTokens, 0, 0
	for _, s := range e.running {
		if s.decodes = s.tokens > 0; s.decodes {
			decoding++
			budget--
		}
	}
	for _, s := range e.running {
		if !s.decodes {
			s.chunk = min(s.Prompt-s.computed, budget)
			prefill += s.chunk
			budget -= s.chunk
		}
	}
	for len(e.waiting) > 0 && len(e.running) < e.cfg.Running && budget > 0 {
		s := e.waiting[0]
		if s.ready > at || !e.start(s) {
			break
		}
		s.chunk = min(s.Prompt-s.computed, budget)
		prefill += s.chunk
		budget -= s.chunk
	}
	e.busy = true
	e.end = at + time.Duration(prefill)*e.cfg.Prefill + time.Duration(decoding)*e.cfg.DecodeEach
	if decoding > 0 {
		e.end += e.cfg.Decode
	}
}

// start moves the first waiting request into the batch, if all its blocks will fit.
func (e *Engine) start(s *sequence) bool {
	found := e.cache.match(s.Chain, e.reusable(s.Prompt))
	rest := e.blocks(s.Prompt+s.Output) - len(found)
	if !e.cache.fits(found, rest) {
		return false
	}
	e.waiting[0] = nil
	e.waiting = e.waiting[1:]
	e.running = append(e.running, s)
	s.started = true
	for _, i := range found {
		e.cache.pin(i)
	}
	s.named = append(make([]int32, 0, len(s.Chain)), found...)
	s.reserved = rest
	e.cache.reserved += rest
	s.cached = len(found) * e.cfg.BlockTokens
	s.computed = s.cached
	e.stats.PromptTokens += int64(s.Prompt)
	e.stats.CachedTokens += int64(s.cached)
	return true
}

// reusable is how many blocks of a prompt may come from the cache: its last token is always computed, since from it comes
// the first token of the answer.
func (e *Engine) reusable(prompt int) int { return (prompt - 1) / e.cfg.BlockTokens }

// blocks is how many blocks so many tokens take.
func (e *Engine) blocks(tokens int) int { return (tokens + e.cfg.BlockTokens - 1) / e.cfg.BlockTokens }

// finish ends the step under way.
func (e *Engine) finish(log []Event) []Event {
	e.busy = false
	left := e.running[:0]
	for _, s := range e.running {
		switch {
		case s.decodes:
			s.computed++
			s.tokens++
			e.stats.OutputTokens++
			log = append(log, Event{At: e.end, ID: s.ID, Kind: Token, Token: s.tokens, Cached: s.cached})
		case s.chunk > 0:
			s.computed += s.chunk
			s.chunk = 0
			if s.computed == s.Prompt {
				s.tokens = 1
				e.stats.OutputTokens++
				log = append(log, Event{At: e.end, ID: s.ID, Kind: FirstToken, Token: 1, Cached: s.cached})
			}
		}
		s.decodes = false
		e.store(s)
		if s.tokens < s.Output {
			left = append(left, s)
			continue
		}
		e.release(s)
		delete(e.byID, s.ID)
		log = append(log, Event{At: e.end, ID: s.ID, Kind: Done, Token: s.tokens, Cached: s.cached})
	}
	clear(e.running[len(left):])
	e.running = left
	return log
}

// store gives a sequence the blocks for what it has computed: those that are full and have a hash can be found from now
// on, the rest is its own.
func (e *Engine) store(s *sequence) {
	for full := min(s.computed/e.cfg.BlockTokens, len(s.Chain)); len(s.named) < full; {
		if s.private > 0 {
			s.private--
			e.cache.private--
		} else {
			s.reserved--
			e.cache.reserved--
		}
		s.named = append(s.named, e.cache.store(s.Chain[len(s.named)]))
	}
	for own := e.blocks(s.computed) - len(s.named); s.private < own; {
		s.private++
		s.reserved--
		e.cache.reserved--
		e.cache.own()
	}
}

// release frees a sequence's blocks, the deepest first.
func (e *Engine) release(s *sequence) {
	e.cache.private -= s.private
	e.cache.reserved -= s.reserved
	for i := len(s.named) - 1; i >= 0; i-- {
		e.cache.unpin(s.named[i])
	}
	s.named, s.private, s.reserved = nil, 0, 0
}
