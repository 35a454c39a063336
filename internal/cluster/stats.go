package cluster

import "sync/atomic"

// Stats count since the start, except where a field says now.
type Stats struct {
	Members       int   // live peers now, without this one
	Conns         int   // connections now, open to the peer port
	IdleConns     int   // kept connections now, to other peers
	HopsOut       int64 // hops open now, to other peers
	HopsIn        int64 // hops being served now
	Dials         uint64
	DialErrors    uint64
	HopsOpened    uint64
	HopsServed    uint64
	Redials       uint64 // kept connections that were dead
	Silent        uint64 // hops that ended in ErrSilent
	Cancels       uint64 // served hops that the origin gave up
	Refused       uint64 // connections, packets and peers turned away
	Rounds        uint64 // anti-entropy rounds that ended well, begun here
	RoundErrors   uint64
	RoundNanos    uint64 // time spent in rounds that ended well
	RoundBytesIn  uint64 // of rounds, whoever began them
	RoundBytesOut uint64
	DatagramsIn   uint64
	DatagramsOut  uint64
	DatagramsLost uint64 // that could not be sent
	JoinTries     uint64
	JoinErrors    uint64
}

type counters struct {
	hopsOut, hopsIn                           atomic.Int64
	dials, dialErrors, hopsOpened, hopsServed atomic.Uint64
	redials, silent, cancels, refused         atomic.Uint64
	rounds, roundErrors, roundNanos           atomic.Uint64
	roundBytesIn, roundBytesOut               atomic.Uint64
	datagramsIn, datagramsOut, datagramsLost  atomic.Uint64
	joinTries, joinErrors                     atomic.Uint64
}

// Stats are the counters so far.
func (c *Cluster) Stats() Stats {
	n := &c.count
	s := Stats{Conns: c.guard.open(), HopsOut: n.hopsOut.Load(), HopsIn: n.hopsIn.Load(),
		Dials: n.dials.Load(), DialErrors: n.dialErrors.Load(), HopsOpened: n.hopsOpened.Load(), HopsServed: n.hopsServed.Load(),
		Redials: n.redials.Load(), Silent: n.silent.Load(), Cancels: n.cancels.Load(), Refused: n.refused.Load(),
		Rounds: n.rounds.Load(), RoundErrors: n.roundErrors.Load(), RoundNanos: n.roundNanos.Load(),
		RoundBytesIn: n.roundBytesIn.Load(), RoundBytesOut: n.roundBytesOut.Load(),
		DatagramsIn: n.datagramsIn.Load(), DatagramsOut: n.datagramsOut.Load(), DatagramsLost: n.datagramsLost.Load(),
		JoinTries: n.joinTries.Load(), JoinErrors: n.joinErrors.Load()}
	for _, r := range c.members.all() {
		s.Members++
		r.mu.Lock()
		s.IdleConns += len(r.idle)
		r.mu.Unlock()
	}
	return s
}
