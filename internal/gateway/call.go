package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"shoal/internal/engine"
	"shoal/internal/gateway/body"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/wire"
)

// call is one client's request on its way. What it owns is used again for other requests, except what the node keeps: the
// chain.
type call struct {
	g     *Gateway
	scan  body.Scanner
	chain prefix.Chain
	room  []byte // the body as received
	other []byte // the body with another model or salt in it
	held  []byte // answer.held

	r       *http.Request
	word    string // of the API, in counters
	arrived time.Time
	body    []byte // as it goes on
	req     node.Request
	out     engine.Request
	frame   wire.Forward
	framed  bool

	decision node.Decision
	busy     []peer.ID // who declined for being busy
	by       peer.ID   // whom the current attempt is with
	decided  bool      // decision is what led there
	secret   bool      // whatever tells of cached blocks is withheld
	wantsWhy bool
	answer   answer
	reason   string
}

// put lets go of the request and keeps the memory.
func (c *call) put() {
	c.scan.Forget()
	n := call{g: c.g, scan: c.scan, chain: c.chain, held: c.answer.held[:0]}
	if cap(n.held) > keepBody {
		n.held = nil
	}
	if cap(c.room) <= keepBody {
		n.room = c.room[:0]
	}
	if cap(c.other) <= keepBody {
		n.other = c.other[:0]
	}
	n.decision.Legs = c.decision.Legs[:0]
	*c = n
	c.g.calls.Put(c)
}

// serve reads, routes and answers one request. It gives the status sent and the decision's reason, for counters, and
// whether the connection has to be cut: whatever has been sent is not a whole answer, and must not look like one.
func (c *call) serve(w http.ResponseWriter, r *http.Request, api api, word, tenant string) (status int, reason string, cut bool) {
	c.r, c.word, c.arrived = r, word, time.Now()
	c.answer = answer{w: w, ctl: http.NewResponseController(w), cfg: &c.g.cfg, about: c,
		json: api != apiOther, noBody: r.Method == http.MethodHead, held: c.held}
	if p := c.prepare(w, r, api, tenant); p != nil {
		p.write(w)
		return p.status, "", false
	}
	f := c.attempts(r.Context(), api)
	a := &c.answer
	switch {
	case f == nil:
		if a.complete() != nil {
			c.g.metrics.aborted.Inc()
		}
	case f.cause == canceled:
		c.g.metrics.aborted.Inc()
		return statusClientGone, c.reason, true
	case a.state == begun:
		c.g.metrics.broken.WithLabelValues(f.cause.String()).Inc()
		c.g.log.Warn("an answer broke off", "peer", c.by, "model", c.req.Model, "cause", f.cause.String(), "err", f)
		cut = !a.breakOff(f.ending())
	default:
		c.g.log.Debug("no peer could serve a request", "model", c.req.Model, "cause", f.cause.String(), "err", f)
		a.refuse(f.problem())
	}
	return a.status, c.reason, cut
}

// thinned is what routing keeps of a chain. It is made anew for each request: the node holds on to it.
func thinned(chain []prefix.Hash) []prefix.Hash {
	return prefix.Thin(make([]prefix.Hash, 0, prefix.Thinned(len(chain))), chain)
}

// statusClientGone counts requests whose client did not wait for the status, as nginx does.
const statusClientGone = 499

// prepare reads the body and makes of it what routing needs.
func (c *call) prepare(w http.ResponseWriter, r *http.Request, api api, tenant string) (p *problem) {
	if c.room, p = c.g.readBody(c.room[:0], w, r); p != nil {
		return p
	}
	c.body = c.room
	if enc := r.Header.Get("Content-Encoding"); api != apiOther && enc != "" && enc != "identity" {
		return &problem{status: http.StatusUnsupportedMediaType, kind: invalidRequest, param: "Content-Encoding", message: "Send the body as it is, not compressed."}
	}
	if err := c.scan.Scan(api.body(), c.body); err != nil {
		return invalid(err.Field, err.Error())
	}
	s := &c.scan
	m, ok := ModelEntry{}, false
	if s.Model != "" {
		if m, ok = c.g.shoal.Resolve(s.Model); !ok && api != apiOther {
			return unknownModel(s.Model)
		}
	}
	d := prefix.Domain{Model: m.Name, LoRA: "", Salt: s.CacheSalt}
	if m.Parent != "" {
		d.Model, d.LoRA = m.Parent, m.Name
	}
	isolated := c.g.auth.isolate && m.Salts
	c.secret = c.g.auth.several && !isolated
	if isolated {
		d.Salt, d.Tenant = c.g.auth.salt(tenant, s.CacheSalt), tenant
	}
	c.chain.Reset(d.Root())
	bytes := s.Render(&c.chain)
	c.req = node.Request{Model: m.Name, Chain: thinned(c.chain.Blocks()), Tail: c.chain.Tail(), Bytes: bytes, MaxTokens: s.MaxTokens}
	c.wantsWhy = !c.secret && r.Header.Get(headerExplain) == "1"
	c.req.Explain = c.wantsWhy

	name := ""
	if ok && m.Name != s.Model {
		name = m.Name // the client used an alias, which the engine does not know
	}
	if name != "" || isolated {
		salt := ""
		if isolated {
			salt = d.Salt
		}
		c.other = s.Splice(c.other[:0], name, salt)
		c.body = c.other
	}
	c.out = engine.Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: onward(r.Header, c.g.cfg.PassAuthorization),
		Body: c.body, Stream: s.Stream, Chat: api == apiChat}
	return nil
}

// attempts tries peers until one has answered, the answer has begun, or nobody is left. It is nil where the answer is
// whole.
func (c *call) attempts(ctx context.Context, api api) *failure {
	g := c.g
	if api == apiOther {
		// Not for inference, or not known to be: the own engine is as good as any, and spares the hop.
		c.reason = reasonPassThrough
		if f := c.attempt(ctx, node.Leg{Peer: g.shoal.Self(), Self: true}, nil); c.over(f) {
			return f
		}
	}
	last := &failure{cause: engineDown}
	others := 0
	for {
		if ctx.Err() != nil {
			return ended(ctx, &failure{err: ctx.Err()})
		}
		d := &c.decision
		d.Explanation = nil
		g.shoal.Route(&c.req, d)
		c.reason = d.Reason.String()
		if len(d.Legs) == 0 {
			if api == apiOther && c.req.Model != "" {
				// Nobody can serve the model that the body names. Any engine may know the path.
				c.req.Model, c.req.Tried = "", nil
				continue
			}
			last.retryAfter = max(last.retryAfter, d.RetryAfter)
			break
		}
		leg := d.Legs[0]
		if slices.Contains(c.req.Tried, leg.Peer) {
			break // the node would go on for ever
		}
		if !leg.Self {
			if others == node.MaxTries {
				break
			}
			others++
		}
		f := c.attempt(ctx, leg, d)
		if c.over(f) {
			return f
		}
		last = f
	}
	if self := g.shoal.Self(); !slices.Contains(c.req.Tried, self) {
		c.reason = reasonLastResort
		f := c.attempt(ctx, node.Leg{Peer: self, Self: true}, nil)
		if c.over(f) || f.detail != node.NotServed.String() {
			return f
		}
	}
	if others == node.MaxTries {
		return last
	}
	return c.insist(ctx, last)
}

// insist asks once more, of an origin that cannot serve the request itself, among the peers that have declined it for
// being busy: the best of them takes it into its queue, which is bounded, as an own engine would have.
func (c *call) insist(ctx context.Context, last *failure) *failure {
	if len(c.busy) == 0 || ctx.Err() != nil {
		return last
	}
	c.req.Tried = slices.DeleteFunc(c.req.Tried, func(id peer.ID) bool { return slices.Contains(c.busy, id) })
	c.req.Insist = true
	d := &c.decision
	d.Explanation = nil
	c.g.shoal.Route(&c.req, d)
	if len(d.Legs) == 0 || d.Legs[0].Self {
		return last
	}
	c.reason = reasonLastResort
	f := c.attempt(ctx, d.Legs[0], d)
	c.over(f)
	return f
}

// Reasons beside those of decisions.
const (
	reasonPassThrough = "pass-through"
	reasonLastResort  = "last-resort" // the peers that were chosen could not serve it
)

// over reports whether an attempt's outcome is the request's. Otherwise nothing of the attempt is left.
func (c *call) over(f *failure) bool {
	if f == nil || f.final() || c.answer.state == begun {
		return true
	}
	c.answer.forget()
	c.req.Tried = append(c.req.Tried, c.by)
	if f.cause == declined && (f.detail == node.QueueFull.String() || f.detail == node.WorseThanExpected.String()) {
		c.busy = append(c.busy, c.by)
	}
	word := f.cause.String()
	if f.detail != "" {
		word = f.detail
	}
	c.g.metrics.retries.WithLabelValues(word).Inc()
	c.g.log.Debug("an attempt came to nothing", "peer", c.by, "model", c.req.Model, "cause", word, "err", f)
	return false
}

// attempt has one peer serve the request; d is the decision for it, nil where the peer is simply the last left.
func (c *call) attempt(ctx context.Context, leg node.Leg, d *node.Decision) *failure {
	c.by, c.decided = leg.Peer, d != nil
	if !leg.Self {
		return c.forward(ctx, leg, d, &c.answer)
	}
	s, decline := c.g.shoal.Admit(&c.req, node.Expect{})
	if decline != nil {
		return &failure{cause: declined, detail: decline.Reason.String(), retryAfter: decline.RetryAfter}
	}
	_, f := c.g.admitted(ctx, s, &c.out, &c.answer)
	return f
}

// forwardFrame is the request as it travels to other peers.
func (c *call) forwardFrame() *wire.Forward {
	f := &c.frame
	if !c.framed {
		c.framed = true
		f.ID = requestID(c.r.Header)
		f.Method, f.Path, f.Query, f.Header = c.out.Method, c.out.Path, c.out.Query, pairs(c.out.Header)
		f.Chain, f.Tail, f.Bytes, f.MaxTokens = c.req.Chain, c.req.Tail, c.req.Bytes, c.req.MaxTokens
		f.BodyLen, f.Stream = int64(len(c.body)), c.out.Stream
	}
	f.Model = c.req.Model
	return f
}

// requestID is the client's own, where it has one, so that logs of two agents can be laid side by side.
func requestID(h http.Header) string {
	if id := h.Get("X-Request-Id"); id != "" && len(id) <= wire.MaxID {
		return id
	}
	return strconv.FormatUint(rand.Uint64(), 36)
}

// ownHeader sets the fields that tell how the request was routed.
func (c *call) ownHeader(h http.Header) {
	a := &c.answer
	if a.state == begun {
		h[headerPeer] = []string{string(c.by)}
		if e := a.header[headerEmulated]; e != nil {
			h[headerEmulated] = e
		}
	}
	if c.secret {
		return
	}
	if c.decided {
		h[headerMatched] = []string{strconv.FormatInt(c.decision.MatchTokens, 10)}
	}
	if c.reason != "" {
		h[headerReason] = []string{c.reason}
	}
	if c.wantsWhy && c.decision.Explanation != nil {
		h[headerExplanation] = []string{explanation(c.decision.Explanation)}
	}
}

func (c *call) firstByte() { c.g.metrics.first(c.word, time.Since(c.arrived)) }
