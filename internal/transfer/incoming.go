package transfer

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"shoal/internal/peer"
)

// incoming is one transfer as its receiver sees it, from the ticket to the end. Afterwards it stays as a tombstone for a
// while, to say why to who asks again.
type incoming struct {
	m      *Mover
	id     ticketID
	secret ticketSecret
	from   peer.ID
	size   int64
	key    string // of the sink; empty: it has none

	mu       sync.Mutex
	settled  sync.Cond // a write has ended
	sink     Sink
	opened   bool
	used     bool
	session  session
	lay      layout
	state    []chunkState
	sums     []uint32
	done     int // chunks
	writing  int // chunks
	conns    map[*inbound]struct{}
	timer    *time.Timer // the ticket's life, or what is kept
	ended    bool
	why      refusal // of the end; none: it went well
	finalSum uint32
}

type chunkState uint8

const (
	missing chunkState = iota
	beingWritten
	written
	inherited // written for an older ticket: the sender of this one may have other bytes
)

// Ticket lets a peer write one transfer of so many bytes into the sink. Where an older ticket for a sink of the same key
// was given to the same peer for the same size, and has not ended, it ends now, and the transfer goes on from what it has
// brought: into the older one's sink, not the new one.
func (m *Mover) Ticket(from peer.ID, bytes int64, sink Sink) (Ticket, error) {
	if err := from.Validate(); err != nil {
		return Ticket{}, fmt.Errorf("transfer: %w", err)
	}
	if bytes < 0 || bytes > m.cfg.MaxSize {
		return Ticket{}, fmt.Errorf("transfer: a ticket for %d bytes; this agent takes 0 to %d", bytes, m.cfg.MaxSize)
	}
	t := &incoming{m: m, from: from, size: bytes, sink: sink, conns: map[*inbound]struct{}{}}
	t.settled.L = &t.mu
	if k, ok := sink.(keyed); ok {
		t.key = k.Key()
	}
	rand.Read(t.id[:])
	rand.Read(t.secret[:])
	if t.key != "" {
		if err := m.inherit(t); err != nil {
			return Ticket{}, err
		}
	}
	t.mu.Lock()
	t.timer = time.AfterFunc(m.cfg.TicketLife, func() { t.expire(false) })
	t.mu.Unlock()
	if err := m.add(t); err != nil {
		t.fail(nil, refusal{why: Busy})
		return Ticket{}, err
	}
	return Ticket{id: t.id, secret: t.secret}, nil
}

// inherit ends who wrote the same before, and takes over what it has brought.
func (m *Mover) inherit(t *incoming) error {
	m.mu.Lock()
	old := m.keys[t.key]
	m.mu.Unlock()
	if old == nil {
		return nil
	}
	old.mu.Lock()
	same := old.from == t.from && old.size == t.size
	if !same && len(old.conns) > 0 && !old.ended {
		old.mu.Unlock()
		return fmt.Errorf("%w: %s is being written by %s", ErrBusy, t.key, old.from)
	}
	if same {
		old.stop(nil)
	}
	if old.ended { // perhaps with its last write
		old.mu.Unlock()
		return nil
	}
	if same && old.opened {
		t.sink, t.opened, t.lay, t.state, t.sums, t.done = old.sink, true, old.lay, old.state, old.sums, old.done
		old.opened = false
		for i, s := range t.state {
			if s == written {
				t.state[i] = inherited
			}
		}
	}
	old.end(nil, refusal{why: Replaced})
	old.mu.Unlock()
	m.bury(old)
	return nil
}

// add makes the ticket known.
func (m *Mover) add(t *incoming) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrClosed
	case m.alive >= m.cfg.MaxTickets:
		return fmt.Errorf("%w: %d tickets are given out", ErrBusy, m.alive)
	case m.alivePeer[t.from] >= m.cfg.PeerTickets:
		return fmt.Errorf("%w: %s has %d tickets", ErrBusy, t.from, m.alivePeer[t.from])
	case t.key != "" && m.keys[t.key] != nil:
		return fmt.Errorf("%w: another ticket for %s is given or ends at this moment", ErrBusy, t.key)
	}
	m.alive++
	m.alivePeer[t.from]++
	m.incoming[t.id] = t
	if t.key != "" {
		m.keys[t.key] = t
	}
	return nil
}

// bury makes a transfer that has ended a tombstone.
func (m *Mover) bury(t *incoming) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incoming[t.id] != t {
		return
	}
	m.alive--
	if m.alivePeer[t.from]--; m.alivePeer[t.from] == 0 {
		delete(m.alivePeer, t.from)
	}
	if t.used { // nobody writes it any more: it has ended
		m.receiving--
	}
	if m.keys[t.key] == t {
		delete(m.keys, t.key)
	}
	m.dead = append(m.dead, t.id)
	if len(m.dead) > m.cfg.MaxTickets {
		delete(m.incoming, m.dead[0])
		m.dead = m.dead[1:]
	}
}

// expire ends a ticket that was not used, or a transfer that nobody went on with.
func (t *incoming) expire(used bool) {
	t.mu.Lock()
	if t.ended || t.used != used || len(t.conns) > 0 {
		t.mu.Unlock()
		return
	}
	t.end(nil, refusal{why: ExpiredTicket})
	t.mu.Unlock()
	t.m.bury(t)
}

// fail ends the transfer and leaves nothing of it. The connections are cut, but for the one that is to tell its sender.
func (t *incoming) fail(teller *inbound, r refusal) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.end(teller, r)
	t.mu.Unlock()
	t.m.bury(t)
}

// stop cuts the connections and waits until nothing is written any more. t.mu is held, and given up while it waits.
func (t *incoming) stop(except *inbound) {
	for c := range t.conns {
		if c != except {
			c.nc.Close()
		}
	}
	for t.writing > 0 {
		t.settled.Wait()
	}
}

// end stops it and drops what was written. t.mu is held, and t has not ended; the caller buries it.
func (t *incoming) end(teller *inbound, r refusal) {
	t.ended, t.why = true, r
	t.timer.Stop()
	t.stop(teller)
	t.drop()
	t.m.log.Debug("an incoming transfer ended", "from", t.from, "why", r.why.String(), "text", r.said)
}

// drop aborts the sink where it was opened, and forgets the rest. t.mu is held.
func (t *incoming) drop() {
	if t.opened {
		if err := t.sink.Abort(); err != nil {
			t.m.log.Warn("what has arrived of a transfer could not be removed", "from", t.from, "err", err)
		}
	}
	t.opened, t.sink, t.state, t.sums = false, nil, nil, nil
}

// refusal is an answer to a message; the zero value is none.
type refusal struct {
	why  Reason
	said string
}

// over is the answer to who comes after the end.
func (t *incoming) over() refusal {
	if t.why.why == 0 {
		return refusal{Protocol, "the transfer has ended"}
	}
	return t.why
}

// claim checks a join's proof and gives the transfer that it is for.
func (m *Mover) claim(from peer.ID, j *join, said []byte, nonce *[nonceBytes]byte) (*incoming, refusal) {
	m.mu.Lock()
	t := m.incoming[j.ticket]
	m.mu.Unlock()
	if t == nil || t.from != from {
		return nil, refusal{why: NoTicket}
	}
	if mac := proof(&t.secret, nonce, said); !hmac.Equal(mac[:], j.mac[:]) {
		return nil, refusal{why: NoTicket}
	}
	return t, refusal{}
}

// attach adds a connection to the transfer, the first of which uses the ticket.
func (t *incoming) attach(c *inbound, j *join) (accept, refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.used && t.session != j.session:
		return accept{}, refusal{why: UsedTicket}
	case t.ended && t.why.why != 0:
		return accept{}, t.why
	case j.layout.size != t.size:
		return accept{}, refusal{WrongSize, fmt.Sprintf("%d bytes with a ticket for %d", j.layout.size, t.size)}
	case !j.layout.fits() || j.layout.chunk > int64(t.m.cfg.Chunk):
		return accept{}, refusal{WrongSize, fmt.Sprintf("chunks of %d bytes; give %d to %d, and at most %d of them", j.layout.chunk, minChunk, t.m.cfg.Chunk, MaxChunks)}
	case t.ended:
		return accept{finished: true, sum: t.finalSum, chunks: j.layout.count()}, refusal{}
	case len(t.conns) >= 4*MaxLegs: // some of them may be cut without this side knowing yet
		return accept{}, refusal{Busy, "too many connections for one transfer"}
	}
	if !t.used {
		if r := t.begin(j); r.why != 0 {
			return accept{}, r
		}
	} else if j.layout != t.lay {
		return accept{}, refusal{WrongSize, "the chunks' size changed within a transfer"}
	}
	t.timer.Stop()
	t.conns[c] = struct{}{}
	a := accept{chunks: t.lay.count()}
	if j.list && t.done > 0 {
		t.list(&a)
	}
	return a, refusal{}
}

// begin uses the ticket. t.mu is held.
func (t *incoming) begin(j *join) refusal {
	t.m.mu.Lock()
	full := t.m.receiving >= t.m.cfg.MaxTransfers
	if !full {
		t.m.receiving++
	}
	t.m.mu.Unlock()
	if full {
		return refusal{Busy, "too many transfers"}
	}
	t.used, t.session = true, j.session
	if t.lay != j.layout || t.state == nil { // nothing inherited, or in other pieces
		t.lay, t.done = j.layout, 0
		t.state, t.sums = make([]chunkState, t.lay.count()), make([]uint32, t.lay.count())
	}
	if o, ok := t.sink.(opener); ok && !t.opened {
		if err := o.Open(t.size); err != nil {
			t.m.log.Warn("a transfer cannot be written", "from", t.from, "err", err)
			return refusal{SinkFailed, err.Error()}
		}
	}
	t.opened = true
	return refusal{}
}

// list fills in what has arrived. t.mu is held.
func (t *incoming) list(a *accept) {
	a.have = make([]byte, (len(t.state)+7)/8)
	for i, s := range t.state {
		if s == written || s == inherited {
			a.have[i/8] |= 1 << (i % 8)
			a.sums = binary.BigEndian.AppendUint32(a.sums, t.sums[i])
		}
	}
	if n := len(a.sums) / 4; n != t.done {
		panic(fmt.Sprintf("transfer: %d chunks are written and %d counted, of %d", n, t.done, len(t.state)))
	}
}

// detach ends a connection's part in the transfer.
func (t *incoming) detach(c *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if len(t.conns) == 0 && !t.ended && t.used {
		t.timer = time.AfterFunc(t.m.cfg.Keep, func() { t.expire(true) })
	}
}

// place checks a chunk's place before its bytes are read.
func (t *incoming) place(number uint32, length int) refusal {
	if int64(number) >= int64(t.lay.count()) {
		return refusal{BadChunk, fmt.Sprintf("chunk %d of %d", number, t.lay.count())}
	}
	if _, n := t.lay.extent(int(number)); n != length {
		return refusal{BadChunk, fmt.Sprintf("chunk %d has %d bytes, not %d", number, length, n)}
	}
	return refusal{}
}

// write puts a verified chunk into its place, once.
func (t *incoming) write(number int, p []byte, sum uint32) refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.ended && t.state[number] == beingWritten {
		t.settled.Wait()
	}
	if t.ended {
		return t.over()
	}
	switch was := t.state[number]; {
	case was == inherited && t.sums[number] != sum:
		t.done-- // what the older ticket brought is not what is meant now
	case was != missing:
		t.state[number] = written
		t.m.count.duplicates.Add(1)
		if t.sums[number] != sum {
			return refusal{BadChunk, fmt.Sprintf("chunk %d again, with other bytes", number)}
		}
		return refusal{}
	}
	t.state[number] = beingWritten
	t.writing++
	sink := t.sink
	off, _ := t.lay.extent(number)
	t.mu.Unlock()
	n, err := sink.WriteAt(p, off)
	t.mu.Lock()
	t.writing--
	t.settled.Broadcast()
	if err != nil || n != len(p) {
		if !t.ended {
			t.state[number] = missing
		}
		return refusal{SinkFailed, fmt.Sprint(err)}
	}
	if t.ended {
		return t.over()
	}
	t.state[number], t.sums[number] = written, sum
	t.done++
	t.m.count.bytesIn.Add(int64(n))
	return refusal{}
}

// finish compares everything and keeps it.
func (t *incoming) finish(sum uint32) (uint32, refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		if t.why.why != 0 || t.finalSum != sum {
			return 0, t.over()
		}
		return t.finalSum, refusal{}
	}
	if t.done < len(t.state) {
		return 0, refusal{BadChunk, fmt.Sprintf("%d of %d chunks are missing", len(t.state)-t.done, len(t.state))}
	}
	if own := combine(t.lay, t.sums); own != sum {
		return 0, refusal{Mismatch, fmt.Sprintf("%08x arrived of %08x", own, sum)}
	}
	if err := t.sink.Commit(); err != nil {
		t.opened = false // a sink whose Commit fails has left nothing
		return 0, refusal{SinkFailed, err.Error()}
	}
	t.ended, t.finalSum = true, sum
	t.timer.Stop()
	t.sink, t.state, t.sums = nil, nil, nil
	t.m.count.received.Add(1)
	return sum, refusal{}
}
