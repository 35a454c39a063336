package fluid

import "shoal/internal/sim"

// heap holds flows by the time at which they are due; of one time, the one that came onto its path first. Each flow knows
// its place.
type heap struct{ items []dueAt }

type dueAt struct {
	at    sim.Time
	order uint64
	flow  int32
}

func (a *dueAt) before(b *dueAt) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

func (h *heap) next() sim.Time {
	if len(h.items) == 0 {
		return sim.Never
	}
	return h.items[0].at
}

func (h *heap) first() int32 { return h.items[0].flow }

func (h *heap) push(flows []flow, id int32) {
	fl := &flows[id]
	fl.place = int32(len(h.items))
	h.items = append(h.items, dueAt{min(fl.finish, fl.look), fl.order, id})
	h.up(flows, len(h.items)-1)
}

func (h *heap) remove(flows []flow, id int32) {
	i := int(flows[id].place)
	flows[id].place = -1
	last := len(h.items) - 1
	if i != last {
		h.items[i] = h.items[last]
		flows[h.items[i].flow].place = int32(i)
	}
	h.items = h.items[:last]
	if i != last && !h.up(flows, i) {
		h.down(flows, i)
	}
}

// fix puts a flow where its time belongs.
func (h *heap) fix(flows []flow, id int32) {
	fl := &flows[id]
	i := int(fl.place)
	h.items[i].at = min(fl.finish, fl.look)
	if !h.up(flows, i) {
		h.down(flows, i)
	}
}

func (h *heap) up(flows []flow, i int) (moved bool) {
	it := h.items[i]
	for i > 0 {
		above := (i - 1) / 4
		if !it.before(&h.items[above]) {
			break
		}
		h.items[i] = h.items[above]
		flows[h.items[i].flow].place = int32(i)
		i, moved = above, true
	}
	h.items[i] = it
	flows[it.flow].place = int32(i)
	return moved
}

func (h *heap) down(flows []flow, i int) {
	it := h.items[i]
	for {
		best := 4*i + 1
		if best >= len(h.items) {
			break
		}
		for c := best + 1; c < min(4*i+5, len(h.items)); c++ {
			if h.items[c].before(&h.items[best]) {
				best = c
			}
		}
		if !h.items[best].before(&it) {
			break
		}
		h.items[i] = h.items[best]
		flows[h.items[i].flow].place = int32(i)
		i = best
	}
	h.items[i] = it
	flows[it.flow].place = int32(i)
}
