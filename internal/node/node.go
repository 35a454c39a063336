// Package node is the one state machine of a peer: everything it knows and decides, and all that a driver calls. It
// composes prefix (who holds which blocks), replica (the documents), route (the decision) and this peer's own accounts:
// requests dispatched to others that no report covers yet (the overlay), and requests that its own engine serves.
//
// It is not a server: it holds no socket, clock, lock or goroutine. An agent drives it with real time and a mutex; the
// cluster simulator drives the same code with virtual time. Its main type is Node. Invariants: its own document has one
// writer, itself; the block sets of all peers, its own among them, exist once, in the index; every ticket is settled once
// and every serving ended once; now never goes back; the same calls in the same order give the same answers.
//
// Sources: DESIGN, "Towards Distributed Inference of LLMs on a P2P Network" (arXiv 2606.17059) for replicas of peers'
// trees and push-back.
package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
	"shoal/internal/reserve"
	"shoal/internal/route"
)

// Config is what may be set of a node. The zero value is not usable: start from Defaults.
type Config struct {
	Route    route.Config
	PushBack route.PushBackConfig
	Replica  replica.Limits
	Paths    reserve.Config
	// MaxBlocks bounds the text blocks remembered of the own engine, and so what others hold of this peer: 65,536 are 4
	// million tokens or more. Raise it for engines with larger caches behind them; each block costs every peer 25 bytes, and
	// a larger index is slower to change.
	MaxBlocks int
	// MaxInFlight bounds the requests served at once, and those dispatched at once.
	MaxInFlight int
	// MaxOverlay bounds the overlay entries of one peer; beyond it the oldest goes.
	MaxOverlay int
	// OverlayMax is how long an entry lasts without a report. Longer: slow reports do not scatter bursts. Shorter: a peer
	// that never reports is believed to be busy for less long.
	OverlayMax time.Duration
	// FailurePause is how long a peer is left out after a request to it failed before its first byte, so that not every
	// request pays for the same silence. Its death or return is membership's to tell.
	FailurePause time.Duration
	// IdlePublish is how often a load that hardly changes is published all the same.
	IdlePublish time.Duration
	// AdoptWait is how long a peer that has just started holds its own document back, so that peers that have kept the one
	// of its former life send it. Longer finds it on slow networks; until then nobody routes to this peer.
	AdoptWait time.Duration
}

// Defaults returns the usual configuration.
func Defaults() Config {
	return Config{
		Route:        route.Defaults(),
		PushBack:     route.PushBackDefaults(),
		Replica:      replica.Defaults(),
		Paths:        reserve.Defaults(),
		MaxBlocks:    1 << 16,
		MaxInFlight:  1 << 14,
		MaxOverlay:   512,
		OverlayMax:   10 * time.Second,
		FailurePause: 2 * time.Second,
		IdlePublish:  5 * time.Second,
		AdoptWait:    2 * time.Second,
	}
}

// MaxBlocks is the most that Config.MaxBlocks may be: what a document's section holds by the replica's own limit. More in
// the tree than in the document would be known to nobody.
const MaxBlocks = 1 << 18

// Validate reports every field that cannot be used.
func (c *Config) Validate() error {
	errs := []error{c.Route.Validate(), c.PushBack.Validate(), c.Replica.Validate(), c.Paths.Validate()}
	for _, f := range []struct {
		name    string
		v, most int64
	}{
		{"MaxBlocks", int64(c.MaxBlocks), MaxBlocks}, {"MaxInFlight", int64(c.MaxInFlight), 1 << 20}, {"MaxOverlay", int64(c.MaxOverlay), 1 << 16},
		{"OverlayMax", int64(c.OverlayMax), int64(time.Hour)}, {"FailurePause", int64(c.FailurePause), int64(time.Hour)},
		{"IdlePublish", int64(c.IdlePublish), int64(time.Hour)}, {"AdoptWait", int64(c.AdoptWait), int64(time.Hour)},
	} {
		if f.v <= 0 || f.v > f.most {
			errs = append(errs, fmt.Errorf("node: %s is %d; use 1 to %d", f.name, f.v, f.most))
		}
	}
	return errors.Join(errs...)
}

// Counters only grow. They are for metrics and the admin API.
type Counters struct {
	Decisions       int64
	PromptTokens    int64 // that engines counted, of requests served here
	CachedTokens    int64 // of them, reused by the engine
	PredictedTokens int64 // of them, predicted to be reused
	Mispredicted    int64 // requests whose predicted match was clearly not there
	DeclinedByUs    int64
	OverlayFull     int64 // dispatches that pushed an older overlay entry out, or found no room
	DoubleSettle    int64 // faults of a driver
	DoubleEnd       int64
	Adopted         int64 // blocks taken over from an own older document
	Unpublished     int64 // times that the document had no room for what the tree holds
	AdoptRefused    int64 // older documents of an engine that is not there any more
	EngineRestarts  int64
}

// Node is one peer's state. It is not safe for concurrent use.
type Node struct {
	cfg     Config
	self    peer.ID
	index   *prefix.Index
	matches prefix.Matches
	store   *store
	docs    *replica.Docs
	tree    *prefix.Tree
	policy  *route.Policy
	rates   *route.Rates
	push    *route.PushBack
	table   *reserve.Table

	members map[peer.ID]*member
	order   []*member // sorted by ID
	me      *member

	info  *peer.Info // published; never nil
	cache peer.Cache
	// ratioUsed is the bytes a token (times 1000) that the tree's size was worked out with.
	ratioUsed int64
	own       peer.Load // as it will be published next
	work      work
	draining  bool
	dirty     bool // something to publish

	generation uint64
	told       urgent        // by TakePushBack
	pushedAt   time.Duration // when it last told of another push-back
	lastPub    time.Duration
	changes    []prefix.Change // scratch

	tickets     map[Ticket]*member
	nextTicket  Ticket
	servings    map[Serving]*serving
	nextServing Serving
	lastStarted Serving
	queued      int64         // prompt tokens admitted and not yet prefilled
	computing   int           // servings at the engine
	busySince   time.Duration // since when, or up to when its time has been counted
	prefilling  int           // of them, those before their first token
	crowded     bool          // more than one of them at some time since there was none

	heardEngine bool
	epoch       peer.Epoch // of the engine, as it told last
	firstEpoch  peer.Epoch // as it told first
	reported    int        // CachePermille by the engine's own account
	lastInfo    time.Duration
	former      *former
	adoptDone   bool
	events      []replica.Event // scratch
	wallAtZero  time.Duration
	published   *reserve.Section
	gone        []peer.ID         // scratch
	cands       []route.Candidate // scratch
	decided     route.Decision    // scratch
	count       Counters
}

// New returns the node of a peer that starts now. Incarnation must be greater than those of its former starts (Unix
// milliseconds will do). rng is the node's from now on.
func New(now time.Duration, cfg Config, self peer.ID, incarnation uint64, rng *rand.Rand) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := self.Validate(); err != nil {
		return nil, err
	}
	policy, err := route.New(cfg.Route, rng)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, self: self, policy: policy,
		index:    prefix.NewIndex(rng.Uint64()),
		rates:    route.NewRates(),
		push:     route.NewPushBack(cfg.PushBack),
		members:  make(map[peer.ID]*member),
		info:     &peer.Info{Role: peer.RouteOnly, Slots: peer.Unknown},
		cache:    peer.Cache{Tokens: peer.Unknown, BlockTokens: 1},
		own:      peer.PriorLoad(),
		pushedAt: -pushGap,
		tickets:  make(map[Ticket]*member), servings: make(map[Serving]*serving),
		dirty: true, reported: peer.Unknown,
	}
	n.table, err = reserve.New(cfg.Paths, self, incarnation, rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())))
	if err != nil {
		return nil, err
	}
	n.store = newStore(n.index)
	n.docs = replica.New(self, incarnation, n.store, cfg.Replica)
	n.docs.Recall(now + cfg.AdoptWait)
	n.ratioUsed = n.own.MilliTokBytes
	n.tree = prefix.NewTree(n.cache, cfg.MaxBlocks, n.ratioUsed)
	n.me = n.member(self)
	n.me.self, n.me.alive, n.me.incarnation = true, true, incarnation
	n.me.info, n.me.load = n.info, &n.own
	return n, nil
}

// member is one peer as this one knows it.
type member struct {
	id          peer.ID
	self        bool
	alive       bool // membership says so
	incarnation uint64
	rtt         time.Duration // negative until measured
	info        *peer.Info    // nil until its document has come
	load        *peer.Load
	loadStamp   replica.Stamp
	loadAt      time.Duration // when that was heard
	slot        prefix.Slot   // of its text blocks
	hasSlot     bool
	paths       *reserve.Section // as its document said last
	pathsOf     uint64           // in which life
	overlay     overlay
	coldUntil   time.Duration
	forwarded   int64
	declined    int64
	failed      int64
}

func (m *member) serves(model string) bool {
	if m.info == nil || m.info.Role == peer.RouteOnly {
		return false
	}
	if model == "" {
		return true
	}
	for i := range m.info.Models {
		if m.info.Models[i].Name == model || slices.Contains(m.info.Models[i].Aliases, model) {
			return true
		}
	}
	return false
}

func (n *Node) serves(model string) bool { return n.me.serves(model) }

// member returns the record of a peer, making it where there is none.
func (n *Node) member(id peer.ID) *member {
	m := n.members[id]
	if m == nil {
		m = &member{id: id, rtt: -1}
		n.members[id] = m
		i := sort.Search(len(n.order), func(i int) bool { return n.order[i].id >= id })
		n.order = slices.Insert(n.order, i, m)
	}
	return m
}

func (n *Node) forget(id peer.ID) {
	delete(n.members, id)
	n.order = slices.DeleteFunc(n.order, func(m *member) bool { return m.id == id })
	for t, m := range n.tickets {
		if m != nil && m.id == id {
			n.tickets[t] = nil
		}
	}
}

// PeerUp says that membership sees the peer, in the life that incarnation names.
func (n *Node) PeerUp(now time.Duration, id peer.ID, incarnation uint64) {
	if id == n.self {
		return
	}
	m := n.member(id)
	if m.incarnation != incarnation {
		m.overlay = overlay{}
		m.incarnation = incarnation
	}
	m.alive, m.coldUntil = true, 0
	n.generation++
	n.docs.Alive(id, now)
	n.refresh(now, id)
}

// PeerDown says that membership has lost the peer, or that it left. Its document is kept for a while, and not routed to.
func (n *Node) PeerDown(now time.Duration, id peer.ID) {
	m := n.members[id]
	if m == nil || m.self {
		return
	}
	m.alive, m.rtt = false, -1
	n.generation++
	m.overlay = overlay{}
	n.docs.Dead(id, now)
	n.table.Forget(id)
	m.paths = nil
	if _, ok := n.docs.Stamp(id); !ok { // nothing to keep for its return
		n.forget(id)
	}
}

// RTT sets the measured round-trip time to a peer.
func (n *Node) RTT(id peer.ID, d time.Duration) {
	if m := n.members[id]; m != nil && !m.self {
		m.rtt = d
	}
}

// Drain says that this peer is shutting down: it admits nothing more.
func (n *Node) Drain(now time.Duration) {
	n.draining, n.dirty = true, true
	n.publish(now)
}

// InFlight is how many requests the own engine serves.
func (n *Node) InFlight() int { return len(n.servings) }

// Counters returns a copy.
func (n *Node) Counters() Counters { return n.count }
