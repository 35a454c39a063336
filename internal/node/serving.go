package node

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/route"
)

// serving is one request that this peer's own engine serves, from its admission to its end.
type serving struct {
	chain     []prefix.Hash
	bytes     int
	match     int    // blocks, predicted at admission
	lastUse   uint64 // of them before this request, on the tree's clock
	tokens    int64  // of the prompt, estimated
	uncached  int64  // of them, still to prefill; 0 after the first token
	admitted  time.Duration
	started   time.Duration // at the engine; negative while it waits here
	first     time.Duration // first token; negative before it
	expected  time.Duration // of its prefill, with what is queued before it
	computed  bool          // its prefill is over, or taken for that
	alone     bool          // no other prefill ran beside this one: its time is a clean sample
	predicted bool          // its blocks went into the tree at admission
	quiet     bool          // nothing was in prefill at admission: what the tree said then was in the cache, or is gone
}

// Admit takes a request for the own engine, or declines it before any prefill, with this peer's fresh state. What an own
// client sends (e is zero) is declined only where it cannot be served at all.
func (n *Node) Admit(now time.Duration, r *Request, e Expect) (Serving, *Decline) {
	match := n.tree.Match(r.Chain)
	if why := n.refusal(now, r, e, match); why != 0 {
		n.count.DeclinedByUs++
		return 0, n.decline(now, why, match)
	}
	l := &n.own
	tokens := l.BytesToTokens(int64(r.Bytes))
	s := &serving{chain: r.Chain, bytes: r.Bytes, match: match, tokens: tokens, admitted: now, started: -1, first: -1}
	s.quiet = n.queued == 0
	s.uncached = max(tokens-n.blockTokens(l, match), 1)
	n.queued += s.uncached
	s.expected = time.Duration(n.queued) * n.load().Prefill
	// A paged engine takes prompts in order and shares blocks as they are computed: whoever comes after this request
	// finds them. They are published at once, so that a burst of one new prefix stays together.
	if n.cache.Usable == peer.AfterPrefill {
		s.lastUse = n.tree.LastUse(r.Chain, match)
		s.predicted = true
		n.insert(r.Chain)
	}
	n.nextServing++
	n.servings[n.nextServing] = s
	n.dirty = true
	n.pushBack(now)
	return n.nextServing, nil
}

func (n *Node) refusal(now time.Duration, r *Request, e Expect, match int) DeclineReason {
	switch {
	case n.draining:
		return Draining
	case !n.serves(r.Model):
		return NotServed
	case !n.own.Up:
		return EngineDown
	case len(n.servings) >= n.cfg.MaxInFlight:
		return QueueFull
	case !e.Hopped:
		return 0
	case n.own.PushBack && e.Margin < route.NoDecline: // the origin knows, and has nobody better
		return QueueFull
	case n.serveCost(r, match) > e.ServeCost+e.Margin:
		return WorseThanExpected
	}
	return 0
}

// serveCost is queueing and prefill as this peer itself sees them: by the same rule that the origin priced it with.
func (n *Node) serveCost(r *Request, match int) time.Duration {
	l := n.load()
	req := route.Request{Tokens: l.BytesToTokens(int64(r.Bytes)), Output: int64(r.MaxTokens), Home: 0}
	n.cands = append(n.cands[:0], route.Candidate{Peer: n.self, Self: true, Match: match, MatchTokens: n.blockTokens(l, match),
		Info: n.info, Load: l})
	return n.policy.ServeCost(&req, &n.cands[0])
}

func (n *Node) decline(now time.Duration, why DeclineReason, match int) *Decline {
	// The load is fresher than the last version, and must not pass for the next one, which says more than it.
	stamp, _ := n.docs.Stamp(n.self)
	return &Decline{Reason: why, Load: *n.load(), Match: match, Stamp: stamp, RetryAfter: n.retryAfter()}
}

// retryAfter is when the queue should be short enough again, 1 s to 30 s.
func (n *Node) retryAfter() time.Duration {
	return min(max(time.Duration(n.queued)*n.own.Prefill, time.Second), 30*time.Second)
}

// Started says that a request has left the local queue and is at the engine.
func (n *Node) Started(now time.Duration, id Serving) {
	s := n.servings[id]
	if s == nil || s.started >= 0 || s.first >= 0 {
		return
	}
	s.started = now
	n.lastStarted = id
	if n.computing == 0 {
		n.busySince = now
	}
	n.computing++
	s.alone = n.prefilling == 0
	n.prefilling++
	if !s.alone {
		n.crowded = true
	}
}

// FirstToken says that the engine's prefill of a request is over.
func (n *Node) FirstToken(now time.Duration, id Serving) {
	s := n.servings[id]
	if s == nil || s.first >= 0 {
		return
	}
	s.first = now
	if s.computed && n.lastStarted != id { // taken for over long ago: what came after it seemed to be alone with the engine
		s.alone = false
	}
	n.prefilled(s)
	n.pushBack(now)
}

// assume takes the prefill for over of requests that are at the engine for twice as long as it should have taken. A plain
// answer does not tell when its first token was there, and must not count as queued through all of its decode.
func (n *Node) assume(now time.Duration) {
	for _, s := range n.servings {
		if s.started >= 0 && !s.computed && now-s.started > 2*s.expected {
			n.prefilled(s)
		}
	}
}

// prefilled takes a request's prefill out of the queue.
func (n *Node) prefilled(s *serving) {
	if s.computed {
		return
	}
	s.computed = true
	n.queued -= s.uncached
	s.uncached = 0
	n.dirty = true
	if s.started < 0 {
		return
	}
	n.prefilling--
	if n.crowded {
		s.alone = false
	}
	if n.prefilling == 0 {
		n.crowded = false
	}
}

// End ends a serving, exactly once; a second time is a fault of the caller's, and is counted. u is what the engine
// counted; ok says that the answer came to its end.
func (n *Node) End(now time.Duration, id Serving, u Usage, ok bool) {
	s := n.servings[id]
	if s == nil {
		n.count.DoubleEnd++
		return
	}
	delete(n.servings, id)
	if s.started >= 0 {
		n.workedUntil(now)
		n.computing--
	}
	began := s.first >= 0
	n.prefilled(s)
	n.dirty = true
	if ok {
		n.learn(now, s, u)
	}
	switch {
	case !ok && !began && s.predicted: // it never came to prefill: what was predicted for it is not there
		n.changes = n.tree.Forget(s.chain, s.match, n.changes[:0])
		n.apply()
	case ok && !s.predicted:
		n.insert(s.chain)
	}
	n.pushBack(now)
}

// learn takes from a finished request what it tells about the engine: rates, bytes a token, and whether the belief about
// its cache was right.
func (n *Node) learn(now time.Duration, s *serving, u Usage) {
	if u.Prompt > 0 {
		n.count.PromptTokens += int64(u.Prompt)
		n.rates.Bytes(int64(s.bytes), int64(u.Prompt))
		if r := n.load().MilliTokBytes; r*20 < n.ratioUsed*19 || r*20 > n.ratioUsed*21 {
			n.resize()
		}
	}
	if u.Cached >= 0 && u.Prompt > 0 {
		n.count.CachedTokens += int64(u.Cached)
		n.count.PredictedTokens += n.blockTokens(&n.own, s.match)
		n.checkBelief(s, u)
	}
	if s.started < 0 {
		return
	}
	n.rates.Service(now - s.started)
	if s.first < 0 { // a plain answer: its prefill took no longer than all of it
		if u.Prompt > 0 {
			n.rates.PrefillWithin(now-s.started, int64(u.Prompt-max(u.Cached, 0)))
		}
		return
	}
	if s.alone && u.Prompt > 0 {
		n.rates.Prefill(s.first-s.started, int64(u.Prompt-max(u.Cached, 0)))
	}
	if u.Completion > 1 {
		n.rates.Decode(now-s.first, int64(u.Completion-1))
	}
}

// workedUntil counts the time since the engine became busy, or since it was last counted. Requests that it computes at the
// same time count once: what is balanced is how long engines are busy.
func (n *Node) workedUntil(now time.Duration) {
	if n.computing > 0 {
		n.work.add(now, now-n.busySince)
		n.busySince = now
	}
}

// checkBelief compares the predicted match with the engine's own count, in this prompt's own bytes a token: code and prose
// differ by more than what is looked for. Where a clear part of the match was missing (two blocks of text, two of the
// engine's, and a fifth of the prediction), the tree forgets it, and what went before it.
func (n *Node) checkBelief(s *serving, u Usage) {
	if s.bytes == 0 {
		return
	}
	perBlock := int64(prefix.BlockBytes) * int64(u.Prompt) / int64(s.bytes)
	predicted := int64(prefix.Unthinned(s.match)) * perBlock
	slack := max(2*perBlock, predicted/5, int64(2*n.cache.BlockTokens))
	if int64(u.Cached)+slack >= predicted {
		return
	}
	n.count.Mispredicted++
	if !s.quiet {
		return // another prompt's blocks were counted on that had not been computed yet: nothing was evicted
	}
	if s.predicted { // and used anew at its admission; this very request has computed it
		n.changes = n.tree.Expire(s.lastUse, n.changes[:0])
		n.apply()
		return
	}
	n.correct(s.chain, prefix.Thinned(int((int64(u.Cached)+perBlock-1)/max(perBlock, 1))))
}

// blockTokens is how many tokens so many blocks of a thinned chain are, by l's ratio, rounding down.
func (n *Node) blockTokens(l *peer.Load, blocks int) int64 {
	r := l.MilliTokBytes
	if r <= 0 {
		r = peer.PriorMilliTokBytes
	}
	return int64(prefix.Unthinned(blocks)) * prefix.BlockBytes * 1000 / r
}

// halfLife is that of the balance of work; it decays in steps of a sixteenth of it.
const (
	halfLife  = 30 * time.Second
	decayStep = halfLife / 16
)

// work is time spent, decayed by half every halfLife.
type work struct {
	total time.Duration
	at    time.Duration // up to when it has been decayed
}

func (w *work) decay(now time.Duration) {
	for w.at+decayStep <= now && w.total > 0 {
		w.total = w.total / 10_000 * 9_576 // 2^(-1/16)
		w.at += decayStep
	}
	if w.total == 0 {
		w.at = now
	}
}

func (w *work) add(now, d time.Duration) {
	w.decay(now)
	w.total += d
}
