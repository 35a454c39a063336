package route

import (
	"time"

	"shoal/internal/peer"
)

// Limits on what other peers say of themselves, so that no claim overflows a sum of terms.
const (
	maxTokens = 1 << 31
	maxRate   = time.Second    // per token
	maxTerm   = 24 * time.Hour // of one term
)

// horizon is the mean age of what counts in peer.Load.Work: its half-life of 30 s over ln 2. An engine that does one thing
// at a time and never rests has done that much.
const horizon = 43_281 * time.Millisecond

// price fills the terms of every candidate; those that nobody may choose are priced as well, for the explanation, but
// nobody's price depends on theirs.
func (p *Policy) price(req *Request, cands []Candidate, terms []Term) {
	tokens := clamp(req.Tokens, 1, maxTokens)
	fewest, least, mean := p.floor(tokens, cands, terms)
	users := 1 + p.heat.count(req.Shared)
	for i := range cands {
		c, t := &cands[i], &terms[i]
		rate := prefillRate(c.Load)
		u := uncached(tokens, c)
		t.Network = p.network(c)
		t.Queue = queue(c, rate)
		t.Prefill = term(u, rate)
		t.Eviction = permille(term(max(u-fewest, 0)/users, rate), p.cfg.EvictionPermille)
		t.Balance = permille(scale(max(work(c)-least, 0), mean), p.cfg.BalancePermille)
		t.Total = t.Network + t.Queue + t.Prefill + t.Eviction + t.Balance
	}
}

// floor is what the prices of those who can be chosen are relative to: the fewest tokens to compute, and the least and the
// mean work.
func (p *Policy) floor(tokens int64, cands []Candidate, terms []Term) (fewest int64, least, mean time.Duration) {
	fewest, least = tokens, maxTerm
	n := time.Duration(0)
	for i := range cands {
		if terms[i].Excluded != Eligible {
			continue
		}
		fewest = min(fewest, uncached(tokens, &cands[i]))
		w := work(&cands[i])
		least = min(least, w)
		mean += w
		n++
	}
	return fewest, least, mean / max(n, 1)
}

// ServeCost is the queueing and prefill of one candidate: what the peer that serves can check of an expectation, by the
// same rule that the origin used.
func (p *Policy) ServeCost(req *Request, c *Candidate) time.Duration {
	rate := prefillRate(c.Load)
	return queue(c, rate) + term(uncached(clamp(req.Tokens, 1, maxTokens), c), rate)
}

// uncached is the prompt's tokens that the peer has to compute: the last one always, since the answer starts from it.
func uncached(tokens int64, c *Candidate) int64 {
	return max(tokens-clamp(c.MatchTokens, 0, maxTokens), 1)
}

func (p *Policy) network(c *Candidate) time.Duration {
	switch {
	case c.Self:
		return 0
	case c.RTT < 0:
		return p.cfg.PriorRTT
	}
	return min(c.RTT, maxTerm)
}

// queue estimates how long the engine takes to start on one more request: the longer of computing the prompts that are
// ahead of it, and of waiting for a place where the engine runs only so many at once.
func queue(c *Candidate, rate time.Duration) time.Duration {
	pendingTokens := clamp(c.PendingTokens, 0, maxTokens)
	if c.Load == nil {
		return term(pendingTokens, rate)
	}
	slots, limit := peer.Unknown, 0
	if c.Info != nil {
		slots, limit = c.Info.Slots, c.Info.Limit
	}
	tokens := term(clamp(c.Load.QueuedTokens, 0, maxTokens)+pendingTokens, rate)
	return max(tokens, placeWait(c.Load, clamp(int64(c.PendingRequests), 0, maxTokens), places(c.Load, slots, limit)))
}

// placeWait is the time until one of the engine's places is free: with n requests there or on the way, p places and the
// median service time s, one place becomes free every s/p.
func placeWait(l *peer.Load, pending, places int64) time.Duration {
	n := present(l) + pending
	if places == 0 || n < places {
		return 0
	}
	service := l.Service
	if service <= 0 {
		service = peer.PriorService
	}
	service = min(service, time.Hour)
	return time.Duration(min((n-places+1)*int64(service)/places, int64(maxTerm)))
}

// present is how many requests are at the engine or wait for it. The engine's own counts include what came to it without
// passing an agent; where it does not tell them, the agent's count is all there is.
func present(l *peer.Load) int64 {
	n := clamp(int64(l.InFlight), 0, maxRequests)
	if l.Running >= 0 {
		n = max(n, clamp(int64(l.Running), 0, maxRequests)+clamp(int64(l.Waiting), 0, maxRequests))
	}
	return n
}

const maxRequests = 1 << 20

// places is how many requests the engine runs at once: what it or its agent says, else what it runs while others wait;
// 0 where nothing tells.
func places(l *peer.Load, slots, limit int) int64 {
	n := clamp(int64(slots), 0, maxRequests)
	if lim := clamp(int64(limit), 0, maxRequests); lim > 0 && (n == 0 || lim < n) {
		n = lim
	}
	if n == 0 && l.Waiting > 0 {
		n = clamp(int64(l.Running), 0, maxRequests)
	}
	return n
}

// work is what the peer has done lately, what it has begun, of which half is still to come on average, and what is on its
// way to it. Requests in flight count because a report of work done comes only when they have ended.
func work(c *Candidate) time.Duration {
	w := term(clamp(c.PendingTokens, 0, maxTokens), prefillRate(c.Load))
	open := clamp(int64(c.PendingRequests), 0, maxRequests)
	service := peer.PriorService
	if l := c.Load; l != nil {
		w += time.Duration(clamp(int64(l.Work), 0, int64(maxTerm)))
		open += present(l)
		if l.Service > 0 {
			service = min(l.Service, time.Hour)
		}
	}
	return min(w+time.Duration(open*int64(service)/2), maxTerm)
}

// scale brings work to the scale of an engine that does one thing at a time: where peers work on many requests at once,
// their times add up to more than has passed, and differences grow with them.
func scale(w, mean time.Duration) time.Duration {
	if mean <= horizon {
		return w
	}
	return time.Duration(int64(w/time.Microsecond) * int64(horizon/time.Microsecond) / int64(mean/time.Microsecond) * int64(time.Microsecond))
}

func prefillRate(l *peer.Load) time.Duration {
	if l == nil || l.Prefill <= 0 {
		return peer.PriorPrefill
	}
	return min(l.Prefill, maxRate)
}

// term is tokens at a rate, at most maxTerm.
func term(tokens int64, rate time.Duration) time.Duration {
	return min(time.Duration(tokens*int64(rate)), maxTerm)
}

// permille is so many thousandths of d, at most maxTerm.
func permille(d time.Duration, w int) time.Duration {
	return min(time.Duration(int64(d/1000)*int64(w)+int64(d%1000)*int64(w)/1000), maxTerm)
}

func clamp(v, lo, hi int64) int64 { return min(max(v, lo), hi) }
