// Package peer holds what every other package says about a peer: its identity, its role, and the two small records
// that it publishes about itself, Info (what it is; changes seldom) and Load (how it is doing; changes all the time).
//
// It is plain data: it decides nothing, and imports nothing of this project. The records are immutable once published;
// whoever changes one makes a copy. What an engine does not report is Unknown, never zero.
package peer

import (
	"fmt"
	"time"
)

// Unknown is the value of a count or size that its source does not report.
const Unknown = -1

// MaxID bounds the length of an ID in bytes.
const MaxID = 64

// ID names a peer within its shoal: 1 to MaxID characters out of letters, digits, dot, underscore and hyphen. The
// zero value names nobody. Ties between peers are broken by the lesser ID.
type ID string

// Validate reports what is wrong with the ID, nil where it may be used.
func (id ID) Validate() error {
	if id == "" {
		return fmt.Errorf("peer: an ID is empty; give 1 to %d letters, digits, '.', '_' or '-'", MaxID)
	}
	if len(id) > MaxID {
		return fmt.Errorf("peer: ID %.20q… has %d characters; at most %d", string(id), len(id), MaxID)
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("peer: ID %q has the character %q; only letters, digits, '.', '_' and '-' may stand in it", string(id), string(rune(c)))
		}
	}
	return nil
}

// Role says which legs of a request a peer takes.
type Role uint8

const (
	Serve     Role = iota // the zero value: prefill and decode
	RouteOnly             // no engine: it decides and forwards, and is never a candidate
)

func (r Role) String() string {
	switch r {
	case Serve:
		return "serve"
	case RouteOnly:
		return "route-only"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// CacheKind names how an engine keeps the prefixes it has computed.
type CacheKind uint8

const (
	Paged CacheKind = iota // blocks of their own, evicted leaf by leaf, least recently used first (vLLM, SGLang)
	Slots                  // whole sequences in slots, and in host memory behind them (llama.cpp, Ollama)
)

func (k CacheKind) String() string {
	switch k {
	case Paged:
		return "paged"
	case Slots:
		return "slots"
	}
	return fmt.Sprintf("cache-kind(%d)", uint8(k))
}

// Usable says from when on another request can reuse the blocks that a request computes.
type Usable uint8

const (
	AfterPrefill Usable = iota // as soon as its first token is out (paged engines)
	AfterEnd                   // only when it has ended and freed its slot (llama.cpp)
)

// Cache is what an adapter declares about its engine's prefix cache.
type Cache struct {
	Kind   CacheKind
	Usable Usable
	// Tokens is how many prompt tokens the cache holds in all; Unknown where the engine does not tell.
	Tokens int64
	// BlockTokens is the engine's own granularity of reuse, in tokens; 1 where any common prefix is reused.
	BlockTokens int
}

// Epoch identifies one life of an engine. Start is when it started (Unix milliseconds) where it tells, else 0;
// Counter is a count of its own that only grows while it lives (tokens processed, requests served), else 0.
type Epoch struct {
	Start   int64
	Counter int64
}

// Same reports whether an engine that told e before may still be the one that tells now: the start times agree where
// both are known, else the counter has not fallen. Where neither is known it is not the same: nothing vouches for it.
func (e Epoch) Same(now Epoch) bool {
	if e.Start != 0 && now.Start != 0 {
		return e.Start == now.Start
	}
	if e.Counter == 0 && now.Counter == 0 {
		return false
	}
	return now.Counter >= e.Counter
}

// Model is one model that a peer serves. LoRA adapters are models of their own, with the base model as their Parent.
type Model struct {
	Name    string   // the name that the engine knows
	Aliases []string // further names that clients may use
	Parent  string   // base model of a LoRA adapter; empty otherwise
	Context int      // tokens of context; Unknown where the engine does not tell
}

// Info is what a peer is. It is published whole, and changes seldom.
type Info struct {
	Version  string // of the shoal program
	Engine   string // adapter: "llamacpp", "openai", "emulated"; empty without an engine
	Emulated bool   // the engine computes nothing: said wherever the peer is shown
	Role     Role
	Models   []Model
	Salts    bool // the engine separates its cache by the request's cache_salt
	Cache    Cache
	Limit    int // requests in flight at the engine; 0: the agent sets no limit
	Slots    int // requests that the engine runs at once; Unknown where it does not tell
	Epoch    Epoch
	Gateway  string // address of its OpenAI API, for people to read; never used to route
	Transfer string // IP:port at which it takes in KV transfers; empty: none
}

// Load is how a peer is doing, by its own account. Durations are what the peer's own agent measured.
type Load struct {
	Up       bool // the engine answers its health probe
	Draining bool // the agent is shutting down: nothing new
	PushBack bool // queue above the high watermark, and not yet below the low one
	// InFlight counts requests that the agent has accepted and that have not ended, from the moment of acceptance.
	InFlight int
	// Running and Waiting are the engine's own counts, of all its clients; Unknown where it does not report them.
	Running, Waiting int
	// QueuedTokens counts prompt tokens accepted whose prefill is still to come, less the predicted match.
	QueuedTokens int64
	// CachePermille is how full the prefix cache is, 0 to 1000; Unknown where nothing tells.
	CachePermille int
	// ReusePermille is the share of evicted blocks that had been reused at least once while cached: what an eviction
	// destroys, 0 to 1000.
	ReusePermille int
	// Work is prefill and decode time spent, decayed by half every 30 s: a balance of work, not of requests.
	Work time.Duration
	// Learned rates, each with its count of samples; before the first sample they are the stated priors.
	Prefill       time.Duration // per uncached prompt token
	Decode        time.Duration // per output token, of one sequence
	Service       time.Duration // whole time of a request at the engine, median
	MilliTokBytes int64         // bytes of canonical rendering per token, times 1000
	Samples       int
}

// BytesToTokens converts bytes of canonical rendering into tokens by the peer's learned ratio, rounding up.
func (l *Load) BytesToTokens(bytes int64) int64 {
	r := l.MilliTokBytes
	if r <= 0 {
		r = PriorMilliTokBytes
	}
	return (bytes*1000 + r - 1) / r
}

// The priors, before an agent has measured anything of its engine.
const (
	PriorPrefill       = 200 * time.Microsecond // 5,000 tokens/s
	PriorDecode        = 20 * time.Millisecond
	PriorService       = 2 * time.Second
	PriorMilliTokBytes = 4000 // 4 bytes a token
)

// PriorLoad is the load of an engine about which nothing is known yet.
func PriorLoad() Load {
	return Load{Running: Unknown, Waiting: Unknown, CachePermille: Unknown, Prefill: PriorPrefill,
		Decode: PriorDecode, Service: PriorService, MilliTokBytes: PriorMilliTokBytes}
}
