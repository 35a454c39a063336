package prefix

const (
	slabWords  = 4096 // 32 KiB
	recordBits = 10   // log2 of the most records of a slab: slabWords / (listHead + 1)
	maxMembers = MaxSlots / 64
)

// A record of a set has a head and its members, in a word or more. The members are either a bitmap whose last word is not
// zero, or a sorted list, four to a word.
const (
	headHash  = 0 // exclusive or of the members' hashes
	headLinks = 1 // low half: how many blocks refer to it; high half: the next set in its bucket
	headCount = 2 // low half: members; high half: 1 + how many members headLost names, 0 where it is not set
	listHead  = 3

	// Of bitmaps only: what Match has found out about this set after another one.
	headBefore = 3 // the other set's hash
	headLost   = 4 // the members of the other set that this one lacks, at most maxLost of them
	bitmapHead = 5
	maxLost    = 4
)

// form is one way to store members.
type form uint8

const (
	list form = iota
	bitmap
	forms
)

// headWords is the size of a head, by form.
var headWords = [forms]int{list: listHead, bitmap: bitmapHead}

// arena holds records of sets, which name each other by number instead of by pointer: the collector has nothing to follow in
// them, however many there are. A slab has records of one form and size, so that nothing but the members themselves has to be
// read to intersect them; they lie apart from the heads, and a bitmap of a multiple of eight words fills whole cache lines.
//
// A record's number is never 0, and less than 1<<31. It can number 64 GiB of slabs; MaxEntries keeps it far from that. The
// zero value is empty.
type arena struct {
	slabs []slab // slabs[0] is not used
	room  [forms][maxMembers + 1]uint32
	spare uint32 // first of the slabs that hold no memory now
}

type slab struct {
	words   []uint64 // heads, then members; nil: spare
	members uint16   // where the members begin
	size    uint16   // words of a record's members
	head    uint8    // words of a record's head
	form    form
	records uint16 // how many fit
	used    uint16 // how many are in use
	fresh   uint16 // the records from this one on have never been used
	free    uint16 // 1 + the first of those given back; each has the next one in its head
	// Neighbours in the list of slabs of this form and size that have room, or of the spare ones; 0 is none.
	prev, next uint32
}

func (a *arena) slab(r holders) (s *slab, i int) {
	return &a.slabs[r>>recordBits], int(r & (1<<recordBits - 1))
}

func (a *arena) head(r holders) *[listHead]uint64 {
	s, i := a.slab(r)
	return (*[listHead]uint64)(s.words[i*int(s.head):])
}

// bitmapHead is the head of a record, nil where it is a list.
func (a *arena) bitmapHead(r holders) *[bitmapHead]uint64 {
	s, i := a.slab(r)
	if s.form != bitmap {
		return nil
	}
	return (*[bitmapHead]uint64)(s.words[i*bitmapHead:])
}

// members is a record's members, and in which form they are.
func (a *arena) members(r holders) ([]uint64, form) {
	s, i := a.slab(r)
	from := int(s.members) + i*int(s.size)
	return s.words[from : from+int(s.size)], s.form
}

// alloc gives a record of this form and size, at most maxMembers. What is in it is undefined.
func (a *arena) alloc(f form, size int) holders {
	n := a.room[f][size]
	if n == 0 {
		n = a.open(f, size)
	}
	s := &a.slabs[n]
	var i uint16
	if s.free != 0 {
		i = s.free - 1
		s.free = uint16(s.words[int(i)*int(s.head)])
	} else {
		i = s.fresh
		s.fresh++
	}
	s.used++
	if s.used == s.records {
		a.unlist(n)
	}
	return holders(n<<recordBits | uint32(i))
}

// open gives memory to a slab and lists it.
func (a *arena) open(f form, size int) uint32 {
	n := a.spare
	if n != 0 {
		a.spare = a.slabs[n].next
	} else {
		if len(a.slabs) == 0 {
			a.slabs = append(a.slabs, slab{})
		}
		n = uint32(len(a.slabs))
		a.slabs = append(a.slabs, slab{})
	}
	head := headWords[f]
	records := slabWords / (head + size)
	a.slabs[n] = slab{
		words:   make([]uint64, slabWords),
		members: uint16(slabWords - records*size),
		size:    uint16(size), head: uint8(head), form: f, records: uint16(records),
	}
	a.list(n)
	return n
}

// release takes a record back. A slab without records gives its memory back.
func (a *arena) release(r holders) {
	s, i := a.slab(r)
	n := uint32(r >> recordBits)
	if s.used == s.records {
		a.list(n)
	}
	s.used--
	if s.used == 0 {
		a.unlist(n)
		*s = slab{next: a.spare}
		a.spare = n
		return
	}
	s.words[i*int(s.head)] = uint64(s.free)
	s.free = uint16(i + 1)
}

func (a *arena) list(n uint32) {
	s := &a.slabs[n]
	first := &a.room[s.form][s.size]
	s.prev, s.next = 0, *first
	if *first != 0 {
		a.slabs[*first].prev = n
	}
	*first = n
}

func (a *arena) unlist(n uint32) {
	s := &a.slabs[n]
	if s.prev != 0 {
		a.slabs[s.prev].next = s.next
	} else {
		a.room[s.form][s.size] = s.next
	}
	if s.next != 0 {
		a.slabs[s.next].prev = s.prev
	}
}
