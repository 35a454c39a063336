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

// price fills the terms of every candidate; those that nobody may choose are priced as well, for the explanation.
func (p *Policy) price(req *Request, cands []Candidate, terms []Term) {
	least := maxTerm
	for i := range cands {
		c, t := &cands[i], &terms[i]
		rate := prefillRate(c.Load)
		uncached := max(clamp(req.Tokens, 0, maxTokens)-clamp(c.MatchTokens, 0, maxTokens), 1)
		t.Network = p.network(c)
		t.Queue = queue(c, rate)
		t.Prefill = term(uncached, rate)
		t.Eviction = p.eviction(c, uncached, req.Output, rate)
		t.Balance = work(c, rate) // made relative below
		least = min(least, t.Balance)
	}
	for i := range terms {
		t := &terms[i]
		t.Balance = permille(t.Balance-least, p.cfg.BalancePermille)
		t.Total = t.Network + t.Queue + t.Prefill + t.Eviction + t.Balance
	}
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
	pending := clamp(int64(c.PendingRequests), 0, maxTokens)
	if c.Load == nil {
		return term(pendingTokens, rate)
	}
	tokens := term(clamp(c.Load.QueuedTokens, 0, maxTokens)+pendingTokens, rate)
	return max(tokens, placeWait(c, pending))
}

// placeWait is the time until one of the engine's places is free: with n requests there or on the way, p places and the
// median service time s, one place becomes free every s/p.
func placeWait(c *Candidate, pending int64) time.Duration {
	l := c.Load
	inFlight := clamp(int64(l.InFlight), 0, maxTokens)
	if l.Running >= 0 && l.Waiting >= 0 {
		// The engine also counts what came to it without passing an agent.
		inFlight = max(inFlight, clamp(int64(l.Running), 0, maxTokens)+clamp(int64(l.Waiting), 0, maxTokens))
	}
	n := inFlight + pending
	places := places(c)
	if places == 0 || n < places {
		return 0
	}
	service := l.Service
	if service <= 0 {
		service = peer.PriorService
	}
	service = min(service, time.Hour)
	return min(time.Duration((n-places+1)*int64(service)/places), maxTerm)
}

// places is how many requests the engine runs at once: what it or its agent says, else what it runs while others wait;
// 0 where nothing tells.
func places(c *Candidate) int64 {
	var n int64
	if c.Info != nil {
		if c.Info.Slots > 0 {
			n = int64(c.Info.Slots)
		}
		if l := int64(c.Info.Limit); l > 0 && (n == 0 || l < n) {
			n = l
		}
	}
	if n == 0 && c.Load.Waiting > 0 && c.Load.Running > 0 {
		n = int64(c.Load.Running)
	}
	return n
}

// eviction prices what the cache loses: each token that has to go is worth computing again with the probability that
// evicted blocks of this cache had been reused. A cache that does not say how full it is counts as full.
func (p *Policy) eviction(c *Candidate, uncached, output int64, rate time.Duration) time.Duration {
	if c.Load == nil {
		return 0
	}
	full := int64(c.Load.CachePermille)
	if full < 0 {
		full = 1000
	}
	full = min(full, 1000)
	need := uncached + clamp(output, 0, maxTokens)
	evicted := need * full / 1000
	if c.Info != nil && c.Info.Cache.Tokens > 0 {
		room := min(c.Info.Cache.Tokens, maxTokens) * (1000 - full) / 1000
		evicted = clamp(need-room, 0, maxTokens)
	}
	reuse := int(clamp(int64(c.Load.ReusePermille), 0, 1000))
	return permille(permille(term(evicted, rate), reuse), p.cfg.EvictionPermille)
}

// work is what the peer has done lately and what is on its way to it.
func work(c *Candidate, rate time.Duration) time.Duration {
	w := term(clamp(c.PendingTokens, 0, maxTokens), rate)
	if c.Load != nil {
		w += time.Duration(clamp(int64(c.Load.Work), 0, int64(maxTerm)))
	}
	return min(w, maxTerm)
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

func permille(d time.Duration, w int) time.Duration {
	return min(time.Duration(int64(d)*int64(w)/1000), maxTerm)
}

func clamp(v, lo, hi int64) int64 { return min(max(v, lo), hi) }
