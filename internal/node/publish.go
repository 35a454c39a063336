package node

import (
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
	"shoal/internal/replica"
)

// textBlocks is the section that carries a peer's cached text blocks. Block hashes are tagged by model and the rest of
// their domain, so that one section holds those of all the models of an engine, as its cache does.
var textBlocks = replica.Section{Kind: replica.KindTextBlocks, BlockSize: prefix.BlockBytes}

var (
	infoSection = replica.Section{Kind: replica.KindInfo}
	loadSection = replica.Section{Kind: replica.KindLoad}
)

// Engine is what a probe of the own engine has found.
type Engine struct {
	Info                            peer.Info // without Version's and Gateway's fields: SetIdentity has those
	Running, Waiting, CachePermille int       // peer.Unknown where the engine does not report them
}

// EngineUp takes a probe's report. The first one, and one from another life of the engine, decide about what is believed
// of its cache.
func (n *Node) EngineUp(now time.Duration, e *Engine) {
	if n.own.Up && e.Info.Epoch == (peer.Epoch{}) && n.epoch != (peer.Epoch{}) {
		e.Info.Epoch = n.epoch // not told this once, by an engine that has answered all the time
	}
	before := n.epoch
	known := before != peer.Epoch{} || e.Info.Epoch != peer.Epoch{}
	restarted := n.heardEngine && (known && !before.Same(e.Info.Epoch) || !known && !n.own.Up)
	n.epoch, n.reported = e.Info.Epoch, e.CachePermille
	info := e.Info
	info.Version, info.Gateway, info.Transfer = n.info.Version, n.info.Gateway, n.info.Transfer
	n.setCache(&info)
	if restarted {
		n.count.EngineRestarts++
		n.forgetCache()
	}
	n.heardEngine = true
	if n.firstEpoch == (peer.Epoch{}) {
		n.firstEpoch = n.epoch
	}
	n.adopt(now)
	if !sameInfo(n.info, &info) || info.Epoch != n.info.Epoch && now-n.lastInfo >= n.cfg.IdlePublish {
		n.info, n.lastInfo = &info, now
		n.me.info = n.info
		n.generation++
		n.docs.Set(infoSection, n.info)
		n.dirty = true
	}
	if !n.own.Up {
		n.own.Up, n.dirty = true, true
	}
	n.own.Running, n.own.Waiting = e.Running, e.Waiting
	n.pushBack(now)
}

// EngineDown says that the own engine does not answer. What it held is kept until its epoch tells whether it is still
// there; nobody routes to it meanwhile.
func (n *Node) EngineDown(now time.Duration) {
	if n.own.Up {
		n.own.Up, n.dirty = false, true
		n.publish(now)
	}
}

// SetIdentity sets what the agent itself says of this peer: its version, the address of its gateway, and that of its
// transfers, empty where it takes none.
func (n *Node) SetIdentity(version, gateway, transfer string) {
	info := *n.info
	info.Version, info.Gateway, info.Transfer = version, gateway, transfer
	n.info = &info
	n.me.info = n.info
	n.generation++
	n.docs.Set(infoSection, n.info)
	n.dirty = true
}

// setCache takes the cache as its adapter describes it now.
func (n *Node) setCache(info *peer.Info) {
	if info.Cache == n.cache && n.heardEngine {
		return
	}
	kept, sameModel := n.tree, info.Cache.Kind == n.cache.Kind
	n.cache = info.Cache
	if sameModel {
		n.resize()
		return
	}
	n.ratioUsed = n.load().MilliTokBytes
	n.tree = prefix.NewTree(n.cache, n.cfg.MaxBlocks, n.ratioUsed)
	n.changes = n.changes[:0]
	kept.Each(func(e prefix.Element) bool { // the same cache, described better: keep what still fits
		if !n.tree.Adopt(e) {
			n.changes = append(n.changes, prefix.Change{Element: e, Removed: true})
		}
		return true
	})
	n.apply()
}

// resize tells the tree how large the cache is, in text: tokens by the learned bytes a token.
func (n *Node) resize() {
	n.ratioUsed = n.load().MilliTokBytes
	n.changes = n.tree.Resize(n.cache.Tokens, n.ratioUsed, n.changes[:0])
	n.apply()
}

// forgetCache empties the tree: the engine has started anew.
func (n *Node) forgetCache() {
	n.changes = n.tree.Clear(n.changes[:0])
	n.apply()
}

func (n *Node) insert(chain []prefix.Hash) {
	n.changes = n.tree.Insert(chain, n.changes[:0])
	n.apply()
}

func (n *Node) correct(chain []prefix.Hash, blocks int) {
	n.changes = n.tree.Correct(chain, blocks, n.changes[:0])
	n.apply()
}

// apply publishes what has changed in the tree.
func (n *Node) apply() {
	if len(n.changes) == 0 {
		return
	}
	if n.docs.Change(textBlocks, n.changes) != nil {
		n.count.Unpublished++
	}
	n.dirty = true
}

// load brings the own load up to date and returns it.
func (n *Node) load() *peer.Load {
	l := &n.own
	l.InFlight, l.QueuedTokens, l.Draining = len(n.servings), n.queued, n.draining
	l.ReusePermille = n.tree.ReusePermille()
	l.CachePermille = n.reported
	if n.reported < 0 {
		l.CachePermille = n.tree.Full()
	}
	n.rates.Fill(l)
	return l
}

func (n *Node) pushBack(now time.Duration) {
	l := n.load()
	if n.push.Update(l, n.info.Slots, n.info.Limit) {
		n.dirty = true
	}
	l.PushBack = n.push.On()
}

// urgent is what of the load does not wait for an anti-entropy round.
type urgent struct{ up, draining, pushBack bool }

// pushGap is the least time between two datagrams for push-back alone. Where long prompts come one by one to an engine that
// is quick with them, push-back is on and off again with each: two datagrams a request, to everyone, cost more than they tell.
const pushGap = 20 * time.Millisecond

// TakePushBack returns the load to send at once to everyone, where push-back, up or draining is not what it was when it last
// did so. Of push-back alone it tells again only some time later: a later call does.
func (n *Node) TakePushBack(now time.Duration) (replica.Stamp, *peer.Load, bool) {
	u := urgent{n.own.Up, n.draining, n.own.PushBack}
	if u == n.told || u.up == n.told.up && u.draining == n.told.draining && now-n.pushedAt < pushGap {
		return replica.Stamp{}, nil, false
	}
	n.publish(now)
	if u.pushBack != n.told.pushBack {
		n.pushedAt = now
	}
	n.told = u
	l := n.own
	stamp, _ := n.docs.Stamp(n.self)
	return stamp, &l, true
}

// Tick publishes what has changed, and does bounded housekeeping. Call it once an anti-entropy interval, or more often.
func (n *Node) Tick(now time.Duration) {
	n.work.decay(now)
	n.assume(now)
	n.pushBack(now)
	if n.dirty || now-n.lastPub >= n.cfg.IdlePublish {
		n.publish(now)
	}
	for _, m := range n.order {
		m.overlay.expire(now, n.cfg.OverlayMax)
	}
	n.gone = n.docs.Expire(now, n.gone[:0])
	for _, id := range n.gone {
		if m := n.members[id]; m != nil && !m.self && !m.alive {
			n.forget(id)
		}
	}
	n.index.Sweep(sweepSteps)
	n.table.Tick(now, n.wall(now))
	n.publishTable()
}

// sweepSteps bounds the index's housekeeping of one tick, in its own steps.
const sweepSteps = 64

func (n *Node) publish(now time.Duration) {
	n.workedUntil(now)
	l := *n.load()
	l.Work = n.work.total
	n.own.Work = l.Work
	n.docs.Set(loadSection, &l)
	stamp, _ := n.docs.Commit()
	n.me.loadStamp, n.me.loadAt = stamp, now
	n.dirty, n.lastPub = false, now
	n.refreshSlot(n.me)
}

// nextStamp is the version that will say what has happened up to now.
func (n *Node) nextStamp() replica.Stamp {
	s, _ := n.docs.Stamp(n.self)
	if n.dirty {
		s.Version++
	}
	return s
}

// Stamp is the version of the own document that will cover what has been admitted so far.
func (n *Node) Stamp() replica.Stamp { return n.nextStamp() }

// sameInfo leaves the epoch's counter out: it changes all the time, and is published now and then.
func sameInfo(a, b *peer.Info) bool {
	if len(a.Models) != len(b.Models) {
		return false
	}
	for i := range a.Models {
		x, y := &a.Models[i], &b.Models[i]
		if x.Name != y.Name || x.Parent != y.Parent || x.Context != y.Context || len(x.Aliases) != len(y.Aliases) {
			return false
		}
		for j := range x.Aliases {
			if x.Aliases[j] != y.Aliases[j] {
				return false
			}
		}
	}
	return a.Version == b.Version && a.Engine == b.Engine && a.Emulated == b.Emulated && a.Role == b.Role && a.Salts == b.Salts &&
		a.Cache == b.Cache && a.Limit == b.Limit && a.Slots == b.Slots && a.Epoch.Start == b.Epoch.Start && a.Gateway == b.Gateway && a.Transfer == b.Transfer
}
