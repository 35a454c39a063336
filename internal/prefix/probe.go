package prefix

// Blocks are looked up together, so that their cache misses overlap: few at first, since most prompts end somewhere, then
// twice as many each time.
const (
	firstProbes = 16
	maxProbes   = 256 // their buckets fit the first cache
)

// probes is some blocks being looked up together.
type probes struct {
	vals [maxProbes]holders // 0: nobody holds it
	at   [maxProbes]*bucket // where each is looked for
	open [maxProbes]uint8   // which are still looked for: the first left of them
	left int
}

// probe looks up next. One entry in eight is not in its own bucket, most of them are in the one after it.
func (t *table) probe(next []Hash, p *probes) (touched uint64) {
	p.left = len(next)
	for i, h := range next {
		shard, at := t.place(h)
		s := &t.shards[shard]
		p.at[i&(maxProbes-1)] = &s.buckets[s.home(at)]
		p.open[i&(maxProbes-1)] = uint8(i)
	}
	touched = p.look(next)
	if p.left == 0 {
		return touched
	}
	for _, i := range p.open[:p.left] {
		shard, at := t.place(next[i])
		s := &t.shards[shard]
		p.at[i&(maxProbes-1)] = &s.buckets[s.after(s.home(at))]
	}
	touched += p.look(next)
	for _, i := range p.open[:p.left] {
		if b, k := t.find(next[i]); b != nil {
			p.vals[i&(maxProbes-1)] = b.vals[k]
		}
	}
	return touched
}

// look looks into the buckets of the open probes. It first touches them all: those loads do not wait for each other, while
// those of a search, between branches that nobody can predict, would. For the same reason there is no branch on what is
// found.
func (p *probes) look(next []Hash) (touched uint64) {
	for _, i := range p.open[:p.left] {
		touched += uint64(p.at[i&(maxProbes-1)].keys[0])
	}
	still := 0
	for _, i := range p.open[:p.left] {
		b, h := p.at[i&(maxProbes-1)], next[i]
		v := b.vals[0]
		if b.keys[0] != h {
			v = 0
		}
		if w := v | b.vals[1]; b.keys[1] == h { // the value of a free entry is 0
			v = w
		}
		if w := v | b.vals[2]; b.keys[2] == h {
			v = w
		}
		if w := v | b.vals[3]; b.keys[3] == h {
			v = w
		}
		p.vals[i&(maxProbes-1)] = v
		more := b.passed
		if v != 0 {
			more = 0
		}
		p.open[still&(maxProbes-1)] = i
		if more != 0 {
			still++
		}
	}
	p.left = still
	return touched
}
