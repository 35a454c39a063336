package prefix

import "math/bits"

// Matches is the answer of Index.Match: how much of a prompt each slot holds. The zero value matches nothing. It may be
// used again; a warm one allocates nothing. It is valid until its index changes.
type Matches struct {
	x      *Index
	blocks []uint16 // by ID

	// The candidates, n of them: who holds every block so far, as a bitmap over IDs. Words outside [lo, hi) are zero.
	words  []uint64
	lo, hi int
	n      int
	stay   []uint16 // scratch of keepListed

	touched uint64 // keeps loads ahead of their use from being left out
}

// Blocks is the length of the longest prefix of the prompt all of whose blocks s holds.
func (m *Matches) Blocks(s Slot) int {
	if m.x == nil {
		return 0
	}
	id, ok := m.x.id(s)
	if !ok || int(id) >= len(m.blocks) {
		return 0
	}
	return int(m.blocks[id])
}

// Match finds for every slot at once the longest prefix of chain all of whose blocks it holds: the work is one look-up a
// block, and one intersection of sets where the holders change from block to block. Blocks beyond MaxBlocks are ignored.
//
// Prompts come again, and their chains' sets with them: what a set lacks of the one before it is noted in its record, and
// the next Match takes it from there. So Match is no more safe for concurrent use than what changes the index is.
func (x *Index) Match(chain []Hash, m *Matches) {
	m.reset(x)
	chain = chain[:min(len(chain), MaxBlocks)]
	var p probes
	before := holders(0)
	for from, n := 0, firstProbes; from < len(chain); from, n = from+n, min(2*n, maxProbes) {
		n = min(n, len(chain)-from)
		m.touched += x.table.probe(chain[from:from+n], &p)
		for i, v := range p.vals[:n] {
			switch {
			case v == before && v != 0:
				continue
			case from+i == 0:
				m.start(v)
			case m.n == 1 || v == 0 || v&single != 0:
				m.keepFew(v, uint16(from+i))
			default:
				m.keep(before, v, uint16(from+i))
			}
			if m.n == 0 {
				return
			}
			before = v
		}
	}
	m.lose(m.lo, m.hi, uint16(len(chain)))
}

func (m *Matches) reset(x *Index) {
	m.x = x
	if n := (len(x.lens) + 63) / 64; len(m.words) < n {
		m.words = make([]uint64, n)
		m.blocks = make([]uint16, n*64)
	}
	clear(m.blocks)
	m.lo, m.hi, m.n = 0, 0, 0
}

// start makes the candidates the holders of the first block. The IDs of cleared slots take part, but no slot has them.
func (m *Matches) start(v holders) {
	clear(m.words)
	switch {
	case v == 0:
	case v&single != 0:
		m.add(uint16(v))
	default:
		members, form := m.x.sets.members(v)
		m.n = m.x.sets.size(v)
		if form == bitmap {
			m.hi = copy(m.words, members)
			break
		}
		for i := range m.n {
			id := listed(members, i)
			m.words[id>>6] |= 1 << (id & 63)
		}
		m.hi = len(m.words)
	}
	m.trim()
}

// keepFew keeps what is left where at most one candidate can be.
func (m *Matches) keepFew(v holders, depth uint16) {
	id := uint16(v)
	if m.n == 1 {
		id = m.only()
	}
	stays := m.has(id) && m.x.sets.contains(v, id)
	if stays && m.n == 1 {
		return
	}
	if stays {
		m.remove(id)
	}
	m.lose(m.lo, m.hi, depth)
	if stays {
		m.add(id)
	}
	m.trim()
}

// keep keeps the candidates that are in v, a set of several; they are in before.
func (m *Matches) keep(before, v holders, depth uint16) {
	sets := &m.x.sets
	head := sets.bitmapHead(v)
	if head == nil {
		m.keepListed(v, depth)
		return
	}
	hash := sets.head(before)[headHash]
	if known := head[headCount] >> 32; known > 0 && head[headBefore] == hash {
		lost := head[headLost]
		for range known - 1 {
			if id := uint16(lost); m.has(id) {
				m.remove(id)
				m.blocks[id] = depth
			}
			lost >>= 16
		}
	} else {
		members, _ := sets.members(v)
		m.intersect(members, depth)
		sets.note(before, head, members)
	}
	if m.n == 1 {
		m.trim()
	}
}

// intersect keeps the candidates that are in a bitmap.
func (m *Matches) intersect(members []uint64, depth uint16) {
	if m.hi > len(members) {
		from := max(m.lo, len(members))
		m.lose(from, m.hi, depth)
		m.hi = from
	}
	for w := m.lo; w < m.hi; w++ {
		if lost := m.words[w] &^ members[w]; lost != 0 {
			m.words[w] &= members[w]
			m.record(w, lost, depth)
		}
	}
	m.trim()
}

// note notes in a set's record what it lacks of the one before it, where that is little. The other one is told by its hash:
// two sets with one hash are as unlikely as two blocks.
func (t *sets) note(before holders, head *[bitmapHead]uint64, members []uint64) {
	other, form := t.members(before)
	if form != bitmap || t.size(before)-int(uint32(head[headCount])) > maxLost {
		return
	}
	known, lost := 0, uint64(0)
	for w, word := range other {
		if w < len(members) {
			word &^= members[w]
		}
		for ; word != 0; word &= word - 1 {
			if known == maxLost {
				return
			}
			lost |= uint64(w<<6+bits.TrailingZeros64(word)) << (16 * known)
			known++
		}
	}
	head[headBefore], head[headLost] = t.head(before)[headHash], lost
	head[headCount] = uint64(known+1)<<32 | head[headCount]&(1<<32-1)
}

// keepListed keeps the candidates that are in v, which is a list.
func (m *Matches) keepListed(v holders, depth uint16) {
	members, _ := m.x.sets.members(v)
	m.stay = m.stay[:0]
	for i := range m.x.sets.size(v) {
		if id := listed(members, i); m.has(id) {
			m.remove(id)
			m.stay = append(m.stay, id)
		}
	}
	m.lose(m.lo, m.hi, depth)
	for _, id := range m.stay {
		m.add(id)
	}
	m.trim()
}

func (m *Matches) has(id uint16) bool { return m.words[id>>6]>>(id&63)&1 != 0 }

func (m *Matches) remove(id uint16) {
	m.words[id>>6] &^= 1 << (id & 63)
	m.n--
}

func (m *Matches) add(id uint16) {
	w := int(id >> 6)
	m.words[w] |= 1 << (id & 63)
	if m.n == 0 {
		m.lo, m.hi = w, w+1
	}
	m.lo, m.hi = min(m.lo, w), max(m.hi, w+1)
	m.n++
}

// only is the one candidate.
func (m *Matches) only() uint16 {
	return uint16(m.lo<<6 + bits.TrailingZeros64(m.words[m.lo]))
}

// lose records depth for all candidates in these words, and removes them.
func (m *Matches) lose(lo, hi int, depth uint16) {
	for w := lo; w < hi; w++ {
		if m.words[w] != 0 {
			m.record(w, m.words[w], depth)
			m.words[w] = 0
		}
	}
}

// record records depth for these candidates of word w, which have been removed from it.
func (m *Matches) record(w int, lost uint64, depth uint16) {
	m.n -= bits.OnesCount64(lost)
	for ; lost != 0; lost &= lost - 1 {
		m.blocks[w<<6+bits.TrailingZeros64(lost)] = depth
	}
}

// trim narrows lo and hi to the words that have candidates.
func (m *Matches) trim() {
	for m.lo < m.hi && m.words[m.hi-1] == 0 {
		m.hi--
	}
	for m.lo < m.hi && m.words[m.lo] == 0 {
		m.lo++
	}
}
