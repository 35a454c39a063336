package reserve

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// Table is R(t) as one peer knows it, with that peer's own reservations.
type Table struct {
	cfg         Config
	self        peer.ID
	incarnation uint64
	rng         *rand.Rand
	clock       clock
	stats       Stats

	// Own reservations. The low bits of an ID are its place in own.
	own      []own
	freeOwn  []uint16
	count    uint64 // reservations begun
	seq      uint64
	out      []said
	releases int // among out
	fabric   uint64
	section  *Section // nil: something has changed since

	// The others'.
	owners     map[peer.ID]*owner
	held       []held
	freeHeld   []uint32
	heldCount  int
	head, tail uint32 // of held, in the order of their renewal: who expires first comes first
	marks      uint64
	gaps       int // owners of whom a message is missing

	links       map[ecmp.LinkID]*link
	backgrounds int

	sets     []*Set
	byKey    map[uint64]*Set
	setPaths int
	uses     uint64

	schedule
}

// Stats counts since the Table was made.
type Stats struct {
	Verdicts     [verdicts]uint64 // messages, and entries of sections, by what became of them
	Sections     [verdicts]uint64 // sections as a whole
	Reserved     uint64           // own reservations, Intents too
	Fallbacks    uint64           // flows without a reservation where the policy wanted one
	Conflicts    uint64           // own reservations that lost one
	Moves        uint64           // of own reservations, for that
	MovesRefused uint64           // beyond Config.Moves
	Released     uint64           // own, by Release
	Lapsed       uint64           // own, for want of bytes
	Expired      uint64           // others', for want of renewal
	Forgotten    uint64           // others', by Forget or a new incarnation
	FloorsRaised uint64           // releases not remembered one by one any more
	Unsaid       uint64           // releases beyond MaxWaiting: sections tell of them
	SetsPutAside uint64

	// Of policy shoal.
	Scheduled uint64        // own transfers that began at their turn
	Waited    time.Duration // that they did, together, from when they were ready
	Unwaited  uint64        // own transfers for which least decided: see Mode
	GivenUp   uint64        // own transfers that began without their turn, beyond Config.GiveUp
	Corrected uint64        // predicted ends that were said anew
	Distrusts uint64        // times that the map of the paths lost this peer's trust
}

// New returns an empty table. The incarnation is greater than those of all earlier lives of this peer. The generator
// belongs to the table from now on; it spreads simultaneous choosers, so that peers must not share a seed.
func New(cfg Config, self peer.ID, incarnation uint64, rng *rand.Rand) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := self.Validate(); err != nil {
		return nil, err
	}
	if rng == nil {
		return nil, errors.New("reserve: no random generator; give one with a seed of its own")
	}
	t := &Table{cfg: cfg, self: self, incarnation: incarnation, rng: rng, head: none, tail: none,
		owners: map[peer.ID]*owner{}, links: map[ecmp.LinkID]*link{}, byKey: map[uint64]*Set{},
		schedule: newSchedule(&cfg)}
	t.selfNIC = t.nic(self)
	return t, nil
}

// Config returns the configuration that the table was made with.
func (t *Table) Config() Config { return t.cfg }

// Stats returns the counters.
func (t *Table) Stats() Stats { return t.stats }

// Len is how many entries the table holds, own ones included.
func (t *Table) Len() int { return t.heldCount + t.ownCount() }

func (t *Table) ownCount() int { return len(t.own) - len(t.freeOwn) }

// Tick ends what has outlived its lease: others' entries that have not been renewed, and own reservations of which no
// bytes have moved, which are released. It renews own Intents, of which nobody expects bytes. To be called every few
// tens of milliseconds. What has lapsed is not handed out by Admit any more: where Stats.Lapsed has grown, Holds tells which
// of the Intents that the driver waits for are gone.
func (t *Table) Tick(now, wall time.Duration) {
	for t.head != none && now-t.held[t.head].heard >= t.cfg.Lease {
		t.version++
		t.drop(t.head)
		t.stats.Expired++
	}
	for i := range t.own {
		o := &t.own[i]
		switch {
		case !o.live:
		case now-o.alive >= t.cfg.Lease:
			t.end(o)
			t.stats.Lapsed++
		case o.entry.Phase == Intent && now-o.saidAt >= t.cfg.Lease/3:
			t.say(o, now)
		}
	}
}

// Row is one entry with whose it is.
type Row struct {
	Owner       peer.ID
	Incarnation uint64
	Contested   bool // an own one that lost a conflict, and moves when there is a better path
	Entry       Entry
}

// Rows appends the whole table to dst, by owner and ID.
func (t *Table) Rows(dst []Row) []Row {
	from := len(dst)
	for i := range t.own {
		if o := &t.own[i]; o.live {
			dst = append(dst, Row{t.self, t.incarnation, o.contested, o.entry})
		}
	}
	for _, o := range t.owners {
		for _, i := range o.held {
			dst = append(dst, Row{o.id, o.incarnation, false, t.held[i].entry})
		}
	}
	slices.SortFunc(dst[from:], func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Entry.ID, b.Entry.ID))
	})
	return dst
}

// Digest is a fingerprint of all entries: equal at all peers that hold the same ones, as their owners last said them.
func (t *Table) Digest() uint64 {
	var d uint64
	var text []byte
	add := func(owner peer.ID, incarnation uint64, e *Entry) {
		text = append(append(text[:0], owner...), 0)
		for _, v := range [...]uint64{incarnation, e.ID, e.Seq, uint64(e.Stamp), uint64(e.Phase), uint64(e.Bytes), e.Group,
			uint64(e.Ready), uint64(e.End)} {
			text = binary.LittleEndian.AppendUint64(text, v)
		}
		for _, l := range e.Links {
			text = binary.LittleEndian.AppendUint32(text, uint32(l))
		}
		d += xxh3.Hash(append(text, e.Dst...)) // a sum: the order does not matter
	}
	for i := range t.own {
		if o := &t.own[i]; o.live {
			add(t.self, t.incarnation, &o.entry)
		}
	}
	for _, o := range t.owners {
		for _, i := range o.held {
			add(o.id, o.incarnation, &t.held[i].entry)
		}
	}
	return d
}
