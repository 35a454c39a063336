package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// memory is a Store of maps: it yields in random order, and refuses to open a section twice.
type memory struct {
	open map[string]*memorySet
	room int // sets at most; 0: any number
}

type memorySet struct {
	name  string
	store *memory
	m     map[prefix.Hash]prefix.Element
}

func newMemory() *memory { return &memory{open: make(map[string]*memorySet)} }

func (m *memory) Open(owner peer.ID, s Section) Set {
	name := fmt.Sprintf("%s %v", owner, s)
	if m.open[name] != nil {
		panic("opened twice: " + name)
	}
	if m.room > 0 && len(m.open) >= m.room {
		return nil
	}
	m.open[name] = &memorySet{name: name, store: m, m: make(map[prefix.Hash]prefix.Element)}
	return m.open[name]
}

func (m *memory) Each(sets []Set, yield func(int, prefix.Element)) {
	for i, s := range sets {
		for _, e := range s.(*memorySet).m {
			yield(i, e)
		}
	}
}

func (s *memorySet) Add(e prefix.Element) bool {
	if _, ok := s.m[e.Hash]; ok {
		return false
	}
	s.m[e.Hash] = e
	return true
}

func (s *memorySet) Remove(h prefix.Hash) bool {
	_, ok := s.m[h]
	delete(s.m, h)
	return ok
}

func (s *memorySet) Expect([]prefix.Change) {}

func (s *memorySet) Has(h prefix.Hash) bool { _, ok := s.m[h]; return ok }
func (s *memorySet) Len() int               { return len(s.m) }
func (s *memorySet) Close()                 { delete(s.store.open, s.name); s.m = nil }

// The sections and the born time that tests use.
var (
	info   = Section{Kind: KindInfo}
	load   = Section{Kind: KindLoad}
	blocks = Section{Kind: KindTextBlocks, BlockSize: 256}
	others = Section{Kind: KindTextBlocks, Model: "m", BlockSize: 256}
)

const born = 1_700_000_000_000

func add(h ...int) []prefix.Change {
	c := make([]prefix.Change, len(h))
	for i := range h {
		c[i] = prefix.Change{Element: prefix.Element{Hash: prefix.Hash(h[i]), Depth: uint16(h[i])}}
	}
	return c
}

func removed(h ...int) []prefix.Change {
	c := add(h...)
	for i := range c {
		c[i].Removed = true
	}
	return c
}

// addRange adds hashes from, from+1, ... spread over all buckets by the mixing of the digest.
func addRange(from, n int) []prefix.Change {
	h := make([]int, n)
	for i := range h {
		h[i] = from + i
	}
	return add(h...)
}

// shoal is some peers that all think each other alive, and talk in the test's order.
type shoal struct {
	t    interface{ Fatalf(string, ...any) }
	docs map[peer.ID]*Docs
	mem  map[peer.ID]*memory
	now  time.Duration
	sent []*Exchange // all messages so far
	lose func(message int) bool
}

func newShoal(t interface{ Fatalf(string, ...any) }, lim Limits, ids ...peer.ID) *shoal {
	s := &shoal{t: t, docs: make(map[peer.ID]*Docs), mem: make(map[peer.ID]*memory)}
	for _, id := range ids {
		s.start(id, born, lim)
	}
	return s
}

// start starts a peer, or starts it again with nothing in memory.
func (s *shoal) start(id peer.ID, incarnation uint64, lim Limits) *Docs {
	s.mem[id] = newMemory()
	s.docs[id] = New(id, incarnation, s.mem[id], lim)
	for _, other := range s.ids() {
		s.docs[other].Alive(id, s.now)
		s.docs[id].Alive(other, s.now)
	}
	return s.docs[id]
}

func (s *shoal) ids() []peer.ID { return slices.Sorted(maps.Keys(s.docs)) }

// round runs one round that a begins with b, and gives its messages.
func (s *shoal) round(a, b peer.ID) []*Exchange {
	s.now += 10 * time.Millisecond
	x := s.docs[a].Start(s.now)
	var msgs []*Exchange
	from, to := a, b
	for x != nil {
		msgs = append(msgs, x)
		if len(msgs) > MaxRound {
			s.t.Fatalf("a round of more than %d messages", MaxRound)
		}
		if s.lose != nil && s.lose(len(s.sent)+len(msgs)) {
			break
		}
		in := *x
		x, _ = s.docs[to].Answer(from, &in, s.now, nil)
		if x != nil && !msgs[len(msgs)-1].Asks() {
			s.t.Fatalf("an answer to a message that does not ask")
		}
		from, to = to, from
	}
	s.sent = append(s.sent, msgs...)
	return msgs
}

// settle runs rounds between all pairs until nothing changes, and checks that everybody holds the same.
func (s *shoal) settle() {
	for range 3 {
		s.now += 2 * time.Second // what was asked for and lost is asked for again
		for _, a := range s.ids() {
			for _, b := range s.ids() {
				if a != b {
					s.round(a, b)
				}
			}
		}
	}
	s.agree()
}

func (s *shoal) agree() {
	for _, owner := range s.ids() {
		truth := s.docs[owner]
		want, _ := truth.Stamp(owner)
		for _, id := range s.ids() {
			got, ok := s.docs[id].Stamp(owner)
			if want.Version == 0 {
				continue
			}
			if !ok || got != want {
				s.t.Fatalf("%s holds %s at %v, its owner is at %v", id, owner, got, want)
			}
			if d := s.docs[id].Digest(owner); d != truth.Digest(owner) {
				s.t.Fatalf("%s holds %s with digest %x, its owner's is %x", id, owner, d, truth.Digest(owner))
			}
			if truth.own.elements > 500 { // the digest must do
				continue
			}
			if a, b := s.docs[id].dump(owner), truth.dump(owner); a != b {
				s.t.Fatalf("%s holds of %s:\n%s\nits owner:\n%s", id, owner, a, b)
			}
		}
	}
}

// dump is all that a document says, for comparing.
func (d *Docs) dump(owner peer.ID) string {
	var out []byte
	doc := d.docs[owner]
	if doc == nil {
		return "nothing"
	}
	for _, s := range doc.sections {
		if s.set == nil {
			out = fmt.Appendf(out, "%v = %v (version %d)\n", s.id, s.value.Content, s.value.Version)
			continue
		}
		var all []prefix.Element
		d.store.Each([]Set{s.set}, func(_ int, e prefix.Element) { all = append(all, e) })
		slices.SortFunc(all, func(a, b prefix.Element) int { return cmp.Compare(a.Hash, b.Hash) })
		out = fmt.Appendf(out, "%v = %v\n", s.id, all)
	}
	return string(out)
}

// check recomputes by hand what is kept incrementally.
func (d *Docs) audit(t interface{ Fatalf(string, ...any) }) {
	elements, logs, copies, staged := 0, 0, 0, 0
	for i, doc := range d.order {
		if i > 0 && d.order[i-1].owner >= doc.owner || d.docs[doc.owner] != doc {
			t.Fatalf("documents out of order at %s", doc.owner)
		}
		n, cost := 0, 0
		for _, s := range doc.sections {
			if s.set == nil {
				continue
			}
			n += s.set.Len()
			var sums [Buckets]uint64
			d.store.Each([]Set{s.set}, func(_ int, e prefix.Element) {
				b, m := bucketOf(e.Hash)
				sums[b] += m
			})
			if sums != *s.sums {
				t.Fatalf("sums of %s %v are not its elements'", doc.owner, s.id)
			}
		}
		if n != doc.elements {
			t.Fatalf("%s counts %d elements, has %d", doc.owner, doc.elements, n)
		}
		for i, delta := range doc.log {
			cost += logCost(delta)
			if i > 0 && (delta.From > doc.log[i-1].To || delta.To <= doc.log[i-1].To) {
				t.Fatalf("log of %s has a hole before %d", doc.owner, delta.From)
			}
		}
		if len(doc.log) > 0 && doc.log[len(doc.log)-1].To != doc.stamp.Version {
			t.Fatalf("log of %s ends before its version", doc.owner)
		}
		if cost != doc.logCost || cost > d.lim.Log {
			t.Fatalf("log of %s costs %d, counted %d, limit %d", doc.owner, cost, doc.logCost, d.lim.Log)
		}
		kept := doc.digest()
		doc.digested = 0
		if doc.digest() != kept {
			t.Fatalf("digest of %s is stale", doc.owner)
		}
		for _, c := range doc.copies {
			copies += c.ops
		}
		elements += n
		logs += cost
	}
	for _, s := range d.staged {
		staged += s.ops
	}
	s := d.Stats()
	if elements != s.Elements || logs != s.LogCost || copies != s.CopyOps || staged != s.StagedOps {
		t.Fatalf("counted %d elements, %d log, %d copies, %d staged; have %d, %d, %d, %d", s.Elements, s.LogCost, s.CopyOps, s.StagedOps, elements, logs, copies, staged)
	}
	if s.LogCost > d.lim.TotalLog || s.CopyOps > d.lim.Copies || s.StagedOps > d.lim.Staged || s.Documents > d.lim.Documents || s.Dead > d.lim.Dead {
		t.Fatalf("over a limit: %+v", s)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
