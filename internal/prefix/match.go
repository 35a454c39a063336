package prefix

import "math/bits"

// Matches is the answer of Index.Match: how much of a prompt each slot holds. The zero value matches nothing. It may be
// used again; a warm one allocates nothing. It is valid until its index changes.
type Matches struct {
	x      *Index
	blocks []uint16 // by ID

	// The candidates, n of them less what the rows take away, as a bitmap over IDs. Words outside [lo, hi) do not count.
	words  []uint64
	lo, hi int
	n      int
	// The sets of the last blocks, not yet intersected with the candidates: done for many blocks at once, each word stays in
	// a register, and is looked at for losses only once.
	rows    [maxRows][]uint64
	depths  [maxRows]uint16
	last    int      // rows in use
	scratch []uint64 // for rows that are no bitmap, or a shorter one

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
			case m.n > 1:
				m.keep(v, uint16(from+i))
			case !x.sets.contains(v, m.only()):
				m.lose(uint16(from + i))
			}
			if m.n == 0 {
				return
			}
			before = v
		}
	}
	m.settle()
	m.lose(uint16(len(chain)))
}

func (m *Matches) reset(x *Index) {
	m.x = x
	if n := (len(x.lens) + 63) / 64; len(m.words) < n {
		m.words = make([]uint64, n)
		m.scratch = make([]uint64, n*maxRows)
		m.blocks = make([]uint16, n*64)
	}
	clear(m.blocks)
	m.lo, m.hi, m.n, m.last = 0, 0, 0, 0
}

// start makes the candidates the holders of the first block. The IDs of cleared slots take part, but no slot has them.
func (m *Matches) start(v holders) {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
	m.hi, m.n = len(m.words), len(m.words)*64
	m.keep(v, 0)
	m.settle()
}

// keep drops the candidates that are not among the holders of the block at this depth.
func (m *Matches) keep(v holders, depth uint16) {
	var row []uint64
	var form form
	if v != 0 && v&single == 0 {
		row, form = m.x.sets.members(v)
	}
	if form != bitmap || len(row) < m.hi {
		row = m.expand(v, row, form)
	}
	for i := m.lo; i < m.hi; i += 8 { // load its cache lines now, all at once: settle comes to them one after another
		m.touched += row[i]
	}
	m.rows[m.last], m.depths[m.last] = row, depth
	m.last++
	if m.last == maxRows || v == 0 || v&single != 0 {
		m.settle()
	}
}

// expand writes v, which has these members where it is a set of several, as a bitmap up to the word hi.
func (m *Matches) expand(v holders, members []uint64, f form) []uint64 {
	row := m.scratch[m.last*len(m.words):][:m.hi]
	if f == bitmap {
		clear(row[copy(row, members):])
		return row
	}
	clear(row)
	switch {
	case v == 0:
	case v&single != 0:
		setBit(row, uint16(v))
	default:
		for i := range m.x.sets.size(v) {
			setBit(row, listed(members, i))
		}
	}
	return row
}

func setBit(row []uint64, id uint16) {
	if w := int(id >> 6); w < len(row) {
		row[w] |= 1 << (id & 63)
	}
}

// settle intersects the candidates with the rows and records the depth of every one that is lost.
func (m *Matches) settle() {
	var l losses
	for w := m.lo; w < m.hi; w++ {
		before := m.words[w]
		if before == 0 {
			continue
		}
		if m.last == maxRows {
			l.all(before, &m.rows, w)
		} else {
			l.some(before, m.rows[:m.last], w)
		}
		lost := before &^ l[maxRows-1]
		m.words[w] = l[maxRows-1]
		m.n -= bits.OnesCount64(lost)
		for ; lost != 0; lost &= lost - 1 {
			bit := bits.TrailingZeros64(lost)
			m.blocks[w*64+bit] = m.depths[l.first(bit)]
		}
	}
	m.last = 0
	for m.lo < m.hi && m.words[m.hi-1] == 0 {
		m.hi--
	}
	for m.lo < m.hi && m.words[m.lo] == 0 {
		m.lo++
	}
}

// lose records depth for all candidates: there are none any more.
func (m *Matches) lose(depth uint16) {
	for w := m.lo; w < m.hi; w++ {
		for word := m.words[w]; word != 0; word &= word - 1 {
			m.blocks[w*64+bits.TrailingZeros64(word)] = depth
		}
	}
	m.n = 0
}

// only is the one candidate.
func (m *Matches) only() uint16 {
	return uint16(m.lo<<6 + bits.TrailingZeros64(m.words[m.lo]))
}
