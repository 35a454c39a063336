package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/peer"
)

// A small replayer of traces: peers with true LRU block caches and a FIFO prefill each, and origins that decide from views
// as old as the anti-entropy interval. It judges the defaults until the cluster simulator does. Truth (servingPeer.cache,
// its queue) is kept apart from belief (what it has published, and the origins' overlays).

type traceRequest struct {
	at     time.Duration
	blocks []uint64 // chained: a block's number implies all before it
	tokens int
	output int
}

type replay struct {
	peers       int
	cacheBlocks int // of each peer
	blockTokens int
	prefill     time.Duration // per token
	decode      time.Duration // of work per output token
	interval    time.Duration // of anti-entropy; 0: views are always fresh
	rtt         time.Duration
	speed       float64       // divides the trace's times
	joins       time.Duration // when the last peer comes, with an empty cache; 0: it is there from the start
	slow        int           // how many times longer the last peer's prefill takes; 0: as the others
	blind       bool          // peers never decline
	pushBack    PushBackConfig
	cfg         Config
	seed        uint64
}

type outcome struct {
	hits, blocks   int
	hops, declines int
	ttft           []time.Duration
	served         []int // requests of each peer
	span, busy     time.Duration
	joined         time.Duration // busy time of the last peer in the first minute after it came
}

func (o *outcome) hitRate() float64 { return 100 * float64(o.hits) / float64(o.blocks) }

func (o *outcome) meanTTFT() time.Duration {
	var sum time.Duration
	for _, d := range o.ttft {
		sum += d
	}
	return sum / time.Duration(len(o.ttft))
}

func (o *outcome) quantile(permille int) time.Duration {
	s := slices.Sorted(slices.Values(o.ttft))
	return s[(len(s)-1)*permille/1000]
}

// largestShare is that of the busiest peer, in percent of the requests.
func (o *outcome) largestShare() float64 {
	return 100 * float64(slices.Max(o.served)) / float64(len(o.ttft))
}

type servingPeer struct {
	id          peer.ID
	rate        time.Duration // prefill per token
	cache       *blockCache
	push        *PushBack
	queue       []queued        // prompts whose prefill is not over
	active      []time.Duration // ends of the requests in flight
	busyUntil   time.Duration
	work        time.Duration // decayed, as of workAt
	workAt      time.Duration
	served      int
	serviceSum  time.Duration
	published   map[uint64]bool
	load        peer.Load // as published
	publishedAt time.Duration
	nextSync    time.Duration
}

type queued struct {
	done   time.Duration
	tokens int64
}

// sent is one origin's overlay for one peer: what the peer has not reported yet.
type sent struct {
	blocks   map[uint64]bool
	load     *peer.Load // told with a decline
	requests int
	tokens   int64
}

type world struct {
	replay
	peers    []*servingPeer
	sent     [][]*sent // origin, peer
	policies []*Policy
	info     peer.Info
	out      outcome
	cands    []Candidate
	decision Decision
}

func (r replay) run(trace []traceRequest) *outcome {
	w := &world{replay: r, cands: make([]Candidate, r.peers)}
	w.out.served = make([]int, r.peers)
	w.info.Slots = peer.Unknown
	if w.pushBack == (PushBackConfig{}) {
		w.pushBack = PushBackDefaults()
	}
	rng := rand.New(rand.NewPCG(r.seed, 1))
	for i := range r.peers {
		w.addPeer(i, rng)
	}
	for i := range trace {
		now := time.Duration(float64(trace[i].at) / r.speed)
		for j, p := range w.peers {
			switch {
			case r.interval == 0:
				w.publish(j, now)
			case p.nextSync <= now:
				w.publish(j, now)
				p.nextSync += (now-p.nextSync)/r.interval*r.interval + r.interval
			}
		}
		origins := r.peers
		if now < r.joins {
			origins--
		}
		w.serve(&trace[i], rng.IntN(origins), now)
		w.out.span = now
	}
	return &w.out
}

func (w *world) addPeer(i int, rng *rand.Rand) {
	p := &servingPeer{id: peer.ID(fmt.Sprintf("p%02d", i)), rate: w.prefill, cache: newBlockCache(w.cacheBlocks),
		published: map[uint64]bool{}, push: NewPushBack(w.pushBack)}
	if w.slow > 0 && i == w.replay.peers-1 {
		p.rate *= time.Duration(w.slow)
	}
	p.nextSync = time.Duration(rng.Int64N(int64(w.interval) + 1))
	w.peers = append(w.peers, p)
	policy, err := New(w.cfg, rand.New(rand.NewPCG(w.seed, uint64(i)+100)))
	if err != nil {
		panic(err)
	}
	w.policies = append(w.policies, policy)
	row := make([]*sent, w.replay.peers)
	for j := range row {
		row[j] = &sent{blocks: map[uint64]bool{}}
	}
	w.sent = append(w.sent, row)
	p.load = p.fresh(0)
}

// publish makes a peer's state of now what everyone sees; what origins have sent it is covered by it.
func (w *world) publish(i int, now time.Duration) {
	p := w.peers[i]
	for h := range p.cache.changed {
		if p.cache.at[h] != nil {
			p.published[h] = true
		} else {
			delete(p.published, h)
		}
	}
	clear(p.cache.changed)
	p.load, p.publishedAt = p.fresh(now), now
	for _, row := range w.sent {
		row[i].load = nil
		if row[i].requests > 0 {
			clear(row[i].blocks)
			row[i].requests, row[i].tokens = 0, 0
		}
	}
}

// fresh is the peer's true load.
func (p *servingPeer) fresh(now time.Duration) peer.Load {
	for len(p.queue) > 0 && p.queue[0].done <= now {
		p.queue = p.queue[1:]
	}
	p.active = slices.DeleteFunc(p.active, func(end time.Duration) bool { return end <= now })
	l := peer.PriorLoad()
	l.Up, l.Prefill, l.InFlight = true, p.rate, len(p.active)
	for _, q := range p.queue {
		l.QueuedTokens += q.tokens
	}
	if p.served > 0 {
		l.Service = p.serviceSum / time.Duration(p.served)
	}
	l.CachePermille = len(p.cache.at) * 1000 / p.cache.capacity
	l.Work = decayed(p.work, now-p.workAt)
	p.push.Update(&l, peer.Unknown, 0)
	l.PushBack = p.push.On()
	return l
}

func decayed(w, age time.Duration) time.Duration {
	for ; age > 30*time.Second; age -= 30 * time.Second {
		w /= 2
	}
	return w - time.Duration(float64(w)*0.5*float64(age)/float64(30*time.Second))
}

// look fills the candidates as the origin sees them, and the request.
func (w *world) look(r *traceRequest, origin int, now time.Duration) Request {
	best := 0
	for i, p := range w.peers {
		c, o := &w.cands[i], w.sent[origin][i]
		*c = Candidate{Peer: p.id, Self: i == origin, RTT: w.rtt, Info: &w.info, Load: &p.load,
			PendingRequests: o.requests, PendingTokens: o.tokens, Staleness: now - p.publishedAt}
		if i == w.replay.peers-1 && now < w.joins {
			c.Excluded = Unreachable
		}
		if o.load != nil {
			c.Load = o.load
		}
		if i == origin {
			fresh := p.fresh(now)
			c.Load, c.RTT, c.Staleness, c.PendingRequests, c.PendingTokens = &fresh, 0, 0, 0, 0
			c.Match = p.cache.match(r.blocks)
		} else {
			for c.Match < len(r.blocks) && (p.published[r.blocks[c.Match]] || o.blocks[r.blocks[c.Match]]) {
				c.Match++
			}
		}
		c.MatchTokens = int64(min(c.Match*w.blockTokens, r.tokens))
		best = max(best, c.Match)
	}
	const mix = 0x9e3779b97f4a7c15 // the trace numbers its blocks; the policies expect hashes
	req := Request{Tokens: int64(r.tokens), Output: int64(r.output), Home: origin, Key: mix * (uint64(r.tokens) + r.blocks[len(r.blocks)-1]<<20)}
	if best < len(r.blocks) {
		req.Key = mix * (r.blocks[best] + 1)
	}
	if best > 0 {
		req.Shared = mix * (r.blocks[best-1] + 1)
	}
	return req
}

func (w *world) serve(r *traceRequest, origin int, now time.Duration) {
	req := w.look(r, origin, now)
	d := &w.decision
	delay := time.Duration(0)
	for tries := 1; ; tries++ {
		w.policies[origin].Decide(&req, w.cands, d)
		if len(d.Legs) == 0 {
			panic("nobody was chosen: " + d.Reason.String())
		}
		target := d.Legs[0].Index
		if target == origin || w.blind || tries == 3 || !w.declined(r, target, now) {
			w.admit(r, target, origin, now, delay)
			return
		}
		truth := w.peers[target].fresh(now)
		w.sent[origin][target].load = &truth
		w.cands[target].Excluded = Tried
		w.out.declines++
		delay += w.rtt
	}
}

// declined is what the serving peer says: the truth is worse than expected by more than the margin, or it pushes back.
func (w *world) declined(r *traceRequest, target int, now time.Duration) bool {
	p, d := w.peers[target], &w.decision
	truth := p.fresh(now)
	uncached := max(r.tokens-p.cache.match(r.blocks)*w.blockTokens, 1)
	cost := time.Duration(truth.QueuedTokens+int64(uncached)) * p.rate
	return d.Margin < NoDecline && (truth.PushBack || cost > d.ServeCost+d.Margin)
}

func (w *world) admit(r *traceRequest, target, origin int, now, delay time.Duration) {
	p := w.peers[target]
	if target != origin {
		delay += w.rtt
		o := w.sent[origin][target]
		o.requests++
		o.tokens += int64(r.tokens) - w.cands[target].MatchTokens
		for _, h := range r.blocks {
			o.blocks[h] = true
		}
		w.out.hops++
	}
	match := p.cache.match(r.blocks)
	p.cache.insert(r.blocks) // prompts are computed in the order of their arrival, so that whoever comes later finds it
	uncached := max(r.tokens-match*w.blockTokens, 1)
	prefill := time.Duration(uncached) * p.rate
	decode := time.Duration(r.output) * w.decode
	p.busyUntil = max(now+delay, p.busyUntil) + prefill
	p.queue = append(p.queue, queued{done: p.busyUntil, tokens: int64(uncached)})
	p.active = append(p.active, p.busyUntil+decode)
	p.work = decayed(p.work, now-p.workAt) + prefill + decode
	p.workAt = now
	p.served++
	p.serviceSum += prefill + decode
	w.out.served[target]++
	w.out.hits += match
	w.out.blocks += len(r.blocks)
	w.out.busy += prefill
	w.out.ttft = append(w.out.ttft, p.busyUntil-now)
	if w.joins > 0 && target == w.replay.peers-1 && now < w.joins+time.Minute {
		w.out.joined += prefill
	}
}
