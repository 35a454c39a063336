package replica

import (
	"cmp"
	"slices"
	"time"

	"shoal/internal/peer"
)

// Who lives is membership's to say. The document of a peer that is gone, or that membership has not shown yet, is kept for
// a while: a restarted agent beside a warm engine finds its own old document again at its peers. It is offered to nobody
// else, so that documents of the dead do not go round for ever.

// Alive says that the owner is a member of the shoal. Its document is offered to others from now on.
func (d *Docs) Alive(owner peer.ID, now time.Duration) {
	if len(d.alive) < MaxRows {
		d.alive[owner] = struct{}{}
	}
	if doc := d.docs[owner]; doc != nil {
		_, doc.alive = d.alive[owner]
		doc.alive = doc.alive || owner == d.self
	}
}

// Dead says that the owner is gone. Its document is kept for a while, for its return, and offered to it alone.
func (d *Docs) Dead(owner peer.ID, now time.Duration) {
	if owner == d.self {
		return
	}
	delete(d.alive, owner)
	if doc := d.docs[owner]; doc != nil {
		doc.alive, doc.deadAt = false, now
		d.limitDead()
	}
}

// Expire drops documents dead for too long and incomplete copies; call it about once a second. It appends the owners
// whose documents went to gone, those dropped at a limit since the last call too.
func (d *Docs) Expire(now time.Duration, gone []peer.ID) []peer.ID {
	for _, doc := range slices.Clone(d.order) {
		if !doc.alive && now-doc.deadAt >= d.lim.KeepDead {
			d.remove(doc)
		}
	}
	for owner, s := range d.staged {
		if now >= s.until {
			d.unstage(owner)
			d.stats.Evicted++
		}
	}
	for owner, until := range d.asked {
		if now >= until {
			delete(d.asked, owner)
		}
	}
	for owner, until := range d.refused {
		if now >= until {
			delete(d.refused, owner)
		}
	}
	for _, doc := range d.order {
		doc.copies = slices.DeleteFunc(doc.copies, func(c *heldCopy) bool {
			old := !doc.reaches(c.version)
			if old {
				d.copyOps -= c.ops
			}
			return old
		})
	}
	for _, owner := range d.gone {
		if d.docs[owner] == nil && !slices.Contains(gone, owner) {
			gone = append(gone, owner)
		}
	}
	d.gone = d.gone[:0]
	return gone
}

// limitDead keeps the documents of the dead within their limit.
func (d *Docs) limitDead() {
	var n int
	for _, doc := range d.order {
		if !doc.alive {
			n++
		}
	}
	for ; n > d.lim.Dead; n-- {
		d.evictDead()
	}
}

// evictDead drops the document that has been dead longest; false where none is dead.
func (d *Docs) evictDead() bool {
	var oldest *document
	for _, doc := range d.order {
		if !doc.alive && (oldest == nil || cmp.Less(doc.deadAt, oldest.deadAt)) {
			oldest = doc
		}
	}
	if oldest == nil {
		return false
	}
	d.remove(oldest)
	d.stats.Evicted++
	return true
}

// room makes room for one more document; false where all are of living peers.
func (d *Docs) room() bool {
	for len(d.docs) >= d.lim.Documents {
		if !d.evictDead() {
			return false
		}
	}
	return true
}
